package webhooks

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// A machine that is about to be given its size is counted with what others were given, not with what they ask for, and however old they are.
func TestAdmitsSize(t *testing.T) {
	for name, tc := range map[string]struct {
		asks, has int32 // of the other machine
		want      string
	}{
		"the other one only asks": {4, 2, ""},
		"the other one has it":    {4, 4, "QuotaExceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newShippedFixture(t, world{})
			f.facts = vCenters{t: t, folders: []any{"/dc/vm/a"}, quota: map[string]any{"cpu": int64(7)}, created: 2000, other: func(vm *v1alpha1.VirtualMachine) {
				vm.Spec.CPU, vm.Status.Allocated = &tc.asks, &v1alpha1.VSphereAllocation{CPU: &tc.has}
			}}
			vm := cloned("/dc/vm/a/web", "/dc/datastore/d")
			vm.Status.InstanceID = "50120a8b-7a3c-4bde-9f00-0123456789ab"
			vm.Spec.CPU, vm.Status.Allocated = new(int32(4)), &v1alpha1.VSphereAllocation{CPU: new(int32(2))}
			before := vm.DeepCopy()
			got, err := f.AdmitsSize(t.Context(), vm)
			if err != nil || got.Reason != tc.want || got.Denied != (tc.want != "") {
				t.Errorf("got %+v, %v, want %q", got, err, tc.want)
			}
			if diff := cmp.Diff(before, vm); diff != "" {
				t.Errorf("the machine was changed:\n%s", diff)
			}
		})
	}
}
