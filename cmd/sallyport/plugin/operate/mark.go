package operate

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/cmd/sallyport/plugin/cli"
	"sallyport.dev/sallyport/reconcilers/pool/busy"
)

// marking is a command that marks a machine as busy, or as not busy any more.
type marking struct {
	*cli.Plugin
	holder string
	during time.Duration
	force  bool
}

func (o *marking) run(command *cobra.Command, args []string, do func(context.Context, *cli.Cluster, string) error) error {
	name, err := machineName(args[0])
	if err != nil {
		return cli.UsageError(command, err)
	}
	c, err := o.Connect()
	if err != nil {
		return err
	}
	return do(command.Context(), c, name)
}

// busy marks a machine. Its guarantee rests on an order of steps here and in the pool reconciler. Here:
//
//	L  the Lease is written
//	S  the VirtualMachine is stamped: a write that always changes it, of this UID; the reply shows whether it is being deleted
//	P  the pool is read: does spec.scaleDownTargets name the machine, is the pool being deleted?
//
// The reconciler, in each pass, without a cache:
//
//	M  the members are read
//	Q  the Leases are read
//	R  the victims are written to status.removing
//	D  each is deleted if it still has the UID and the resourceVersion of M
//
// An unnamed victim has no Lease at Q, so only L after Q matters, and M is before Q. If D is before S, the reply of S has a
// deletionTimestamp, or the machine does not exist any more: the command fails. If D is after S, and so after M, L and S, the machine
// has another resourceVersion than at M: D fails, and the next pass sees the Lease at its Q. There is no third case.
//
// Nothing else is needed. Whether status.removing has the machine after S does not matter: a pass that chose it before L fails at D,
// and later passes, of any leader, choose anew by M and Q. P is not about unnamed victims, but about machines that are deleted busy or
// not: a job that begins on one of them is lost. A machine that is named after P was named regardless of the mark.
func (o *marking) busy(ctx context.Context, c *cli.Cluster, name string) error {
	vm := &v1alpha1.VirtualMachine{}
	if err := c.Get(ctx, c.Key(name), vm); err != nil {
		return err
	}
	lease, renewed, err := o.hold(ctx, c, vm)
	if err == nil {
		err = o.confirm(ctx, c, vm)
	}
	if err != nil {
		if lease != nil && !renewed { // what was marked before stays marked
			o.takeBack(ctx, c, lease)
		}
		return err
	}
	fmt.Fprintf(o.Out, "virtualmachine.%s/%s is busy until %s: %s\n", v1alpha1.GroupName, name, until(lease, o.Now()), o.holder)
	return nil
}

// hold writes the Lease of a machine that is not being deleted, unless another holder has it. It also returns the Lease if the result of
// the write is unknown. renewed reports whether this holder had marked the machine before.
func (o *marking) hold(ctx context.Context, c *cli.Cluster, vm *v1alpha1.VirtualMachine) (lease *coordinationv1.Lease, renewed bool, err error) {
	if err := staying(vm); err != nil {
		return nil, false, err
	}
	key := c.Key(busy.LeaseName(vm.Name))
	for range tries {
		now := o.Now()
		lease = &coordinationv1.Lease{}
		err = c.Get(ctx, key, lease)
		write := func() error { return c.Update(ctx, lease) }
		switch {
		case apierrors.IsNotFound(err):
			lease.Namespace, lease.Name = key.Namespace, key.Name
			write = func() error { return c.Create(ctx, lease) }
		case err != nil:
			return nil, false, fmt.Errorf("reading Lease %s: %w", key.Name, err)
		case busy.Of(lease) == "":
			return nil, false, foreign(lease)
		case busy.Of(lease) == vm.UID && busy.Until(lease, now).After(now) && busy.Holder(lease) != o.holder:
			return nil, false, fmt.Errorf("VirtualMachine %s is already busy until %s: %s", vm.Name, until(lease, now), busy.Holder(lease))
		}
		renewed = busy.Of(lease) == vm.UID && busy.Until(lease, now).After(now)
		busy.Mark(lease, vm, o.holder, now, o.during)
		if err = write(); !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			break
		}
	}
	if err != nil {
		return lease, renewed, fmt.Errorf("marking VirtualMachine %s as busy: %w", vm.Name, err)
	}
	return lease, renewed, nil
}

