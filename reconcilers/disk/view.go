package disk

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/commands"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// view is a disk as one pass has read it. It is modified in place and discarded after the first write.
type view struct {
	*v1alpha1.VirtualDisk
	before *v1alpha1.VirtualDiskStatus // the status as read
	now    time.Time
	rt     *runtime.Client
	seen   runtime.DiskObservation
	holder *v1alpha1.VirtualMachine // the machine that has the disk, if it exists

	// For a disk that is not created yet and has a source: the source, or why it waits.
	source   *runtime.DiskSource
	waiting  *metav1.Condition
	replaced bool // it referenced another image before

	lost         bool
	err          error         // why the disk was not observed, or a runtime call failed
	requeueAfter time.Duration // when to requeue
}

func (l *view) observe(ctx context.Context, runtimes func(context.Context, *v1alpha1.VirtualDisk) (*runtime.Client, error)) {
	if l.rt, l.err = runtimes(ctx, l.VirtualDisk); l.err != nil {
		return
	}
	l.err = l.use(ctx, runtime.VerbObserveDisk, func(ctx context.Context, able runtime.Disks) (err error) {
		l.seen, err = able.ObserveDisk(ctx, runtime.DiskOf(l.VirtualDisk))
		return err
	})
}

func (l *view) use(ctx context.Context, verb runtime.Verb, call func(context.Context, runtime.Disks) error) error {
	return runtime.UseDisk(ctx, l.rt, verb, runtime.DiskOf(l.VirtualDisk), runtime.Machine{}, call)
}

// abandoned reports whether the machine that has the disk is gone, and its instance is gone or no longer has the
// disk. If the instance of a deleted VirtualMachine still has it, the disk stays reserved: two machines writing to it
// would destroy its data.
func (l *view) abandoned() bool {
	by := l.Status.AttachedTo
	return by != nil && l.holder == nil && !l.seen.InFlight && !slices.Contains(l.seen.AttachedTo, string(by.UID))
}

// reconcile creates a disk that was never observed, and grows it. A disk that was created and is lost is not created
// again: the loss of its data would go unnoticed.
func (r *Reconciler) reconcile(ctx context.Context, l *view) error {
	small := l.seen.Exists && l.seen.Bytes < runtime.DiskOf(l.VirtualDisk).Bytes()
	switch {
	case l.seen.InFlight:
	case l.imageDiffers():
		return l.correctImage(ctx, r.Live)
	case l.seen.Exists && l.seen.Owned:
		l.ensureDisk(ctx)
	case l.seen.Exists && !small:
		l.record()
		if !l.seen.Copying {
			return r.deleteCopySnapshot(ctx, l)
		}
	case !l.seen.Exists && l.Status.DiskID != "":
		l.lost = !l.attached()
	default:
		ready, err := r.findSource(ctx, l)
		if err == nil && ready {
			l.ensureDisk(ctx)
		}
		return err
	}
	return nil
}

func (l *view) record() {
	l.Status.DiskID = l.seen.ID
	l.Status.DatastoreID = l.seen.Home
}

// ensureDisk creates or grows the disk. A disk that is created at once is reported without another observation,
// unless only an observation can show its source.
func (l *view) ensureDisk(ctx context.Context) {
	if !l.MayExist() { // persisted before the runtime is first asked
		l.Status.ProvisioningSince, l.requeueAfter = new(metav1.NewMicroTime(l.now)), time.Millisecond
		return
	}
	d, id := runtime.DiskOf(l.VirtualDisk), ""
	d.Source = l.source
	l.err = l.use(ctx, runtime.VerbEnsureDisk, func(ctx context.Context, able runtime.Disks) (err error) {
		id, err = able.EnsureDisk(ctx, d)
		return err
	})
	switch {
	case l.err != nil:
	case id != "" && d.ID == "" && l.source == nil:
		l.Status.DiskID, l.seen = id, runtime.DiskObservation{Exists: true, ID: id, Bytes: d.Bytes()}
		if d.Spec.Runtime.VSphere != nil {
			l.requeueAfter = time.Millisecond // for status.datastoreID
		}
	default:
		l.requeueAfter = time.Millisecond // to observe the result
	}
}

// attached reports whether the machine that has the disk was last observed with it: its file may have moved with the
// machine.
func (l *view) attached() bool {
	return l.holder != nil && slices.ContainsFunc(l.holder.Status.Disks, func(d v1alpha1.AttachedDisk) bool { return d.UID == l.UID })
}

// deleteData destroys the data, and reports whether it was observed to be gone.
func (l *view) deleteData(ctx context.Context) (gone bool) {
	if !l.seen.Exists && !l.seen.InFlight {
		return true
	}
	if l.seen.InFlight {
		return false
	}
	l.err = l.use(ctx, runtime.VerbDeleteDisk, func(ctx context.Context, able runtime.Disks) error {
		return able.DeleteDisk(ctx, runtime.DiskOf(l.VirtualDisk))
	})
	if l.err == nil {
		l.requeueAfter = time.Millisecond
	}
	return false
}

