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

// section is the prefix of the spec's fields for a place.
type section string

// ofClone is the section of a machine to create.
const ofClone section = "spec.runtime.vsphere.clone."

// parts are the inventory objects for a machine to create. From here on the template is identified by its reference,
// even if its path changes.
type parts struct {
	template *mo.VirtualMachine
	folder   types.ManagedObjectReference
	pooled
	datastore *mo.Datastore
	connected []types.ManagedObjectReference       // the networks
	networks  []types.BaseVirtualDeviceBackingInfo // how adapters are connected to them
	host      *types.ManagedObjectReference        // nil leaves it to DRS
	profile   string                               // ID of its storage policy, empty for the datastore's default
}

// parts finds all parts and chooses those that the spec leaves open. The first missing or unsuitable one is an
// InvalidSpec error that names its field.
func (r *Runtime) parts(ctx context.Context, m runtime.Machine) (*parts, error) {
	clone := cloneOf(m)
	p := &parts{template: &mo.VirtualMachine{}, datastore: &mo.Datastore{}}
	if err := r.template(ctx, m, p.template); err != nil {
		return nil, err
	}
	var err error
	if p.folder, err = r.folder(ctx, ofClone, clone.Folder); err != nil {
		return nil, err
	}
	if p.pooled, err = r.pool(ctx, ofClone, clone.ResourcePool); err != nil {
		return nil, err
	}
	for _, path := range clone.Networks {
		network, backing, err := r.connection(ctx, ofClone, "networks", path, p.compute)
		if err != nil {
			return nil, err
		}
		p.connected, p.networks = append(p.connected, network), append(p.networks, backing)
	}
	if err := r.place(ctx, m, p); err != nil {
		return nil, err
	}
	needs := needs{datastores: []types.ManagedObjectReference{p.datastore.Self}, networks: p.connected}
	p.host, err = r.hostFor(ctx, m, p.compute, needs)
	return p, err
}

// place finds or chooses the datastore, and asks the tenants about all places.
func (r *Runtime) place(ctx context.Context, m runtime.Machine, p *parts) error {
	clone := cloneOf(m)
	if clone.Datastore != "" {
		if err := r.datastore(ctx, ofClone, clone.Datastore, p.datastore); err != nil {
			return err
		}
		if err := r.storage(ctx, clone, p); err != nil {
			return err
		}
	}
	real, datastores, err := r.checkedClone(ctx, clone, p)
	if err != nil || clone.Datastore != "" {
		return err
	}
	return r.chooseDatastore(ctx, m, p, real, datastores)
}

// ofTemplate are the properties read of a template.
var ofTemplate = []string{"config.template", "config.hardware", "config.extraConfig", "config.instanceUuid", "snapshot"}

