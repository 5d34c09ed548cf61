package disk

import (
	"cmp"
	"context"
	"fmt"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// A PersistentVolumeClaim can be created only from a VolumeSnapshot in its own namespace. For a disk whose image is
// in another namespace this reconciler creates, for the time of the copy, a VolumeSnapshotContent that refers to the
// image's snapshot on the storage system, and a VolumeSnapshot bound to it. Their deletion policy is Retain, so that
// deleting them never deletes the data of the image, which stays while the disk references the image. The image must
// allow the namespace at the time of the copy; the objects are deleted when the copy is complete. status.copySnapshot
// is persisted before they are created, and the disk keeps its finalizer until their deletion is accepted.

// snapshotName returns the name of the VolumeSnapshot and VolumeSnapshotContent that a disk is copied from.
func snapshotName(disk types.UID) string { return "svd-" + string(disk) }

// otherNamespace reports whether the image of the disk is in another namespace.
func (v *view) otherNamespace() bool {
	return v.Spec.Source != nil && v.Spec.Source.Image.In(v.Namespace).Namespace != v.Namespace
}

// copySnapshot contains the objects for a copy from an image in another namespace. An object that does not exist has
// no name.
type copySnapshot struct {
	content  snapshotv1.VolumeSnapshotContent
	snapshot snapshotv1.VolumeSnapshot
}

// readCopySnapshot reads the objects for a copy. An object of that name that this reconciler would not create is an
// error: nothing is copied from it, and it is not deleted. This includes a content whose deletion, or that of its
// snapshot, would delete the data of the image. If only the snapshot is another's, the content is returned with the error.
func (r *Reconciler) readCopySnapshot(ctx context.Context, v *view) (*copySnapshot, error) {
	b, name := &copySnapshot{}, snapshotName(v.UID)
	if err := r.Live.Get(ctx, types.NamespacedName{Name: name}, &b.content); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading VolumeSnapshotContent %s: %w", name, err)
	}
	if err := r.Live.Get(ctx, types.NamespacedName{Namespace: v.Namespace, Name: name}, &b.snapshot); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading VolumeSnapshot %s: %w", name, err)
	}
	of := b.content.Spec
	if b.content.Name != "" && (of.VolumeSnapshotRef.Namespace != v.Namespace || of.VolumeSnapshotRef.Name != name ||
		of.DeletionPolicy != snapshotv1.VolumeSnapshotContentRetain) {
		return nil, runtime.NewOwnedByAnother(nil, "VolumeSnapshotContent %s is not for the copy of the disk, or its deletionPolicy is not Retain: an "+
			"administrator has to set that, or to delete the object", name)
	}
	if from := b.snapshot.Spec.Source.VolumeSnapshotContentName; b.snapshot.Name != "" && (from == nil || *from != name) {
		b.snapshot = snapshotv1.VolumeSnapshot{}
		return b, runtime.NewOwnedByAnother(nil, "VolumeSnapshot %s is not for the copy of the disk: delete it", name)
	}
	return b, nil
}

// ensureCopySnapshot ensures the snapshot that the disk is copied from, and reports whether it is ready to use.
func (r *Reconciler) ensureCopySnapshot(ctx context.Context, v *view, image *v1alpha1.VMDiskImage) (ready bool, err error) {
	if v.Status.CopySnapshot == "" {
		v.Status.CopySnapshot = snapshotName(v.UID)
		v.requeueAfter = time.Millisecond
		return false, nil
	}
	ready, err = r.createCopySnapshot(ctx, v, image)
	switch {
	case runtime.IsOwnedByAnother(err):
		v.err = err
		return false, nil
	case apierrors.IsForbidden(err):
		v.setWaiting(v1alpha1.ReasonPermissionDenied, fmt.Sprintf("%s; copies from other namespaces need the chart value diskImages.enabled=true", err))
		v.requeueAfter = lastRetry
		return false, nil
	}
	return ready, err
}

// createCopySnapshot creates the missing objects, and reports whether the snapshot is ready to use.
func (r *Reconciler) createCopySnapshot(ctx context.Context, v *view, image *v1alpha1.VMDiskImage) (ready bool, err error) {
	b, err := r.readCopySnapshot(ctx, v)
	if err != nil {
		return false, err
	}
	content, err := r.contentOf(ctx, image)
	if err != nil {
		return false, err
	}
	v.requeueAfter = cmp.Or(r.Poll, defaultPoll)
	handle := b.content.Spec.Source.SnapshotHandle
	switch {
	case content == nil:
		v.setWaiting(v1alpha1.ReasonImageImporting, fmt.Sprintf("waiting until the snapshot of VMDiskImage %s is bound", image.Name))
		return false, nil
	case b.content.Name != "" && (handle == nil || *handle != *content.Status.SnapshotHandle): // of a former snapshot
		return false, r.deleteCopyObjects(ctx, v)
	}
	if b.content.Name == "" {
		if err := r.createIfMissing(ctx, newContent(v, content)); err != nil {
			return false, err
		}
	}
	if b.snapshot.Name == "" {
		if err := r.createIfMissing(ctx, newSnapshot(v)); err != nil {
			return false, err
		}
	}
	status := cmp.Or(b.snapshot.Status, &snapshotv1.VolumeSnapshotStatus{})
	if status.ReadyToUse != nil && *status.ReadyToUse && b.snapshot.DeletionTimestamp.IsZero() && b.content.DeletionTimestamp.IsZero() {
		return true, nil
	}
	text := fmt.Sprintf("waiting until VolumeSnapshot %s is ready to be used", snapshotName(v.UID))
	if status.Error != nil && status.Error.Message != nil {
		text += ": " + *status.Error.Message
	}
	v.setWaiting(v1alpha1.ReasonImageImporting, text)
	return false, nil
}

