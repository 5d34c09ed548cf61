package virtualmachine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/drive"
)

// A machine with spec.diskImage has a VirtualDisk of its own, which the disk reconciler copies from the image, and which holds the image.
// It is attached as the disks of spec.blockDeviceRefs are, and deleted by the garbage collector with its VirtualMachine. It is made only
// for a machine that was never seen: one that exists and has lost the disk would get another one silently.

// byImage is the index of VirtualMachines that are not made yet by their images.
const byImage = "image"

func imageKeys(o client.Object) []string {
	vm, is := o.(*v1alpha1.VirtualMachine)
	if !is || vm.Spec.DiskImage == nil || vm.Status.InstanceID != "" {
		return nil
	}
	return []string{vm.Spec.DiskImage.Ref.In(vm.Namespace).String()}
}

// ofImage gives the machines that wait for an image, by the cache.
func (r *Reconciler) ofImage(ctx context.Context, o client.Object) (requests []reconcile.Request) {
	var list v1alpha1.VirtualMachineList
	if err := r.Client.List(ctx, &list, client.MatchingFields{byImage: client.ObjectKeyFromObject(o).String()}); err != nil {
		log.FromContext(ctx).Error(err, "finding the VirtualMachines of an image", "VMDiskImage", o.GetName())
	}
	for i := range list.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return requests
}

// bootDisk brings about the disk that a machine boots from, before the machine is made, and tells whether it has changed anything.
func (r *Reconciler) bootDisk(ctx context.Context, l *look) (bool, error) {
	if l.VM.Spec.DiskImage == nil || !l.seen.Exists && !l.missing() {
		return false, nil
	}
	from := r.Live
	if l.seen.Exists { // it was made with the disk, whether or not that was written
		l.copied()
		from = r.Client
	}
	name := v1alpha1.ImageDiskName(l.VM.Name)
	d := &v1alpha1.VirtualDisk{}
	switch err := from.Get(ctx, l.beside(name), d); {
	case apierrors.IsNotFound(err) && l.seen.Exists:
		return false, nil
	case apierrors.IsNotFound(err):
		return r.makeBootDisk(ctx, l)
	case err != nil:
		return false, fmt.Errorf("reading VirtualDisk %s: %w", name, err)
	case leftBehind(d, l.VM):
		return true, r.adoptBootDisk(ctx, l, d)
	case l.seen.Exists:
		return false, nil
	}
	return r.awaitBootDisk(ctx, l, d)
}

// awaitBootDisk shows why the disk that exists is not there yet, and has its image created if that is missing.
func (r *Reconciler) awaitBootDisk(ctx context.Context, l *look, d *v1alpha1.VirtualDisk) (bool, error) {
	switch ready := v1alpha1.ConditionReady.In(d.Status.Conditions); {
	case !d.DeletionTimestamp.IsZero():
		l.waitForImage(v1alpha1.ReasonDiskNotReady, fmt.Sprintf("VirtualDisk %s is being deleted", d.Name))
	case ofEarlier(d, l.VM):
		l.waitForImage(v1alpha1.ReasonDiskNotReady, fmt.Sprintf("VirtualDisk %s belongs to an earlier VirtualMachine of this name, and is about to be deleted", d.Name))
	case !metav1.IsControlledBy(d, l.VM):
		l.waitForImage(v1alpha1.ReasonOwnedByAnother, fmt.Sprintf("VirtualDisk %s exists but does not belong to this VirtualMachine: "+
			"delete it, or create the VirtualMachine under another name", d.Name))
	case d.Status.DiskID != "":
		l.copied()
	case ready != nil && ready.Reason == string(v1alpha1.ReasonImageMissing) && l.VM.Spec.DiskImage.Mode == v1alpha1.CreateIfNotExist:
		_, did, err := r.image(ctx, l)
		return did, err
	case ready != nil:
		l.waitForImage(v1alpha1.ConditionReason(ready.Reason), fmt.Sprintf("VirtualDisk %s: %s", d.Name, ready.Message))
	default:
		l.waitForImage(v1alpha1.ReasonProvisioning, fmt.Sprintf("VirtualDisk %s is being created", d.Name))
	}
	return false, nil
}

