package main

import (
	"context"
	"slices"
	"strings"

	"k8s.io/client-go/kubernetes"

	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/test/env/install"
)

// edited is the policy that the demo edits.
const edited = "operations-supersede"

// The request that the edit is about, and how it is refused from then on.
var forced = operation("{type: Stop, force: true, virtualMachineName: web-2}")

const barred = "stop --force is not allowed"

func (s *show) rules() {
	s.chapter("14. The rules are yours",
		"They are objects in the cluster, installed by Helm and edited with kubectl. The vCenter is made to hang when it powers web-2 on.")
	s.kubectl("sallyport policies", edited, "current")
	s.powersOn = s.vcenter.Hold(inventory+web2, runtime.TaskPowerOn)
	s.kubectl("sallyport start web-2")
	s.kubectl("wait svmop/OPERATION --for=condition=SignalSent --timeout=2m")
	s.tell("As shipped, a forced Stop can supersede a Start. After this edit, no operation can supersede a Start; sed plays the editor.\n" +
		"Both replicas, asked one by one, decide by what was saved:")
	s.edit("rego "+edited, "sed -i '/ Start:$/,/:/ { s/Start:/Start: []/; / - /d }'")
	s.replicasRefuse(forced, barred, "the edit")
	s.denied("sallyport stop web-2 --force", "", "OperationInProgress", s.last, barred)
}

func (s *show) keeps() {
	s.chapter("15. What was edited stays, and what is broken never decides",
		"From here on a client asks for that forced Stop again and again (as a dry run). Nothing that follows may change the answer.")
	s.keepAsking(forced, barred)
	s.tell("An upgrade of the release keeps what was edited, and the rest of the policy follows the release. New replicas check what it ships\n" +
		"before they are ready, and --wait waits for them:")
	s.helm("upgrade sallyport charts/sallyport"+namespace+" --wait --reuse-values --set policies."+edited+".parameters.yieldsTo.Evict={Stop}", "deployed")
	s.until("the release is applied", func() bool {
		row, _, _ := s.plane.Kubectl(s.ctx, "get", "rego", edited, "-o", "jsonpath={.spec.parameters.yieldsTo.Evict}")
		return row == `["Stop"]`
	})
	s.noted()
	s.kubectl("sallyport policies", "yieldsTo.Start")
	s.meanwhile()
	s.tell("A slip of the pen is not stored. What would be wrong is told before, with file, line and column:")
	s.deniedEdit("rego "+edited, slip, "[policies-self/CompileFailed]", "supersede.rego:")
	s.tell("Only who may override that check can take it out of the way. Even then what is broken decides nothing: what was good\n" +
		"last goes on deciding, and the status says so:")
	s.kubectl(`patch rego policies-self --type=merge --patch={"spec":{"mode":"Audit"}}`, "patched")
	s.settled(broken, install.Admitted)
	s.edit("rego "+edited, slip)
	s.noted()
	s.kubectl("sallyport policies "+edited, "last good", "supersede.rego:")
	s.meanwhile()
}

// slip is what the editor does to the policy, and broken is another policy that does not compile.
const slip, broken = "sed -i s/deny.contains/deny.contain/", `
apiVersion: sallyport.dev/v1alpha1
kind: RegoPolicy
metadata: {name: ask}
spec:
  package: ask
  match: {resources: [{apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE]}]}
  modules: [{name: ask.rego, source: package}]
`

// noted waits until the status tells of the last edit.
func (s *show) noted() {
	s.until("the status tells of the edit", func() bool {
		generations, _, _ := s.plane.Kubectl(s.ctx, "get", "rego", edited, "-o", "jsonpath={.metadata.generation}/{.status.observedGeneration}")
		made, seen, _ := strings.Cut(generations, "/")
		return made == seen
	})
}

func (s *show) outlasts() {
	s.chapter("16. Replicas and certificates come and go",
		"The policy is still broken, and the client still asks. What was good last is kept in the cluster, so replicas that start now\n"+
			"decide by it too.")
	s.restart()
	s.replicasRefuse(forced, barred, "the rollout")
	s.meanwhile()
	s.tell("Sallyport makes its own certificate, anew if it is gone. Until both replicas serve the new one, the old one is trusted too:")
	s.rotate()
	s.meanwhile()
	s.stopAsking()
	s.tell("The Start that was under way has outlasted all of that. The vCenter goes on now, and there is one power-on more, not two:")
	s.powersOn()
	s.kubectl("wait svmop/OPERATION --for=condition=Completed --timeout=2m")
	s.vCenterSays(web2, on, s.home(), 2)
	s.tell("To have both policies back as they were shipped:")
	s.kubectl("sallyport policies reset policies-self "+edited, edited)
	s.noted()
	s.kubectl("sallyport policies", edited, "current")
	s.settled(forced, install.Admitted)
	s.kubectl("sallyport stop web-2 --force --wait", "Completed, Succeeded")
}

// restart restarts both replicas.
func (s *show) restart() {
	if s.wrong != "" {
		return
	}
	before := s.kubelet.Replicas()
	s.kubectl("rollout restart deployment/" + install.Release + namespace)
	s.kubectl(rollout, "successfully rolled out")
	s.until("only the new replicas are left", func() bool {
		now := s.kubelet.Replicas()
		return len(now) == len(before) && !slices.ContainsFunc(now, func(replica string) bool { return slices.Contains(before, replica) })
	})
}

// rotate has the certificate replaced, and returns when only the new one is served and trusted.
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
		s.note("Both replicas serve another certificate now, and the API server trusts no other.")
		return nil
	})
}

func (s *show) leave() {
	s.chapter("17. Going away",
		"Sallyport's objects have its finalizers, which nobody would take off any more once it is gone. So they come off first.")
	s.kubectl("sallyport release --all", "Finalizers taken off")
	s.helm("uninstall sallyport"+namespace, "uninstalled")
	s.tell("Now nothing hangs when it is deleted, and the machines stay as they are:")
	s.kubectl("delete crd -l app.kubernetes.io/part-of=sallyport --timeout=2m", "virtualmachines")
	s.kubectl("delete namespace sallyport-system " + team + " " + strangers + " --timeout=2m")
	s.vCenterSays(web1, on, s.home(), 2)
	s.vCenterSays(web2, off, s.home(), 2)
	s.vCenterSays(db1, on, s.home(), 2)
}
