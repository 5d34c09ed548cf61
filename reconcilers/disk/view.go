package disk

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// look is a disk as one pass found it. It is written on, and thrown away after the first write.
type look struct {
	*v1alpha1.VirtualDisk
	read   *v1alpha1.VirtualDiskStatus // as it was read
	now    time.Time
	rt     *runtime.Client
	seen   runtime.DiskObservation
	holder *v1alpha1.VirtualMachine // who has it, and is there

	// A disk that is not made yet, and has a source: what it is made from, or why it waits.
	source   *runtime.DiskSource
	waits    *metav1.Condition
	replaced bool // it held another image

	lost    bool
	trouble error         // why it was not observed, or the runtime could not be told
	again   time.Duration // when to look again
}

// observe looks at the disk on its runtime.
func (l *look) observe(ctx context.Context, runtimes func(context.Context, *v1alpha1.VirtualDisk) (*runtime.Client, error)) {
	if l.rt, l.trouble = runtimes(ctx, l.VirtualDisk); l.trouble != nil {
		return
	}
	l.trouble = l.use(ctx, runtime.VerbObserveDisk, func(ctx context.Context, able runtime.Disks) (err error) {
		l.seen, err = able.ObserveDisk(ctx, runtime.DiskOf(l.VirtualDisk))
		return err
	})
}

func (l *look) use(ctx context.Context, verb runtime.Verb, call func(context.Context, runtime.Disks) error) error {
	return runtime.UseDisk(ctx, l.rt, verb, runtime.DiskOf(l.VirtualDisk), runtime.Machine{}, call)
}

// abandoned tells whether the machine that has the disk is gone, and its instance too, or at least does not have the disk any more: of a
// VirtualMachine whose instance was given up on the disk stays, since two machines that write to it would destroy what is on it.
func (l *look) abandoned() bool {
	by := l.Status.AttachedTo
	return by != nil && l.holder == nil && !l.seen.InFlight && !slices.Contains(l.seen.AttachedTo, string(by.UID))
}

// keep has the disk made that was never seen, and grown. One that was made and is gone is not made again: what was on it would be
// silently gone.
func (r *Reconciler) keep(ctx context.Context, l *look) error {
	small := l.seen.Exists && l.seen.Bytes < runtime.DiskOf(l.VirtualDisk).Bytes()
	switch {
	case l.seen.InFlight:
	case l.misnamed():
		return l.correct(ctx, r.Live)
	case l.seen.Exists && !small:
		l.record()
		if !l.seen.Copying {
			return r.returnSnapshot(ctx, l)
		}
	case !l.seen.Exists && l.Status.DiskID != "":
		l.lost = !l.attached()
	default:
		ready, err := r.sourced(ctx, l)
		if err == nil && ready {
			l.ensure(ctx)
		}
		return err
	}
	return nil
}

// record has the status name the disk that was seen.
func (l *look) record() {
	l.Status.DiskID = l.seen.ID
	l.Status.DatastoreID = cmp.Or(l.Status.DatastoreID, l.seen.Home)
}

// ensure has the disk made or grown. One that is made at once is shown without another look, unless that has to say what it is a copy of.
func (l *look) ensure(ctx context.Context) {
	d, id := runtime.DiskOf(l.VirtualDisk), ""
	d.Source = l.source
	l.trouble = l.use(ctx, runtime.VerbEnsureDisk, func(ctx context.Context, able runtime.Disks) (err error) {
		id, err = able.EnsureDisk(ctx, d)
		return err
	})
	switch {
	case l.trouble != nil:
	case id != "" && d.ID == "" && l.source == nil:
		l.Status.DiskID, l.seen = id, runtime.DiskObservation{Exists: true, ID: id, Bytes: d.Bytes()}
		if d.Spec.Runtime.VSphere != nil {
			l.again = time.Millisecond // for status.datastoreID
		}
	default:
		l.again = time.Millisecond // to see what came of it
	}
}

// attached tells whether the machine that has the disk was last seen with it: its file may have been moved with the machine's.
func (l *look) attached() bool {
	return l.holder != nil && slices.ContainsFunc(l.holder.Status.Disks, func(d v1alpha1.AttachedDisk) bool { return d.UID == l.UID })
}

