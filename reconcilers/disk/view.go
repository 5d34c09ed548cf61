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

func (v *view) observe(ctx context.Context, runtimes func(context.Context, *v1alpha1.VirtualDisk) (*runtime.Client, error)) {
	if v.rt, v.err = runtimes(ctx, v.VirtualDisk); v.err != nil {
		return
	}
	v.err = v.use(ctx, runtime.VerbObserveDisk, func(ctx context.Context, able runtime.Disks) (err error) {
		v.seen, err = able.ObserveDisk(ctx, runtime.DiskOf(v.VirtualDisk))
		return err
	})
}

func (v *view) use(ctx context.Context, verb runtime.Verb, call func(context.Context, runtime.Disks) error) error {
	return runtime.UseDisk(ctx, v.rt, verb, runtime.DiskOf(v.VirtualDisk), runtime.Machine{}, call)
}

// abandoned reports whether the machine that has the disk is gone, and its instance is gone or no longer has the
// disk. If the instance of a deleted VirtualMachine still has it, the disk stays reserved: two machines writing to it
// would destroy its data.
func (v *view) abandoned() bool {
	by := v.Status.AttachedTo
	return by != nil && v.holder == nil && !v.seen.InFlight && !slices.Contains(v.seen.AttachedTo, string(by.UID))
}

// reconcile creates a disk that was never observed, and grows it. A disk that was created and is lost is not created
// again: the loss of its data would go unnoticed.
func (r *Reconciler) reconcile(ctx context.Context, v *view) error {
	small := v.seen.Exists && v.seen.Bytes < runtime.DiskOf(v.VirtualDisk).Bytes()
	switch {
	case v.seen.InFlight:
	case v.imageDiffers():
		return v.correctImage(ctx, r.Live)
	case v.seen.Exists && v.seen.Owned:
		v.ensureDisk(ctx)
	case v.seen.Exists && !small:
		v.record()
		if !v.seen.Copying {
			return r.deleteCopySnapshot(ctx, v)
		}
	case !v.seen.Exists && v.Status.DiskID != "":
		v.lost = !v.attached()
	default:
		ready, err := r.findSource(ctx, v)
		if err == nil && ready {
			v.ensureDisk(ctx)
		}
		return err
	}
	return nil
}

func (v *view) record() {
	v.Status.DiskID = v.seen.ID
	v.Status.DatastoreID = v.seen.Home
}

// ensureDisk creates or grows the disk. A disk that is created at once is reported without another observation,
// unless only an observation can show its source.
func (v *view) ensureDisk(ctx context.Context) {
	if !v.MayExist() { // persisted before the runtime is first asked
		v.Status.ProvisioningSince, v.requeueAfter = new(metav1.NewMicroTime(v.now)), time.Millisecond
		return
	}
	d, id := runtime.DiskOf(v.VirtualDisk), ""
	d.Source = v.source
	v.err = v.use(ctx, runtime.VerbEnsureDisk, func(ctx context.Context, able runtime.Disks) (err error) {
		id, err = able.EnsureDisk(ctx, d)
		return err
	})
	switch {
	case v.err != nil:
	case id != "" && d.ID == "" && v.source == nil:
		v.Status.DiskID, v.seen = id, runtime.DiskObservation{Exists: true, ID: id, Bytes: d.Bytes()}
		if d.Spec.Runtime.VSphere != nil {
			v.requeueAfter = time.Millisecond // for status.datastoreID
		}
	default:
		v.requeueAfter = time.Millisecond // to observe the result
	}
}

// attached reports whether the machine that has the disk was last observed with it: its file may have moved with the
// machine.
func (v *view) attached() bool {
	return v.holder != nil && slices.ContainsFunc(v.holder.Status.Disks, func(d v1alpha1.AttachedDisk) bool { return d.UID == v.UID })
}

// deleteData destroys the data, and reports whether it was observed to be gone.
func (v *view) deleteData(ctx context.Context) (gone bool) {
	if !v.seen.Exists && !v.seen.InFlight {
		return true
	}
	if v.seen.InFlight {
		return false
	}
	v.err = v.use(ctx, runtime.VerbDeleteDisk, func(ctx context.Context, able runtime.Disks) error {
		return able.DeleteDisk(ctx, runtime.DiskOf(v.VirtualDisk))
	})
	if v.err == nil {
		v.requeueAfter = time.Millisecond
	}
	return false
}

