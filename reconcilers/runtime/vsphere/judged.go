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

// judge says whether a machine may be made in the places that a clone names.
type judge func(context.Context, *v1alpha1.VSphereClone) error

// judged has the tenants asked about where the parts really are, if that is not where the spec has them: what is at a path may have been
// renamed or moved since they judged the spec. Where it is now is not told, which may be no business of the namespace.
func (r *Runtime) judged(ctx context.Context, clone *v1alpha1.VSphereClone, p *parts) error {
	if r.judge == nil {
		return nil
	}
	real, moved, err := r.really(ctx, clone, p)
	if err != nil || len(moved) == 0 {
		return err
	}
	err = r.judge(ctx, real)
	if runtime.IsPermission(err) {
		return runtime.NewPermission(err, "%s%s: vCenter %s has this at another path now, where the namespace may not make the machine",
			ofClone, strings.Join(moved, ", "), r.server.config.Name)
	}
	return err
}

// really gives the clone with the paths that its parts have now, and the fields whose paths are others.
func (r *Runtime) really(ctx context.Context, clone *v1alpha1.VSphereClone, p *parts) (real *v1alpha1.VSphereClone, moved []string, err error) {
	real = clone.DeepCopy()
	type place struct {
		field string
		ref   types.ManagedObjectReference
		path  *v1alpha1.InventoryPath
	}
	places := []place{
		{"template.inventoryPath", p.template.Self, &real.Template.InventoryPath},
		{"folder", p.folder, &real.Folder},
		{"resourcePool", p.named, &real.ResourcePool},
		{"datastore", p.datastore.Self, &real.Datastore},
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
		path, known := seen.path(seen.named[place.ref])
		if !known || len(path) > maxPath {
			return nil, nil, invalid(place.field, "vCenter %s does not show all of the path of %s, by which the tenants judge it",
				r.server.config.Name, *place.path)
		}
		if path != string(*place.path) {
			moved = append(moved, place.field)
		}
		*place.path = v1alpha1.InventoryPath(path)
	}
	return real, moved, nil
}

// upwards selects everything above something.
func upwards() []types.BaseSelectionSpec {
	return []types.BaseSelectionSpec{&types.TraversalSpec{
		SelectionSpec: types.SelectionSpec{Name: "up"}, Type: "ManagedEntity", Path: "parent",
		SelectSet: []types.BaseSelectionSpec{&types.SelectionSpec{Name: "up"}},
	}}
}

// ancestry reads things and everything above them in the inventory.
func (r *Runtime) ancestry(ctx context.Context, refs []types.ManagedObjectReference) (seen inventory, err error) {
	filter := types.PropertyFilterSpec{PropSet: []types.PropertySpec{{Type: "ManagedEntity", PathSet: []string{"name", "parent"}}}}
	for _, ref := range refs {
		filter.ObjectSet = append(filter.ObjectSet, types.ObjectSpec{Obj: ref, SelectSet: upwards()})
	}
	seen.named = map[types.ManagedObjectReference]mo.ManagedEntity{}
	err = r.server.call(ctx, func(c *vim25.Client) error {
		seen.root = c.ServiceContent.RootFolder
		found, err := retrieve(ctx, c, filter)
		for _, object := range found {
			entity := entityOf(object)
			seen.named[entity.Self] = entity
		}
		return err
	})
	return seen, err
}
