// Package diskimage imports images for the disks of machines: CDI fills a PersistentVolumeClaim from the source, and a VolumeSnapshot of
// the claim is what disks start from.
//
// CDI never gives up an import. An attempt therefore has a deadline and a limit for the time without progress, and is
// followed by another one. Each attempt has its own DataVolume, claim and snapshot, whose name is a function of the
// UID of the image and the number of the attempt. The number is persisted before anything is created, and an object
// belongs to the image only if its labels have both. No state is kept in memory.
//
// An image is referenced by the VirtualDisks that have its UID in their status. References are counted by an index,
// never incremented. No data of a referenced image is deleted: before the first deletion, the index and then a live
// list must be empty.
//
// The objects have no ownerReference to the image: the garbage collector would delete them first if the image is deleted in the foreground.
package diskimage

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/persist"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/watch"
)

const (
	// poll is the interval at which an import without change events is checked.
	poll = 10 * time.Second
	// pause is the interval at which a missing prerequisite of an import is checked again.
	pause = 30 * time.Second
	// resync is the interval at which an idle image is checked.
	resync = 10 * time.Minute
	// lastRetry is the longest wait after an error.
	lastRetry = time.Minute
)

// Reconciler reconciles VMDiskImages.
type Reconciler struct {
	// Client writes, and reads VirtualDisks from a cache, by [v1alpha1.FieldUsedDiskImage].
	Client client.Client
	// Live reads from the API server, without a cache.
	Live   client.Reader
	Events events.EventRecorder
	Now    func() time.Time
	// Metrics counts images and imports; it may be nil.
	Metrics *Metrics
	// SecretHosts are hosts that the credentials of every Secret may be sent to, in the form of [v1alpha1.AnnotationAllowedHosts].
	SecretHosts []string
	// Disabled is set if images are not imported, because the permissions are not granted.
	Disabled bool
	// Halt prevents imports and deletions.
	Halt runtime.Halt
}

// SetupWithManager registers the reconciler.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	if err := watch.Index(mgr, &v1alpha1.VirtualDisk{}, map[string]client.IndexerFunc{v1alpha1.FieldUsedDiskImage: usedImage}); err != nil {
		return err
	}
	if err := r.Metrics.register(mgr.GetClient(), mgr.Elected()); err != nil {
		return fmt.Errorf("registering the metrics of VMDiskImages: %w", err)
	}
	b := ctrl.NewControllerManagedBy(mgr).
		For(&v1alpha1.VMDiskImage{}, builder.WithPredicates(predicate.Or(
			predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}, predicate.LabelChangedPredicate{}))).
		Watches(&v1alpha1.VirtualDisk{}, onDisks()).
		WithOptions(watch.Options(lastRetry))
	if !r.Disabled {
		children, err := watchChildren(mgr)
		if err != nil {
			return fmt.Errorf("preparing the watches of DataVolumes, claims and snapshots: %w", err)
		}
		for _, child := range children {
			b = b.WatchesRawSource(child)
		}
	}
	return b.Complete(r)
}

// Reconcile advances the import or the deletion of one image.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	image := &v1alpha1.VMDiskImage{}
	if err := r.Live.Get(ctx, request.NamespacedName, image); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	v := &view{VMDiskImage: image, read: image.Status.DeepCopy(), now: r.Now()}
	err := r.act(ctx, v)
	return persist.Result(v.again, client.IgnoreNotFound(err))
}

func (r *Reconciler) act(ctx context.Context, v *view) error {
	if held, err := persist.Hold(ctx, r.Client, v.VMDiskImage, v1alpha1.VMDiskImageFinalizer); !held {
		return err
	}
	gone, failed := r.pass(ctx, v)
	switch {
	case apierrors.IsConflict(failed):
		return failed
	case failed != nil:
		v.setReadError(failed)
	case gone:
		return persist.Release(ctx, r.Client, v.VMDiskImage, v1alpha1.VMDiskImageFinalizer)
	}
	if err := r.save(ctx, v); err != nil {
		return err
	}
	return failed
}

