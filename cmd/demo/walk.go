package main

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/test/support/env/install"
)

// The namespaces of the demo: one may use the vCenter, the other may not.
const team, strangers = "team-a", "team-b"

const on, off = v1alpha1.PowerRunning, v1alpha1.PowerStopped

// walk runs the chapters of the demo: with all, also those that import an image, and upgrade and restart Sallyport; with toTheEnd, also the one that uninstalls it.
func (s *show) walk(all, toTheEnd bool) (err error) {
	defer func() {
		switch what := recover().(type) {
		case nil:
		case failure:
			err = fmt.Errorf("\nDEMO FAILED: %s\nLast lines of the manager log:\n%s", what, s.logTail())
		default:
			panic(what)
		}
	}()
	chapters := s.chaptersOnVSphere(all)
	if s.vcenter == nil {
		chapters = s.chaptersOnKubeVirt(all)
	}
	chapters = append(chapters, s.reset)
	if toTheEnd {
		chapters = append(chapters, s.leave)
	}
	for _, chapter := range chapters {
		chapter()
	}
	s.printSuccess()
	return nil
}

func (s *show) chaptersOnVSphere(all bool) []func() {
	chapters := []func(){
		s.install, s.team, s.declare, s.adopt, s.podMachine, s.stopOverStart, s.forcedStop, s.restartOverMigration, s.alwaysOn, s.stranger,
		s.make, s.replaceTemplate, s.moves, s.pool, s.movedByDrain, s.guards,
	}
	if all {
		chapters = append(chapters, s.images)
	}
	return append(chapters, s.policies(all)...)
}

func (s *show) chaptersOnKubeVirt(all bool) []func() {
	chapters := []func(){
		s.install, s.team, s.adopt, s.stopOverStart, s.forcedStop, s.restartOverMigration, s.alwaysOn, s.strangerToKubeVirt, s.makeOnKubeVirt, s.guardsOfKubeVirt,
		s.guards,
	}
	return append(chapters, s.policies(all)...)
}

func (s *show) policies(all bool) []func() {
	if all {
		return []func(){s.rules, s.keeps, s.outlasts}
	}
	return []func(){s.rules}
}

// namespace is the argument for commands on Sallyport's own objects.
const namespace = " --namespace " + install.Namespace

// rollout waits until the Deployment is rolled out.
const rollout = "rollout status deployment/" + install.Release + namespace + " --timeout=2m"

func (s *show) install() {
	s.chapter("Install Sallyport with Helm",
		"Two replicas evaluate requests; the leader also reconciles. Pods run as processes on this computer, with their\n"+
			"ServiceAccount. The webhooks use port 9443, because port 443 requires root.")
	values := "policies.kubevirt-machines.enabled=true,policies.kubevirt-definitions.enabled=true" // runtimes.kubevirt.enabled is auto
	if s.vcenter != nil {
		values = "runtimes.pod.enabled=true,diskImages.enabled=true,templates.forbiddenRanges={192.0.2.0/24},runtimes.pod.snapshots.repository=" + s.registry.Repository() // the images are on loopback
	}
	s.helm(fmt.Sprintf("install %s charts/sallyport%s --create-namespace --set webhook.service.port=%d,%s",
		install.Release, namespace, install.Port, values), "deployed")
	s.attempt("running the pods", s.runPods)
	s.kubectl(rollout, "successfully rolled out")
	s.kubectl("get pods"+namespace, "1/1")
	s.attempt("waiting for the webhooks", s.sallyport.AwaitJudgement)
}

func (s *show) team() {
	if s.vcenter == nil {
		s.chapter("Set up a team", "The machines of KubeVirt are in the namespace of the team.")
		s.kubectl("config set-context --current --namespace " + team)
		s.kubectl("get virtualmachines.kubevirt.io", web1, web2, db1)
		return
	}
	s.chapter("Set up a team",
		"An administrator creates a namespace for a team, the vCenter credentials of Sallyport, and a VSphereServer with the tenants.")
	s.kubectl("create namespace " + team)
	s.kubectl("config set-context --current --namespace " + team)
}

func (s *show) declare() {
	s.kubectl(fmt.Sprintf("create secret generic vc-1-login --namespace sallyport-system --from-literal=username=%s --from-literal=password=%s",
		loginName, loginPassword))
	s.create(fmt.Sprintf(`
apiVersion: sallyport.dev/v1alpha1
kind: VSphereServer
metadata: {name: vc-1}
spec:
  url: %s
  trust: {thumbprint: %q}
  credentialsSecretRef: {name: vc-1-login}
  tenants:
  - name: %[3]s
    namespaces: {names: [%[3]s]}
    folders: [/DC0/vm]
    adopt: true
    resourcePools: [/DC0/host/DC0_C0]
    datastores: [/DC0/datastore/LocalDS_0]
    networks: [/DC0/network/DC0_DVPG0]
    templates: [/DC0/vm/ubuntu]
    quota: {machines: 6} # three are adopted
`, s.vcenter.URL(), s.vcenter.Thumbprint(), team))
	s.kubectl("wait svsrv/vc-1 --for=condition=Ready --timeout=2m")
	s.kubectl("get svsrv", "vc-1")
}

func (s *show) adopt() {
	s.chapter("Adopt existing machines", "web-1 and web-2 are started and stopped manually; db-1 must always run.")
	s.settled(s.place.manifest(web1, "Manual"), install.Admitted)
	s.create(s.place.manifest(web1, "Manual") + "---" + s.place.manifest(web2, "Manual") + "---" + s.place.manifest(db1, "AlwaysOn"))
	s.kubectl("wait svm --all --for=condition=Ready --timeout=2m")
	s.kubectl("get svm -o wide", "Stopped", "Running")
}

