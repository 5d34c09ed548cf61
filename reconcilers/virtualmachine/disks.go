package virtualmachine

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/claim"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// diskTrouble is why the disks of a machine are not as its spec wants them.
type diskTrouble struct {
	reason  v1alpha1.ConditionReason
	message string
}

// diskChanged drops what changes nothing for a machine that waits for a disk: that it was taken once more, above all, which is written
// before each attempt to attach it.
var diskChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, was := e.ObjectOld.(*v1alpha1.VirtualDisk)
	now, is := e.ObjectNew.(*v1alpha1.VirtualDisk)
	return was && is && (before.Status.DiskID != now.Status.DiskID || before.Status.Phase != now.Status.Phase ||
		holderOf(before) != holderOf(now) || now.Status.DiskID == "" && readyOf(before) != readyOf(now))
}}

// readyOf is what the condition Ready says.
func readyOf(d *v1alpha1.VirtualDisk) string {
	ready := v1alpha1.ConditionReady.In(d.Status.Conditions)
	if ready == nil {
		return ""
	}
	return ready.Reason + ready.Message
}

func holderOf(d *v1alpha1.VirtualDisk) types.UID {
	if d.Status.AttachedTo == nil {
		return ""
	}
	return d.Status.AttachedTo.UID
}

// ofDisk gives the machines that have a disk or whose spec names it, by the cache.
func (r *Reconciler) ofDisk(ctx context.Context, o client.Object) []reconcile.Request {
	var list v1alpha1.VirtualMachineList
	if err := r.Client.List(ctx, &list, client.InNamespace(o.GetNamespace()), client.MatchingFields{byDisk: o.GetName()}); err != nil {
		log.FromContext(ctx).Error(err, "finding the VirtualMachines of a disk", "VirtualDisk", o.GetName())
	}
	var requests []reconcile.Request
	for i := range list.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	if d, is := o.(*v1alpha1.VirtualDisk); is && d.Status.AttachedTo != nil && !slices.ContainsFunc(list.Items, func(vm v1alpha1.VirtualMachine) bool {
		return vm.Name == d.Status.AttachedTo.Name
	}) {
		requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: d.Namespace, Name: d.Status.AttachedTo.Name}})
	}
	return requests
}

// disks brings about that the machine has the VirtualDisks that its spec names and no others, one at a time. Like a change of size it
// needs no claim: it changes neither power nor place, and whoever holds the machine waits until nothing is in flight. A disk is taken
// before it is attached, in a write over what was read of it, so that two machines never attach the same one; it is given back once it
// was seen not to be attached.
func (r *Reconciler) disks(ctx context.Context, l *look) (bool, error) {
	switch {
	case l.seen.Adopted, !l.seen.Exists && !runtime.Can[runtime.FixedDisks](l.Runtime()):
		return false, nil
	case !runtime.Can[runtime.Disks](l.Runtime()):
		l.diskTrouble = &diskTrouble{v1alpha1.ReasonRuntimeNotSupported, "the runtime of the machine does not support VirtualDisks"}
		return false, nil
	case !l.seen.Quiet() || l.Sent():
		l.diskTrouble = &diskTrouble{v1alpha1.ReasonAttaching, "waiting until the runtime finishes its tasks for the machine"}
		l.Later()
		return false, nil
	}
	if did, err := r.giveBack(ctx, l); did || err != nil {
		return did, err
	}
	if did, err := r.detach(ctx, l); did || err != nil {
		return did, err
	}
	unclaimed, err := r.unclaimed(ctx, l)
	if err != nil {
		return false, err
	}
	for _, name := range append(unclaimed, claim.MissingDisks(l.VM, &l.seen)...) {
		did, err := r.attach(ctx, l, name)
		if did || err != nil {
			return did, err
		}
	}
	return false, nil
}