// contentOf reads the content of the image's snapshot. It returns nil if that is not known yet.
func (r *Reconciler) contentOf(ctx context.Context, image *v1alpha1.VMDiskImage) (*snapshotv1.VolumeSnapshotContent, error) {
	of, snapshot, content := image.Status.Snapshot, &snapshotv1.VolumeSnapshot{}, &snapshotv1.VolumeSnapshotContent{}
	err := r.Live.Get(ctx, types.NamespacedName{Namespace: image.Namespace, Name: of.Name}, snapshot)
	if apierrors.IsNotFound(err) || err == nil && (snapshot.UID != of.UID || snapshot.Status == nil || snapshot.Status.BoundVolumeSnapshotContentName == nil) {
		return nil, nil
	}
	if err == nil {
		err = r.Live.Get(ctx, types.NamespacedName{Name: *snapshot.Status.BoundVolumeSnapshotContentName}, content)
	}
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading the snapshot of VMDiskImage %s: %w", client.ObjectKeyFromObject(image), err)
	case content.Spec.VolumeSnapshotRef.UID != snapshot.UID || content.Status == nil || content.Status.SnapshotHandle == nil:
		return nil, nil
	}
	return content, nil
}

// newContent returns a VolumeSnapshotContent for the disk with the source of another one.
func newContent(v *view, of *snapshotv1.VolumeSnapshotContent) *snapshotv1.VolumeSnapshotContent {
	return &snapshotv1.VolumeSnapshotContent{
		ObjectMeta: metav1.ObjectMeta{Name: snapshotName(v.UID)},
		Spec: snapshotv1.VolumeSnapshotContentSpec{
			VolumeSnapshotRef: corev1.ObjectReference{
				APIVersion: snapshotv1.SchemeGroupVersion.String(), Kind: "VolumeSnapshot", Namespace: v.Namespace, Name: snapshotName(v.UID),
			},
			DeletionPolicy: snapshotv1.VolumeSnapshotContentRetain, Driver: of.Spec.Driver, SourceVolumeMode: of.Spec.SourceVolumeMode,
			VolumeSnapshotClassName: of.Spec.VolumeSnapshotClassName,
			Source:                  snapshotv1.VolumeSnapshotContentSource{SnapshotHandle: of.Status.SnapshotHandle},
		},
	}
}

func newSnapshot(v *view) *snapshotv1.VolumeSnapshot {
	return &snapshotv1.VolumeSnapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: v.Namespace, Name: snapshotName(v.UID)},
		Spec:       snapshotv1.VolumeSnapshotSpec{Source: snapshotv1.VolumeSnapshotSource{VolumeSnapshotContentName: new(snapshotName(v.UID))}},
	}
}

// createIfMissing creates an object unless it exists.
func (r *Reconciler) createIfMissing(ctx context.Context, o client.Object) error {
	if err := r.Client.Create(ctx, o); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating %s for the copy from another namespace: %w", o.GetName(), err)
	}
	return nil
}

// deleteCopySnapshot deletes the objects of a copy that is complete or given up. If this is not permitted, as after the
// import of images was disabled, a deleted disk stays.
func (r *Reconciler) deleteCopySnapshot(ctx context.Context, v *view) error {
	if v.Status.CopySnapshot == "" {
		return nil
	}
	err := r.deleteCopyObjects(ctx, v)
	switch {
	case err == nil, runtime.IsOwnedByAnother(err), meta.IsNoMatchError(err): // nothing is left to delete
		v.Status.CopySnapshot = ""
		return nil
	case apierrors.IsForbidden(err) && !v.DeletionTimestamp.IsZero():
		v.err = runtime.NewPermission(err, "VolumeSnapshotContent %s, which the disk was to be copied from, cannot be deleted: an administrator has to set "+
			"the chart value diskImages.enabled=true, or to delete the object and the finalizer %s of the disk", v.Status.CopySnapshot, v1alpha1.VirtualDiskFinalizer)
		return nil
	case !apierrors.IsForbidden(err):
		return err
	}
	v.requeueAfter = cmp.Or(v.requeueAfter, lastRetry)
	return nil
}

// deleteCopyObjects deletes the objects of a copy. The snapshot is deleted first: it uses its content. A snapshot
// of another client stays.
func (r *Reconciler) deleteCopyObjects(ctx context.Context, v *view) error {
	b, err := r.readCopySnapshot(ctx, v)
	if b == nil {
		return err
	}
	for _, o := range []client.Object{&b.snapshot, &b.content} {
		if o.GetName() == "" || !o.GetDeletionTimestamp().IsZero() {
			continue
		}
		uid := o.GetUID()
		if err := r.Client.Delete(ctx, o, client.Preconditions{UID: &uid}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting %s, from which the disk was copied: %w", o.GetName(), err)
		}
	}
	return nil
}
