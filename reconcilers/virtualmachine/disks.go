package virtualmachine

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/claim"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/watch"
)

// diskTrouble is the reason why the disks of a machine differ from its spec.
type diskTrouble struct {
	reason  v1alpha1.ConditionReason
	message string
}

// diskChanged drops updates that do not matter to a machine that waits for a disk, above all its reservation, which
// is written before each attempt to attach it.
var diskChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, was := e.ObjectOld.(*v1alpha1.VirtualDisk)
	now, is := e.ObjectNew.(*v1alpha1.VirtualDisk)
	return was && is && (before.Status.DiskID != now.Status.DiskID || before.Status.Phase != now.Status.Phase ||
		holderOf(before) != holderOf(now) || now.Status.DiskID == "" && readyText(before) != readyText(now))
}}

func readyText(d *v1alpha1.VirtualDisk) string {
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

// machinesOfDisk returns requests for the machines that have a disk or whose spec names it, from the cache.
func (r *Reconciler) machinesOfDisk(ctx context.Context, o client.Object) []reconcile.Request {
	requests := watch.Requests(ctx, r.Client, &v1alpha1.VirtualMachineList{}, client.InNamespace(o.GetNamespace()), client.MatchingFields{byDisk: o.GetName()})
	if d, is := o.(*v1alpha1.VirtualDisk); is && d.Status.AttachedTo != nil {
		holder := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: d.Namespace, Name: d.Status.AttachedTo.Name}}
		if !slices.Contains(requests, holder) {
			requests = append(requests, holder)
		}
	}
	return requests
}

// reconcileDisks attaches and detaches VirtualDisks one at a time until the machine has those that its spec names.
// Like a change of size it needs no claim: it changes neither power nor node, and a holder waits until nothing is in
// flight. A disk is reserved with its resourceVersion before it is attached, so that two machines never attach the
// same one; it is released once it was observed to be detached.
func (r *Reconciler) reconcileDisks(ctx context.Context, v *view) (bool, error) {
	switch {
	case v.seen.Adopted && v.VM.Spec.Runtime.VSphere != nil, !v.seen.Exists && !runtime.Can[runtime.FixedDisks](v.Runtime()):
		return false, nil
	case !runtime.Can[runtime.Disks](v.Runtime()):
		v.diskTrouble = &diskTrouble{v1alpha1.ReasonRuntimeNotSupported, "the runtime of the machine does not support VirtualDisks"}
		return false, nil
	case !v.seen.Quiet():
		v.diskTrouble = &diskTrouble{v1alpha1.ReasonAttaching, "waiting: " + v.seen.Doing()}
		v.Later()
		return false, nil
	case v.Sent():
		v.diskTrouble = &diskTrouble{v1alpha1.ReasonAttaching, "waiting until the runtime finishes its tasks for the machine"}
		v.Later()
		return false, nil
	}
	if did, err := r.releaseDisk(ctx, v); did || err != nil {
		return did, err
	}
	if did, err := r.detach(ctx, v); did || err != nil {
		return did, err
	}
	unreserved, err := r.unreservedDisks(ctx, v)
	if err != nil {
		return false, err
	}
	for _, name := range append(unreserved, claim.MissingDisks(v.VM, &v.seen)...) {
		did, err := r.attach(ctx, v, name)
		if did || err != nil {
			return did, err
		}
	}
	return false, nil
}

// releaseDisk releases a disk that is reserved for the machine and not attached, if the spec no longer names it or
// the disk is being deleted.
func (r *Reconciler) releaseDisk(ctx context.Context, v *view) (bool, error) {
	var held v1alpha1.VirtualDiskList
	err := r.Client.List(ctx, &held, client.InNamespace(v.VM.Namespace), client.MatchingFields{v1alpha1.FieldDiskHolder: v.VM.Name})
	if err != nil {
		return false, fmt.Errorf("listing the disks of VirtualMachine %s: %w", v.Key(), err)
	}
	for i := range held.Items {
		d := &held.Items[i]
		wanted := v.VM.HasDisk(d.Name) && d.DeletionTimestamp.IsZero()
		if d.Status.AttachedTo.UID != v.VM.UID || wanted || attached(v, d.UID) || !v.LookedFor(d.UID) {
			continue
		}
		d.Free(v.Time)
		if err := r.Client.Status().Update(ctx, d); err != nil {
			return false, client.IgnoreNotFound(fmt.Errorf("releasing VirtualDisk %s: %w", d.Name, err))
		}
		return true, nil
	}
	return false, nil
}

