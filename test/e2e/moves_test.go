package e2e

import (
	"context"
	"fmt"
	"testing"

	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/test/depth"
)

// nodes makes the Nodes that the machines of the world are on.
func (tm *team) nodes() {
	tm.Helper()
	for _, name := range []string{"node-1", "node-2"} {
		tm.must(fmt.Sprintf(`{"apiVersion": "v1", "kind": "Node", "metadata": {"name": %q}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}`,
			name), create...)
		tm.Cleanup(func() {
			if _, errs, code := stack.plane.Kubectl(context.Background(), "delete", "node", name); code != 0 {
				tm.Error(errs)
			}
		})
	}
}

// wants has spec.nodeName of web-1 say another node.
func wants(node string) []string {
	return []string{"patch", "svm", "web-1", "--type=merge", "-p", fmt.Sprintf(`{"spec": {"nodeName": %q}}`, node)}
}

// A machine is moved to a node that is there, ready and not cordoned, whether an operation or its spec says so.
func TestWhereAMachineMayGo(t *testing.T) {
	t.Parallel() // it waits ten seconds between two starts
	tm := newTeam(t)
	tm.nodes()
	tm.machine("web-1", "Running")
	to := func(node string) string {
		return operation("migrate-1", "web-1", "Migrate", fmt.Sprintf(`, "migrate": {"nodeName": %q}`, node))
	}
	here, there := tm.get("svm/web-1", ".status.nodeName"), "node-2"
	if here == there {
		there = "node-1"
	}
	tm.refused("", wants("node-9"), "[placement-migration/NodeUnknown] spec.nodeName: node node-9 does not exist")
	tm.refused(to("node-9"), create, "[placement-migration/NodeUnknown] spec.migrate.nodeName: node node-9 does not exist")
	tm.refused(to(here), create, "[placement-migration/AlreadyOnNode]", "kubectl sallyport evict web-1 -n "+tm.namespace)
	tm.must("", wants(here)...)

	tm.must("", "cordon", there)
	tm.refused("", wants(there), "[placement-migration/NodeUnschedulable]", "kubectl uncordon "+there)
	tm.refused(to(there), create, "[placement-migration/NodeUnschedulable]", "kubectl uncordon "+there)
	tm.must("", "uncordon", there)
	tm.status("node/"+there, `{"conditions": [{"type": "Ready", "status": "False"}]}`)
	tm.refused("", wants(there), "[placement-migration/NodeNotReady]", "node "+there+" is not ready")
	tm.status("node/"+there, `{"conditions": [{"type": "Ready", "status": "True"}]}`)

	tm.must("", wants(there)...)
	tm.await("svm/web-1", ".status.nodeName", there)
	tm.await("svm/web-1", ".status.conditions[?(@.type=='PlacementSettled')].status", "True")
	tm.must(operation("evict-1", "web-1", "Evict"), create...)
	tm.await("svmop/evict-1", ".status.phase", "Completed")
}

// While an operation moves a machine its spec cannot, and only so many machines are moved at a time.
func TestHowManyMachinesMove(t *testing.T) {
	depth.Only(t)
	tm := newTeam(t)
	tm.nodes()
	for _, name := range []string{"web-1", "web-2", "web-3"} {
		tm.machine(name, "Running")
	}
	for _, name := range []string{"web-1", "web-2"} {
		t.Cleanup(stack.world.Hold(tm.uid(name), runtime.TaskRelocate))
		tm.must(operation("evict-"+name, name, "Evict"), create...)
		tm.await("svm/"+name, ".status.phase", "Migrating")
	}
	tm.refused("", wants("node-2"), "[placement-migration/OperationInProgress] spec.nodeName: cannot be changed because Evict evict-web-1 of VirtualMachine web-1 is in progress")
	tm.refused(operation("evict-web-3", "web-3", "Evict"), create, "[placement-migration/TooManyMigrations]",
		"namespace "+tm.namespace+" has reached its share of the moves from or to node "+tm.get("svm/web-3", ".status.nodeName")+": 2 in progress (web-",
		"maxPercentPerNamespace is 50 and maxPerNode is 4")
	tm.must("", "delete", "svm", "--all", "--timeout=3m") // tests after this one move machines, too
}

// A machine between two nodes may exist only as a snapshot: nothing takes the place of its move but its deletion.
func TestNothingTakesTheMoveOfAMachineBetweenNodes(t *testing.T) {
	tm := newTeam(t)
	tm.machine("web-1", "Running")
	t.Cleanup(stack.world.Hold(tm.uid("web-1"), runtime.TaskRelocate))
	tm.must(operation("evict-1", "web-1", "Evict"), create...)
	tm.await("svmop/evict-1", ".status.phase", "InProgress")
	stop := operation("stop-1", "web-1", "Stop", `, "force": true`)
	tm.must(stop, "create", "--dry-run=server", "-f", "-")
	tm.status("svm/web-1", `{"migration": {"id": "move-1", "step": "Restore", "since": "2026-01-02T03:04:05.000000Z", "to": {"nodeName": "node-2"},
		"instance": "pod-1", "was": {"powerState": "Running", "nodeName": "node-1"}}}`)
	tm.refused(stop, create, "[operations-supersede/OperationInProgress] VirtualMachine web-1: stop --force is not allowed "+
		"because the machine is moving to node node-2 as a snapshot", "no operation is allowed until it arrives", "kubectl wait svm web-1 -n "+tm.namespace+" --for=condition=PlacementSettled")
	tm.must("", "delete", "svm", "web-1", "--timeout=3m")
}
