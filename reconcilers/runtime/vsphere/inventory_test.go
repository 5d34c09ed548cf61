package vsphere_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// listed gives what is listed for tenants, in order.
func (w *world) listed(tenants ...v1alpha1.VSphereTenant) v1alpha1.VSphereInventory {
	w.Helper()
	found, err := w.runtime.Inventory(w.Context(), tenants)
	w.Must(err)
	for _, places := range []*v1alpha1.VSpherePlaces{
		&found.Places.Templates, &found.Places.Folders, &found.Places.ResourcePools, &found.Places.Datastores, &found.Places.Networks,
	} {
		slices.Sort(places.Paths)
	}
	return found.Places
}

func complete(paths ...string) v1alpha1.VSpherePlaces {
	return v1alpha1.VSpherePlaces{Complete: true, Paths: paths}
}

// Listed is what the tenants allow together, and nothing else.
func TestPlaces(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"template-1", "template-2"} {
		_, err := w.AddTemplate(name)
		w.Must(err)
	}
	w.machine("template-3") // is none
	if diff := cmp.Diff(v1alpha1.VSphereInventory{
		Templates: complete(), Folders: complete(), ResourcePools: complete(), Datastores: complete(), Networks: complete(),
	}, w.listed()); diff != "" {
		t.Errorf("without tenants (-want +got):\n%s", diff)
	}
	all := []v1alpha1.InventoryPath{"/DC0"}
	got := w.listed(v1alpha1.VSphereTenant{Templates: all, Folders: all, ResourcePools: all, Datastores: all, Networks: all})
	got.Networks.Paths = slices.DeleteFunc(got.Networks.Paths, func(path string) bool { return strings.Contains(path, "Uplinks") })
	if diff := cmp.Diff(v1alpha1.VSphereInventory{
		Templates:     complete("/DC0/vm/template-1", "/DC0/vm/template-2"),
		Folders:       complete("/DC0/vm"),
		ResourcePools: complete("/DC0/host/DC0_C0", "/DC0/host/DC0_C0/Resources"),
		Datastores:    complete("/DC0/datastore/LocalDS_0"),
		Networks:      complete("/DC0/network/DC0_DVPG0", "/DC0/network/VM Network"),
	}, got); diff != "" {
		t.Errorf("all (-want +got):\n%s", diff)
	}
	got = w.listed(
		v1alpha1.VSphereTenant{
			Templates: []v1alpha1.InventoryPath{"/DC0/vm/template-2", "/DC0/vm/template"}, Networks: []v1alpha1.InventoryPath{"/DC0/network/DC0_DVPG0"},
		},
		v1alpha1.VSphereTenant{
			ResourcePools: []v1alpha1.InventoryPath{"/dc0/host/DC0_C0/Resources"}, Networks: []v1alpha1.InventoryPath{"/DC0/network/VM Network"},
			Datastores: []v1alpha1.InventoryPath{"/DC0/datastore/LocalDS"},
		},
	)
	if diff := cmp.Diff(v1alpha1.VSphereInventory{
		Templates: complete("/DC0/vm/template-2"), Folders: complete(), ResourcePools: complete("/DC0/host/DC0_C0/Resources"),
		Datastores: complete(), Networks: complete("/DC0/network/DC0_DVPG0", "/DC0/network/VM Network"),
	}, got); diff != "" {
		t.Errorf("some (-want +got):\n%s", diff)
	}
}

// However many machines there are: those in folders without templates are not read, and the requests stay as many.
func TestPlacesAreFewRequests(t *testing.T) {
	w := newWorld(t)
	tenant := v1alpha1.VSphereTenant{Folders: []v1alpha1.InventoryPath{"/DC0/vm"}, Templates: []v1alpha1.InventoryPath{"/DC0/vm/templates/t"}}
	w.listed(tenant)
	before := w.Requests()
	w.listed(tenant)
	if got := w.Requests() - before; got != 3 { // a view, what is in it, and its end
		t.Errorf("%d requests", got)
	}
	tenant.Templates[0] = "/DC0/vm/t"
	before = w.Requests()
	w.listed(tenant)
	if got := w.Requests() - before; got != 4 {
		t.Errorf("%d requests", got)
	}
}