func (l *view) updateStatus() {
	s := &l.Status
	if s.DiskID != "" {
		s.ProvisioningSince = nil
	}
	if l.seen.Exists {
		s.Capacity = resource.NewQuantity(l.seen.Bytes, resource.BinarySI)
	}
	before := s.Phase
	s.Phase = l.CurrentPhase()
	switch {
	case l.lost, before == v1alpha1.VirtualDiskLost && l.err != nil && s.Phase != v1alpha1.VirtualDiskTerminating:
		s.Phase = v1alpha1.VirtualDiskLost
	}
}

func (l *view) ready() metav1.Condition {
	status, reason, message := l.readiness()
	return v1alpha1.ConditionReady.Condition(status, reason, l.Generation, message)
}

func (l *view) readiness() (metav1.ConditionStatus, v1alpha1.ConditionReason, string) {
	no, by := metav1.ConditionFalse, l.Status.AttachedTo
	switch {
	case runtime.IsUnavailable(l.err), runtime.IsTakingOver(l.err):
		return metav1.ConditionUnknown, runtime.Reason(l.err), runtime.Message(l.err)
	case by != nil && l.holder == nil && l.err == nil:
		return no, v1alpha1.ReasonDiskInUse, fmt.Sprintf("VirtualMachine %s was deleted, but its instance still uses the disk: remove the instance from the runtime", by.Name)
	case !l.DeletionTimestamp.IsZero() && by != nil:
		return no, v1alpha1.ReasonDiskInUse, fmt.Sprintf(
			"waiting until VirtualMachine %s releases the disk: remove it from spec.blockDeviceRefs: %s", by.Name, commands.Line("kubectl", "edit", "svm", by.Name, "-n", l.Namespace))
	case l.seen.Exists && l.err != nil && l.DeletionTimestamp.IsZero():
		return no, v1alpha1.ReasonResizing, fmt.Sprintf("the disk has %s and cannot grow to %s yet: %s",
			resource.NewQuantity(l.seen.Bytes, resource.BinarySI), l.Spec.Size.String(), runtime.Message(l.err))
	case !l.DeletionTimestamp.IsZero() && runtime.NothingOfOurs(l.err):
		return no, runtime.Reason(l.err), runtime.Message(l.err) + l.wayOut()
	case l.err != nil:
		return no, runtime.Reason(l.err), runtime.Message(l.err)
	case !l.DeletionTimestamp.IsZero():
		return no, v1alpha1.ReasonTerminating, "deleting the disk"
	case l.lost:
		again := "empty"
		if l.Spec.Source != nil {
			again = "copied from its image again"
		}
		return no, v1alpha1.ReasonDiskLost,
			fmt.Sprintf("disk %s no longer exists on the runtime: restore it there, or delete VirtualDisk %s and create it again, %s", l.Status.DiskID, l.Name, again)
	case l.waiting != nil:
		return no, v1alpha1.ConditionReason(l.waiting.Reason), l.waiting.Message
	case l.Status.DiskID == "":
		return no, v1alpha1.ReasonProvisioning, "creating the disk"
	case l.seen.Bytes < runtime.DiskOf(l.VirtualDisk).Bytes() && l.seen.Exists:
		return no, v1alpha1.ReasonResizing, "growing the disk"
	}
	return metav1.ConditionTrue, v1alpha1.ReasonDiskReady, ""
}

// wayOut returns how to delete a VirtualDisk whose disk cannot be observed, for the end of a message.
func (l *view) wayOut() string {
	rest := slices.DeleteFunc(slices.Clone(l.Finalizers), func(name string) bool { return name == v1alpha1.VirtualDiskFinalizer })
	left, _ := json.Marshal(rest) // strings
	return fmt.Sprintf("; to delete VirtualDisk %s and leave its disk on the runtime (needs the verb override on RegoPolicy machines-abandon): %s", l.Name,
		commands.Line("kubectl", "patch", "svd", l.Name, "-n", l.Namespace, "--type=merge", "-p", fmt.Sprintf(`{"metadata":{"finalizers":%s}}`, left)))
}

// warns reports whether the condition is worth a Warning event. A resize is if the runtime rejects it.
func (l *view) warns(ready metav1.Condition) bool {
	switch v1alpha1.ConditionReason(ready.Reason) {
	case v1alpha1.ReasonDiskReady, v1alpha1.ReasonProvisioning, v1alpha1.ReasonTerminating, v1alpha1.ReasonTakingOver, v1alpha1.ReasonReadOnly, v1alpha1.ReasonImageImporting:
		return false
	case v1alpha1.ReasonResizing:
		return l.err != nil && !runtime.IsReadOnly(l.err)
	}
	return true
}