func (v *view) updateStatus() {
	s := &v.Status
	if s.DiskID != "" {
		s.ProvisioningSince = nil
	}
	if v.seen.Exists {
		s.Capacity = resource.NewQuantity(v.seen.Bytes, resource.BinarySI)
	}
	before := s.Phase
	s.Phase = v.CurrentPhase()
	switch {
	case v.lost, before == v1alpha1.VirtualDiskLost && v.err != nil && s.Phase != v1alpha1.VirtualDiskTerminating:
		s.Phase = v1alpha1.VirtualDiskLost
	}
}

func (v *view) ready() metav1.Condition {
	status, reason, message := v.readiness()
	return v1alpha1.ConditionReady.Condition(status, reason, v.Generation, message)
}

func (v *view) readiness() (metav1.ConditionStatus, v1alpha1.ConditionReason, string) {
	no, by := metav1.ConditionFalse, v.Status.AttachedTo
	switch {
	case runtime.IsUnavailable(v.err), runtime.IsTakingOver(v.err):
		return metav1.ConditionUnknown, runtime.Reason(v.err), runtime.Message(v.err)
	case by != nil && v.holder == nil && v.err == nil:
		return no, v1alpha1.ReasonDiskInUse, fmt.Sprintf("VirtualMachine %s was deleted, but its instance still uses the disk: remove the instance from the runtime", by.Name)
	case !v.DeletionTimestamp.IsZero() && by != nil:
		return no, v1alpha1.ReasonDiskInUse, fmt.Sprintf(
			"waiting until VirtualMachine %s releases the disk: remove it from spec.blockDeviceRefs: %s", by.Name, commands.Line("kubectl", "edit", "svm", by.Name, "-n", v.Namespace))
	case v.seen.Exists && v.err != nil && v.DeletionTimestamp.IsZero():
		return no, v1alpha1.ReasonResizing, fmt.Sprintf("the disk has %s and cannot grow to %s yet: %s",
			resource.NewQuantity(v.seen.Bytes, resource.BinarySI), v.Spec.Size.String(), runtime.Message(v.err))
	case !v.DeletionTimestamp.IsZero() && runtime.NothingOfOurs(v.err):
		return no, runtime.Reason(v.err), runtime.Message(v.err) + v.wayOut()
	case v.err != nil:
		return no, runtime.Reason(v.err), runtime.Message(v.err)
	case !v.DeletionTimestamp.IsZero():
		return no, v1alpha1.ReasonTerminating, "deleting the disk"
	case v.lost:
		again := "empty"
		if v.Spec.Source != nil {
			again = "copied from its image again"
		}
		return no, v1alpha1.ReasonDiskLost,
			fmt.Sprintf("disk %s no longer exists on the runtime: restore it there, or delete VirtualDisk %s and create it again, %s", v.Status.DiskID, v.Name, again)
	case v.waiting != nil:
		return no, v1alpha1.ConditionReason(v.waiting.Reason), v.waiting.Message
	case v.Status.DiskID == "":
		return no, v1alpha1.ReasonProvisioning, "creating the disk"
	case v.seen.Bytes < runtime.DiskOf(v.VirtualDisk).Bytes() && v.seen.Exists:
		return no, v1alpha1.ReasonResizing, "growing the disk"
	}
	return metav1.ConditionTrue, v1alpha1.ReasonDiskReady, ""
}

// wayOut returns how to delete a VirtualDisk whose disk cannot be observed, for the end of a message.
func (v *view) wayOut() string {
	rest := slices.DeleteFunc(slices.Clone(v.Finalizers), func(name string) bool { return name == v1alpha1.VirtualDiskFinalizer })
	left, _ := json.Marshal(rest) // strings
	return fmt.Sprintf("; to delete VirtualDisk %s and leave its disk on the runtime (needs the verb override on RegoPolicy machines-abandon): %s", v.Name,
		commands.Line("kubectl", "patch", "svd", v.Name, "-n", v.Namespace, "--type=merge", "-p", fmt.Sprintf(`{"metadata":{"finalizers":%s}}`, left)))
}

// warns reports whether the condition is worth a Warning event. A resize is if the runtime rejects it.
func (v *view) warns(ready metav1.Condition) bool {
	switch v1alpha1.ConditionReason(ready.Reason) {
	case v1alpha1.ReasonDiskReady, v1alpha1.ReasonProvisioning, v1alpha1.ReasonTerminating, v1alpha1.ReasonTakingOver, v1alpha1.ReasonReadOnly, v1alpha1.ReasonImageImporting:
		return false
	case v1alpha1.ReasonResizing:
		return v.err != nil && !runtime.IsReadOnly(v.err)
	}
	return true
}