// giveBack gives a disk back that the machine has, was not seen with, and is not to have: its spec does not name it any more, or the disk
// is being deleted, and waits for nothing else.
func (r *Reconciler) giveBack(ctx context.Context, l *look) (bool, error) {
	var held v1alpha1.VirtualDiskList
	err := r.Client.List(ctx, &held, client.InNamespace(l.VM.Namespace), client.MatchingFields{v1alpha1.FieldDiskHolder: l.VM.Name})
	if err != nil {
		return false, fmt.Errorf("listing the disks of VirtualMachine %s: %w", l.Key(), err)
	}
	for i := range held.Items {
		d := &held.Items[i]
		wanted := l.VM.HasDisk(d.Name) && d.DeletionTimestamp.IsZero()
		if d.Status.AttachedTo.UID != l.VM.UID || wanted || attached(l, d.UID) {
			continue
		}
		d.Free(l.Time)
		if err := r.Client.Status().Update(ctx, d); err != nil {
			return false, client.IgnoreNotFound(fmt.Errorf("releasing VirtualDisk %s: %w", d.Name, err))
		}
		return true, nil
	}
	return false, nil
}

// unclaimed are the disks that the machine has and that do not say so, as after both were taken over from objects of before a restore.
func (r *Reconciler) unclaimed(ctx context.Context, l *look) (names []string, err error) {
	for _, on := range l.seen.Disks {
		d := &v1alpha1.VirtualDisk{}
		err := r.Client.Get(ctx, l.beside(on.Name), d)
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return nil, fmt.Errorf("reading VirtualDisk %s: %w", on.Name, err)
		case d.UID == on.UID && d.Status.AttachedTo == nil && d.Status.DiskID != "" && l.VM.HasDisk(on.Name):
			names = append(names, on.Name)
		}
	}
	return names, nil
}

func attached(l *look, uid types.UID) bool {
	return slices.ContainsFunc(l.seen.Disks, func(d v1alpha1.AttachedDisk) bool { return d.UID == uid })
}

// detach takes a disk off the machine that its spec does not name.
func (r *Reconciler) detach(ctx context.Context, l *look) (bool, error) {
	for _, d := range l.seen.Disks {
		if l.VM.HasDisk(d.Name) {
			continue
		}
		disk := runtime.Disk{NamespacedName: l.beside(d.Name), UID: d.UID}
		proven, err := l.Disk(ctx, d)
		if err != nil {
			return false, err
		}
		return r.tellOfDisk(ctx, l, runtime.VerbDetach, disk, func(
			ctx context.Context, able runtime.Disks, m runtime.Machine, d runtime.Disk,
		) error {
			if proven != nil {
				m.Disks = []runtime.Disk{*proven}
			}
			return able.Detach(ctx, m, d.UID)
		})
	}
	return false, nil
}

// attach takes a disk for the machine, and has it attached.
func (r *Reconciler) attach(ctx context.Context, l *look, name string) (bool, error) {
	d := &v1alpha1.VirtualDisk{}
	if err := r.Live.Get(ctx, l.beside(name), d); apierrors.IsNotFound(err) {
		l.diskTrouble = &diskTrouble{v1alpha1.ReasonDiskNotFound, fmt.Sprintf("VirtualDisk %s does not exist", name)}
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("reading VirtualDisk %s: %w", name, err)
	}
	if l.diskTrouble = l.cannotTake(d); l.diskTrouble != nil {
		return false, nil
	}
	d.Status.AttachedTo = &v1alpha1.DiskHolder{Name: l.VM.Name, UID: l.VM.UID, Since: l.micro()}
	d.Status.FreeSince, d.Status.Phase = nil, d.CurrentPhase()
	if err := r.Client.Status().Update(ctx, d); err != nil {
		return false, fmt.Errorf("reserving VirtualDisk %s for VirtualMachine %s: %w", name, l.Key(), err)
	}
	return r.tellOfDisk(ctx, l, runtime.VerbAttach, runtime.DiskOf(d), func(
		ctx context.Context, able runtime.Disks, m runtime.Machine, d runtime.Disk,
	) error {
		return able.Attach(ctx, m, d)
	})
}

