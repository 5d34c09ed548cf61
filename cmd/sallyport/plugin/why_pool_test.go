package plugin

import (
	"encoding/json"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/cmd/sallyport/plugin/cli"
)

func TestWhyAPool(t *testing.T) {
	w := newWorld(t)
	pool, members := w.poolAt(3)
	in := " -n " + pool.Namespace
	w.plugin("busy ci-1 --for 30m --holder "+job+in, 0)
	w.plugin("scale-down ci --vm ci-2"+in, 0)
	w.Must(w.Delete(t.Context(), members[0]))
	w.wanted(pool) // reads it
	pool.Status.Replicas = 3
	v1alpha1.SetCondition(&pool.Status.Conditions,
		v1alpha1.ConditionScaleDownBlocked.Condition(metav1.ConditionTrue, v1alpha1.ReasonMembersBusy, 1, "ci-1 is busy"), time.Now())
	w.Must(w.Status().Update(t.Context(), pool))
	w.make(note(pool, v1alpha1.GroupVersion.String(), cli.PoolKind, "SuccessfulDelete", "deleted VirtualMachine ci-0", time.Now()))
	for _, line := range []string{"svmpool ci", "svmpool/ci", "virtualmachinepools.sallyport.dev ci"} {
		shows(t, w.plugin("why "+line+in, 0).stdout, "VirtualMachinePool ci in namespace "+pool.Namespace, "Replicas: +2",
			"Members: +3; running: 0; up to date: 0", "Waiting for: +reconciliation of the latest change",
			" +ScaleDownBlocked True for .*, MembersBusy: ci-1 is busy",
			`Removing: +ci-0 \(being deleted\), ci-2 \(scale-down target\)`, "Busy: +ci-1 until .*Z: "+job, "Events: +SuccessfulDelete .* ago: deleted VirtualMachine ci-0")
	}
	var known struct {
		Pool *struct {
			Busy  []struct{ Name, Holder string }
			Going []any
		}
	}
	w.Must(json.Unmarshal([]byte(w.plugin("why svmpool ci -o json"+in, 0).stdout), &known))
	if p := known.Pool; p == nil || len(p.Busy) != 1 || p.Busy[0].Name != "ci-1" || p.Busy[0].Holder != job || len(p.Going) != 2 {
		t.Errorf("known as JSON is %+v", known.Pool)
	}
	w.plugin("why svmpool nothing"+in, 1, "NotFound")
}