// pass takes the next step of an image, and reports whether a deleted image has nothing left.
func (r *Reconciler) pass(ctx context.Context, v *view) (gone bool, err error) {
	deleted := !v.DeletionTimestamp.IsZero()
	if err := r.count(ctx, v); err != nil {
		return false, err
	}
	if deleted {
		if released, err := r.released(ctx, v); err != nil || !released {
			return false, err
		}
	}
	halt := r.Halt.Err()
	switch {
	case r.Disabled && deleted && v.Status.Attempt == nil:
		return true, nil // nothing was created
	case r.Disabled:
		v.disabled()
		return false, nil
	case halt != nil && deleted && v.Status.Attempt == nil:
		return true, nil
	case halt != nil:
		v.idle(v1alpha1.ReasonReadOnly, runtime.Message(halt))
		return false, nil
	}
	if err := v.observe(ctx, r.Live); err != nil {
		return false, err
	}
	if deleted {
		return r.remove(ctx, v, allAttempts)
	}
	if err := r.proceed(ctx, v); err != nil {
		return false, err
	}
	return false, r.expire(ctx, v)
}

// proceed takes the next step of an image that is not being deleted.
func (r *Reconciler) proceed(ctx context.Context, v *view) error {
	attempt := v.Status.Attempt
	switch {
	case v.Status.Snapshot != nil:
		v.watchOver()
		return nil
	case attempt == nil:
		return r.begin(ctx, v, max(1, v.newest()))
	case attempt.RetryAt == nil && v.Status.Phase != v1alpha1.VMDiskImageFailed:
		return r.attempt(ctx, v)
	}
	// The attempt has failed. Its objects are deleted first, so that attempts do not use space at the same time.
	if none, err := r.remove(ctx, v, allAttempts); !none || err != nil {
		return err
	}
	if attempt.RetryAt != nil {
		if v.again = attempt.RetryAt.Sub(v.now); v.again > 0 {
			return nil
		}
		return r.begin(ctx, v, attempt.Number+1)
	}
	if v.Annotations[v1alpha1.AnnotationRetryImport] == fmt.Sprint(attempt.Number+1) {
		attempt.RetriesUsed = 0
		return r.begin(ctx, v, attempt.Number+1)
	}
	return nil
}

// save writes the status if it has changed, and records the events of the pass.
func (r *Reconciler) save(ctx context.Context, v *view) error {
	v.completeStatus()
	if v.again <= 0 {
		v.again = wait.Jitter(resync, 0.2)
	}
	changed, err := persist.Status(ctx, r.Client, v.VMDiskImage, v.read, &v.Status)
	if changed {
		r.recordEvents(v)
	}
	return err
}

// recordEvents records what a pass has changed, as events and metrics.
func (r *Reconciler) recordEvents(v *view) {
	before, after := v1alpha1.ConditionReady.In(v.read.Conditions), v1alpha1.ConditionReady.In(v.Status.Conditions)
	if v.failure != "" || warns(after.Reason) && (before == nil || before.Reason != after.Reason) {
		r.Events.Eventf(v.VMDiskImage, nil, corev1.EventTypeWarning, after.Reason, "Import", "%s", after.Message)
	}
	if v.read.Snapshot == nil && v.Status.Phase == v1alpha1.VMDiskImageReady {
		r.Events.Eventf(v.VMDiskImage, nil, corev1.EventTypeNormal, after.Reason, "Import", "the image was imported in attempt %d", v.Status.Attempt.Number)
		r.Metrics.countAttempt(succeeded, v.now.Sub(v.Status.Attempt.StartedAt.Time))
	}
	if v.failure != "" {
		r.Metrics.countAttempt(v.failure, v.now.Sub(v.Status.Attempt.StartedAt.Time))
	}
	if was := v1alpha1.ConditionDeletionBlocked.In(v.read.Conditions); v.blockade != nil && (was == nil || was.Reason != string(v.blockade.reason)) {
		r.Events.Eventf(v.VMDiskImage, nil, corev1.EventTypeWarning, string(v.blockade.reason), "Delete", "%s", v.blockade.message)
	}
}

func warns(reason string) bool {
	switch v1alpha1.ConditionReason(reason) {
	case v1alpha1.ReasonImageReady, v1alpha1.ReasonImporting, v1alpha1.ReasonSnapshotPending, v1alpha1.ReasonTerminating, v1alpha1.ReasonImportUnknown:
		return false
	}
	return true
}
