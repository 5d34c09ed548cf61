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
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/diskimage/use"
	"sallyport.dev/sallyport/reconcilers/watch"
)

// A machine with spec.diskImage has a VirtualDisk of its own, which the disk reconciler copies from the image, and
// which references the image. It is attached like the disks of spec.blockDeviceRefs, and garbage-collected with its
// VirtualMachine. It is created only for a machine that was never observed: otherwise a machine that lost its disk
// would silently get an empty one.

// byImage indexes VirtualMachines without an instance by their image.
const byImage = "image"

func imageKeys(o client.Object) []string {
	vm, is := o.(*v1alpha1.VirtualMachine)
	if !is || vm.Spec.DiskImage == nil || vm.Status.InstanceID != "" {
		return nil
	}
	return []string{vm.Spec.DiskImage.Ref.In(vm.Namespace).String()}
}

// machinesOfImage returns requests for the machines that wait for an image, from the cache.
func (r *Reconciler) machinesOfImage(ctx context.Context, o client.Object) []reconcile.Request {
	return watch.Requests(ctx, r.Client, &v1alpha1.VirtualMachineList{}, client.MatchingFields{byImage: client.ObjectKeyFromObject(o).String()})
}

// reconcileBootDisk ensures the boot disk before the machine is created, and reports whether it changed anything.
func (r *Reconciler) reconcileBootDisk(ctx context.Context, v *view) (bool, error) {
	if v.VM.Spec.DiskImage == nil || !v.seen.Exists && !v.mayNeedCreation() {
		return false, nil
	}
	from := r.Live
	if v.seen.Exists { // it was created with the disk, whether or not the status says so
		v.setImageCopied()
		from = r.Client
	}
	name := v1alpha1.ImageDiskName(v.VM.Name)
	d := &v1alpha1.VirtualDisk{}
	switch err := from.Get(ctx, v.key(name), d); {
	case apierrors.IsNotFound(err) && v.seen.Exists:
		return false, nil
	case apierrors.IsNotFound(err):
		return r.createBootDisk(ctx, v)
	case err != nil:
		return false, fmt.Errorf("reading VirtualDisk %s: %w", name, err)
	case adoptable(d, v.VM):
		return true, r.adoptBootDisk(ctx, v, d)
	case v.seen.Exists:
		return false, nil
	}
	return r.awaitBootDisk(ctx, v, d)
}

// awaitBootDisk reports why the existing disk is not ready, and creates its image if it is missing and the spec says
// so.
func (r *Reconciler) awaitBootDisk(ctx context.Context, v *view, d *v1alpha1.VirtualDisk) (bool, error) {
	switch ready := v1alpha1.ConditionReady.In(d.Status.Conditions); {
	case !d.DeletionTimestamp.IsZero():
		v.waitForImage(v1alpha1.ReasonDiskNotReady, fmt.Sprintf("VirtualDisk %s is being deleted", d.Name))
	case ofEarlierMachine(d, v.VM):
		v.waitForImage(v1alpha1.ReasonDiskNotReady, fmt.Sprintf("VirtualDisk %s belongs to an earlier VirtualMachine of this name, and is about to be deleted", d.Name))
	case !metav1.IsControlledBy(d, v.VM):
		v.waitForImage(v1alpha1.ReasonOwnedByAnother, fmt.Sprintf("VirtualDisk %s exists but does not belong to this VirtualMachine: "+
			"delete it, or create the VirtualMachine under another name", d.Name))
	case d.Status.DiskID != "":
		v.setImageCopied()
	case ready != nil && ready.Reason == string(v1alpha1.ReasonImageMissing) && v.VM.Spec.DiskImage.Mode == v1alpha1.CreateIfNotExist:
		_, did, err := r.findImage(ctx, v)
		return did, err
	case ready != nil:
		v.waitForImage(v1alpha1.ConditionReason(ready.Reason), fmt.Sprintf("VirtualDisk %s: %s", d.Name, ready.Message))
	default:
		v.waitForImage(v1alpha1.ReasonProvisioning, fmt.Sprintf("VirtualDisk %s is being created", d.Name))
	}
	return false, nil
}

