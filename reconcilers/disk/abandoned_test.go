package disk

import (
	"testing"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// A disk is free of a machine that is gone once nothing has it, and nothing may be about to have it.
func TestAbandoned(t *testing.T) {
	by := &v1alpha1.DiskHolder{Name: "web-1", UID: "gone"}
	for name, tc := range map[string]struct {
		by     *v1alpha1.DiskHolder
		holder *v1alpha1.VirtualMachine
		seen   runtime.DiskObservation
		want   bool
	}{
		"nobody has it":                   {by: by, want: true},
		"another machine has it":          {by: by, seen: runtime.DiskObservation{AttachedTo: []string{"another"}}, want: true},
		"the instance still has it":       {by: by, seen: runtime.DiskObservation{AttachedTo: []string{"gone"}}},
		"something is in flight":          {by: by, seen: runtime.DiskObservation{InFlight: true}},
		"its VirtualMachine exists":       {by: by, holder: &v1alpha1.VirtualMachine{}},
		"it was attached to no machine":   {},
		"a machine that it does not name": {seen: runtime.DiskObservation{AttachedTo: []string{"another"}}},
	} {
		v := &view{VirtualDisk: &v1alpha1.VirtualDisk{}, holder: tc.holder, seen: tc.seen}
		v.Status.AttachedTo = tc.by
		if got := v.abandoned(); got != tc.want {
			t.Errorf("%s: got %t", name, got)
		}
	}
}
