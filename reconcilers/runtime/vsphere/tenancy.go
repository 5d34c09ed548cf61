package vsphere

import (
	"context"
	"path"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/machine"
)

// Tenants decide which machines of a vCenter a namespace may have. They evaluate a VirtualMachine whose spec contains
// the actual places of its machine. A Permission error is the denial, any other error means that they could not be
// evaluated. For a machine to create whose datastore is chosen by storage policy they also return the paths of the
// allowed datastores.
type Tenants func(context.Context, *v1alpha1.VirtualMachine) (datastores []v1alpha1.InventoryPath, err error)

// DiskTenants decide on which datastores of a vCenter a namespace may have disks. They evaluate a VirtualDisk with
// its name, UID and spec. A Permission error is the denial, any other error means that they could not be evaluated.
type DiskTenants func(context.Context, *v1alpha1.VirtualDisk) error

// tenancy asks the tenants before a machine is observed or changed, and before a disk is created, grown or attached.
type tenancy struct {
	admit     Tenants
	admitDisk DiskTenants
}

// ofDisks asks the tenants about each disk before a call that creates, grows or attaches it. Observing, detaching and
// deleting a disk are always allowed. A disk is evaluated for the datastore in its spec: no namespace has chosen
// where vCenter has moved it since.
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

// placing returns the actual inventory path of a machine, or a NotFound error.
type placing func(context.Context, runtime.Machine) (string, error)

// of asks the tenants about one machine before it is observed, and before each call that changes it or claims it for
// its VirtualMachine. Cancel and Delete are always allowed, so that operations can be ended after the loss of a right.
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

// mayLook asks about a machine that is only observed. A machine that is claimed or being deleted is always observed,
// and so is one that could not be evaluated.
func (t tenancy) mayLook(ctx context.Context, vm *v1alpha1.VirtualMachine, m runtime.Machine, place placing) error {
	if !vm.DeletionTimestamp.IsZero() || vm.Busy() {
		return nil
	}
	if err := t.may(ctx, vm, m, place); runtime.IsPermission(err) {
		return err
	}
	return nil
}

// may asks about the machine at its actual place, which may differ from the spec and may have changed since
// admission, like spec.tenants of the VSphereServer. A machine that does not exist yet is evaluated for the place in
// its spec. One to adopt is then not changed either: it could appear elsewhere in the meantime. A created machine is
// where its spec says, or nowhere.
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

// placeCheck returns the check of the places for a machine about to be created.
func (t tenancy) placeCheck(vm *v1alpha1.VirtualMachine) machine.PlaceCheck {
	return func(ctx context.Context, clone *v1alpha1.VSphereClone) ([]v1alpha1.InventoryPath, error) {
		vm := vm.DeepCopy()
		vm.Spec.Runtime.VSphere.Clone = clone
		return t.admit(ctx, vm)
	}
}
