package claims

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime/kubevirt"
)

// guarded gives the client of Sallyport. Each of its writes is held against what was promised.
func (w *world) guarded() client.WithWatch {
	return interceptor.NewClient(w.WithWatch, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			return w.judge(o, func() error { return c.Patch(ctx, o, patch, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			return w.judge(o, func() error { return c.SubResource(sub).Patch(ctx, o, patch, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			err := c.Delete(ctx, o, opts...)
			switch o := o.(type) {
			case *corev1.PersistentVolumeClaim:
				if err == nil {
					w.deletedClaim(o.Name)
				}
			case *virtv1.VirtualMachine:
				if err == nil {
					w.deletedVM(o)
				}
			}
			return err
		},
	})
}

func (w *world) breaks(format string, args ...any) {
	w.broken = append(w.broken, fmt.Sprintf(format, args...))
}

// judge compares a KubeVirt VirtualMachine before and after a write.
func (w *world) judge(o client.Object, write func() error) error {
	if _, is := o.(*virtv1.VirtualMachine); !is {
		return write()
	}
	before := w.vm(o.GetName())
	if err := write(); err != nil {
		return err
	}
	after := w.vm(o.GetName())
	if starts(after) && !starts(before) {
		w.started(after)
	}
	w.changed(before, after)
	return nil
}

func starts(vm *virtv1.VirtualMachine) bool {
	return slices.ContainsFunc(vm.Status.StateChangeRequests, func(r virtv1.VirtualMachineStateChangeRequest) bool { return r.Action == virtv1.StartRequest })
}

// started looks whether a machine that is being started meets another writer of its claims.
func (w *world) started(vm *virtv1.VirtualMachine) {
	if vm.Status.RestoreInProgress != nil {
		w.breaks("%s is started while KubeVirt restores it", vm.Name)
	}
	for _, vmi := range w.instances() {
		if vmi.Name != vm.Name {
			w.meet(vm, "instance "+vmi.Name, &vmi.Spec)
		}
	}
	for _, other := range w.vms() {
		strategy, _ := other.RunStrategy()
		if other.Name != vm.Name && (starts(&other) || strategy == virtv1.RunStrategyAlways) {
			w.meet(vm, "machine "+other.Name, &other.Spec.Template.Spec)
		}
	}
}

func (w *world) meet(vm *virtv1.VirtualMachine, who string, spec *virtv1.VirtualMachineInstanceSpec) {
	mine, theirs := &vm.Spec.Template.Spec, claimsBy(spec)
	for volume, claim := range claimsBy(mine) {
		for other, of := range theirs {
			if claim == of && (!shared(mine, volume) || !shared(spec, other)) {
				w.breaks("%s is started with claim %s, which %s has", vm.Name, claim, who)
			}
		}
	}
}

// claimsBy returns the claims by the names of their volumes.
func claimsBy(spec *virtv1.VirtualMachineInstanceSpec) map[string]string {
	all := map[string]string{}
	for _, v := range spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			all[v.Name] = v.PersistentVolumeClaim.ClaimName
		}
	}
	return all
}

func shared(spec *virtv1.VirtualMachineInstanceSpec, volume string) bool {
	return slices.ContainsFunc(spec.Domain.Devices.Disks, func(d virtv1.Disk) bool { return d.Name == volume && d.Shareable != nil && *d.Shareable })
}

// changed holds the volumes after a write against those before. Sallyport may take away what it has added since it has the machine, and the
// claim that the status of a VirtualDisk of the machine records.
func (w *world) changed(before, after *virtv1.VirtualMachine) {
	was, is := claimsBy(&before.Spec.Template.Spec), claimsBy(&after.Spec.Template.Spec)
	if len(after.Spec.Template.Spec.Volumes) != len(is) {
		w.breaks("%s has two volumes of one name: %v", after.Name, after.Spec.Template.Spec.Volumes)
	}
	for volume, claim := range was {
		if is[volume] == claim {
			continue
		}
		recorded := slices.ContainsFunc(w.disks(), func(d v1alpha1.VirtualDisk) bool {
			by := d.Status.AttachedTo
			return d.Status.DiskID == claim && by != nil && string(by.UID) == before.Labels[kubevirt.LabelMachine]
		})
		if w.added[after.UID][volume] != claim && !recorded {
			w.breaks("volume %s of %s had claim %s, and now has %q", volume, after.Name, claim, is[volume])
		}
	}
	for volume, claim := range is {
		if was[volume] == claim {
			continue
		}
		if others := w.naming(claim, after.Name); others != "" {
			w.breaks("%s gets claim %s, which %s has", after.Name, claim, others)
		}
		if w.added[after.UID] == nil {
			w.added[after.UID] = map[string]string{}
		}
		w.added[after.UID][volume] = claim
	}
	if after.Labels[kubevirt.LabelMachine] == "" { // it was released with all that it has
		delete(w.added, after.UID)
	}
}

// naming returns who names a claim, beside the machine of that name, or "".
func (w *world) naming(claim, but string) string {
	for _, vm := range w.vms() {
		for _, of := range claimsBy(&vm.Spec.Template.Spec) {
			if of == claim && vm.Name != but {
				return "machine " + vm.Name
			}
		}
	}
	for _, vmi := range w.instances() {
		for _, of := range claimsBy(&vmi.Spec) {
			if of == claim && vmi.Name != but {
				return "instance " + vmi.Name
			}
		}
	}
	return ""
}

func (w *world) deletedClaim(claim string) {
	if by := w.naming(claim, ""); by != "" {
		w.breaks("claim %s was deleted, which %s has", claim, by)
	}
}

// deletedVM looks at what the garbage collector deletes with a machine.
func (w *world) deletedVM(vm *virtv1.VirtualMachine) {
	for _, c := range w.claims() {
		for _, o := range c.OwnerReferences {
			if o.UID != vm.UID {
				continue
			}
			for _, d := range w.disks() {
				if d.Status.DiskID == c.Name && d.DeletionTimestamp.IsZero() {
					w.breaks("%s is deleted, and with it claim %s of VirtualDisk %s", vm.Name, c.Name, d.Name)
				}
			}
			if by := w.naming(c.Name, vm.Name); by != "" {
				w.breaks("%s is deleted, and with it claim %s, which %s has", vm.Name, c.Name, by)
			}
		}
	}
}
