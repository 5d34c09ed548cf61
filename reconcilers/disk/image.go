package disk

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/commands"
	"sallyport.dev/sallyport/reconcilers/drive"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// A disk holds its image by status.image. It is persisted before the image is read live and the copy begins, and the image, once it is
// being deleted, lists who holds it: one of the two sees the other. As long as nothing is copied, a disk gives up an image that is gone or
// being deleted, so that neither waits for the other.

// byImage is the index of VirtualDisks that are not made yet by the images that they are copied from.
const byImage = "image"

func imageKeys(o client.Object) []string {
	d, is := o.(*v1alpha1.VirtualDisk)
	if !is || d.Spec.Source == nil || d.Status.DiskID != "" {
		return nil
	}
	return []string{d.Spec.Source.Image.In(d.Namespace).String()}
}

// ofImage gives the disks that are to be copied from an image, by the cache. One that is not in the index yet is looked at when it arrives
// there, which is later than the change.
func (r *Reconciler) ofImage(ctx context.Context, o client.Object) (requests []reconcile.Request) {
	var list v1alpha1.VirtualDiskList
	if err := r.Client.List(ctx, &list, client.MatchingFields{byImage: client.ObjectKeyFromObject(o).String()}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "finding the disks of an image", "VMDiskImage", o.GetName())
	}
	for i := range list.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return requests
}

// sourced finds out what a disk is made from. It reports whether the disk can be made now: it has no source, or holds an image that is
// ready. A disk that is to take over another one's data needs no image.
func (r *Reconciler) sourced(ctx context.Context, l *look) (ready bool, err error) {
	ready, err = r.fromImage(ctx, l)
	if err == nil && l.source == nil {
		err = r.returnSnapshot(ctx, l) // it is copied from another image, or from none
	}
	return ready, err
}

func (r *Reconciler) fromImage(ctx context.Context, l *look) (ready bool, err error) {
	if l.Spec.Source == nil || l.Status.DiskID != "" || l.seen.Exists || runtime.EarlierOf(l) == runtime.TakeOver {
		return true, nil
	}
	name := l.Spec.Source.Image.In(l.Namespace)
	image := &v1alpha1.VMDiskImage{}
	if err := r.Live.Get(ctx, name, image); apierrors.IsNotFound(err) {
		l.Status.Image = nil
		l.wait(v1alpha1.ReasonImageMissing, v1alpha1.ImageMissing(name))
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("reading VMDiskImage %s: %w", name, err)
	}
	held := l.Status.Image
	if held != nil && (!held.Is(image) || !image.DeletionTimestamp.IsZero()) {
		l.Status.Image = nil
	}
	if allowed, err := drive.MayUse(ctx, r.Live, image, l.Namespace); err != nil {
		return false, err
	} else if !allowed {
		l.Status.Image = nil // nothing was copied
		l.wait(v1alpha1.ReasonImageNotAllowed, v1alpha1.ImageNotAllowed(name, l.Namespace))
		return false, nil
	}
	if reason, message := l.usable(image); reason != "" {
		l.wait(reason, message)
		return false, nil
	}
	if l.Status.Image == nil {
		l.hold(image)
		l.replaced = held != nil
		return false, nil
	}
	l.source = &runtime.DiskSource{
		Image: image.UID, Snapshot: image.Status.Snapshot.Name, Claim: types.NamespacedName{Namespace: image.Namespace, Name: image.Status.Claim.Name},
	}
	if l.abroad() {
		l.source.Snapshot = snapshotName(l.UID)
		return r.borrowSnapshot(ctx, l, image)
	}
	return true, nil
}

// usable says why the disk cannot be copied from the image now. The reason is empty if it can be.
func (l *look) usable(image *v1alpha1.VMDiskImage) (v1alpha1.ConditionReason, string) {
	if reason, message := image.Unusable(); reason != "" && (reason != v1alpha1.ReasonImageRetired || l.Status.Image == nil) {
		return reason, message
	}
	if least := image.Status.VirtualSize; runtime.DiskOf(l.VirtualDisk).Bytes() < least.Value() {
		return v1alpha1.ReasonInvalidSpec, fmt.Sprintf("spec.size: must be at least %s, the size of VMDiskImage %s: %s", least, image.Name, l.resize(*least))
	}
	return "", ""
}

// resize is the command that makes the disk large enough.
func (l *look) resize(least resource.Quantity) string {
	return commands.Line(append(append([]string{"kubectl", "patch"}, commands.Object("virtualdisks", l.Namespace, l.Name)...),
		"--type=merge", "-p", fmt.Sprintf(`{"spec":{"size":%q}}`, least.String()))...)
}

// hold has the disk hold the image. The next look copies it.
func (l *look) hold(image *v1alpha1.VMDiskImage) {
	l.Status.Image = &v1alpha1.UsedDiskImage{Namespace: image.Namespace, Name: image.Name, UID: image.UID}
	l.again = time.Millisecond
}

// misnamed reports whether a disk that exists, and is not recorded yet, is a copy of another image than its status says, as after its
// VirtualDisk was restored from a backup.
func (l *look) misnamed() bool {
	return l.Spec.Source != nil && l.Status.DiskID == "" && l.seen.Exists && l.seen.Image != "" &&
		(l.Status.Image == nil || l.Status.Image.UID != l.seen.Image)
}

// correct has a disk that was not recorded yet hold the image that it is a copy of, if that is the image of its spec. Another one is gone,
// or was never an image of the disk: whoever may edit volumes can write that.
func (l *look) correct(ctx context.Context, live client.Reader) error {
	name, image := l.Spec.Source.Image.In(l.Namespace), &v1alpha1.VMDiskImage{}
	if err := live.Get(ctx, name, image); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading VMDiskImage %s: %w", name, err)
	}
	if image.UID == l.seen.Image {
		l.hold(image)
		return nil
	}
	l.Status.Image = nil
	l.record()
	return nil
}

func (l *look) wait(reason v1alpha1.ConditionReason, message string) {
	c := v1alpha1.ConditionReady.Condition(metav1.ConditionFalse, reason, l.Generation, message)
	l.waits = &c
}

// tellReplaced tells people that the disk is copied from another image than the one that it waited for.
func (r *Reconciler) tellReplaced(l *look) {
	if l.replaced {
		r.Events.Eventf(l.VirtualDisk, nil, corev1.EventTypeWarning, string(v1alpha1.ReasonImageReplaced), "Ensure",
			"VMDiskImage %s was deleted and created again before the disk was copied: the disk is copied from the new image", l.Status.Image.Name)
	}
}
