// Package diskimage imports images for the disks of machines: CDI fills a PersistentVolumeClaim from the source, and a VolumeSnapshot of
// the claim is what disks start from.
//
// CDI does not give up on an import. An attempt therefore has a deadline and a limit for the time without progress, and is followed by
// another one. Each attempt has its own DataVolume, claim and snapshot, whose name is a function of the UID of the image and the number of
// the attempt. The number is persisted before anything is created, and an object counts as one of the image only if its labels have both.
// A process keeps no state.
//
// An image is used by the VirtualDisks that have its UID in their status. They are counted by an index, never incremented. Nothing of an
// image that is used is deleted: before the first deletion, the index and then a live list must be empty.
//
// The objects have no ownerReference to the image: the garbage collector would delete them first if the image is deleted in the foreground.
package diskimage

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/drive"
)

const (
	// poll is how often an import is looked at of which no change is seen.
	poll = 10 * time.Second
	// pause is how often it is looked whether something appeared that an import waits for.
	pause = 30 * time.Second
	// resync is how often an image is looked at with which nothing is to be done.
	resync = 10 * time.Minute
	// lastRetry is the longest wait after an error.
	lastRetry = time.Minute
)

// Reconciler is the reconciler of VMDiskImages.
type Reconciler struct {
	// Client writes, and reads VirtualDisks from a cache, by [v1alpha1.FieldUsedDiskImage].
	Client client.Client
	// Live reads past every cache.
	Live client.Reader
	// Events records events.
	Events events.EventRecorder
	// Now is the clock.
	Now func() time.Time
	// Metrics, if it is set, tells of images.
	Metrics *Metrics
	// SecretHosts are hosts that the credentials of every Secret may be sent to, in the form of [v1alpha1.AnnotationAllowedHosts].
	SecretHosts []string
	// Disabled says that images are not imported, because the rights for that are not granted.
	Disabled bool
	// ReadOnly says that nothing is imported or deleted for now.
	ReadOnly bool
}

// SetupWithManager registers the reconciler.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	err := mgr.GetFieldIndexer().IndexField(context.Background(), &v1alpha1.VirtualDisk{}, v1alpha1.FieldUsedDiskImage, usedImage)
	if err != nil {
		return fmt.Errorf("indexing VirtualDisks by their images: %w", err)
	}
	if err := r.Metrics.watch(mgr.GetClient(), mgr.Elected()); err != nil {
		return fmt.Errorf("registering the metrics of VMDiskImages: %w", err)
	}
	b := ctrl.NewControllerManagedBy(mgr).
		For(&v1alpha1.VMDiskImage{}, builder.WithPredicates(predicate.Or(
			predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}, predicate.LabelChangedPredicate{}))).
		Watches(&v1alpha1.VirtualDisk{}, onDisks()).
		WithOptions(drive.Options(lastRetry))
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

// Reconcile takes the import or the deletion of one image further.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	image := &v1alpha1.VMDiskImage{}
	if err := r.Live.Get(ctx, request.NamespacedName, image); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	l := &look{VMDiskImage: image, read: image.Status.DeepCopy(), now: r.Now()}
	err := r.act(ctx, l)
	if apierrors.IsConflict(err) { // another process was faster: read again
		return ctrl.Result{RequeueAfter: time.Millisecond}, nil
	}
	return ctrl.Result{RequeueAfter: l.again}, client.IgnoreNotFound(err)
}

func (r *Reconciler) act(ctx context.Context, l *look) error {
	if !controllerutil.ContainsFinalizer(l.VMDiskImage, v1alpha1.VMDiskImageFinalizer) {
		if !l.DeletionTimestamp.IsZero() {
			return nil // a finalizer of another controller keeps it
		}
		// The policy `defaults` adds it at creation, if it is there.
		if err := r.finalize(ctx, l, controllerutil.AddFinalizer); err != nil {
			return err
		}
	}
	gone, failed := r.pass(ctx, l)
	switch {
	case apierrors.IsConflict(failed):
		return failed
	case failed != nil:
		l.troubled(failed)
	case gone:
		return r.finalize(ctx, l, controllerutil.RemoveFinalizer)
	}
	if err := r.save(ctx, l); err != nil {
		return err
	}
	return failed
}

