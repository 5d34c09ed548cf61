package inventory

import (
	"context"

	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/session"
)

// Upwards selects all ancestors of an object.
func Upwards() []types.BaseSelectionSpec {
	return []types.BaseSelectionSpec{&types.TraversalSpec{
		SelectionSpec: types.SelectionSpec{Name: "up"}, Type: "ManagedEntity", Path: "parent",
		SelectSet: []types.BaseSelectionSpec{&types.SelectionSpec{Name: "up"}},
	}}
}

// Ancestry reads objects and their ancestors in the inventory, for datastores also their summary.
func (r *Center) Ancestry(ctx context.Context, refs []types.ManagedObjectReference) (seen Tree, err error) {
	filter := types.PropertyFilterSpec{PropSet: []types.PropertySpec{
		{Type: "ManagedEntity", PathSet: []string{"name", "parent"}}, {Type: "Datastore", PathSet: []string{"name", "parent", "summary"}},
	}}
	for _, ref := range refs {
		filter.ObjectSet = append(filter.ObjectSet, types.ObjectSpec{Obj: ref, SelectSet: Upwards()})
	}
	seen.Named = map[types.ManagedObjectReference]mo.ManagedEntity{}
	err = r.Call(ctx, func(c *vim25.Client) error {
		seen.root = c.ServiceContent.RootFolder
		found, err := session.Properties(ctx, c, filter)
		seen.objects = found
		for _, object := range found {
			entity := EntityOf(object)
			seen.Named[entity.Self] = entity
		}
		return err
	})
	return seen, err
}

// Shown returns the inventory path of an object, and false if vCenter does not show all of it or it is too long for a
// spec.
func (i *Tree) Shown(ref types.ManagedObjectReference) (path string, known bool) {
	path, known = i.Path(i.Named[ref])
	return path, known && len(path) <= MaxPath
}

// Folders selects the contents of the machine folders whose paths are wanted.
func (i *Tree) Folders(wanted func(path string) bool) (all []types.ObjectSpec) {
	for _, object := range i.objects {
		folder, is := object.(mo.Folder)
		if !is || !takesMachines(folder) {
			continue
		}
		if path, known := i.Path(folder.ManagedEntity); known && wanted(path) {
			all = append(all, types.ObjectSpec{Obj: folder.Self, Skip: new(true), SelectSet: []types.BaseSelectionSpec{
				&types.TraversalSpec{Type: "Folder", Path: "childEntity"},
			}})
		}
	}
	return all
}
