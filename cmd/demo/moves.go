package main

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/env/install"
	"sallyport.dev/sallyport/test/support/nodeagent"
)

// The nodes with an agent for the pod runtime, and their machine.
const (
	node1, node2 = "node-1", "node-2"
	build1       = "build-1"
)

const building = `
apiVersion: sallyport.dev/v1alpha1
kind: VirtualMachine
metadata: {name: ` + build1 + `}
spec: {nodeName: ` + node1 + `, runtime: {pod: {image: example.com/ubuntu:24.04}}}
`

// startRegistry starts the registry for snapshots, and lets the managers trust it.
func (s *stage) startRegistry() error {
	s.registry = nodeagent.StartRegistry()
	s.onClose(func() error { s.registry.Close(); return nil })
	authority := s.path("registry.pem")
	s.options.Flags = append(s.options.Flags, "--pod-snapshot-ca-file", authority)
	return s.registry.WriteAuthority(authority)
}

func (s *stage) joinNodes(ctx context.Context) (err error) {
	s.agent = nodeagent.New(s.api, node1, node2)
	s.agent.Transport = s.registry.Transport()
	running, end := context.WithCancel(context.WithoutCancel(ctx))
	if s.agent.Pods, err = install.Watched(running, s.plane.Config, ""); err != nil {
		end()
		return err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.agent.Run(running, func(error) {}) // it tries again
	}()
	s.onClose(func() error { end(); <-ended; return nil })
	return s.agent.Join(ctx)
}

// podMachine creates a machine of the pod runtime. A machine that has just started is moved 10 seconds later at the earliest, so there are
// chapters between this one and moves.
func (s *show) podMachine() {
	s.chapter("A machine of the pod runtime", "Agents on two nodes run machines as Pods.")
	s.attempt("making the nodes", s.joinNodes)
	s.create(building)
	s.kubectl("wait svm/build-1 --for=condition=Ready --timeout=2m")
	s.kubectl("get pods --output=wide", build1, node1)
	s.agentSays(node1, 1)
}

func (s *show) moves() {
	s.chapter("Migrate a machine of the pod runtime, and drain a node",
		"Machines of the pod runtime migrate between nodes through snapshots in a registry. Here, the agent confirms a step late.")
	release := s.hold()
	s.kubectl(`patch svm build-1 --type=merge --patch={"spec":{"nodeName":"` + node2 + `"}}`)
	s.kubectl("wait svm/build-1 --for=jsonpath={.status.migration.step}=Hibernate --timeout=2m")
	s.kubectl("get svm build-1", "Migrating", node1)
	release()
	s.kubectl("wait svm/build-1 --for=condition=PlacementSettled --timeout=2m")
	s.kubectl("get pods --output=wide", build1, node2)
	s.agentSays(node2, 2)
	s.kubectl("get events --field-selector=involvedObject.name=build-1,reason=Migrating --output=custom-columns=TOLD:.message",
		"hibernating the machine on node "+node1, "restoring the machine from its snapshot", "is live")
	s.tell("An eviction would delete the machine. Sallyport denies it and migrates the machine, so that kubectl drain succeeds.\n" +
		"The API server of the demo shows the webhook no client certificate, so the label confirms that the node is to be drained.\n" +
		"kubectl drain retries every 5 seconds, so it runs in the background during the next chapter:")
	s.kubectl("label node " + node2 + " " + v1alpha1.LabelDrain + "=" + v1alpha1.DrainEnabled)
	s.drained = s.background("drain "+node2+" --timeout=2m", "[machines-eviction/MachineIsMoved]", "drained")
}

func (s *show) movedByDrain() {
	s.chapter("The node is drained", "Meanwhile, Sallyport has migrated the machine, and kubectl drain has succeeded.")
	s.drained()
	s.kubectl("wait svm/build-1 --for=condition=Ready --timeout=2m")
	s.kubectl("get svm build-1", "Running", node1)
	s.kubectl("get svmop --field-selector=spec.virtualMachineName=build-1", build1+"-drain-", "Succeeded")
	s.agentSays(node1, 3)
	s.kubectl("delete svm build-1 --timeout=2m")
}

// hold delays the reports of the agent about the machine.
func (s *show) hold() (release func()) {
	return s.agent.Hold(s.uidOf(build1), nodeagent.Reporting)
}

func (s *show) uidOf(name string) types.UID {
	uid, _, _ := s.plane.Kubectl(s.ctx, "get", "svm", name, "-o", "jsonpath={.metadata.uid}")
	return types.UID(uid)
}

// agentSays prints and checks the node of the machine and its work counter, which shows that its state moves with it.
func (s *show) agentSays(node string, times int) {
	uid := s.uidOf(build1)
	worked, live := s.agent.Work(uid), s.agent.Live()[uid]
	at, instance, _ := strings.Cut(strings.Join(live, " and "), "/")
	s.note("The agent says: %s runs on %s as instance %s; it has worked %d times", build1, at, instance, worked)
	if wrong := s.agent.Violations(); at != node || worked != times || len(live) != 1 || len(wrong) > 0 {
		s.fail("expected on %s, %d times; %s", node, times, strings.Join(append(wrong, fmt.Sprint(live)), "; "))
	}
}