// remove has the data destroyed, and tells whether it was seen to be gone.
func (l *look) remove(ctx context.Context) (gone bool) {
	if !l.seen.Exists && !l.seen.InFlight {
		return true
	}
	if l.seen.InFlight {
		return false
	}
	l.trouble = l.use(ctx, runtime.VerbDeleteDisk, func(ctx context.Context, able runtime.Disks) error {
		return able.DeleteDisk(ctx, runtime.DiskOf(l.VirtualDisk))
	})
	if l.trouble == nil {
		l.again = time.Millisecond
	}
	return false
}

// settle brings the rest of the status in step.
func (l *look) settle() {
	s := &l.Status
	if l.seen.Exists {
		s.Capacity = resource.NewQuantity(l.seen.Bytes, resource.BinarySI)
	}
	before := s.Phase
	s.Phase = l.CurrentPhase()
	switch {
	case l.lost, before == v1alpha1.VirtualDiskLost && l.trouble != nil && s.Phase != v1alpha1.VirtualDiskTerminating:
		s.Phase = v1alpha1.VirtualDiskLost
	}
}

// ready sums up whether the disk is as its spec wants it.
func (l *look) ready() metav1.Condition {
	status, reason, message := l.judge()
	return v1alpha1.ConditionReady.Condition(status, reason, l.Generation, message)
}

func (l *look) judge() (metav1.ConditionStatus, v1alpha1.ConditionReason, string) {
	no, by := metav1.ConditionFalse, l.Status.AttachedTo
	switch {
	case runtime.IsUnavailable(l.trouble), runtime.IsTakingOver(l.trouble):
		return metav1.ConditionUnknown, runtime.Reason(l.trouble), runtime.Message(l.trouble)
	case by != nil && l.holder == nil && l.trouble == nil:
		return no, v1alpha1.ReasonDiskInUse, fmt.Sprintf("VirtualMachine %s was deleted, but its instance still uses the disk: remove the instance from the runtime", by.Name)
	case !l.DeletionTimestamp.IsZero() && by != nil:
		return no, v1alpha1.ReasonDiskInUse, fmt.Sprintf("waiting until VirtualMachine %s releases the disk: remove it from spec.blockDeviceRefs there", by.Name)
	case l.seen.Exists && l.trouble != nil && l.DeletionTimestamp.IsZero():
		return no, v1alpha1.ReasonResizing, fmt.Sprintf("the disk has %s and cannot grow to %s yet: %s",
			resource.NewQuantity(l.seen.Bytes, resource.BinarySI), l.Spec.Size.String(), runtime.Message(l.trouble))
	case l.trouble != nil:
		return no, runtime.Reason(l.trouble), runtime.Message(l.trouble)
	case !l.DeletionTimestamp.IsZero():
		return no, v1alpha1.ReasonTerminating, "deleting the disk"
	case l.lost:
		again := "empty"
		if l.Spec.Source != nil {
			again = "copied from its image again"
		}
		return no, v1alpha1.ReasonDiskLost,
			fmt.Sprintf("disk %s no longer exists on the runtime: restore it there, or delete VirtualDisk %s and create it again, %s", l.Status.DiskID, l.Name, again)
	case l.waits != nil:
		return no, v1alpha1.ConditionReason(l.waits.Reason), l.waits.Message
	case l.Status.DiskID == "":
		return no, v1alpha1.ReasonProvisioning, "creating the disk"
	case l.seen.Bytes < runtime.DiskOf(l.VirtualDisk).Bytes() && l.seen.Exists:
		return no, v1alpha1.ReasonResizing, "growing the disk"
	}
	return metav1.ConditionTrue, v1alpha1.ReasonDiskReady, ""
}

// wrong reports whether the condition is a problem that an event should tell. A resize is one only if the runtime refuses it.
func (l *look) wrong(ready metav1.Condition) bool {
	switch v1alpha1.ConditionReason(ready.Reason) {
	case v1alpha1.ReasonDiskReady, v1alpha1.ReasonProvisioning, v1alpha1.ReasonTerminating, v1alpha1.ReasonTakingOver, v1alpha1.ReasonReadOnly, v1alpha1.ReasonImageImporting:
		return false
	case v1alpha1.ReasonResizing:
		return l.trouble != nil && !runtime.IsReadOnly(l.trouble)
	}
	return true
}
