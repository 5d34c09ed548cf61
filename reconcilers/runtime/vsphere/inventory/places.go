package inventory

import (
	"context"
	"fmt"
	"slices"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// Section is the prefix of the spec's fields for a place.
type Section string

// OfClone is the section of a machine to create.
const OfClone Section = "spec.runtime.vsphere.clone."

// Folder returns the folder for machines at an inventory path.
func (r *Center) Folder(ctx context.Context, in Section, path v1alpha1.InventoryPath) (types.ManagedObjectReference, error) {
	ref, err := r.At(ctx, in, "folder", path, "folder", "Folder")
	if err != nil {
		return ref, err
	}
	var folder mo.Folder
	if err := r.Read(ctx, ref, &folder, "childType"); err != nil {
		return ref, err
	}
	if !slices.Contains(folder.ChildType, "VirtualMachine") {
		return ref, in.Invalid("folder", "the folder %s is not one for machines", path)
	}
	return ref, nil
}

// Datastore reads the datastore at an inventory path, with its summary. One in maintenance mode is an InvalidSpec error.
func (r *Center) Datastore(ctx context.Context, in Section, path v1alpha1.InventoryPath, into *mo.Datastore) error {
	ref, err := r.At(ctx, in, "datastore", path, "datastore", "Datastore")
	if err != nil {
		return err
	}
	if err := r.Read(ctx, ref, into, "summary"); err != nil {
		return err
	}
	if InMaintenance(into.Summary) {
		return in.Invalid("datastore", "the datastore %s is in maintenance mode", path)
	}
	return nil
}

// InMaintenance reports whether a datastore is in maintenance mode, or entering it.
func InMaintenance(of types.DatastoreSummary) bool {
	return of.MaintenanceMode != "" && of.MaintenanceMode != string(types.DatastoreSummaryMaintenanceModeStateNormal)
}

// Network returns the network at an inventory path. Networks are the only objects that can share one: a port group of a host with one of a
// distributed switch, or those that NSX creates for a segment on several switches (vmware/govmomi#266). Of them it returns the one that the
// cluster or host has.
func (r *Center) Network(
	ctx context.Context, in Section, field string, path v1alpha1.InventoryPath, compute types.ManagedObjectReference,
) (types.ManagedObjectReference, error) {
	ref, err := r.At(ctx, in, field, path, "network", networkTypes...)
	if err != nil {
		return ref, err
	}
	all, err := r.networksNamedAs(ctx, ref)
	if err != nil || len(all) < 2 {
		return ref, err
	}
	var of mo.ComputeResource
	if err := r.Read(ctx, compute, &of, "network"); err != nil {
		return ref, err
	}
	has := slices.DeleteFunc(all, func(n types.ManagedObjectReference) bool { return !slices.Contains(of.Network, n) })
	if len(has) != 1 {
		return ref, in.Invalid(field, "vCenter %s has several networks at %s, and the cluster or host has %d of them: rename the one that is meant, or move it to another folder",
			r.Config.Name, path, len(has))
	}
	return has[0], nil
}

// networksNamedAs returns the networks with the name of the given one in its folder, the given one among them.
func (r *Center) networksNamedAs(ctx context.Context, network types.ManagedObjectReference) (all []types.ManagedObjectReference, err error) {
	names := map[types.ManagedObjectReference]string{}
	err = r.Retrieve(ctx, types.PropertyFilterSpec{
		ObjectSet: []types.ObjectSpec{{Obj: network, SelectSet: []types.BaseSelectionSpec{&types.TraversalSpec{
			Type: "ManagedEntity", Path: "parent", Skip: new(true),
			SelectSet: []types.BaseSelectionSpec{&types.TraversalSpec{Type: "Folder", Path: "childEntity"}},
		}}}},
		PropSet: []types.PropertySpec{{Type: "Network", PathSet: []string{"name"}}},
	}, func(object any) {
		entity := EntityOf(object)
		names[entity.Self] = entity.Name
	})
	for ref, name := range names {
		if name == names[network] {
			all = append(all, ref)
		}
	}
	return all, err
}

// Connection returns a network, and how an adapter is connected to it.
func (r *Center) Connection(
	ctx context.Context, in Section, field string, path v1alpha1.InventoryPath, compute types.ManagedObjectReference,
) (ref types.ManagedObjectReference, backing types.BaseVirtualDeviceBackingInfo, err error) {
	ref, err = r.Network(ctx, in, field, path, compute)
	if err != nil {
		return ref, nil, err
	}
	err = r.Call(ctx, func(c *vim25.Client) (err error) {
		backing, err = object.NewReference(c, ref).(object.NetworkReference).EthernetCardBackingInfo(ctx)
		return err
	})
	return ref, backing, err
}

// Pooled is a resource pool, and whose it is.
type Pooled struct {
	Named   types.ManagedObjectReference // the object in the spec: the pool, or the cluster or host of a root pool
	Pool    types.ManagedObjectReference
	Compute types.ManagedObjectReference // its cluster or standalone host
}

// Pool returns the resource pool at an inventory path, the root pool of a cluster or host.
func (r *Center) Pool(ctx context.Context, in Section, path v1alpha1.InventoryPath) (p Pooled, err error) {
	p.Named, err = r.At(ctx, in, "resourcePool", path, "resource pool, cluster or host", poolTypes...)
	if err != nil {
		return p, err
	}
	if p.Named.Type != "ResourcePool" {
		var root mo.ComputeResource
		if err := r.Read(ctx, p.Named, &root, "resourcePool"); err != nil {
			return p, err
		}
		if root.ResourcePool == nil {
			return p, in.Invalid("resourcePool", "%s has no resource pool", path)
		}
		p.Pool, p.Compute = *root.ResourcePool, p.Named
		return p, nil
	}
	var pool mo.ResourcePool
	err = r.Read(ctx, p.Named, &pool, "owner")
	p.Pool, p.Compute = p.Named, pool.Owner
	return p, err
}

// At returns the object at an inventory path, which must have one of the types; what describes the types in the
// error.
func (r *Center) At(
	ctx context.Context, in Section, field string, path v1alpha1.InventoryPath, what string, kinds ...string,
) (types.ManagedObjectReference, error) {
	ref, err := r.Named(ctx, path, kinds...)
	switch {
	case err != nil:
		return types.ManagedObjectReference{}, err
	case ref == nil:
		return types.ManagedObjectReference{}, in.Invalid(field, "vCenter %s has no %s at %s, or does not show it", r.Config.Name, what, path)
	}
	return *ref, nil
}

// Invalid returns the InvalidSpec error about a field of the section.
func (in Section) Invalid(field, format string, args ...any) error {
	return runtime.NewInvalidSpec(nil, "%s%s: %s", in, field, fmt.Sprintf(format, args...))
}

// Invalid returns the InvalidSpec error about a field of a clone.
func Invalid(field, format string, args ...any) error { return OfClone.Invalid(field, format, args...) }
