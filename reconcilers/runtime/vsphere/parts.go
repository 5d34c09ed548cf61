package vsphere

import (
	"context"
	"fmt"
	"slices"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// cloneField is where in its spec a machine says how it is made.
const cloneField = "spec.runtime.vsphere.clone."

// parts are what a machine is made of, as it is in the inventory now. The template is known by its reference from here on, whatever
// comes to be at its path.
type parts struct {
	template  *mo.VirtualMachine
	folder    types.ManagedObjectReference
	pool      types.ManagedObjectReference
	named     types.ManagedObjectReference // What the spec names for its pool: the pool, or the cluster or host whose own it is.
	datastore *mo.Datastore
	connected []types.ManagedObjectReference       // The networks,
	networks  []types.BaseVirtualDeviceBackingInfo // and how adapters are connected to them.
	host      *types.ManagedObjectReference        // Nil leaves it to DRS.
	profile   string                               // The ID of its storage policy, and empty for the datastore's own.
}

// parts looks for all of them, and chooses what the spec leaves open. The first one that is missing, or will not do, is an InvalidSpec error that names its field.
func (r *Runtime) parts(ctx context.Context, m runtime.Machine) (*parts, error) {
	clone := cloneOf(m)
	p := &parts{template: &mo.VirtualMachine{}, datastore: &mo.Datastore{}}
	if err := r.template(ctx, clone, p.template); err != nil {
		return nil, err
	}
	var err error
	if p.folder, err = r.folder(ctx, clone); err != nil {
		return nil, err
	}
	for _, path := range clone.Networks {
		network, backing, err := r.network(ctx, path)
		if err != nil {
			return nil, err
		}
		p.connected, p.networks = append(p.connected, network), append(p.networks, backing)
	}
	compute, err := r.pool(ctx, clone, p)
	if err != nil {
		return nil, err
	}
	if err := r.place(ctx, m, compute, p); err != nil {
		return nil, err
	}
	needs := needs{datastores: []types.ManagedObjectReference{p.datastore.Self}, networks: p.connected}
	p.host, err = r.hostFor(ctx, m, compute, needs)
	return p, err
}

// place finds or chooses the datastore, and has the tenants judge all of the places.
func (r *Runtime) place(ctx context.Context, m runtime.Machine, compute types.ManagedObjectReference, p *parts) error {
	clone := cloneOf(m)
	if clone.Datastore != "" {
		if err := r.datastore(ctx, clone, p.datastore); err != nil {
			return err
		}
		if err := r.storage(ctx, clone, p); err != nil {
			return err
		}
	}
	real, datastores, err := r.judged(ctx, clone, p)
	if err != nil || clone.Datastore != "" {
		return err
	}
	return r.chooseDatastore(ctx, m, compute, p, real, datastores)
}

func (r *Runtime) template(ctx context.Context, clone *v1alpha1.VSphereClone, into *mo.VirtualMachine) error {
	path := clone.Template.InventoryPath
	ref, err := r.at(ctx, "template.inventoryPath", path, "template", "VirtualMachine")
	if err != nil {
		return err
	}
	if err := r.read(ctx, ref, into, "config.template", "config.hardware", "config.extraConfig", "snapshot"); err != nil {
		return err
	}
	switch {
	case into.Config == nil || !into.Config.Template:
		return invalid("template.inventoryPath", "the machine at %s is not a template", path)
	case into.Snapshot != nil:
		return invalid("template.inventoryPath", "the template at %s has snapshots: remove them", path)
	}
	return nil
}

func (r *Runtime) folder(ctx context.Context, clone *v1alpha1.VSphereClone) (types.ManagedObjectReference, error) {
	ref, err := r.at(ctx, "folder", clone.Folder, "folder", "Folder")
	if err != nil {
		return ref, err
	}
	var folder mo.Folder
	if err := r.read(ctx, ref, &folder, "childType"); err != nil {
		return ref, err
	}
	if !slices.Contains(folder.ChildType, "VirtualMachine") {
		return ref, invalid("folder", "the folder %s is not one for machines", clone.Folder)
	}
	return ref, nil
}

func (r *Runtime) datastore(ctx context.Context, clone *v1alpha1.VSphereClone, into *mo.Datastore) error {
	ref, err := r.at(ctx, "datastore", clone.Datastore, "datastore", "Datastore")
	if err != nil {
		return err
	}
	if err := r.read(ctx, ref, into, "summary"); err != nil {
		return err
	}
	if inMaintenance(into.Summary) {
		return invalid("datastore", "the datastore %s is in maintenance mode", clone.Datastore)
	}
	return nil
}

func inMaintenance(of types.DatastoreSummary) bool {
	return of.MaintenanceMode != "" && of.MaintenanceMode != string(types.DatastoreSummaryMaintenanceModeStateNormal)
}

func (r *Runtime) network(ctx context.Context, path v1alpha1.InventoryPath) (
	ref types.ManagedObjectReference, backing types.BaseVirtualDeviceBackingInfo, err error,
) {
	ref, err = r.at(ctx, "networks", path, "network", networkTypes...)
	if err != nil {
		return ref, nil, err
	}
	err = r.server.call(ctx, func(c *vim25.Client) (err error) {
		backing, err = object.NewReference(c, ref).(object.NetworkReference).EthernetCardBackingInfo(ctx)
		return err
	})
	return ref, backing, err
}

// pool finds the resource pool, and gives what has it: a cluster, or a host that stands alone.
func (r *Runtime) pool(ctx context.Context, clone *v1alpha1.VSphereClone, p *parts) (compute types.ManagedObjectReference, err error) {
	p.named, err = r.at(ctx, "resourcePool", clone.ResourcePool, "resource pool, cluster or host", poolTypes...)
	if err != nil {
		return compute, err
	}
	if p.named.Type != "ResourcePool" {
		var root mo.ComputeResource
		if err := r.read(ctx, p.named, &root, "resourcePool"); err != nil {
			return compute, err
		}
		if root.ResourcePool == nil {
			return compute, invalid("resourcePool", "%s has no resource pool", clone.ResourcePool)
		}
		p.pool = *root.ResourcePool
		return p.named, nil
	}
	var pool mo.ResourcePool
	err = r.read(ctx, p.named, &pool, "owner")
	p.pool = p.named
	return pool.Owner, err
}

// at gives what is at a place in the inventory, which must be of one of the types. What those are called together, what says.
func (r *Runtime) at(
	ctx context.Context, field string, path v1alpha1.InventoryPath, what string, kinds ...string,
) (types.ManagedObjectReference, error) {
	ref, err := r.named(ctx, path, kinds...)
	switch {
	case err != nil:
		return types.ManagedObjectReference{}, err
	case ref == nil:
		return types.ManagedObjectReference{}, invalid(field, "vCenter %s has no %s at %s, or does not show it", r.server.config.Name, what, path)
	}
	return *ref, nil
}

// named gives what is at a place in the inventory, and nil if that is nothing, or not of one of the types.
func (r *Runtime) named(ctx context.Context, path v1alpha1.InventoryPath, kinds ...string) (ref *types.ManagedObjectReference, err error) {
	err = r.server.call(ctx, func(c *vim25.Client) (err error) {
		ref, err = byPath(string(path)).find(ctx, c)
		return err
	})
	if err != nil || ref == nil || !slices.Contains(kinds, ref.Type) {
		return nil, err
	}
	return ref, nil
}

// read reads properties of one thing.
func (r *Runtime) read(ctx context.Context, ref types.ManagedObjectReference, into any, properties ...string) error {
	return r.server.call(ctx, func(c *vim25.Client) error {
		return property.DefaultCollector(c).RetrieveOne(ctx, ref, properties, into)
	})
}

// invalid is the error for a field of the clone.
func invalid(field, format string, args ...any) error {
	return runtime.NewInvalidSpec(nil, "%s%s: %s", cloneField, field, fmt.Sprintf(format, args...))
}
