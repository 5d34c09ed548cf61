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
func (r *Reconciler) findSource(ctx context.Context, v *view) (ready bool, err error) {
	ready, err = r.fromImage(ctx, v)
	if err == nil && v.source == nil {
		err = r.deleteCopySnapshot(ctx, v) // the source is another image, or none
	}
	return ready, err
}

func (r *Reconciler) fromImage(ctx context.Context, v *view) (ready bool, err error) {
	if v.Spec.Source == nil || v.Status.DiskID != "" || v.seen.Exists || runtime.EarlierOf(v) == runtime.TakeOver {
		return true, nil
	}
	name := v.Spec.Source.Image.In(v.Namespace)
	image, reason, message, err := use.Find(ctx, r.Live, name, v.Namespace)
	if err != nil {
		return false, err
	}
	if reason != "" {
		v.Status.Image = nil // nothing was copied yet
		v.setWaiting(reason, message)
		return false, nil
	}
	held := v.Status.Image
	if held != nil && (!held.Is(image) || !image.DeletionTimestamp.IsZero()) {
		v.Status.Image = nil
	}
	if reason, message := v.usable(image); reason != "" {
		v.setWaiting(reason, message)
		return false, nil
	}
	if v.Status.Image == nil {
		v.setImage(image)
		v.replaced = held != nil
		return false, nil
	}
	v.source = &runtime.DiskSource{
		Image: image.UID, Snapshot: image.Status.Snapshot.Name, Claim: types.NamespacedName{Namespace: image.Namespace, Name: image.Status.Claim.Name},
	}
	if v.otherNamespace() {
		v.source.Snapshot = snapshotName(v.UID)
		return r.ensureCopySnapshot(ctx, v, image)
	}
	return true, nil
}

// usable returns why the disk cannot be copied from the image now. The reason is empty if it can.
func (v *view) usable(image *v1alpha1.VMDiskImage) (v1alpha1.ConditionReason, string) {
	if reason, message := image.Unusable(); reason != "" && (reason != v1alpha1.ReasonImageRetired || v.Status.Image == nil) {
		return reason, message
	}
	if least := image.Status.VirtualSize; runtime.DiskOf(v.VirtualDisk).Bytes() < least.Value() {
		return v1alpha1.ReasonInvalidSpec, fmt.Sprintf("spec.size: must be at least %s, the size of VMDiskImage %s: %s", least, image.Name, v.resizeCommand(*least))
	}
	return "", ""
}

func (v *view) resizeCommand(least resource.Quantity) string {
	return commands.Line(append(append([]string{"kubectl", "patch"}, commands.Object("virtualdisks", v.Namespace, v.Name)...),
		"--type=merge", "-p", fmt.Sprintf(`{"spec":{"size":%q}}`, least.String()))...)
}

// setImage sets the reference to the image. The next pass copies it.
func (v *view) setImage(image *v1alpha1.VMDiskImage) {
	v.Status.Image = &v1alpha1.UsedDiskImage{Namespace: image.Namespace, Name: image.Name, UID: image.UID}
	v.requeueAfter = time.Millisecond
}

// imageDiffers reports whether a disk that exists but is not recorded yet is a copy of another image than its status
// says, as after a restore of its VirtualDisk from a backup.
func (v *view) imageDiffers() bool {
	return v.Spec.Source != nil && v.Status.DiskID == "" && v.seen.Exists && v.seen.Image != "" &&
		(v.Status.Image == nil || v.Status.Image.UID != v.seen.Image)
}

// correctImage sets the reference of such a disk to the image that it is a copy of, if that is the image of its spec.
// Any other image is gone, or is not trusted: users who may edit volumes can write its UID.
func (v *view) correctImage(ctx context.Context, live client.Reader) error {
	name, image := v.Spec.Source.Image.In(v.Namespace), &v1alpha1.VMDiskImage{}
	if err := live.Get(ctx, name, image); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading VMDiskImage %s: %w", name, err)
	}
	if image.UID == v.seen.Image {
		v.setImage(image)
		return nil
	}
	v.Status.Image = nil
	v.record()
	return nil
}

func (v *view) setWaiting(reason v1alpha1.ConditionReason, message string) {
	c := v1alpha1.ConditionReady.Condition(metav1.ConditionFalse, reason, v.Generation, message)
	v.waiting = &c
}

// recordReplaced records an event if the disk is copied from another image than the one it first referenced.
func (r *Reconciler) recordReplaced(v *view) {
	if v.replaced {
		r.Events.Eventf(v.VirtualDisk, nil, corev1.EventTypeWarning, string(v1alpha1.ReasonImageReplaced), "Ensure",
			"VMDiskImage %s was deleted and created again before the disk was copied: the disk is copied from the new image", v.Status.Image.Name)
	}
}