// confirm annotates the machine of a written Lease. It returns an error if the machine is going to be deleted anyway.
func (o *marking) confirm(ctx context.Context, c *cli.Cluster, vm *v1alpha1.VirtualMachine) error {
	switch err := stamp(ctx, c, vm); {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("VirtualMachine %s has just been deleted", vm.Name)
	case err != nil:
		return fmt.Errorf("annotating VirtualMachine %s: %w", vm.Name, err)
	}
	if err := staying(vm); err != nil {
		return err
	}
	owner := metav1.GetControllerOf(vm)
	if owner == nil || owner.Kind != cli.PoolKind {
		return nil
	}
	pool := &v1alpha1.VirtualMachinePool{}
	err := c.Get(ctx, c.Key(owner.Name), pool)
	named := func(t v1alpha1.ScaleDownTarget) bool { return t.UID == vm.UID }
	switch {
	case apierrors.IsNotFound(err), err == nil && (pool.UID != owner.UID || !pool.DeletionTimestamp.IsZero()):
		return fmt.Errorf("VirtualMachine %s is deleted together with VirtualMachinePool %s", vm.Name, owner.Name)
	case err != nil:
		return fmt.Errorf("reading spec.scaleDownTargets of VirtualMachinePool %s for VirtualMachine %s: %w", owner.Name, vm.Name, err)
	case slices.ContainsFunc(pool.Spec.ScaleDownTargets, named):
		return fmt.Errorf("VirtualMachine %s will be deleted because it is in spec.scaleDownTargets of VirtualMachinePool %s", vm.Name, pool.Name)
	}
	return nil
}

// staying returns an error if a machine is being deleted.
func staying(vm *v1alpha1.VirtualMachine) error {
	if vm.DeletionTimestamp.IsZero() {
		return nil
	}
	return fmt.Errorf("VirtualMachine %s is being deleted", vm.Name)
}

// foreign returns the error for a Lease of another owner with the name of a busy Lease.
func foreign(lease *coordinationv1.Lease) error {
	return fmt.Errorf("existing Lease %s does not belong to Sallyport: it has no label %s", lease.Name, v1alpha1.LabelBusyMachine)
}

// until returns the expiry time of a Lease as text.
func until(lease *coordinationv1.Lease, now time.Time) string {
	return busy.Until(lease, now).UTC().Format(time.RFC3339)
}

// stamp annotates a machine with a new value, so that a write happens, and reads it. If vm has a UID, it is a precondition.
func stamp(ctx context.Context, c *cli.Cluster, vm *v1alpha1.VirtualMachine) error {
	metadata := map[string]any{"annotations": map[string]string{v1alpha1.AnnotationBusyStamp: string(uuid.NewUUID())}}
	if vm.UID != "" {
		metadata["uid"] = vm.UID
	}
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return err
	}
	return c.Patch(ctx, vm, client.RawPatch(types.MergePatchType, patch))
}

// takeBack deletes a Lease that this command wrote, even if the command is interrupted. It keeps a Lease that another client has written
// since.
func (o *marking) takeBack(ctx context.Context, c *cli.Cluster, written *coordinationv1.Lease) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), o.Patience)
	defer cancel()
	lease := &coordinationv1.Lease{}
	err := c.Get(ctx, client.ObjectKeyFromObject(written), lease)
	if err == nil && busy.Holder(lease) == o.holder && lease.Spec.RenewTime.Equal(renewal(written)) {
		err = c.Delete(ctx, lease, client.Preconditions{UID: &lease.UID, ResourceVersion: &lease.ResourceVersion})
	}
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		fmt.Fprintf(o.ErrOut, "Warning: deleting Lease %s failed, it stays until it expires: %v\n", written.Name, err)
	}
}

// renewal returns the renew time of a Lease in the precision of the API.
func renewal(lease *coordinationv1.Lease) *metav1.MicroTime {
	return new(metav1.NewMicroTime(lease.Spec.RenewTime.Truncate(time.Microsecond)))
}

// idle deletes the Lease of a machine and annotates the machine, so that its pool is reconciled immediately.
func (o *marking) idle(ctx context.Context, c *cli.Cluster, name string) error {
	said := "not busy"
	for i := range tries {
		lease := &coordinationv1.Lease{}
		err := c.Get(ctx, c.Key(busy.LeaseName(name)), lease)
		if apierrors.IsNotFound(err) {
			break
		}
		if err == nil {
			err = o.mayEnd(lease, name)
		}
		if err == nil {
			err = c.Delete(ctx, lease, client.Preconditions{UID: &lease.UID, ResourceVersion: &lease.ResourceVersion})
		}
		if apierrors.IsConflict(err) && i+1 < tries {
			continue // it was renewed meanwhile
		}
		if client.IgnoreNotFound(err) != nil {
			return err
		}
		said = "no longer busy"
		break
	}
	if err := stamp(ctx, c, &v1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: name}}); client.IgnoreNotFound(err) != nil {
		fmt.Fprintf(o.ErrOut, "Warning: annotating VirtualMachine %s failed, its pool may react later: %v\n", name, err)
	}
	fmt.Fprintf(o.Out, "virtualmachine.%s/%s is %s\n", v1alpha1.GroupName, name, said)
	return nil
}

// mayEnd returns an error if another holder has the Lease.
func (o *marking) mayEnd(lease *coordinationv1.Lease, machine string) error {
	now := o.Now()
	switch holder := busy.Holder(lease); {
	case busy.Of(lease) == "":
		return foreign(lease)
	case o.force, holder == o.holder, !busy.Until(lease, now).After(now):
		return nil
	default:
		return fmt.Errorf("VirtualMachine %s is busy until %s: %s; to remove the mark, add --holder %[3]q or --force",
			machine, until(lease, now), cmp.Or(holder, "no holder"))
	}
}
