package e2e

import (
	"strings"
	"testing"

	"sallyport.dev/sallyport/reconcilers/runtime"
)

// Whoever may edit a machine may not leave its instance behind by an annotation, be the machine on its way out or not; who holds the
// verb may. Whatever else is written to a machine that is on its way out passes as before.
func TestAbandonTakesTheVerb(t *testing.T) {
	const policy = "machines-abandon"
	tm := overriders(t, policy)
	tm.machine("web-1", "Stopped")
	uid := tm.uid("web-1")
	const key = "sallyport.dev/abandon-instance="
	write := []string{"annotate", "svm", "web-1", key + string(uid)}
	const denied = "[machines-abandon/AbandonNotAllowed] VirtualMachine web-1: "
	const effect = " cannot set annotation sallyport.dev/abandon-instance because it leaves the instance on its runtime"
	tm.refused("", by("bob", write...), denied+"bob"+effect)

	stack.world.Hold(uid, runtime.TaskDelete) // for good: the runtime does not come back
	tm.must("", "delete", "svm", "web-1", "--wait=false")
	tm.refused("", by("bob", write...), denied+"bob"+effect)
	tm.refused("", by("carol", write...), denied+"carol"+effect)
	tm.refused("", by("bob", "patch", "svm", "web-1", "--type=merge", "-p",
		`{"metadata": {"annotations": {"sallyport.dev/abandon-instance": "x"}, "finalizers": null}}`), denied+"bob"+effect)
	tm.must("", by("bob", "annotate", "svm", "web-1", "sallyport.dev/note=x")...)
	tm.must("", by("bob", "patch", "svm", "web-1", "--type=json", "-p",
		`[{"op": "add", "path": "/metadata/finalizers/-", "value": "example.com/hold"}, {"op": "remove", "path": "/metadata/finalizers/1"}]`)...)
	if got := tm.get("svm/web-1", ".metadata.finalizers"); !strings.Contains(got, "sallyport.dev/virtual-machine") {
		t.Fatalf("the machine was let go: finalizers %s", got)
	}
	tm.must("", by("alice", write...)...)
	tm.must("", "wait", "--for=delete", "svm/web-1", "--timeout=3m")
	if _, exists := stack.world.Instance(uid); !exists {
		t.Error("the instance that was given up on is gone")
	}
}

// Whoever calls the node of an instance dead could have the machine run twice, so that takes the same verb, on a machine that is on its
// way out, too. The template of a pool, which writes annotations of its members, cannot say so.
func TestFencingTakesTheVerb(t *testing.T) {
	tm := overriders(t, "machines-abandon")
	tm.machine("web-1", "Stopped")
	const key = "sallyport.dev/source-fenced"
	write := []string{"annotate", "svm", "web-1", key + "=node-1-is-off", "--overwrite"}
	const denied = "[machines-abandon/AbandonNotAllowed] VirtualMachine web-1: bob cannot set annotation " + key +
		" because it removes the instance without its agent, and the machine runs twice if the node is alive"
	tm.refused("", by("bob", write...), denied)
	tm.must("", by("alice", write...)...)
	tm.must("", by("bob", "annotate", "svm", "web-1", key+"-")...)

	release := stack.world.Hold(tm.uid("web-1"), runtime.TaskDelete)
	t.Cleanup(release)
	tm.must("", "delete", "svm", "web-1", "--wait=false")
	tm.refused("", by("bob", write...), denied)
	tm.must("", by("alice", write...)...)
	release()
	tm.must("", "wait", "--for=delete", "svm/web-1", "--timeout=3m")
}
