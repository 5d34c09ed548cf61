package vsphere

import (
	"context"
	"path"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// Tenants say which machines of a vCenter a namespace may have. They judge a VirtualMachine whose spec says where in the inventory its
// machine is. A Permission error says why the machine may not be there, any other why that could not be judged. Of a machine that is to be
// made, and leaves its datastore to a storage policy, they say too at or below which paths the datastores are that it may be on.
type Tenants func(context.Context, *v1alpha1.VirtualMachine) (datastores []v1alpha1.InventoryPath, err error)

// DiskTenants say on which datastores of a vCenter a namespace may have disks. They judge a VirtualDisk by its name, its UID and its spec.
// A Permission error says why the disk may not be there, any other why that could not be judged.
type DiskTenants func(context.Context, *v1alpha1.VirtualDisk) error

// tenancy asks the tenants before a machine is looked at or told something, and before a disk is made, grown or attached.
type tenancy struct {
	admit     Tenants
	admitDisk DiskTenants
}

// ofDisks has the tenants asked about each disk before a call that makes it, grows it, or gives a machine a hold on it. A look at what
// was made, and letting it go, are never refused. A disk is on the datastore that its spec names: where vCenter has moved it since, no
// namespace has chosen.
func (t tenancy) ofDisks(ctx context.Context, call *runtime.Call, next func(context.Context) error) error {
	switch call.Verb {
	case runtime.VerbEnsureDisk, runtime.VerbAttach:
		if err := t.mayDisk(ctx, call.Disk); err != nil {
			return err
		}
	}
	return next(ctx)
}

func (t tenancy) mayDisk(ctx context.Context, d runtime.Disk) error {
	if t.admitDisk == nil || d.Spec == nil {
		return runtime.NewPermission(nil, "the policies cannot be asked whether the disk may be on its datastore")
	}
	disk := &v1alpha1.VirtualDisk{Spec: *d.Spec.DeepCopy()}
	disk.Namespace, disk.Name, disk.UID = d.Namespace, d.Name, d.UID
	return t.admitDisk(ctx, disk)
}

// placing tells where in the inventory a machine really is, by its path. A NotFound error says that it is nowhere.
type placing func(context.Context, runtime.Machine) (string, error)

// of has the tenants asked about one machine before it is looked at, and before each call that gives its VirtualMachine a hold on it
// or changes it. Withdrawing what is in flight, and letting the machine go, are never refused: whoever loses a right can still end
// what was begun.
func (t tenancy) of(vm *v1alpha1.VirtualMachine, place placing) runtime.Interceptor {
	return func(ctx context.Context, call *runtime.Call, next func(context.Context) error) error {
		var refused error
		switch call.Verb {
		case runtime.VerbCancel, runtime.VerbDelete, runtime.VerbDetach:
		case runtime.VerbObserve:
			refused = t.mayLook(ctx, vm, call.Machine, place)
		default:
			refused = t.may(ctx, vm, call.Machine, place)
		}
		if refused != nil {
			return refused
		}
		return next(ctx)
	}
}

// mayLook asks about a machine that is only looked at, which happens when something has changed. A machine that somebody has, or that
// is let go, is always looked at, and so is one that could not be judged.
func (t tenancy) mayLook(ctx context.Context, vm *v1alpha1.VirtualMachine, m runtime.Machine, place placing) error {
	if !vm.DeletionTimestamp.IsZero() || vm.Busy() {
		return nil
	}
	if err := t.may(ctx, vm, m, place); runtime.IsPermission(err) {
		return err
	}
	return nil
}

// may asks about the machine where it really is, which its spec need not say and which may have changed since it was admitted, as may
// have what its VSphereServer allows. A machine that is nowhere yet is judged by where its spec has it. One to adopt is not told anything
// either: by the time that the call arrives it could have appeared elsewhere. One that we make is where its spec has it, or nowhere.
func (t tenancy) may(ctx context.Context, vm *v1alpha1.VirtualMachine, m runtime.Machine, place placing) error {
	vm = vm.DeepCopy()
	spec := vm.Spec.Runtime.VSphere
	if m.Template != nil && spec.Clone != nil {
		spec.Clone.Template.InventoryPath = m.Template.Path
	}
	found, absent := place(ctx, m)
	switch {
	case absent == nil && spec.Clone != nil:
		spec.Clone.Folder = v1alpha1.InventoryPath(path.Dir(found))
	case absent == nil:
		spec.InventoryPath = found
	case !runtime.IsNotFound(absent):
		return absent
	}
	if _, err := t.admit(ctx, vm); err != nil {
		return err
	}
	if spec.Clone != nil && m.InstanceID == "" {
		return nil
	}
	return absent
}

// making has the tenants asked about the places of a machine that is about to be made.
func (t tenancy) making(vm *v1alpha1.VirtualMachine) judge {
	return func(ctx context.Context, clone *v1alpha1.VSphereClone) ([]v1alpha1.InventoryPath, error) {
		vm := vm.DeepCopy()
		vm.Spec.Runtime.VSphere.Clone = clone
		return t.admit(ctx, vm)
	}
}
