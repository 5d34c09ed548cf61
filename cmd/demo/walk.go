package main

import (
	"fmt"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/test/env/install"
)

// The namespaces of the demo: one may use the vCenter, the other may not.
const team, strangers = "team-a", "team-b"

const on, off = v1alpha1.PowerRunning, v1alpha1.PowerStopped

// walk is the demo. To its end, where everything is left, it goes only if nobody wants to try anything.
func (s *show) walk(toTheEnd bool) error {
	chapters := []func(){
		s.install, s.declare, s.adopt, s.stopOverStart, s.forcedStop, s.restartOverMigration, s.alwaysOn, s.stranger,
		s.make, s.replaceTemplate, s.pool, s.moves, s.guards, s.rules, s.keeps, s.outlasts,
	}
	if toTheEnd {
		chapters = append(chapters, s.leave)
	}
	for _, chapter := range chapters {
		chapter()
	}
	return s.verdict()
}

// namespace is an argument of what is about Sallyport itself.
const namespace = " --namespace " + install.Namespace

// rollout waits until the replicas are as the Deployment wants them.
const rollout = "rollout status deployment/" + install.Release + namespace + " --timeout=2m"

func (s *show) install() {
	s.chapter("1. Installed with Helm",
		"Two replicas judge every request; one of them leads, and carries out what was admitted. This control plane has no nodes: a\n"+
			"pod is a process on this machine, as its ServiceAccount. Port 9443, because 443 would need root.")
	s.helm(fmt.Sprintf("install %s charts/sallyport%s --create-namespace --set webhook.service.port=%d,runtimes.pod.enabled=true,"+
		"runtimes.pod.snapshots.repository=%s", install.Release, namespace, install.Port, s.registry.Repository()), "deployed")
	s.attempt("running the pods", s.runPods)
	s.kubectl(rollout, "successfully rolled out")
	s.kubectl("get pods"+namespace, "1/1")
	s.attempt("waiting for the webhooks", s.sallyport.AwaitJudgement)
}

