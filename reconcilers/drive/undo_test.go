package drive

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// A machine that may be on no node is always brought back first, whoever takes it over. One on its node need not be if its power is taken
// away next.
func TestWhatIsBroughtBackFirst(t *testing.T) {
	for name, tc := range map[string]struct {
		step    v1alpha1.MigrationStep
		held    *v1alpha1.ActiveOperation
		deleted bool
		want    bool
	}{
		"hibernating":                         {step: v1alpha1.MigrationHibernate, want: true},
		"hibernating, taken over":             {step: v1alpha1.MigrationHibernate, held: &v1alpha1.ActiveOperation{}, want: true},
		"hibernating, taken over with force":  {step: v1alpha1.MigrationHibernate, held: &v1alpha1.ActiveOperation{Force: true}},
		"on no node":                          {step: v1alpha1.MigrationRestore, want: true},
		"being released, taken over by force": {step: v1alpha1.MigrationRelease, held: &v1alpha1.ActiveOperation{Force: true}, want: true},
		"on no node, taken over by force":     {step: v1alpha1.MigrationRestore, held: &v1alpha1.ActiveOperation{Force: true}, want: true},
		"on no node, being deleted":           {step: v1alpha1.MigrationRestore, deleted: true},
		"live, with a snapshot to be removed": {step: v1alpha1.MigrationDiscard},
		"not moved":                           {},
	} {
		vm := &v1alpha1.VirtualMachine{}
		if vm.Status.ActiveOperation = tc.held; tc.step != "" {
			vm.Status.Migration = &v1alpha1.Migration{Step: tc.step}
		}
		if tc.deleted {
			vm.DeletionTimestamp = &metav1.Time{Time: time.Unix(0, 0)}
		}
		if got := (&Turn{VM: vm}).mustRollBack(&runtime.Observation{Hibernation: &runtime.Hibernation{}}); got != tc.want {
			t.Errorf("%s: is brought back: %t", name, got)
		}
	}
}
