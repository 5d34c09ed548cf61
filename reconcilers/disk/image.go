package disk

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/commands"
	"sallyport.dev/sallyport/reconcilers/diskimage/use"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/watch"
)

// A disk references its image in status.image. The reference is persisted before the image is read live and the copy
// begins, and an image that is being deleted lists its references: at least one of the two sees the other. Before the
// copy begins, a disk drops its reference to an image that is gone or being deleted, so that neither waits for the
// other.

// byImage indexes VirtualDisks that are not created yet by their image.
const byImage = "image"

func imageKeys(o client.Object) []string {
	d, is := o.(*v1alpha1.VirtualDisk)
	if !is || d.Spec.Source == nil || d.Status.DiskID != "" {
		return nil
	}
	return []string{d.Spec.Source.Image.In(d.Namespace).String()}
}

// disksOfImage returns requests for the disks to be copied from an image.
func (r *Reconciler) disksOfImage(ctx context.Context, o client.Object) []reconcile.Request {
	return watch.Requests(ctx, r.Client, &v1alpha1.VirtualDiskList{}, client.MatchingFields{byImage: client.ObjectKeyFromObject(o).String()})
}

// findSource determines the source of a new disk, and reports whether the disk can be created now: it has no source,
// or references an image that is ready. A disk that takes over existing data needs no image.
func (r *Reconciler) findSource(ctx context.Context, l *view) (ready bool, err error) {
	ready, err = r.fromImage(ctx, l)
	if err == nil && l.source == nil {
		err = r.deleteCopySnapshot(ctx, l) // the source is another image, or none
	}
	return ready, err
}

func (r *Reconciler) fromImage(ctx context.Context, l *view) (ready bool, err error) {
	if l.Spec.Source == nil || l.Status.DiskID != "" || l.seen.Exists || runtime.EarlierOf(l) == runtime.TakeOver {
		return true, nil
	}
	name := l.Spec.Source.Image.In(l.Namespace)
	image, reason, message, err := use.Find(ctx, r.Live, name, l.Namespace)
	if err != nil {
		return false, err
	}
	if reason != "" {
		l.Status.Image = nil // nothing was copied yet
		l.setWaiting(reason, message)
		return false, nil
	}
	held := l.Status.Image
	if held != nil && (!held.Is(image) || !image.DeletionTimestamp.IsZero()) {
		l.Status.Image = nil
	}
	if reason, message := l.usable(image); reason != "" {
		l.setWaiting(reason, message)
		return false, nil
	}
	if l.Status.Image == nil {
		l.setImage(image)
		l.replaced = held != nil
		return false, nil
	}
	l.source = &runtime.DiskSource{
		Image: image.UID, Snapshot: image.Status.Snapshot.Name, Claim: types.NamespacedName{Namespace: image.Namespace, Name: image.Status.Claim.Name},
	}
	if l.otherNamespace() {
		l.source.Snapshot = snapshotName(l.UID)
		return r.ensureCopySnapshot(ctx, l, image)
	}
	return true, nil
}

// usable returns why the disk cannot be copied from the image now. The reason is empty if it can.
func (l *view) usable(image *v1alpha1.VMDiskImage) (v1alpha1.ConditionReason, string) {
	if reason, message := image.Unusable(); reason != "" && (reason != v1alpha1.ReasonImageRetired || l.Status.Image == nil) {
		return reason, message
	}
	if least := image.Status.VirtualSize; runtime.DiskOf(l.VirtualDisk).Bytes() < least.Value() {
		return v1alpha1.ReasonInvalidSpec, fmt.Sprintf("spec.size: must be at least %s, the size of VMDiskImage %s: %s", least, image.Name, l.resizeCommand(*least))
	}
	return "", ""
}

func (l *view) resizeCommand(least resource.Quantity) string {
	return commands.Line(append(append([]string{"kubectl", "patch"}, commands.Object("virtualdisks", l.Namespace, l.Name)...),
		"--type=merge", "-p", fmt.Sprintf(`{"spec":{"size":%q}}`, least.String()))...)
}

// setImage sets the reference to the image. The next pass copies it.
func (l *view) setImage(image *v1alpha1.VMDiskImage) {
	l.Status.Image = &v1alpha1.UsedDiskImage{Namespace: image.Namespace, Name: image.Name, UID: image.UID}
	l.requeueAfter = time.Millisecond
}

// imageDiffers reports whether a disk that exists but is not recorded yet is a copy of another image than its status
// says, as after a restore of its VirtualDisk from a backup.
func (l *view) imageDiffers() bool {
	return l.Spec.Source != nil && l.Status.DiskID == "" && l.seen.Exists && l.seen.Image != "" &&
		(l.Status.Image == nil || l.Status.Image.UID != l.seen.Image)
}

// correctImage sets the reference of such a disk to the image that it is a copy of, if that is the image of its spec.
// Any other image is gone, or is not trusted: users who may edit volumes can write its UID.
func (l *view) correctImage(ctx context.Context, live client.Reader) error {
	name, image := l.Spec.Source.Image.In(l.Namespace), &v1alpha1.VMDiskImage{}
	if err := live.Get(ctx, name, image); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading VMDiskImage %s: %w", name, err)
	}
	if image.UID == l.seen.Image {
		l.setImage(image)
		return nil
	}
	l.Status.Image = nil
	l.record()
	return nil
}

func (l *view) setWaiting(reason v1alpha1.ConditionReason, message string) {
	c := v1alpha1.ConditionReady.Condition(metav1.ConditionFalse, reason, l.Generation, message)
	l.waiting = &c
}

// recordReplaced records an event if the disk is copied from another image than the one it first referenced.
func (r *Reconciler) recordReplaced(l *view) {
	if l.replaced {
		r.Events.Eventf(l.VirtualDisk, nil, corev1.EventTypeWarning, string(v1alpha1.ReasonImageReplaced), "Ensure",
			"VMDiskImage %s was deleted and created again before the disk was copied: the disk is copied from the new image", l.Status.Image.Name)
	}
}
