package machine

import (
	"context"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/inventory"
)

// placement is where a machine is to be created, and from what template. From here on the template is identified by its reference,
// even if its path changes.
type placement struct {
	template *mo.VirtualMachine
	folder   types.ManagedObjectReference
	inventory.Pooled
	datastore *mo.Datastore
	connected []types.ManagedObjectReference       // the networks
	networks  []types.BaseVirtualDeviceBackingInfo // how adapters are connected to them
	host      *types.ManagedObjectReference        // nil leaves it to DRS
	profile   string                               // ID of its storage policy, empty for the datastore's default
}

// placement finds all objects, and chooses those that the spec leaves open. The first missing or unsuitable one is an
// InvalidSpec error that names its field.
func (r *Runtime) placement(ctx context.Context, m runtime.Machine) (*placement, error) {
	clone := cloneOf(m)
	p := &placement{template: &mo.VirtualMachine{}, datastore: &mo.Datastore{}}
	if err := r.template(ctx, m, p.template); err != nil {
		return nil, err
	}
	var err error
	if p.folder, err = r.Folder(ctx, inventory.OfClone, clone.Folder); err != nil {
		return nil, err
	}
	if p.Pooled, err = r.Pool(ctx, inventory.OfClone, clone.ResourcePool); err != nil {
		return nil, err
	}
	for _, path := range clone.Networks {
		network, backing, err := r.Connection(ctx, inventory.OfClone, "networks", path, p.Compute)
		if err != nil {
			return nil, err
		}
		p.connected, p.networks = append(p.connected, network), append(p.networks, backing)
	}
	if err := r.place(ctx, m, p); err != nil {
		return nil, err
	}
	needs := inventory.Needs{Datastores: []types.ManagedObjectReference{p.datastore.Self}, Networks: p.connected}
	p.host, err = r.HostFor(ctx, m, p.Compute, needs)
	return p, err
}

// place finds or chooses the datastore, and asks the tenants about all places.
func (r *Runtime) place(ctx context.Context, m runtime.Machine, p *placement) error {
	clone := cloneOf(m)
	if clone.Datastore != "" {
		if err := r.Datastore(ctx, inventory.OfClone, clone.Datastore, p.datastore); err != nil {
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
	ref, err := r.At(ctx, inventory.OfClone, "template.inventoryPath", path, "template", "VirtualMachine")
	if err != nil {
		return err
	}
	if err := r.Read(ctx, ref, into, ofTemplate...); err != nil {
		return err
	}
	switch {
	case into.Config == nil || !into.Config.Template:
		return inventory.Invalid("template.inventoryPath", "the machine at %s is not a template", path)
	case into.Snapshot != nil:
		return inventory.Invalid("template.inventoryPath", "the template at %s has snapshots: remove them", path)
	}
	return nil
}

// storage finds the storage policy of a clone, which its datastore must satisfy.
func (r *Runtime) storage(ctx context.Context, clone *v1alpha1.VSphereClone, p *placement) error {
	if clone.StoragePolicy == "" {
		return nil
	}
	profile, satisfying, err := r.Satisfying(ctx, inventory.OfClone, clone.StoragePolicy, []types.ManagedObjectReference{p.datastore.Self})
	p.profile = profile
	if err == nil && len(satisfying) == 0 {
		err = inventory.Invalid("storagePolicy", "the datastore %s does not satisfy the storage policy %q", clone.Datastore, clone.StoragePolicy)
	}
	return err
}

// location returns where all files of the machine are placed. The storage policy is set per disk and for the other
// files.
func (p *placement) location() types.VirtualMachineRelocateSpec {
	location := types.VirtualMachineRelocateSpec{Pool: &p.Pool, Datastore: &p.datastore.Self, Host: p.host}
	if p.profile == "" {
		return location
	}
	profile := []types.BaseVirtualMachineProfileSpec{&types.VirtualMachineDefinedProfileSpec{ProfileId: p.profile}}
	location.Profile = profile
	for _, disk := range object.VirtualDeviceList(p.template.Config.Hardware.Device).SelectByType((*types.VirtualDisk)(nil)) {
		location.Disk = append(location.Disk, types.VirtualMachineRelocateSpecDiskLocator{
			DiskId: disk.GetVirtualDevice().Key, Datastore: p.datastore.Self, Profile: profile,
		})
	}
	return location
}
