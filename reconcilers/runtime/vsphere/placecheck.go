package vsphere

import (
	"context"
	"fmt"
	"strings"

	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// placeCheck decides whether a machine may be created at the places of a clone. If the clone names no datastore, it also
// returns the allowed ones: those at or below the paths.
type placeCheck func(context.Context, *v1alpha1.VSphereClone) (datastores []v1alpha1.InventoryPath, err error)

func allowAnywhere(context.Context, *v1alpha1.VSphereClone) ([]v1alpha1.InventoryPath, error) {
	return []v1alpha1.InventoryPath{""}, nil
}

// checkedClone returns the clone with the current paths of its parts and, if it names no datastore, the allowed ones. The
// tenants are asked again if a path differs from the spec: the object may have been renamed or moved since the spec
// was admitted. Errors do not reveal the new path, which may be outside the namespace's tenancy.
func (r *Runtime) checkedClone(ctx context.Context, clone *v1alpha1.VSphereClone, p *parts) (
	real *v1alpha1.VSphereClone, datastores []v1alpha1.InventoryPath, err error,
) {
	real, moved, err := r.currentClone(ctx, clone, p)
	if err != nil || len(moved) == 0 && clone.Datastore != "" {
		return real, nil, err
	}
	datastores, err = r.placeCheck(ctx, real)
	if runtime.IsPermission(err) && len(moved) > 0 {
		err = runtime.NewPermission(err, "%s%s: vCenter %s has this at another path now, where the namespace may not create machines",
			ofClone, strings.Join(moved, ", "), r.server.Config.Name)
	}
	return real, datastores, err
}

// currentClone returns the clone with the current paths of its parts, and the fields whose paths differ.
func (r *Runtime) currentClone(ctx context.Context, clone *v1alpha1.VSphereClone, p *parts) (real *v1alpha1.VSphereClone, moved []string, err error) {
	real = clone.DeepCopy()
	type place struct {
		field string
		ref   types.ManagedObjectReference
		path  *v1alpha1.InventoryPath
	}
	places := []place{
		{templateField(clone), p.template.Self, &real.Template.InventoryPath},
		{"folder", p.folder, &real.Folder},
		{"resourcePool", p.named, &real.ResourcePool},
	}
	if clone.Datastore != "" {
		places = append(places, place{"datastore", p.datastore.Self, &real.Datastore})
	}
	for i, network := range p.connected {
		places = append(places, place{fmt.Sprintf("networks[%d]", i), network, &real.Networks[i]})
	}
	refs := make([]types.ManagedObjectReference, 0, len(places))
	for _, place := range places {
		refs = append(refs, place.ref)
	}
	seen, err := r.ancestry(ctx, refs)
	if err != nil {
		return nil, nil, err
	}
	for _, place := range places {
		path, known := seen.shown(place.ref)
		if !known {
			return nil, nil, invalid(place.field, "vCenter %s does not show the full path of %s, which is needed to check spec.tenants",
				r.server.Config.Name, *place.path)
		}
		if path != string(*place.path) {
			moved = append(moved, place.field)
		}
		*place.path = v1alpha1.InventoryPath(path)
	}
	return real, moved, nil
}

// upwards selects all ancestors of an object.
func upwards() []types.BaseSelectionSpec {
	return []types.BaseSelectionSpec{&types.TraversalSpec{
		SelectionSpec: types.SelectionSpec{Name: "up"}, Type: "ManagedEntity", Path: "parent",
		SelectSet: []types.BaseSelectionSpec{&types.SelectionSpec{Name: "up"}},
	}}
}

// ancestry reads objects and their ancestors in the inventory, for datastores also their summary.
func (r *Runtime) ancestry(ctx context.Context, refs []types.ManagedObjectReference) (seen inventory, err error) {
	filter := types.PropertyFilterSpec{PropSet: []types.PropertySpec{
		{Type: "ManagedEntity", PathSet: []string{"name", "parent"}}, {Type: "Datastore", PathSet: []string{"name", "parent", "summary"}},
	}}
	for _, ref := range refs {
		filter.ObjectSet = append(filter.ObjectSet, types.ObjectSpec{Obj: ref, SelectSet: upwards()})
	}
	seen.named = map[types.ManagedObjectReference]mo.ManagedEntity{}
	err = r.server.Call(ctx, func(c *vim25.Client) error {
		seen.root = c.ServiceContent.RootFolder
		found, err := retrieve(ctx, c, filter)
		seen.objects = found
		for _, object := range found {
			entity := entityOf(object)
			seen.named[entity.Self] = entity
		}
		return err
	})
	return seen, err
}

// shown returns the inventory path of an object, and false if vCenter does not show all of it or it is too long for a
// spec.
func (i *inventory) shown(ref types.ManagedObjectReference) (path string, known bool) {
	path, known = i.path(i.named[ref])
	return path, known && len(path) <= maxPath
}