func (s *show) stopOverStart() {
	s.chapter("A stop supersedes a start that hangs", "For this chapter, "+s.place.name()+" hangs when it powers on web-1.")
	release := s.place.hold(web1, runtime.TaskPowerOn)
	s.kubectl("sallyport start web-1")
	s.kubectl("wait svmop/OPERATION --for=condition=SignalSent --timeout=2m")
	s.placeSays(web1, off, 0)
	s.tell("The start takes long, so a user starts web-1 again. The request is denied; the message says what blocks it and what is allowed:")
	s.settled(operation("{type: Start, virtualMachineName: web-1}"), s.last)
	s.denied("sallyport start web-1", "", "OperationInProgress", s.last, "start is not allowed because", "allowed now: stop, stop --force")
	s.tell("To see what web-1 waits for and which operations are allowed:")
	s.kubectl("sallyport why svm web-1", s.last, "Allowed now", "stop", "Denied now")
	s.tell("A stop supersedes a start. Sallyport cancels the power-on, and web-1 stays off:")
	start := s.last
	s.kubectl("sallyport stop web-1 --wait", "Completed, Succeeded")
	s.placeSays(web1, off, 0)
	s.kubectl("get svmop", start, "Superseded", "Succeeded")
	release()
}

func (s *show) forcedStop() {
	s.chapter("A forced stop supersedes a stop that the guest ignores",
		"For this chapter, the guest of web-2 ignores shutdown requests.")
	s.place.ignoreShutdown(web2)
	s.kubectl("sallyport stop web-2")
	s.kubectl("wait svmop/OPERATION --for=condition=SignalSent --timeout=2m")
	s.kubectl("sallyport why svmop OPERATION", "guest")
	s.placeSays(web2, on, 1)
	s.tell("A start is denied while the stop is in progress. stop --force is allowed; Sallyport never forces a stop by itself:")
	s.settled(operation("{type: Start, virtualMachineName: web-2}"), s.last)
	s.denied("sallyport start web-2", "", "OperationInProgress", s.last, "allowed now: stop --force, restart --force")
	s.kubectl("sallyport stop web-2 --force --wait", "Completed, Succeeded")
	s.placeSays(web2, off, 1)
}

func (s *show) restartOverMigration() {
	s.chapter("A restart supersedes a migration",
		s.place.name()+" powers on web-1 now, but it hangs when it migrates web-1 to another host.")
	s.kubectl("sallyport start web-1 --wait", "Completed, Succeeded")
	s.placeSays(web1, on, 1)
	release := s.place.hold(web1, runtime.TaskRelocate)
	s.kubectl("sallyport migrate web-1 --to " + s.place.other())
	s.kubectl("wait svmop/OPERATION --for=condition=SignalSent --timeout=2m")
	migration := s.last
	s.placeSays(web1, on, 1)
	s.tell("A restart supersedes the migration. Sallyport cancels the migration and restarts web-1 on its original host:")
	s.kubectl("sallyport restart web-1 --wait", "Completed, Succeeded")
	s.placeSays(web1, on, 2)
	s.kubectl("sallyport why svmop "+migration, "Superseded", s.last)
	release()
}

func (s *show) alwaysOn() {
	s.chapter("A machine that must always run", "db-1 has run policy AlwaysOn, so stop is denied:")
	s.denied("sallyport stop db-1", "", "RunPolicyForbids", "stop is not allowed because its run policy is AlwaysOn")
	s.tell("If its guest shuts down, Sallyport starts the machine again:")
	release := s.place.hold(db1, runtime.TaskPowerOn) // or it might be on again before it is shown off
	s.place.shutDown(db1)
	s.placeSays(db1, off, 1)
	release()
	s.until("db-1 is on again", func() bool { return s.place.state(db1).power == on })
	s.placeSays(db1, on, 2)
	s.until("the events tell it", func() bool {
		events := &corev1.EventList{}
		err := s.api.List(s.ctx, events, ctrlclient.InNamespace(team), ctrlclient.MatchingFields{"involvedObject.name": db1, "reason": "AsWanted"})
		return err == nil && len(events.Items) > 0
	})
	s.kubectl("get events --field-selector involvedObject.name=db-1", "Start by run policy AlwaysOn finished: the machine is Running")
}

func (s *show) stranger() {
	s.chapter("A namespace without access to the vCenter", "team-b is not a tenant of vc-1, so it cannot adopt db-1.")
	s.kubectl("create namespace " + strangers)
	s.denied("create --namespace "+strangers+" -f -", s.place.manifest(db1, "Manual"), "NamespaceNotAllowed")
	s.tell("The results of all admitted operations:")
	s.kubectl("get svmop", "Superseded", "Succeeded")
}

func (s *show) guards() {
	s.chapter("Protect workloads of any kind",
		"These guards do not need a VirtualMachine. Annotations limit scaling, and a label protects a workload from deletion.")
	s.kubectl("create deployment runners -n team-a --image=runner --replicas=10")
	s.kubectl("annotate deployments runners -n team-a sallyport.dev/min-replicas=3 --overwrite")
	s.denied("scale deployments runners -n team-a --replicas=1", "", "BelowMinReplicas", "allowed: kubectl scale")
	s.kubectl("scale deployments runners -n team-a --replicas=3", "scaled")
	s.kubectl("label deployments runners -n team-a sallyport.dev/deletion-protection=enabled")
	s.denied("delete namespace "+team, "", "NamespaceHoldsProtected", "deployments.apps/runners")
}