// ofEarlier reports whether the disk belongs to a VirtualMachine of that name that is gone: the garbage collector deletes it.
func ofEarlier(d *v1alpha1.VirtualDisk, vm *v1alpha1.VirtualMachine) bool {
	owner := metav1.GetControllerOf(d)
	return owner != nil && owner.Kind == "VirtualMachine" && owner.Name == vm.Name && owner.UID != vm.UID
}

// leftBehind reports whether the machine takes in a disk that was created for an earlier VirtualMachine of its name, and is a copy of the
// same image. It has no owner any more, as after a restore from a backup or a deletion with --cascade=orphan, or was restored with the
// owner that it had, and has no data of its own yet: the data of a machine that was deleted is not for the next one.
func leftBehind(d *v1alpha1.VirtualDisk, vm *v1alpha1.VirtualMachine) bool {
	of := d.Labels[v1alpha1.LabelMachineOfDisk]
	if !d.DeletionTimestamp.IsZero() || of == "" || of == string(vm.UID) ||
		d.Spec.Source == nil || d.Spec.Source.Image.In(d.Namespace) != vm.Spec.DiskImage.Ref.In(vm.Namespace) {
		return false
	}
	return metav1.GetControllerOfNoCopy(d) == nil || ofEarlier(d, vm) && (d.Status.DiskID == "" || d.StatusOfAnother())
}

// adoptBootDisk makes a disk the machine's, if it is still as it was read.
func (r *Reconciler) adoptBootDisk(ctx context.Context, l *look, d *v1alpha1.VirtualDisk) error {
	before := d.DeepCopy()
	d.Labels[v1alpha1.LabelMachineOfDisk] = string(l.VM.UID)
	d.OwnerReferences = append(slices.DeleteFunc(d.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Controller != nil && *o.Controller }),
		*metav1.NewControllerRef(l.VM, v1alpha1.GroupVersion.WithKind("VirtualMachine")))
	err := r.Client.Patch(ctx, d, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if err != nil {
		return client.IgnoreNotFound(fmt.Errorf("taking in VirtualDisk %s, which an earlier VirtualMachine of this name left: %w", d.Name, err))
	}
	r.tell(l, corev1.EventTypeNormal, "SuccessfulAdopt", "Adopt", "took in VirtualDisk %s, which an earlier VirtualMachine of this name left", d.Name)
	return nil
}

// makeBootDisk makes the disk once the image, and with it the least size of the disk, is known.
func (r *Reconciler) makeBootDisk(ctx context.Context, l *look) (bool, error) {
	image, did, err := r.image(ctx, l)
	if image == nil || err != nil {
		return did, err
	}
	size := *image.Status.VirtualSize
	if t := l.VM.Spec.DiskImage.Template; t != nil && t.DiskSize.Cmp(size) > 0 {
		size = t.DiskSize
	}
	d := &v1alpha1.VirtualDisk{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: l.VM.Namespace, Name: v1alpha1.ImageDiskName(l.VM.Name), Labels: bootDiskLabels(l.VM),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(l.VM, v1alpha1.GroupVersion.WithKind("VirtualMachine"))},
		},
		Spec: v1alpha1.VirtualDiskSpec{Size: size, Source: &v1alpha1.VirtualDiskSource{Image: l.VM.Spec.DiskImage.Ref}},
	}
	if l.VM.Spec.Runtime.KubeVirt != nil {
		d.Spec.Runtime.KubeVirt = &v1alpha1.VolumeDisk{}
	} else {
		d.Spec.Runtime.Pod = &v1alpha1.VolumeDisk{}
	}
	return r.createForImage(ctx, l, d, v1alpha1.ReasonDiskNotReady)
}

// bootDiskLabels are the labels of the disk that a machine boots from.
func bootDiskLabels(vm *v1alpha1.VirtualMachine) map[string]string {
	labels := map[string]string{v1alpha1.LabelMachineOfDisk: string(vm.UID)}
	if pool := vm.Labels[v1alpha1.LabelPool]; pool != "" {
		labels[v1alpha1.LabelPool] = pool
	}
	return labels
}