// unreservedDisks returns attached disks that are not reserved for the machine, as after a restore of both objects
// from a backup.
func (r *Reconciler) unreservedDisks(ctx context.Context, v *view) (names []string, err error) {
	for _, on := range v.seen.Disks {
		d := &v1alpha1.VirtualDisk{}
		err := r.Client.Get(ctx, v.key(on.Name), d)
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return nil, fmt.Errorf("reading VirtualDisk %s: %w", on.Name, err)
		case d.UID == on.UID && d.Status.AttachedTo == nil && d.Status.DiskID != "" && v.VM.HasDisk(on.Name):
			names = append(names, on.Name)
		}
	}
	return names, nil
}

func attached(v *view, uid types.UID) bool {
	return slices.ContainsFunc(v.seen.Disks, func(d v1alpha1.AttachedDisk) bool { return d.UID == uid })
}

// detach detaches a disk that the spec does not name.
func (r *Reconciler) detach(ctx context.Context, v *view) (bool, error) {
	for _, d := range v.seen.Disks {
		if v.VM.HasDisk(d.Name) {
			continue
		}
		disk := runtime.Disk{NamespacedName: v.key(d.Name), UID: d.UID}
		proven, err := v.Disk(ctx, d)
		if err != nil {
			return false, err
		}
		return r.callForDisk(ctx, v, runtime.VerbDetach, disk, func(
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

// attach reserves a disk for the machine and attaches it.
func (r *Reconciler) attach(ctx context.Context, v *view, name string) (bool, error) {
	d := &v1alpha1.VirtualDisk{}
	if err := r.Live.Get(ctx, v.key(name), d); apierrors.IsNotFound(err) {
		v.diskTrouble = &diskTrouble{v1alpha1.ReasonDiskNotFound, fmt.Sprintf("VirtualDisk %s does not exist", name)}
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("reading VirtualDisk %s: %w", name, err)
	}
	if v.diskTrouble = v.diskUnavailable(d); v.diskTrouble != nil {
		return false, nil
	}
	d.Status.AttachedTo = &v1alpha1.DiskHolder{Name: v.VM.Name, UID: v.VM.UID, Since: v.now()}
	d.Status.FreeSince, d.Status.Phase = nil, d.CurrentPhase()
	if err := r.Client.Status().Update(ctx, d); err != nil {
		return false, fmt.Errorf("reserving VirtualDisk %s for VirtualMachine %s: %w", name, v.Key(), err)
	}
	var restored string
	did, err := r.callForDisk(ctx, v, runtime.VerbAttach, runtime.DiskOf(d), func(
		ctx context.Context, able runtime.Disks, m runtime.Machine, d runtime.Disk,
	) error {
		err := able.Attach(ctx, m, d)
		restored = runtime.RestoredTo(err)
		return err
	})
	if err != nil || restored == "" {
		return did, err
	}
	return true, r.follow(ctx, v, d, restored)
}

// follow records that the runtime has restored a disk of the machine into another one, which the machine has. The former one is left alone.
func (r *Reconciler) follow(ctx context.Context, v *view, d *v1alpha1.VirtualDisk, id string) error {
	former := d.Status.DiskID
	d.Status.DiskID = id
	if err := r.Client.Status().Update(ctx, d); err != nil {
		return fmt.Errorf("recording that VirtualDisk %s was restored to %s: %w", d.Name, id, err)
	}
	v.diskTrouble = nil
	r.recordEvent(v, corev1.EventTypeNormal, "DiskRestored", "Attach", "VirtualDisk %s was restored to %s; %s has the former data and is left alone", d.Name, id, former)
	return nil
}

// diskUnavailable returns why the machine cannot have a disk, or nil.
func (v *view) diskUnavailable(d *v1alpha1.VirtualDisk) *diskTrouble {
	switch holder := d.Status.AttachedTo; {
	case !d.Spec.Runtime.Beside(&v.VM.Spec.Runtime):
		return &diskTrouble{v1alpha1.ReasonDiskElsewhere, fmt.Sprintf("VirtualDisk %s is on another runtime or server than the machine", d.Name)}
	case holder != nil && holder.UID != v.VM.UID:
		return &diskTrouble{v1alpha1.ReasonDiskInUse, fmt.Sprintf("VirtualMachine %s uses VirtualDisk %s", holder.Name, d.Name)}
	case !d.DeletionTimestamp.IsZero():
		return &diskTrouble{v1alpha1.ReasonDiskNotReady, fmt.Sprintf("VirtualDisk %s is being deleted", d.Name)}
	case d.Status.DiskID == "" || d.StatusOfAnother() || d.Status.Phase == v1alpha1.VirtualDiskLost:
		return &diskTrouble{v1alpha1.ReasonDiskNotReady,
			fmt.Sprintf("VirtualDisk %s is %s: see its condition Ready", d.Name, cmp.Or(d.Status.Phase, v1alpha1.VirtualDiskPending))}
	}
	return nil
}

// callForDisk calls the runtime to attach or detach a disk. An error is reported and retried; the machine's
// reconciliation continues without the disk.
func (r *Reconciler) callForDisk(
	ctx context.Context, v *view, verb runtime.Verb, d runtime.Disk,
	call func(context.Context, runtime.Disks, runtime.Machine, runtime.Disk) error,
) (bool, error) {
	if same, err := v.Unchanged(ctx); err != nil || !same {
		return !same, err
	}
	err := v.Call(ctx, func(ctx context.Context, m runtime.Machine) error {
		return runtime.UseDisk(ctx, v.Runtime(), verb, d, m, func(ctx context.Context, able runtime.Disks) error { return call(ctx, able, m, d) })
	})
	if err == nil {
		return true, nil
	}
	v.diskTrouble = &diskTrouble{runtime.Reason(err), fmt.Sprintf("VirtualDisk %s: %s", d.Name, runtime.Message(err))}
	v.Troubled(fmt.Sprintf("%s of VirtualDisk %s and VirtualMachine %s", verb, d.Name, v.VM.Name), err)
	return false, nil
}

func (v *view) key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: v.VM.Namespace, Name: name}
}

// setDisksAttached sets condition DisksAttached. Without an observation it keeps its value.
func (v *view) setDisksAttached() {
	t := v1alpha1.ConditionDisksAttached
	missing := claim.MissingDisks(v.VM, &v.seen)
	surplus := slices.ContainsFunc(v.seen.Disks, func(d v1alpha1.AttachedDisk) bool { return !v.VM.HasDisk(d.Name) })
	switch {
	case !v.observed:
	case len(v.VM.BlockDevices()) == 0 && !surplus:
		meta.RemoveStatusCondition(&v.VM.Status.Conditions, string(t))
	case v.diskTrouble != nil && (len(missing) > 0 || surplus):
		v.setCondition(t.Condition(metav1.ConditionFalse, v.diskTrouble.reason, v.VM.Generation, v.diskTrouble.message))
	case len(missing) > 0 || surplus || v.seen.Plugging != "":
		v.setCondition(t.Condition(metav1.ConditionFalse, v1alpha1.ReasonAttaching, v.VM.Generation, v.seen.Plugging))
	default:
		v.setCondition(t.Condition(metav1.ConditionTrue, v1alpha1.ReasonDisksAttached, v.VM.Generation, ""))
	}
}
