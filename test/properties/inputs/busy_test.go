package inputs_test

import (
	"encoding/json"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
	marks "sallyport.dev/sallyport/reconcilers/pool/busy"
)

// The policy that refuses and the reconciler that passes over busy members are of one opinion who is busy, whatever is in a Lease.
func TestPolicyAndReconcilerAgreeOnWhoIsBusy(t *testing.T) {
	set := compile(t, refusing)
	for _, mark := range []string{"", "uid-ci-0", "uid-ci-1"} {
		for _, holder := range []*string{nil, new(""), new("job")} {
			for _, seconds := range []*int32{nil, new(int32(1)), new(int32(1800)), new(int32(1 << 30))} {
				for _, since := range []time.Duration{
					-200 * 365 * 24 * time.Hour, -25 * time.Hour, -24 * time.Hour, -24*time.Hour + time.Second, -1800 * time.Second, -1799 * time.Second,
					-time.Second, -time.Millisecond, 0, time.Second, 200 * 365 * 24 * time.Hour, never,
				} {
					lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "any", Labels: map[string]string{v1alpha1.LabelBusyMachine: mark}}}
					lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = holder, seconds
					if since != never {
						lease.Spec.RenewTime = new(metav1.NewMicroTime(decidedAt.Add(since)))
					}
					agree(t, lease, func(f fleet) bool {
						return f.ask(t, set, ofPool("scale", scaleAt(1), scaleAt(0))).Allowed
					})
				}
			}
		}
	}
}

const never = time.Duration(1)

// agree asks for the only member of a pool to go.
func agree(t *testing.T, lease *coordinationv1.Lease, allowed func(fleet) bool) {
	t.Helper()
	text, err := json.Marshal(lease)
	if err != nil {
		t.Fatal(err)
	}
	var document object
	if err := json.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	f := fleet{pool: poolOf("NewestFirst", 1), members: []any{memberOfPool(0)}, leases: []any{document}}
	idle := marks.Of(lease) != "uid-ci-0" || !marks.Until(lease, decidedAt).After(decidedAt)
	if got := allowed(f); got != idle {
		t.Errorf("allowed %t, and idle %t: %s", got, idle, text)
	}
}