// createForImage creates an object that the machine needs before it is made. Why it cannot be created is shown, and tried again.
func (r *Reconciler) createForImage(ctx context.Context, l *look, o client.Object, refused v1alpha1.ConditionReason) (bool, error) {
	kind := v1alpha1.KindOf(o).Name
	err := r.Client.Create(ctx, o)
	switch {
	case err == nil:
		r.tell(l, corev1.EventTypeNormal, "SuccessfulCreate", "Create", "created %s %s", kind, o.GetName())
		return true, nil
	case apierrors.IsAlreadyExists(err):
		return true, nil // somebody was faster: look again
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		l.waitForImage(refused, fmt.Sprintf("%s %s was not created: %s", kind, o.GetName(), err))
		l.Troubled(fmt.Sprintf("creating %s %s", kind, o.GetName()), err)
		return false, nil
	}
	return false, fmt.Errorf("creating %s %s: %w", kind, o.GetName(), err)
}

// image gives the image of the machine if a disk can be copied from it. One that is missing is created, if the spec says so.
func (r *Reconciler) image(ctx context.Context, l *look) (*v1alpha1.VMDiskImage, bool, error) {
	of, name := l.VM.Spec.DiskImage, l.VM.Spec.DiskImage.Ref.In(l.VM.Namespace)
	image := &v1alpha1.VMDiskImage{}
	err := r.Live.Get(ctx, name, image)
	switch {
	case apierrors.IsNotFound(err) && of.Mode == v1alpha1.CreateIfNotExist && of.Template != nil:
		image.Namespace, image.Name, image.Spec = name.Namespace, name.Name, of.Template.ImageSpec()
		if name.Namespace != l.VM.Namespace {
			image.Spec.AllowedNamespaces = v1alpha1.VMDiskImageNamespaces{From: v1alpha1.VMDiskImageFromSelector, Selector: &metav1.LabelSelector{
				MatchLabels: map[string]string{corev1.LabelMetadataName: l.VM.Namespace},
			}}
		}
		did, err := r.createForImage(ctx, l, image, v1alpha1.ReasonImageNotCreated)
		return nil, did, err
	case apierrors.IsNotFound(err):
		l.waitForImage(v1alpha1.ReasonImageMissing, v1alpha1.ImageMissing(name))
		return nil, false, nil
	case err != nil:
		return nil, false, fmt.Errorf("reading VMDiskImage %s: %w", name, err)
	}
	if allowed, err := drive.MayUse(ctx, r.Live, image, l.VM.Namespace); err != nil {
		return nil, false, err
	} else if !allowed {
		l.waitForImage(v1alpha1.ReasonImageNotAllowed, v1alpha1.ImageNotAllowed(name, l.VM.Namespace))
		return nil, false, nil
	}
	r.differsFromTemplate(l, image)
	if reason, message := image.Unusable(); reason != "" {
		l.waitForImage(reason, message)
		return nil, false, nil
	}
	return image, false, nil
}

// differsFromTemplate shows in which fields an image that is used as it is differs from the template.
func (r *Reconciler) differsFromTemplate(l *look, image *v1alpha1.VMDiskImage) {
	t := v1alpha1.ConditionImageDiffers
	fields := l.VM.Spec.DiskImage.Template.DiffersFrom(&image.Spec)
	if len(fields) == 0 {
		meta.RemoveStatusCondition(&l.VM.Status.Conditions, string(t))
		return
	}
	message := fmt.Sprintf("VMDiskImage %s exists and is used as it is: it differs from spec.diskImage.template in %s", image.Name, strings.Join(fields, ", "))
	if !meta.IsStatusConditionTrue(l.VM.Status.Conditions, string(t)) {
		r.tell(l, corev1.EventTypeWarning, v1alpha1.ReasonTemplateDiffers, "Observe", "%s", message)
	}
	l.set(t.Condition(metav1.ConditionTrue, v1alpha1.ReasonTemplateDiffers, l.VM.Generation, message))
}

// copied shows that the disk of the machine is there.
func (l *look) copied() {
	l.set(v1alpha1.ConditionImageReady.Condition(metav1.ConditionTrue, v1alpha1.ReasonImageCopied, l.VM.Generation, ""))
}

// waitForImage shows why the disk of the machine is not there yet. The machine is not made meanwhile.
func (l *look) waitForImage(reason v1alpha1.ConditionReason, message string) {
	l.imageTrouble = &diskTrouble{reason, message}
	l.diskTrouble = cmp.Or(l.diskTrouble, l.imageTrouble)
	l.set(v1alpha1.ConditionImageReady.Condition(metav1.ConditionFalse, reason, l.VM.Generation, message))
}