// pass does the next step of an image, and reports whether nothing is left of one that is being deleted.
func (r *Reconciler) pass(ctx context.Context, l *look) (gone bool, err error) {
	deleted := !l.DeletionTimestamp.IsZero()
	if err := r.count(ctx, l); err != nil {
		return false, err
	}
	if deleted {
		if released, err := r.released(ctx, l); err != nil || !released {
			return false, err
		}
	}
	switch {
	case r.Disabled && deleted && l.Status.Attempt == nil:
		return true, nil // nothing was ever created
	case r.Disabled:
		l.disabled()
		return false, nil
	case r.ReadOnly && deleted && l.Status.Attempt == nil:
		return true, nil
	case r.ReadOnly:
		l.readOnly()
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

// finalize writes what change does to the finalizers, over the object as it was read.
func (r *Reconciler) finalize(ctx context.Context, l *look, change func(client.Object, string) bool) error {
	before := l.DeepCopy()
	change(l.VMDiskImage, v1alpha1.VMDiskImageFinalizer)
	err := r.Client.Patch(ctx, l.VMDiskImage, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if err != nil {
		return fmt.Errorf("writing the finalizers of VMDiskImage %s: %w", l.Name, err)
	}
	return nil
}

// proceed does the next step of an image that is not being deleted.
func (r *Reconciler) proceed(ctx context.Context, l *look) error {
	attempt := l.Status.Attempt
	switch {
	case l.Status.Phase == v1alpha1.VMDiskImageLost:
		return nil
	case l.Status.Snapshot != nil:
		l.watchOver()
		return nil
	case attempt == nil:
		return r.begin(ctx, l, max(1, l.newest()))
	case attempt.RetryAt == nil && l.Status.Phase != v1alpha1.VMDiskImageFailed:
		return r.attempt(ctx, l)
	}
	// The attempt has failed. What is left of it is deleted first, so that attempts do not use space together.
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
func (r *Reconciler) save(ctx context.Context, l *look) error {
	l.settle()
	if l.again <= 0 {
		l.again = wait.Jitter(resync, 0.2)
	}
	if equality.Semantic.DeepEqual(l.read, &l.Status) {
		return nil
	}
	if err := r.Client.Status().Update(ctx, l.VMDiskImage); err != nil {
		return fmt.Errorf("writing the status of VMDiskImage %s: %w", l.Name, err)
	}
	r.tell(l)
	return nil
}

// tell records what a pass has changed, as events and metrics.
func (r *Reconciler) tell(l *look) {
	before, after := v1alpha1.ConditionReady.In(l.read.Conditions), v1alpha1.ConditionReady.In(l.Status.Conditions)
	if l.failure != "" || wrong(after.Reason) && (before == nil || before.Reason != after.Reason) {
		r.Events.Eventf(l.VMDiskImage, nil, corev1.EventTypeWarning, after.Reason, "Import", "%s", after.Message)
	}
	if l.read.Phase != l.Status.Phase && l.Status.Phase == v1alpha1.VMDiskImageReady {
		r.Events.Eventf(l.VMDiskImage, nil, corev1.EventTypeNormal, after.Reason, "Import", "the image was imported in attempt %d", l.Status.Attempt.Number)
		r.Metrics.attempted(succeeded, l.now.Sub(l.Status.Attempt.StartedAt.Time))
	}
	if l.failure != "" {
		r.Metrics.attempted(l.failure, l.now.Sub(l.Status.Attempt.StartedAt.Time))
	}
	if was := v1alpha1.ConditionDeletionBlocked.In(l.read.Conditions); l.blockade != nil && (was == nil || was.Reason != string(l.blockade.reason)) {
		r.Events.Eventf(l.VMDiskImage, nil, corev1.EventTypeWarning, string(l.blockade.reason), "Delete", "%s", l.blockade.message)
	}
}

// wrong reports whether the reason of a condition is a problem.
func wrong(reason string) bool {
	switch v1alpha1.ConditionReason(reason) {
	case v1alpha1.ReasonImageReady, v1alpha1.ReasonImporting, v1alpha1.ReasonSnapshotPending, v1alpha1.ReasonTerminating, v1alpha1.ReasonImportUnknown:
		return false
	}
	return true
}
