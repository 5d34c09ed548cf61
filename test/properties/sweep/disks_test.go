//go:build !race

package sweep

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// diskName is what every VirtualDisk is called.
const diskName = "data"

// declareDisk makes the VirtualDisk, which a machine that is declared from then on has.
func (t *trial) declareDisk(ctx context.Context) error {
	d := &v1alpha1.VirtualDisk{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: t.key.Namespace, Name: diskName, UID: uuid.NewUUID(), Finalizers: []string{v1alpha1.VirtualDiskFinalizer},
		},
		Spec: v1alpha1.VirtualDiskSpec{
			Size: resource.MustParse("64Mi"),
			Runtime: v1alpha1.VirtualDiskRuntime{VSphere: &v1alpha1.VSphereDisk{
				ServerRef: v1alpha1.VSphereServerReference{Name: "lab"}, Datastore: "/DC0/datastore/LocalDS_0",
			}},
		},
	}
	err := t.api.Create(ctx, d)
	t.disk = d.UID
	return err
}

// blockDevices are the disks of the machine.
func (t *trial) blockDevices() []v1alpha1.BlockDeviceRef {
	if t.disk == "" {
		return nil
	}
	return []v1alpha1.BlockDeviceRef{{Kind: v1alpha1.BlockDeviceVirtualDisk, Name: diskName}}
}

func (t *trial) lookAtDisk(ctx context.Context) (*v1alpha1.VirtualDisk, error) {
	d := &v1alpha1.VirtualDisk{}
	return d, t.api.Get(ctx, types.NamespacedName{Namespace: t.key.Namespace, Name: diskName}, d)
}

// changeDisk changes the VirtualDisk.
func (t *trial) changeDisk(ctx context.Context, how func(*v1alpha1.VirtualDisk)) error {
	d, err := t.lookAtDisk(ctx)
	if err != nil {
		return err
	}
	how(d)
	return t.api.Update(ctx, d)
}

// removeDisk deletes the VirtualDisk.
func (t *trial) removeDisk(ctx context.Context) error {
	return t.api.Delete(ctx, &v1alpha1.VirtualDisk{ObjectMeta: metav1.ObjectMeta{Namespace: t.key.Namespace, Name: diskName}})
}

// diskOver tells whether the disk is made, as large as wanted, and attached if the machine is to have it; or gone.
func (t *trial) diskOver(ctx context.Context, vm *v1alpha1.VirtualMachine) bool {
	if t.disk == "" {
		return true
	}
	d, err := t.lookAtDisk(ctx)
	switch {
	case err != nil:
		return !t.vcenter.HasFile(t.diskFile())
	case !d.DeletionTimestamp.IsZero() || d.Status.DiskID == "" || d.Status.Capacity == nil || d.Status.Capacity.Cmp(d.Spec.Size) < 0:
		return false
	}
	wanted := vm != nil && vm.Spec.Names(diskName)
	seen := vm != nil && meta.IsStatusConditionTrue(vm.Status.Conditions, string(v1alpha1.ConditionDisksAttached))
	return (d.Status.AttachedTo != nil) == wanted && seen == wanted
}

// diskFile is where the data of the disk is.
func (t *trial) diskFile() string { return "[LocalDS_0] sallyport/" + string(t.disk) + ".vmdk" }

// diskEnd says how it ended for the disk.
func (t *trial) diskEnd(ctx context.Context) (lines []string) {
	if t.disk == "" {
		return nil
	}
	say := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	say("the data of the disk is there: %t", t.vcenter.HasFile(t.diskFile()))
	if t.vcenter.State(t.path).InstanceUUID != "" {
		of := t.vcenter.Hardware(t.path)
		at := slices.Index(of.Files, t.diskFile())
		say("the machine has %d disks, the VirtualDisk among them: %t", len(of.Files), at >= 0)
		if at >= 0 {
			say("it has %d bytes", of.Disks[at])
		}
	}
	d, err := t.lookAtDisk(ctx)
	if err != nil {
		say("the VirtualDisk is gone")
		return lines
	}
	say("the VirtualDisk is %s, taken: %t, and has %s", d.Status.Phase, d.Status.AttachedTo != nil, d.Status.Capacity)
	return lines
}

// clear takes the machine and its template out of the vCenter: a look at a disk is one at every machine on its datastore, which takes the
// simulator a while.
func (t *trial) clear() {
	if t.disk == "" {
		return
	}
	if t.vcenter.State(t.path).InstanceUUID != "" {
		t.vcenter.SetPower(t.path, v1alpha1.PowerStopped)
		t.vcenter.Remove(t.path)
	}
	t.vcenter.Remove(t.template)
}