// ofEarlierMachine reports whether the disk belongs to a deleted VirtualMachine of that name, so that the garbage
// collector deletes it.
func ofEarlierMachine(d *v1alpha1.VirtualDisk, vm *v1alpha1.VirtualMachine) bool {
	owner := metav1.GetControllerOf(d)
	return owner != nil && owner.Kind == "VirtualMachine" && owner.Name == vm.Name && owner.UID != vm.UID
}

// adoptable reports whether the machine adopts a disk that was created for an earlier VirtualMachine of its name as a
// copy of the same image. Such a disk has no owner (a restore from a backup, a deletion with --cascade=orphan), or it
// was restored with its former owner and has no data yet: the data of a deleted machine must not pass to the next
// one.
func adoptable(d *v1alpha1.VirtualDisk, vm *v1alpha1.VirtualMachine) bool {
	of := d.Labels[v1alpha1.LabelMachineOfDisk]
	if !d.DeletionTimestamp.IsZero() || of == "" || of == string(vm.UID) ||
		d.Spec.Source == nil || d.Spec.Source.Image.In(d.Namespace) != vm.Spec.DiskImage.Ref.In(vm.Namespace) {
		return false
	}
	return metav1.GetControllerOfNoCopy(d) == nil || ofEarlierMachine(d, vm) && (d.Status.DiskID == "" || d.StatusOfAnother())
}

// adoptBootDisk makes the machine the owner of a disk, if the disk is unchanged since it was read.
func (r *Reconciler) adoptBootDisk(ctx context.Context, v *view, d *v1alpha1.VirtualDisk) error {
	before := d.DeepCopy()
	d.Labels[v1alpha1.LabelMachineOfDisk] = string(v.VM.UID)
	d.OwnerReferences = append(slices.DeleteFunc(d.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Controller != nil && *o.Controller }),
		*metav1.NewControllerRef(v.VM, v1alpha1.GroupVersion.WithKind("VirtualMachine")))
	err := r.Client.Patch(ctx, d, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if err != nil {
		return client.IgnoreNotFound(fmt.Errorf("taking in VirtualDisk %s, which an earlier VirtualMachine of this name left: %w", d.Name, err))
	}
	r.recordEvent(v, corev1.EventTypeNormal, "SuccessfulAdopt", "Adopt", "took in VirtualDisk %s, which an earlier VirtualMachine of this name left", d.Name)
	return nil
}

// createBootDisk creates the disk once the image, and thus the minimum size of the disk, is known.
func (r *Reconciler) createBootDisk(ctx context.Context, v *view) (bool, error) {
	image, did, err := r.findImage(ctx, v)
	if image == nil || err != nil {
		return did, err
	}
	size := *image.Status.VirtualSize
	if t := v.VM.Spec.DiskImage.Template; t != nil && t.DiskSize.Cmp(size) > 0 {
		size = t.DiskSize
	}
	d := &v1alpha1.VirtualDisk{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: v.VM.Namespace, Name: v1alpha1.ImageDiskName(v.VM.Name), Labels: bootDiskLabels(v.VM),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(v.VM, v1alpha1.GroupVersion.WithKind("VirtualMachine"))},
		},
		Spec: v1alpha1.VirtualDiskSpec{Size: size, Source: &v1alpha1.VirtualDiskSource{Image: v.VM.Spec.DiskImage.Ref}},
	}
	if v.VM.Spec.Runtime.KubeVirt != nil {
		d.Spec.Runtime.KubeVirt = &v1alpha1.VolumeDisk{}
	} else {
		d.Spec.Runtime.Pod = &v1alpha1.VolumeDisk{}
	}
	return r.createForImage(ctx, v, d, v1alpha1.ReasonDiskNotReady)
}

func bootDiskLabels(vm *v1alpha1.VirtualMachine) map[string]string {
	labels := map[string]string{v1alpha1.LabelMachineOfDisk: string(vm.UID)}
	if pool := vm.Labels[v1alpha1.LabelPool]; pool != "" {
		labels[v1alpha1.LabelPool] = pool
	}
	return labels
}