func (s *show) declare() {
	s.chapter("2. What an administrator does once",
		"A namespace for a team, Sallyport's login at the vCenter, and the vCenter itself, with who may use which part of it.")
	s.kubectl("create namespace " + team)
	s.kubectl("config set-context --current --namespace " + team)
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
    libraries: [images]
    quota: {machines: 3}
`, s.vcenter.URL(), s.vcenter.Thumbprint(), team))
	s.kubectl("wait svsrv/vc-1 --for=condition=Ready --timeout=2m")
	s.kubectl("get svsrv", "vc-1")
}

// machine is a VirtualMachine as a manifest.
func machine(name, runPolicy string) string {
	return fmt.Sprintf(`
apiVersion: sallyport.dev/v1alpha1
kind: VirtualMachine
metadata: {name: %[1]s}
spec: {runPolicy: %[2]s, runtime: {vsphere: {serverRef: {name: vc-1}, inventoryPath: %[3]s%[1]s}}}
`, name, runPolicy, inventory)
}

func (s *show) adopt() {
	s.chapter("3. The team adopts machines that exist", "web-1 and web-2 go on and off by hand; db-1 is to run whatever happens.")
	s.settled(machine(web1, "Manual"), install.Admitted)
	s.create(machine(web1, "Manual") + "---" + machine(web2, "Manual") + "---" + machine(db1, "AlwaysOn"))
	s.kubectl("wait svm --all --for=condition=Ready --timeout=2m")
	s.kubectl("get svm -o wide", "Stopped", "Running")
}

func (s *show) stopOverStart() {
	s.chapter("4. A Start that hangs, and the Stop that takes its place", "The vCenter is made to hang whenever it powers web-1 on.")
	release := s.vcenter.Hold(inventory+web1, runtime.TaskPowerOn)
	s.kubectl("sallyport start web-1")
	s.kubectl("wait svmop/OPERATION --for=condition=SignalSent --timeout=2m")
	s.vCenterSays(web1, off, s.home(), 0)
	s.tell("It takes long, so somebody starts web-1 again. That is refused, with what blocks and what would be accepted:")
	s.settled(operation("{type: Start, virtualMachineName: web-1}"), s.last)
	s.denied("sallyport start web-1", "", "OperationInProgress", s.last, "start is not allowed because", "allowed now: stop, stop --force")
	s.tell("What does web-1 wait for, and what can be done about it?")
	s.kubectl("sallyport why svm web-1", s.last, "accepted", "stop", "refused")
	s.tell("A Stop may take the place of a Start. The power-on is cancelled, and web-1 stays off:")
	start := s.last
	s.kubectl("sallyport stop web-1 --wait", "Completed, Succeeded")
	s.vCenterSays(web1, off, s.home(), 0)
	s.kubectl("get svmop", start, "Superseded", "Succeeded")
	release()
}

func (s *show) forcedStop() {
	s.chapter("5. A Stop that the guest ignores, and the forced Stop that takes its place",
		"The guest of web-2 is made to ignore that it is asked to shut down.")
	s.vcenter.IgnoreShutdown(inventory + web2)
	s.kubectl("sallyport stop web-2")
	s.kubectl("wait svmop/OPERATION --for=condition=SignalSent --timeout=2m")
	s.kubectl("sallyport why svmop OPERATION", "guest")
	s.vCenterSays(web2, on, s.home(), 1)
	s.tell("Meanwhile nobody can pull web-2 the other way. A forced Stop is accepted; Sallyport never makes one by itself:")
	s.settled(operation("{type: Start, virtualMachineName: web-2}"), s.last)
	s.denied("sallyport start web-2", "", "OperationInProgress", s.last, "allowed now: stop --force, restart --force")
	s.kubectl("sallyport stop web-2 --force --wait", "Completed, Succeeded")
	s.vCenterSays(web2, off, s.home(), 1)
}

func (s *show) restartOverMigration() {
	s.chapter("6. A Restart during a migration, which it aborts",
		"The vCenter powers web-1 on now, but it is made to hang when it moves web-1 to another host.")
	s.kubectl("sallyport start web-1 --wait", "Completed, Succeeded")
	s.vCenterSays(web1, on, s.home(), 1)
	release := s.vcenter.Hold(inventory+web1, runtime.TaskRelocate)
	s.kubectl("sallyport migrate web-1 --to " + s.vcenter.OtherHost(inventory+web1))
	s.kubectl("wait svmop/OPERATION --for=condition=SignalSent --timeout=2m")
	migration := s.last
	s.vCenterSays(web1, on, s.home(), 1)
	s.tell("web-1 has to be restarted now. The migration is withdrawn, and web-1 is restarted on the host that it never left:")
	s.kubectl("sallyport restart web-1 --wait", "Completed, Succeeded")
	s.vCenterSays(web1, on, s.home(), 2)
	s.kubectl("sallyport why svmop "+migration, "Superseded", s.last)
	release()
}

func (s *show) alwaysOn() {
	s.chapter("7. A machine that is to run whatever happens", "db-1 has the run policy AlwaysOn. Nobody may stop it by an operation:")
	s.denied("sallyport stop db-1", "", "RunPolicyForbids", "stop is not allowed because its run policy is AlwaysOn")
	s.tell("When its guest shuts down by itself, Sallyport starts it again:")
	release := s.vcenter.Hold(inventory+db1, runtime.TaskPowerOn) // or it might be on again before it is shown off
	s.vcenter.SetPower(inventory+db1, off)
	s.vCenterSays(db1, off, s.home(), 1)
	release()
	s.until("db-1 is on again", func() bool { return s.vcenter.State(inventory+db1).Power == on })
	s.vCenterSays(db1, on, s.home(), 2)
	s.until("the events tell it", func() bool {
		told, _, _ := s.plane.Kubectl(s.ctx, "get", "events", "--field-selector", "involvedObject.name=db-1,reason=AsWanted", "-o", "name")
		return told != ""
	})
	s.kubectl("get events --field-selector involvedObject.name=db-1", "Start by run policy AlwaysOn finished: the machine is Running")
}

func (s *show) stranger() {
	s.chapter("8. A namespace that may not use the vCenter", "team-b is no tenant of vc-1, so it cannot take db-1 over.")
	s.kubectl("create namespace " + strangers)
	s.denied("create --namespace "+strangers+" -f -", machine(db1, "Manual"), "NamespaceNotAllowed")
	s.tell("What became of all operations that were admitted:")
	s.kubectl("get svmop", "Superseded", "Succeeded")
}

func (s *show) guards() {
	s.chapter("13. Workloads of any kind",
		"These need no machine of Sallyport's: an annotation says what a workload can bear, and a label that it is not deleted.")
	s.kubectl("create deployment runners --image=runner --replicas=10")
	s.kubectl("annotate deployments runners sallyport.dev/min-replicas=3")
	s.denied("scale deployments runners --replicas=1", "", "BelowMinReplicas", "allowed: kubectl scale")
	s.kubectl("scale deployments runners --replicas=3", "scaled")
	s.kubectl("label deployments runners sallyport.dev/deletion-protection=enabled")
	s.denied("delete namespace "+team, "", "NamespaceHoldsProtected", "deployments.apps/runners")
}

// home is the host that all machines are on at first, and stay on.
func (s *show) home() string { return s.vcenter.Hosts()[0] }
