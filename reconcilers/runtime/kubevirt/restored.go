package kubevirt

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/commands"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// replaced returns the error of attaching a disk to a machine that has another claim in its volume. If KubeVirt has restored the volume, the
// claim is the disk from now on, which its VirtualMachineRestore records.
func (r *Runtime) replaced(ctx context.Context, s *sight, d runtime.Disk, claim string) error {
	var list snapshotv1.VirtualMachineRestoreList
	switch err := r.Live.List(ctx, &list, client.InNamespace(d.Namespace)); {
	case meta.IsNoMatchError(err):
	case err != nil:
		return runtime.APIFailure(err, "listing the VirtualMachineRestores of namespace %s", d.Namespace)
	}
	var disks v1alpha1.VirtualDiskList
	if err := r.Live.List(ctx, &disks, client.InNamespace(d.Namespace)); err != nil {
		return runtime.APIFailure(err, "listing the VirtualDisks of namespace %s", d.Namespace)
	}
	recorded := func(other v1alpha1.VirtualDisk) bool { return other.UID != d.UID && other.Status.DiskID == claim }
	if i := slices.IndexFunc(disks.Items, recorded); i >= 0 { // users may write what a restore says
		return runtime.NewInUse("KubeVirt VirtualMachine %s has PersistentVolumeClaim %s of VirtualDisk %s in the place of VirtualDisk %s: remove that volume from it",
			s.vm.Name, claim, disks.Items[i].Name, d.Name)
	}
	if slices.ContainsFunc(list.Items, func(of snapshotv1.VirtualMachineRestore) bool { return restores(&of, s.vm.Name, volumeFor(d), claim) }) {
		return runtime.NewRestored(claim, "KubeVirt has restored VirtualDisk %s to PersistentVolumeClaim %s", d.Name, claim)
	}
	return runtime.NewInvalidState(nil, "KubeVirt VirtualMachine %s has PersistentVolumeClaim %s in volume %s, in the place of VirtualDisk %s, and no VirtualMachineRestore "+
		"put it there. To attach the VirtualDisk, remove that volume and its disk: %s. To keep the other claim, remove %s from spec.blockDeviceRefs",
		s.vm.Name, claim, volumeFor(d), d.Name, commands.Line("kubectl", "edit", "virtualmachines.kubevirt.io", s.vm.Name, "-n", d.Namespace), d.Name)
}

// restores reports whether a VirtualMachineRestore that has ended put the claim into that volume of the machine.
func restores(of *snapshotv1.VirtualMachineRestore, vm, volume, claim string) bool {
	if of.Status == nil || of.Status.Complete == nil || !*of.Status.Complete || of.Spec.Target.Kind != "VirtualMachine" || of.Spec.Target.Name != vm {
		return false
	}
	return slices.ContainsFunc(of.Status.Restores, func(v snapshotv1.VolumeRestore) bool {
		return v.VolumeName == volume && v.PersistentVolumeClaimName == claim
	})
}
