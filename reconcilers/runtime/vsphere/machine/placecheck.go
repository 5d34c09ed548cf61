package machine

import (
	"context"
	"fmt"
	"strings"

	"github.com/vmware/govmomi/vim25/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/inventory"
)

// PlaceCheck decides whether a machine may be created at the places of a clone. If the clone names no datastore, it also
// returns the allowed ones: those at or below the paths.
type PlaceCheck func(context.Context, *v1alpha1.VSphereClone) (datastores []v1alpha1.InventoryPath, err error)

func allowAnywhere(context.Context, *v1alpha1.VSphereClone) ([]v1alpha1.InventoryPath, error) {
	return []v1alpha1.InventoryPath{""}, nil
}

// checkedClone returns the clone with the current paths of its places and, if it names no datastore, the allowed ones. The
// tenants are asked again if a path differs from the spec: the object may have been renamed or moved since the spec
// was admitted. Errors do not reveal the new path, which may be outside the namespace's tenancy.
func (r *Runtime) checkedClone(ctx context.Context, clone *v1alpha1.VSphereClone, p *placement) (
	real *v1alpha1.VSphereClone, datastores []v1alpha1.InventoryPath, err error,
) {
	real, moved, err := r.currentClone(ctx, clone, p)
	if err != nil || len(moved) == 0 && clone.Datastore != "" {
		return real, nil, err
	}
	datastores, err = r.placeCheck(ctx, real)
	if runtime.IsPermission(err) && len(moved) > 0 {
		err = runtime.NewPermission(err, "%s%s: vCenter %s has this at another path now, where the namespace may not create machines",
			inventory.OfClone, strings.Join(moved, ", "), r.Config.Name)
	}
	return real, datastores, err
}

// currentClone returns the clone with the current paths of its places, and the fields whose paths differ.
func (r *Runtime) currentClone(ctx context.Context, clone *v1alpha1.VSphereClone, p *placement) (real *v1alpha1.VSphereClone, moved []string, err error) {
	real = clone.DeepCopy()
	type place struct {
		field string
		ref   types.ManagedObjectReference
		path  *v1alpha1.InventoryPath
	}
	places := []place{
		{templateField(clone), p.template.Self, &real.Template.InventoryPath},
		{"folder", p.folder, &real.Folder},
		{"resourcePool", p.Named, &real.ResourcePool},
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
	seen, err := r.Ancestry(ctx, refs)
	if err != nil {
		return nil, nil, err
	}
	for _, place := range places {
		path, known := seen.Shown(place.ref)
		if !known {
			return nil, nil, inventory.Invalid(place.field, "vCenter %s does not show the full path of %s, which is needed to check spec.tenants",
				r.Config.Name, *place.path)
		}
		if path != string(*place.path) {
			moved = append(moved, place.field)
		}
		*place.path = v1alpha1.InventoryPath(path)
	}
	return real, moved, nil
}
