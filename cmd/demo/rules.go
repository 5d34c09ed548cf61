package main

import (
	"context"
	"encoding/json"
	"slices"

	"k8s.io/client-go/kubernetes"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/test/support/env/install"
)

// edited is the policy that the demo edits.
const edited = "operations-supersede"

// The request that the edit denies, and part of the denial.
var forced = operation("{type: Stop, force: true, virtualMachineName: web-2}")

const barred = "stop --force is not allowed"

func (s *show) rules() {
	s.chapter("Edit a policy",
		"Policies are objects in the cluster. Helm installs them, and kubectl edits them. For this chapter, "+s.place.name()+" hangs when it\n"+
			"powers on web-2.")
	s.kubectl("sallyport policies", edited, "current")
	s.powersOn = s.place.hold(web2, runtime.TaskPowerOn)
	s.kubectl("sallyport start web-2")
	s.kubectl("wait svmop/OPERATION --for=condition=SignalSent --timeout=2m")
	s.tell("In the shipped policy, stop --force supersedes start. The following edit, with sed as the editor, lets no operation supersede start.\n" +
		"Requests to each of the two replicas show that both of them use the edited policy:")
	s.edit("rego "+edited, "sed -i '/ Start:$/,/:/ { s/Start:/Start: []/; / - /d }'")
	s.replicasRefuse(forced, barred, "the edit")
	s.denied("sallyport stop web-2 --force", "", "OperationInProgress", s.last, barred)
}

func (s *show) keeps() {
	s.chapter("Edits survive an upgrade, and a broken policy does not become active",
		"From now on, a client repeats stop --force as a dry run. The following changes must not change the response.")
	s.keepAsking(forced, barred)
	s.tell("An upgrade of the release keeps edited fields and updates the other fields of the policy. New replicas check the shipped policies\n" +
		"before they become ready, and --wait waits for them:")
	s.helm("upgrade sallyport charts/sallyport"+namespace+" --wait --reuse-values --set policies."+edited+".parameters.supersededBy.Evict={Stop}", "deployed")
	s.notedWhen("the release is applied", func(p *v1alpha1.RegoPolicy) bool {
		var parameters struct{ SupersededBy map[string][]string }
		return p.Spec.Parameters != nil && json.Unmarshal(p.Spec.Parameters.Raw, &parameters) == nil &&
			slices.Equal(parameters.SupersededBy["Evict"], []string{"Stop"})
	})
	s.kubectl("sallyport policies", "supersededBy.Start")
	s.meanwhile()
	s.tell("A broken edit is denied. The message contains file, line and column of the error:")
	s.deniedEdit("rego "+edited, slip, "[policies-self/CompileFailed]", "supersede.rego:")
	s.tell("A user with the verb override can disable this check. Even then, the broken policy does not become active: the last good\n" +
		"revision stays active, and the status says so:")
	s.kubectl(`patch rego policies-self --type=merge --patch={"spec":{"mode":"Audit"}}`, "patched")
	s.settled(broken, install.Admitted)
	s.edit("rego "+edited, slip)
	s.noted()
	s.kubectl("sallyport policies "+edited, "last good", "supersede.rego:")
	s.meanwhile()
}

// slip is an edit that breaks the policy, and broken is another policy that does not compile.
const slip, broken = "sed -i s/deny.contains/deny.contain/", `
apiVersion: sallyport.dev/v1alpha1
kind: RegoPolicy
metadata: {name: ask}
spec:
  package: ask
  match: {resources: [{apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE]}]}
  modules: [{name: ask.rego, source: package}]
`

// noted waits until the status reflects the last edit.
func (s *show) noted() {
	s.notedWhen("the edit is made", func(*v1alpha1.RegoPolicy) bool { return true })
}

// notedWhen waits until the edited policy is as expected, and its status reflects that.
func (s *show) notedWhen(what string, is func(*v1alpha1.RegoPolicy) bool) {
	s.until(what+" and the status tells of it", func() bool {
		policy := &v1alpha1.RegoPolicy{}
		err := s.api.Get(s.ctx, ctrlclient.ObjectKey{Name: edited}, policy)
		return err == nil && is(policy) && policy.Status.ObservedGeneration == policy.Generation
	})
}

func (s *show) outlasts() {
	s.chapter("Replace replicas and certificates",
		"The policy is still broken, and the client still sends requests. The last good revision is stored in the cluster, so new replicas\n"+
			"use it too.")
	s.restart()
	s.replicasRefuse(forced, barred, "the rollout")
	s.meanwhile()
	s.tell("Sallyport creates its own certificate, and a new one if it is deleted. The old one stays trusted until both replicas serve the new one:")
	s.rotate()
	s.meanwhile()
	s.stopAsking()
}

func (s *show) reset() {
	s.chapter("Reset policies", "The start operation is still in progress. Now "+s.place.name()+" continues, and powers the machine on exactly once:")
	s.powersOn()
	s.kubectl("wait svmop/OPERATION --for=condition=Completed --timeout=2m")
	s.placeSays(web2, on, 2)
	s.tell("Reset edited policies to the shipped version:")
	s.kubectl("sallyport policies reset policies-self "+edited, edited)
	s.noted()
	s.kubectl("sallyport policies", edited, "current")
	s.settled(forced, install.Admitted)
	s.kubectl("sallyport stop web-2 --force --wait", "Completed, Succeeded")
}

// restart restarts both replicas.
func (s *show) restart() {
	before := s.kubelet.Replicas()
	s.kubectl("rollout restart deployment/" + install.Release + namespace)
	s.kubectl(rollout, "successfully rolled out")
	s.until("only the new replicas are left", func() bool {
		now := s.kubelet.Replicas()
		return len(now) == len(before) && !slices.ContainsFunc(now, func(replica string) bool { return slices.Contains(before, replica) })
	})
}

// rotate replaces the certificate, and returns when only the new one is served and trusted.
func (s *show) rotate() {
	s.attempt("replacing the certificate", func(ctx context.Context) error {
		clientset, err := kubernetes.NewForConfig(s.plane.Config)
		if err != nil {
			return err
		}
		one := func() string {
			certificates, err := install.ReadCertificates(ctx, clientset)
			if err != nil {
				return ""
			}
			return certificates.One(2)
		}
		before := ""
		s.until("both replicas serve one certificate", func() bool { before = one(); return before != "" })
		s.kubectl("delete secret sallyport-certificate" + namespace)
		s.until("both replicas serve a new certificate", func() bool { now := one(); return now != "" && now != before })
		s.note("Both replicas serve a new certificate now, and the API server trusts only this one.")
		return nil
	})
}

func (s *show) leave() {
	s.chapter("Uninstall Sallyport",
		"Sallyport's objects have finalizers that only Sallyport removes. Remove them before the uninstallation.")
	s.kubectl("sallyport release --all", "Finalizers removed")
	s.helm("uninstall sallyport"+namespace, "uninstalled")
	s.tell("Now the objects can be deleted without waiting for finalizers. The machines do not change:")
	s.kubectl("delete crd -l app.kubernetes.io/part-of=sallyport --timeout=2m", "virtualmachines")
	// Kubernetes waits for five seconds before it empties a namespace, and nothing here waits for that.
	if s.vcenter == nil {
		s.kubectl("delete namespace sallyport-system --wait=false")
	} else {
		s.kubectl("delete namespace sallyport-system " + team + " " + strangers + " --wait=false")
	}
	s.placeSays(web1, on, 2)
	s.placeSays(web2, off, 2)
	s.placeSays(db1, on, 2)
}
