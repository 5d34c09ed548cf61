package claims

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime/kubevirt"
)

func (k *kubeVirt) guard() interceptor.Funcs {
	return interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			return k.judge(o, func() error { return c.Patch(ctx, o, patch, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			return k.judge(o, func() error { return c.SubResource(sub).Patch(ctx, o, patch, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			err := c.Delete(ctx, o, opts...)
			switch o := o.(type) {
			case *corev1.PersistentVolumeClaim:
				if err == nil {
					k.deletedClaim(o.Name)
				}
			case *virtv1.VirtualMachine:
				if err == nil {
					k.deletedVM(o)
				}
			}
			return err
		},
	}
}

// judge compares a KubeVirt VirtualMachine before and after a write.
func (k *kubeVirt) judge(o client.Object, write func() error) error {
	if _, is := o.(*virtv1.VirtualMachine); !is {
		return write()
	}
	before := k.vm(o.GetName())
	if err := write(); err != nil {
		return err
	}
	after := o.(*virtv1.VirtualMachine) // as the API server has it
	if why := busy(before); why != "" && (starts(after) || !equality.Semantic.DeepEqual(before.Spec, after.Spec)) {
		k.breaks("%s is changed while there is %s", after.Name, why)
	}
	if starts(after) && !starts(before) {
		k.started(after)
	}
	k.changed(before, after)
	return nil
}

func starts(vm *virtv1.VirtualMachine) bool {
	return slices.ContainsFunc(vm.Status.StateChangeRequests, func(r virtv1.VirtualMachineStateChangeRequest) bool { return r.Action == virtv1.StartRequest })
}

// busy returns what KubeVirt does with the disks of a machine, or "".
func busy(vm *virtv1.VirtualMachine) string {
	switch {
	case vm.Status.RestoreInProgress != nil:
		return "a restore"
	case vm.Status.SnapshotInProgress != nil:
		return "a snapshot"
	}
	return ""
}

// started looks whether a machine that is being started meets another writer of its claims.
func (k *kubeVirt) started(vm *virtv1.VirtualMachine) {
	for _, vmi := range k.instances() {
		if vmi.Name != vm.Name {
			k.meet(vm, "instance "+vmi.Name, &vmi.Spec)
		}
	}
	for _, other := range k.vms() {
		strategy, _ := other.RunStrategy()
		if other.Name != vm.Name && (starts(&other) || strategy == virtv1.RunStrategyAlways) {
			k.meet(vm, "machine "+other.Name, &other.Spec.Template.Spec)
		}
	}
}

func (k *kubeVirt) meet(vm *virtv1.VirtualMachine, who string, spec *virtv1.VirtualMachineInstanceSpec) {
	mine, theirs := &vm.Spec.Template.Spec, claimsBy(spec)
	for volume, claim := range claimsBy(mine) {
		for other, of := range theirs {
			if claim == of && (!shared(mine, volume) || !shared(spec, other)) {
				k.breaks("%s is started with claim %s, which %s has", vm.Name, claim, who)
			}
		}
	}
}

// claimsBy returns the claims by the names of their volumes.
func claimsBy(spec *virtv1.VirtualMachineInstanceSpec) map[string]string {
	all := map[string]string{}
	for _, v := range spec.Volumes {
		if name := claimOf(&v); name != nil {
			all[v.Name] = *name
		}
	}
	return all
}

// claimOf returns where a volume names its claim, or nil.
func claimOf(v *virtv1.Volume) *string {
	switch {
	case v.PersistentVolumeClaim != nil:
		return &v.PersistentVolumeClaim.ClaimName
	case v.DataVolume != nil: // its claim has the same name
		return &v.DataVolume.Name
	}
	return nil
}

func shared(spec *virtv1.VirtualMachineInstanceSpec, volume string) bool {
	return slices.ContainsFunc(spec.Domain.Devices.Disks, func(d virtv1.Disk) bool { return d.Name == volume && d.Shareable != nil && *d.Shareable })
}

// changed holds the volumes after a write against those before. Sallyport may take away what it has added since it has the machine, and a
// volume with the name of one of its own, whose claim the status of a VirtualDisk of the machine records.
func (k *kubeVirt) changed(before, after *virtv1.VirtualMachine) {
	was, is := claimsBy(&before.Spec.Template.Spec), claimsBy(&after.Spec.Template.Spec)
	names := map[string]bool{}
	for _, v := range after.Spec.Template.Spec.Volumes {
		if names[v.Name] {
			k.breaks("%s has two volumes %s", after.Name, v.Name)
		}
		names[v.Name] = true
	}
	for volume, claim := range was {
		if is[volume] == claim {
			continue
		}
		recorded := slices.ContainsFunc(k.disks(), func(d v1alpha1.VirtualDisk) bool {
			by := d.Status.AttachedTo
			return d.Status.DiskID == claim && by != nil && string(by.UID) == before.Labels[kubevirt.LabelMachine]
		})
		ours := recorded && !slices.Contains(foreignVolumes, volume)
		if k.added[after.UID][volume] != claim && !ours {
			k.breaks("volume %s of %s had claim %s, and now has %q", volume, after.Name, claim, is[volume])
		}
	}
	for volume, claim := range is {
		if was[volume] == claim {
			continue
		}
		if others := k.naming(claim, after.Name); others != "" {
			k.breaks("%s gets claim %s, which %s has", after.Name, claim, others)
		}
		if k.added[after.UID] == nil {
			k.added[after.UID] = map[string]string{}
		}
		k.added[after.UID][volume] = claim
	}
	if after.Labels[kubevirt.LabelMachine] == "" { // it was released with all that it has
		delete(k.added, after.UID)
	}
}

// naming returns who names a claim, beside the machine of that name, or "".
func (k *kubeVirt) naming(claim, but string) string {
	for _, vm := range k.vms() {
		for _, of := range claimsBy(&vm.Spec.Template.Spec) {
			if of == claim && vm.Name != but {
				return "machine " + vm.Name
			}
		}
	}
	for _, vmi := range k.instances() {
		for _, of := range claimsBy(&vmi.Spec) {
			if of == claim && vmi.Name != but {
				return "instance " + vmi.Name
			}
		}
	}
	return ""
}

func (k *kubeVirt) deletedClaim(claim string) {
	if by := k.naming(claim, ""); by != "" {
		k.breaks("claim %s was deleted, which %s has", claim, by)
	}
}

// deletedVM looks at what the garbage collector deletes with a machine.
func (k *kubeVirt) deletedVM(vm *virtv1.VirtualMachine) {
	for _, c := range k.claims() {
		for _, o := range c.OwnerReferences {
			if o.UID != vm.UID {
				continue
			}
			for _, d := range k.disks() {
				if d.Status.DiskID == c.Name && d.DeletionTimestamp.IsZero() {
					k.breaks("%s is deleted, and with it claim %s of VirtualDisk %s", vm.Name, c.Name, d.Name)
				}
			}
			if by := k.naming(c.Name, vm.Name); by != "" {
				k.breaks("%s is deleted, and with it claim %s, which %s has", vm.Name, c.Name, by)
			}
		}
	}
}
