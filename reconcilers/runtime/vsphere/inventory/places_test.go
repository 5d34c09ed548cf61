package inventory

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// A list has everything that can be named, or says that it has not.
func TestPlacesThatAreNotShown(t *testing.T) {
	root := reference("Folder", "root")
	seen := Tree{root: root, Named: map[types.ManagedObjectReference]mo.ManagedEntity{}}
	put := func(value, name string, parent *types.ManagedObjectReference) types.ManagedObjectReference {
		store := mo.Datastore{ManagedEntity: mo.ManagedEntity{ExtensibleManagedObject: mo.ExtensibleManagedObject{Self: reference("Datastore", value)}, Name: name, Parent: parent}}
		seen.Named[store.Self], seen.objects = store.ManagedEntity, append(seen.objects, store)
		return store.Self
	}
	allowed := v1alpha1.VSphereTenant{Datastores: []v1alpha1.InventoryPath{"/Fast"}}
	fast := put("1", "fast", &root)
	put("2", strings.Repeat("x", MaxPath), &fast)
	put("3", "inner", &fast)
	want := v1alpha1.VSpherePlaces{Complete: true, Paths: []string{"/fast", "/fast/inner"}}
	if diff := cmp.Diff(want, seen.Places(allowed).Datastores); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	unseen := reference("Folder", "unseen")
	put("4", "somewhere", &unseen)
	want.Complete = false
	if diff := cmp.Diff(want, seen.Places(allowed).Datastores); diff != "" {
		t.Errorf("below what is not shown (-want +got):\n%s", diff)
	}
	put("4", "nowhere", nil)
	if got := seen.Places(allowed); got.Datastores.Complete || !got.Networks.Complete {
		t.Errorf("got %+v", got)
	}
	itself := reference("Datastore", "5") // a vCenter that says so would have us go round for ever
	put("5", "round", &itself)
	seen.Places(allowed)
}

func TestFoldersThatMayHaveTemplates(t *testing.T) {
	for folder, want := range map[string]bool{
		"/dc/vm": true, "/dc/vm/Golden": true, "/dc/vm/golden/old": true, "/dc/vm/golden-not": false, "/dc": false, "/dc/vm/a": false, "/dc2/vm": false,
	} {
		if got := mayHave(folder, []v1alpha1.InventoryPath{"/dc/vm/golden"}); got != want {
			t.Errorf("%s: %v", folder, got)
		}
	}
}
