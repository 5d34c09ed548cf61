package vsphere_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/machine"
)

// Machines with a mark are found in the folders of the tenants, and nowhere else.
func TestMarkedMachines(t *testing.T) {
	w := newWorld(t)
	m := w.adopted("web")
	w.machine("unmarked")
	tenants := []v1alpha1.VSphereTenant{{Folders: []v1alpha1.InventoryPath{"/DC0/vm"}}}
	found, err := w.runtime.Inventory(t.Context(), tenants)
	w.Must(err)
	want := []machine.MarkedMachine{{Path: w.path(m), Owner: m.UID, Name: m.String()}}
	if diff := cmp.Diff(want, found.Marked); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	other := worldOf(t, w.VCenter)
	found, err = other.runtime.Inventory(t.Context(), []v1alpha1.VSphereTenant{{Folders: []v1alpha1.InventoryPath{"/DC0/vm/none"}}})
	w.Must(err)
	if len(found.Marked) != 0 {
		t.Errorf("found %+v", found.Marked)
	}
}
