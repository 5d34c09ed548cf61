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
	l := &view{VMDiskImage: image, read: image.Status.DeepCopy(), now: r.Now()}
	err := r.act(ctx, l)
	return persist.Result(l.again, client.IgnoreNotFound(err))
}

func (r *Reconciler) act(ctx context.Context, l *view) error {
	if held, err := persist.Hold(ctx, r.Client, l.VMDiskImage, v1alpha1.VMDiskImageFinalizer); !held {
		return err
	}
	gone, failed := r.pass(ctx, l)
	switch {
	case apierrors.IsConflict(failed):
		return failed
	case failed != nil:
		l.setReadError(failed)
	case gone:
		return persist.Release(ctx, r.Client, l.VMDiskImage, v1alpha1.VMDiskImageFinalizer)
	}
	if err := r.save(ctx, l); err != nil {
		return err
	}
	return failed
}

// pass takes the next step of an image, and reports whether a deleted image has nothing left.
func (r *Reconciler) pass(ctx context.Context, l *view) (gone bool, err error) {
	deleted := !l.DeletionTimestamp.IsZero()
	if err := r.count(ctx, l); err != nil {
		return false, err
	}
	if deleted {
		if released, err := r.released(ctx, l); err != nil || !released {
			return false, err
		}
	}
	halt := r.Halt.Err()
	switch {
	case r.Disabled && deleted && l.Status.Attempt == nil:
		return true, nil // nothing was created
	case r.Disabled:
		l.disabled()
		return false, nil
	case halt != nil && deleted && l.Status.Attempt == nil:
		return true, nil
	case halt != nil:
		l.idle(v1alpha1.ReasonReadOnly, runtime.Message(halt))
		return false, nil
	}
	if err := l.observe(ctx, r.Live); err != nil {
		return false, err
	}
	if deleted {
		return r.remove(ctx, l, allAttempts)
	}
	if err := r.proceed(ctx, l); err != nil {
		return false, err
	}
	return false, r.expire(ctx, l)
}

// proceed takes the next step of an image that is not being deleted.
func (r *Reconciler) proceed(ctx context.Context, l *view) error {
	attempt := l.Status.Attempt
	switch {
	case l.Status.Snapshot != nil:
		l.watchOver()
		return nil
	case attempt == nil:
		return r.begin(ctx, l, max(1, l.newest()))
	case attempt.RetryAt == nil && l.Status.Phase != v1alpha1.VMDiskImageFailed:
		return r.attempt(ctx, l)
	}
	// The attempt has failed. Its objects are deleted first, so that attempts do not use space at the same time.
	if none, err := r.remove(ctx, l, allAttempts); !none || err != nil {
		return err
	}
	if attempt.RetryAt != nil {
		if l.again = attempt.RetryAt.Sub(l.now); l.again > 0 {
			return nil
		}
		return r.begin(ctx, l, attempt.Number+1)
	}
	if l.Annotations[v1alpha1.AnnotationRetryImport] == fmt.Sprint(attempt.Number+1) {
		attempt.RetriesUsed = 0
		return r.begin(ctx, l, attempt.Number+1)
	}
	return nil
}

// save writes the status if it has changed, and records the events of the pass.
func (r *Reconciler) save(ctx context.Context, l *view) error {
	l.completeStatus()
	if l.again <= 0 {
		l.again = wait.Jitter(resync, 0.2)
	}
	changed, err := persist.Status(ctx, r.Client, l.VMDiskImage, l.read, &l.Status)
	if changed {
		r.recordEvents(l)
	}
	return err
}

// recordEvents records what a pass has changed, as events and metrics.
func (r *Reconciler) recordEvents(l *view) {
	before, after := v1alpha1.ConditionReady.In(l.read.Conditions), v1alpha1.ConditionReady.In(l.Status.Conditions)
	if l.failure != "" || warns(after.Reason) && (before == nil || before.Reason != after.Reason) {
		r.Events.Eventf(l.VMDiskImage, nil, corev1.EventTypeWarning, after.Reason, "Import", "%s", after.Message)
	}
	if l.read.Snapshot == nil && l.Status.Phase == v1alpha1.VMDiskImageReady {
		r.Events.Eventf(l.VMDiskImage, nil, corev1.EventTypeNormal, after.Reason, "Import", "the image was imported in attempt %d", l.Status.Attempt.Number)
		r.Metrics.countAttempt(succeeded, l.now.Sub(l.Status.Attempt.StartedAt.Time))
	}
	if l.failure != "" {
		r.Metrics.countAttempt(l.failure, l.now.Sub(l.Status.Attempt.StartedAt.Time))
	}
	if was := v1alpha1.ConditionDeletionBlocked.In(l.read.Conditions); l.blockade != nil && (was == nil || was.Reason != string(l.blockade.reason)) {
		r.Events.Eventf(l.VMDiskImage, nil, corev1.EventTypeWarning, string(l.blockade.reason), "Delete", "%s", l.blockade.message)
	}
}

func warns(reason string) bool {
	switch v1alpha1.ConditionReason(reason) {
	case v1alpha1.ReasonImageReady, v1alpha1.ReasonImporting, v1alpha1.ReasonSnapshotPending, v1alpha1.ReasonTerminating, v1alpha1.ReasonImportUnknown:
		return false
	}
	return true
}