// createForImage creates an object that must exist before the machine. A rejected creation is reported and retried.
func (r *Reconciler) createForImage(ctx context.Context, v *view, o client.Object, reason v1alpha1.ConditionReason) (bool, error) {
	kind := v1alpha1.KindOf(o).Name
	err := r.Client.Create(ctx, o)
	switch {
	case err == nil:
		r.recordEvent(v, corev1.EventTypeNormal, "SuccessfulCreate", "Create", "created %s %s", kind, o.GetName())
		return true, nil
	case apierrors.IsAlreadyExists(err):
		return true, nil // created concurrently: read again
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		v.waitForImage(reason, fmt.Sprintf("%s %s was not created: %s", kind, o.GetName(), err))
		v.Troubled(fmt.Sprintf("creating %s %s", kind, o.GetName()), err)
		return false, nil
	}
	return false, fmt.Errorf("creating %s %s: %w", kind, o.GetName(), err)
}

// findImage returns the image of the machine if a disk can be copied from it. It creates a missing image if the spec
// says so.
func (r *Reconciler) findImage(ctx context.Context, v *view) (*v1alpha1.VMDiskImage, bool, error) {
	of, name := v.VM.Spec.DiskImage, v.VM.Spec.DiskImage.Ref.In(v.VM.Namespace)
	image, reason, message, err := use.Find(ctx, r.Live, name, v.VM.Namespace)
	switch {
	case err != nil:
		return nil, false, err
	case reason == v1alpha1.ReasonImageMissing && of.Mode == v1alpha1.CreateIfNotExist && of.Template != nil:
		image = &v1alpha1.VMDiskImage{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}, Spec: of.Template.ImageSpec()}
		if name.Namespace != v.VM.Namespace {
			image.Spec.AllowedNamespaces = v1alpha1.VMDiskImageNamespaces{From: v1alpha1.VMDiskImageFromSelector, Selector: &metav1.LabelSelector{
				MatchLabels: map[string]string{corev1.LabelMetadataName: v.VM.Namespace},
			}}
		}
		did, err := r.createForImage(ctx, v, image, v1alpha1.ReasonImageNotCreated)
		return nil, did, err
	case reason != "":
		v.waitForImage(reason, message)
		return nil, false, nil
	}
	r.reportImageDifference(v, image)
	if reason, message := image.Unusable(); reason != "" {
		v.waitForImage(reason, message)
		return nil, false, nil
	}
	return image, false, nil
}

// reportImageDifference sets condition ImageDiffers with the fields in which an existing image differs from the
// template.
func (r *Reconciler) reportImageDifference(v *view, image *v1alpha1.VMDiskImage) {
	t := v1alpha1.ConditionImageDiffers
	fields := v.VM.Spec.DiskImage.Template.DiffersFrom(&image.Spec)
	if len(fields) == 0 {
		meta.RemoveStatusCondition(&v.VM.Status.Conditions, string(t))
		return
	}
	message := fmt.Sprintf("VMDiskImage %s exists and is used as it is: it differs from spec.diskImage.template in %s", image.Name, strings.Join(fields, ", "))
	if !meta.IsStatusConditionTrue(v.VM.Status.Conditions, string(t)) {
		r.recordEvent(v, corev1.EventTypeWarning, v1alpha1.ReasonTemplateDiffers, "Observe", "%s", message)
	}
	v.setCondition(t.Condition(metav1.ConditionTrue, v1alpha1.ReasonTemplateDiffers, v.VM.Generation, message))
}

func (v *view) setImageCopied() {
	v.setCondition(v1alpha1.ConditionImageReady.Condition(metav1.ConditionTrue, v1alpha1.ReasonImageCopied, v.VM.Generation, ""))
}

// waitForImage records why the boot disk is not ready. The machine is not created meanwhile.
func (v *view) waitForImage(reason v1alpha1.ConditionReason, message string) {
	v.imageTrouble = &diskTrouble{reason, message}
	v.diskTrouble = cmp.Or(v.diskTrouble, v.imageTrouble)
	v.setCondition(v1alpha1.ConditionImageReady.Condition(metav1.ConditionFalse, reason, v.VM.Generation, message))
}