func (r *Runtime) template(ctx context.Context, m runtime.Machine, into *mo.VirtualMachine) error {
	clone := cloneOf(m)
	if clone.Template.TemplateRef != nil {
		return r.referred(ctx, m, into)
	}
	path := clone.Template.InventoryPath
	ref, err := r.at(ctx, ofClone, "template.inventoryPath", path, "template", "VirtualMachine")
	if err != nil {
		return err
	}
	if err := r.read(ctx, ref, into, ofTemplate...); err != nil {
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

func (r *Runtime) folder(ctx context.Context, in section, path v1alpha1.InventoryPath) (types.ManagedObjectReference, error) {
	ref, err := r.at(ctx, in, "folder", path, "folder", "Folder")
	if err != nil {
		return ref, err
	}
	var folder mo.Folder
	if err := r.read(ctx, ref, &folder, "childType"); err != nil {
		return ref, err
	}
	if !slices.Contains(folder.ChildType, "VirtualMachine") {
		return ref, in.invalid("folder", "the folder %s is not one for machines", path)
	}
	return ref, nil
}

func (r *Runtime) datastore(ctx context.Context, in section, path v1alpha1.InventoryPath, into *mo.Datastore) error {
	ref, err := r.at(ctx, in, "datastore", path, "datastore", "Datastore")
	if err != nil {
		return err
	}
	if err := r.read(ctx, ref, into, "summary"); err != nil {
		return err
	}
	if inMaintenance(into.Summary) {
		return in.invalid("datastore", "the datastore %s is in maintenance mode", path)
	}
	return nil
}

func inMaintenance(of types.DatastoreSummary) bool {
	return of.MaintenanceMode != "" && of.MaintenanceMode != string(types.DatastoreSummaryMaintenanceModeStateNormal)
}

// network returns the network at an inventory path. Networks are the only objects that can share one: a port group of a host with one of a
// distributed switch, or those that NSX creates for a segment on several switches (vmware/govmomi#266). Of them it returns the one that the
// cluster or host has.
func (r *Runtime) network(
	ctx context.Context, in section, field string, path v1alpha1.InventoryPath, compute types.ManagedObjectReference,
) (types.ManagedObjectReference, error) {
	ref, err := r.at(ctx, in, field, path, "network", networkTypes...)
	if err != nil {
		return ref, err
	}
	all, err := r.networksNamedAs(ctx, ref)
	if err != nil || len(all) < 2 {
		return ref, err
	}
	var of mo.ComputeResource
	if err := r.read(ctx, compute, &of, "network"); err != nil {
		return ref, err
	}
	has := slices.DeleteFunc(all, func(n types.ManagedObjectReference) bool { return !slices.Contains(of.Network, n) })
	if len(has) != 1 {
		return ref, in.invalid(field, "vCenter %s has several networks at %s, and the cluster or host has %d of them: rename the one that is meant, or move it to another folder",
			r.server.Config.Name, path, len(has))
	}
	return has[0], nil
}

// networksNamedAs returns the networks with the name of the given one in its folder, the given one among them.
func (r *Runtime) networksNamedAs(ctx context.Context, network types.ManagedObjectReference) (all []types.ManagedObjectReference, err error) {
	names := map[types.ManagedObjectReference]string{}
	err = r.retrieve(ctx, types.PropertyFilterSpec{
		ObjectSet: []types.ObjectSpec{{Obj: network, SelectSet: []types.BaseSelectionSpec{&types.TraversalSpec{
			Type: "ManagedEntity", Path: "parent", Skip: new(true),
			SelectSet: []types.BaseSelectionSpec{&types.TraversalSpec{Type: "Folder", Path: "childEntity"}},
		}}}},
		PropSet: []types.PropertySpec{{Type: "Network", PathSet: []string{"name"}}},
	}, func(object any) {
		entity := entityOf(object)
		names[entity.Self] = entity.Name
	})
	for ref, name := range names {
		if name == names[network] {
			all = append(all, ref)
		}
	}
	return all, err
}

// connection returns a network, and how an adapter is connected to it.
func (r *Runtime) connection(
	ctx context.Context, in section, field string, path v1alpha1.InventoryPath, compute types.ManagedObjectReference,
) (ref types.ManagedObjectReference, backing types.BaseVirtualDeviceBackingInfo, err error) {
	ref, err = r.network(ctx, in, field, path, compute)
	if err != nil {
		return ref, nil, err
	}
	err = r.server.Call(ctx, func(c *vim25.Client) (err error) {
		backing, err = object.NewReference(c, ref).(object.NetworkReference).EthernetCardBackingInfo(ctx)
		return err
	})
	return ref, backing, err
}

type pooled struct {
	named   types.ManagedObjectReference // the object in the spec: the pool, or the cluster or host of a root pool
	pool    types.ManagedObjectReference
	compute types.ManagedObjectReference // its cluster or standalone host
}

func (r *Runtime) pool(ctx context.Context, in section, path v1alpha1.InventoryPath) (p pooled, err error) {
	p.named, err = r.at(ctx, in, "resourcePool", path, "resource pool, cluster or host", poolTypes...)
	if err != nil {
		return p, err
	}
	if p.named.Type != "ResourcePool" {
		var root mo.ComputeResource
		if err := r.read(ctx, p.named, &root, "resourcePool"); err != nil {
			return p, err
		}
		if root.ResourcePool == nil {
			return p, in.invalid("resourcePool", "%s has no resource pool", path)
		}
		p.pool, p.compute = *root.ResourcePool, p.named
		return p, nil
	}
	var pool mo.ResourcePool
	err = r.read(ctx, p.named, &pool, "owner")
	p.pool, p.compute = p.named, pool.Owner
	return p, err
}

// at returns the object at an inventory path, which must have one of the types; what describes the types in the
// error.
func (r *Runtime) at(
	ctx context.Context, in section, field string, path v1alpha1.InventoryPath, what string, kinds ...string,
) (types.ManagedObjectReference, error) {
	ref, err := r.named(ctx, path, kinds...)
	switch {
	case err != nil:
		return types.ManagedObjectReference{}, err
	case ref == nil:
		return types.ManagedObjectReference{}, in.invalid(field, "vCenter %s has no %s at %s, or does not show it", r.server.Config.Name, what, path)
	}
	return *ref, nil
}

// named returns the object at an inventory path, nil if there is none of the types.
func (r *Runtime) named(ctx context.Context, path v1alpha1.InventoryPath, kinds ...string) (ref *types.ManagedObjectReference, err error) {
	err = r.server.Call(ctx, func(c *vim25.Client) (err error) {
		ref, err = byPath(string(path)).find(ctx, c)
		return err
	})
	if err != nil || ref == nil || !slices.Contains(kinds, ref.Type) {
		return nil, err
	}
	return ref, nil
}

func (r *Runtime) read(ctx context.Context, ref types.ManagedObjectReference, into any, properties ...string) error {
	return r.server.Call(ctx, func(c *vim25.Client) error {
		return property.DefaultCollector(c).RetrieveOne(ctx, ref, properties, into)
	})
}

func (in section) invalid(field, format string, args ...any) error {
	return runtime.NewInvalidSpec(nil, "%s%s: %s", in, field, fmt.Sprintf(format, args...))
}

func invalid(field, format string, args ...any) error { return ofClone.invalid(field, format, args...) }