// cannotTake says why the machine cannot have a disk.
func (l *look) cannotTake(d *v1alpha1.VirtualDisk) *diskTrouble {
	switch holder := d.Status.AttachedTo; {
	case !d.Spec.Runtime.Beside(&l.VM.Spec.Runtime):
		return &diskTrouble{v1alpha1.ReasonDiskElsewhere, fmt.Sprintf("VirtualDisk %s is on another runtime or server than the machine", d.Name)}
	case holder != nil && holder.UID != l.VM.UID:
		return &diskTrouble{v1alpha1.ReasonDiskInUse, fmt.Sprintf("VirtualMachine %s uses VirtualDisk %s", holder.Name, d.Name)}
	case !d.DeletionTimestamp.IsZero():
		return &diskTrouble{v1alpha1.ReasonDiskNotReady, fmt.Sprintf("VirtualDisk %s is being deleted", d.Name)}
	case d.Status.DiskID == "" || d.Status.Phase == v1alpha1.VirtualDiskLost:
		return &diskTrouble{v1alpha1.ReasonDiskNotReady,
			fmt.Sprintf("VirtualDisk %s is %s: see its condition Ready", d.Name, cmp.Or(d.Status.Phase, v1alpha1.VirtualDiskPending))}
	}
	return nil
}

// tellOfDisk tells the runtime to attach or detach a disk. What goes wrong is shown, and tried again; the machine goes on without it.
func (r *Reconciler) tellOfDisk(
	ctx context.Context, l *look, verb runtime.Verb, d runtime.Disk,
	call func(context.Context, runtime.Disks, runtime.Machine, runtime.Disk) error,
) (bool, error) {
	if same, err := l.Unchanged(ctx); err != nil || !same {
		return !same, err
	}
	err := l.Tell(ctx, func(ctx context.Context, m runtime.Machine) error {
		return runtime.UseDisk(ctx, l.Runtime(), verb, d, m, func(ctx context.Context, able runtime.Disks) error { return call(ctx, able, m, d) })
	})
	if err == nil {
		return true, nil
	}
	l.diskTrouble = &diskTrouble{runtime.Reason(err), fmt.Sprintf("VirtualDisk %s: %s", d.Name, runtime.Message(err))}
	l.Troubled(fmt.Sprintf("%s of VirtualDisk %s and VirtualMachine %s", verb, d.Name, l.VM.Name), err)
	return false, nil
}

// beside is an object in the namespace of the machine.
func (l *look) beside(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: l.VM.Namespace, Name: name}
}

// disksAttached shows whether the machine has the disks that its spec wants. Of a machine that was not looked at it stays what it was.
func (l *look) disksAttached() {
	t := v1alpha1.ConditionDisksAttached
	missing := claim.MissingDisks(l.VM, &l.seen)
	surplus := slices.ContainsFunc(l.seen.Disks, func(d v1alpha1.AttachedDisk) bool { return !l.VM.HasDisk(d.Name) })
	switch {
	case !l.observed:
	case len(l.VM.BlockDevices()) == 0 && !surplus:
		meta.RemoveStatusCondition(&l.VM.Status.Conditions, string(t))
	case l.diskTrouble != nil && (len(missing) > 0 || surplus):
		l.set(t.Condition(metav1.ConditionFalse, l.diskTrouble.reason, l.VM.Generation, l.diskTrouble.message))
	case len(missing) > 0 || surplus:
		l.set(t.Condition(metav1.ConditionFalse, v1alpha1.ReasonAttaching, l.VM.Generation, ""))
	default:
		l.set(t.Condition(metav1.ConditionTrue, v1alpha1.ReasonDisksAttached, l.VM.Generation, ""))
	}
}
