// Package volumes makes VirtualDisks of PersistentVolumeClaims, for runtimes whose machines use claims of this cluster.
//
// The claim of a disk is the one that the status of its VirtualDisk records. Before that, it is found by its name, which contains the UID of the
// VirtualDisk, and identified by a label with that UID.
package volumes

import (
	"cmp"
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/commands"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

const (
	// LabelDisk contains the UID of the VirtualDisk of a claim.
	LabelDisk = "sallyport.dev/virtual-disk-uid"
	// LabelTakenOver contains the UID of the VirtualDisk that took over a claim, for users and so that a VirtualDisk
	// without a recorded claim ignores the claim. It gives no right to a claim: users who may edit claims can write it.
	// The record is status.diskID of the VirtualDisk.
	LabelTakenOver = "sallyport.dev/taken-over-by"
	// annotationImage on a claim contains the UID of the VMDiskImage that the disk is a copy of. It is not a label,
	// so that the claim does not count as one of the image.
	annotationImage = "sallyport.dev/copied-from-image"
	// volumePrefix and the UID of the VirtualDisk form the name of a volume of a machine.
	volumePrefix = "disk-"
	// maxName is the maximum length of a claim's name.
	maxName = 253
)

// Disks are the disks of a runtime. They implement what [runtime.Disks] does with a disk alone.
type Disks struct {
	Client client.Client
	// Live reads from the API server, without a cache.
	Live client.Reader
	// Users returns the users of a claim. It reads from the cache, or live.
	Users func(ctx context.Context, claim *corev1.PersistentVolumeClaim, live bool) ([]User, error)
}

// User is what uses a claim, or would when it is started.
type User struct {
	// Name is the kind and the name, for messages.
	Name string
	// Machine is the UID of the VirtualMachine whose mark it has, or "".
	Machine types.UID
}

// ByOthers returns the first user that is not the machine, and false if there is none.
func ByOthers(users []User, machine types.UID) (User, bool) {
	if i := slices.IndexFunc(users, func(u User) bool { return u.Machine != machine }); i >= 0 {
		return users[i], true
	}
	return User{}, false
}

// PodsUsing returns the Pods of a list that use a claim and have not ended. A Pod that runs a machine has its UID in the label.
func PodsUsing(pods []corev1.Pod, claim, label string) (users []User) {
	for i := range pods {
		pod := &pods[i]
		ended := pod.Labels[label] == "" && (pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed)
		if !ended && slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
			return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim
		}) {
			users = append(users, User{Name: "Pod " + pod.Name, Machine: types.UID(pod.Labels[label])})
		}
	}
	return users
}

// VolumeOf returns the name of the volume of a disk in a machine.
func VolumeOf(disk types.UID) string { return volumePrefix + strings.ToLower(string(disk)) }

// Name returns the name of a disk's claim. It contains the UID, so that a recreated VirtualDisk gets no old
// data.
func Name(name string, uid types.UID) string { return name + "-" + strings.ToLower(string(uid)) }

// Find reads the claim of a disk. It returns nil if there is none.
func (r Disks) Find(ctx context.Context, d runtime.Disk) (*corev1.PersistentVolumeClaim, error) {
	claim, name := &corev1.PersistentVolumeClaim{}, cmp.Or(d.ID, Name(d.Name, d.UID))
	if len(name) > maxName {
		return nil, runtime.NewInvalidSpec(nil, "metadata.name: the name of a VirtualDisk that is a PersistentVolumeClaim can have at most %d characters, because the name of its PersistentVolumeClaim includes the UID",
			maxName-len(name)+len(d.Name))
	}
	err := r.Live.Get(ctx, types.NamespacedName{Namespace: d.Namespace, Name: name}, claim)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, runtime.APIFailure(err, "reading PersistentVolumeClaim %s", name)
	case d.ID != "":
		return claim, nil
	case claim.Labels[LabelTakenOver] != "":
		return nil, nil
	case claim.Labels[LabelDisk] != string(d.UID):
		return nil, runtime.NewOwnedByAnother(nil, "PersistentVolumeClaim %s has the name of the disk of VirtualDisk %s, but not its label. Delete it, or, if it is "+
			"that disk, put the label back: %s", name, d.Name, commands.Line("kubectl", "label", "pvc", name, "-n", d.Namespace, "--overwrite", LabelDisk+"="+string(d.UID)))
	}
	return claim, nil
}

// ObserveDisk observes the claim and what uses it.
func (r Disks) ObserveDisk(ctx context.Context, d runtime.Disk) (seen runtime.DiskObservation, err error) {
	claim, err := r.Find(ctx, d)
	if claim == nil || err != nil || claim.Status.Phase == corev1.ClaimLost {
		return seen, err
	}
	seen = runtime.DiskObservation{
		Exists: true, ID: claim.Name, Image: types.UID(claim.Annotations[annotationImage]), Bytes: bytesOf(claim),
	}
	seen.Copying = claim.Spec.DataSource != nil && claim.Status.Phase != corev1.ClaimBound
	seen.InFlight = !claim.DeletionTimestamp.IsZero()
	seen.Owned = slices.ContainsFunc(claim.OwnerReferences, ofKubeVirt)
	users, err := r.Users(ctx, claim, false)
	for _, u := range users {
		seen.AttachedTo = append(seen.AttachedTo, cmp.Or(string(u.Machine), u.Name))
	}
	slices.Sort(seen.AttachedTo)
	seen.AttachedTo = slices.Compact(seen.AttachedTo)
	return seen, err
}

// bytesOf returns the size of a claim's volume, or the requested one if there is no volume yet.
func bytesOf(claim *corev1.PersistentVolumeClaim) int64 {
	if size, bound := claim.Status.Capacity[corev1.ResourceStorage]; bound {
		return size.Value()
	}
	return claim.Spec.Resources.Requests.Storage().Value()
}

// EnsureDisk creates the claim, or raises its request. Its StorageClass implements the resize.
func (r Disks) EnsureDisk(ctx context.Context, d runtime.Disk) (string, error) {
	claim, err := r.Find(ctx, d)
	if claim == nil && err == nil && d.ID == "" {
		claim, err = r.succeed(ctx, d)
	}
	switch {
	case err != nil:
		return "", err
	case claim == nil && d.ID != "":
		return "", runtime.NewNotFound(nil, "PersistentVolumeClaim %s does not exist", d.ID)
	case claim == nil:
		claim = newClaim(d)
		if err := r.fromImage(ctx, claim, d); err != nil {
			return "", err
		}
		if err := r.Client.Create(ctx, claim); err != nil {
			return "", runtime.APIFailure(err, "creating PersistentVolumeClaim %s", claim.Name)
		}
	case slices.ContainsFunc(claim.OwnerReferences, ofKubeVirt):
		if err := r.TakeBack(ctx, claim); err != nil {
			return "", err
		}
	case claim.Spec.Resources.Requests.Storage().Value() < d.Bytes():
		if err := r.grow(ctx, claim, d); err != nil {
			return "", err
		}
	case bytesOf(claim) < d.Bytes():
		return "", runtime.NewInvalidState(nil, "PersistentVolumeClaim %s is being resized%s", claim.Name, resizing(claim))
	}
	return claim.Name, nil
}

// TakeBack removes machines of KubeVirt from the owners of a claim: with them, the claim would be deleted. KubeVirt adds the machine that it
// restores in place.
func (r Disks) TakeBack(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	if !slices.ContainsFunc(claim.OwnerReferences, ofKubeVirt) {
		return nil
	}
	return r.Change(ctx, claim, "removing the owner of", func(c *corev1.PersistentVolumeClaim) {
		c.OwnerReferences = slices.DeleteFunc(c.OwnerReferences, ofKubeVirt)
	})
}

func ofKubeVirt(o metav1.OwnerReference) bool { return strings.HasPrefix(o.APIVersion, "kubevirt.io/") }

// grow raises the claim's request. The API server rejects it if the StorageClass cannot resize volumes.
func (r Disks) grow(ctx context.Context, claim *corev1.PersistentVolumeClaim, d runtime.Disk) error {
	err := r.patch(ctx, claim, func(c *corev1.PersistentVolumeClaim) { c.Spec.Resources.Requests = storage(d) })
	switch {
	case apierrors.IsForbidden(err):
		return runtime.NewInvalidSpec(err, "spec.size: PersistentVolumeClaim %s cannot be resized: %s", claim.Name, err)
	case err != nil:
		return runtime.APIFailure(err, "resizing PersistentVolumeClaim %s", claim.Name)
	}
	return nil
}

// resizing returns what Kubernetes reports about the resize of a claim.
func resizing(claim *corev1.PersistentVolumeClaim) (text string) {
	for _, c := range claim.Status.Conditions {
		if c.Status == corev1.ConditionTrue || c.Message != "" {
			text = ": " + cmp.Or(c.Message, string(c.Type))
		}
	}
	return text
}

func newClaim(d runtime.Disk) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: d.Namespace, Name: Name(d.Name, d.UID), Labels: map[string]string{LabelDisk: string(d.UID)},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: storage(d)},
		},
	}
	if of := cmp.Or(d.Spec.Runtime.Pod, d.Spec.Runtime.KubeVirt); of != nil {
		if of.StorageClassName != "" {
			claim.Spec.StorageClassName = &of.StorageClassName
		}
		if of.VolumeMode != "" {
			claim.Spec.VolumeMode = new(corev1.PersistentVolumeMode(of.VolumeMode))
		}
		if of.AccessMode != "" {
			claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.PersistentVolumeAccessMode(of.AccessMode)}
		}
	}
	return claim
}

// fromImage sets the source of the claim, if the disk has one. A snapshot can only be restored by the driver that
// took it, with the volume mode of its claim.
func (r Disks) fromImage(ctx context.Context, claim *corev1.PersistentVolumeClaim, d runtime.Disk) error {
	switch {
	case d.Spec.Source == nil:
		return nil
	case d.Source == nil:
		return runtime.NoSource(d)
	}
	of := &corev1.PersistentVolumeClaim{}
	if err := r.Live.Get(ctx, d.Source.Claim, of); err != nil {
		return runtime.APIFailure(err, "reading PersistentVolumeClaim %s of the image", d.Source.Claim)
	}
	if claim.Spec.StorageClassName == nil {
		claim.Spec.StorageClassName = of.Spec.StorageClassName
	}
	if claim.Spec.VolumeMode == nil {
		claim.Spec.VolumeMode = of.Spec.VolumeMode
	}
	if k := d.Spec.Runtime.KubeVirt; k != nil && k.AccessMode == "" && len(of.Spec.AccessModes) > 0 {
		claim.Spec.AccessModes = of.Spec.AccessModes
	}
	if want, is := modeOf(claim), modeOf(of); want != is {
		kind := "pod"
		if d.Spec.Runtime.KubeVirt != nil {
			kind = "kubevirt"
		}
		return runtime.NewInvalidSpec(nil, "spec.runtime.%s.volumeMode: %s is not the mode of the image, which is %s: create another VirtualDisk without volumeMode", kind, want, is)
	}
	claim.Annotations = map[string]string{annotationImage: string(d.Source.Image)}
	claim.Spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: new("snapshot.storage.k8s.io"), Kind: "VolumeSnapshot", Name: d.Source.Snapshot}
	return nil
}

// modeOf returns the volume mode of a claim. The API server sets it.
func modeOf(claim *corev1.PersistentVolumeClaim) corev1.PersistentVolumeMode {
	if claim.Spec.VolumeMode == nil {
		return corev1.PersistentVolumeFilesystem
	}
	return *claim.Spec.VolumeMode
}

func storage(d runtime.Disk) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: *resource.NewQuantity(d.Bytes(), resource.BinarySI)}
}

// DeleteDisk deletes the claim. Its StorageClass decides about the volume.
func (r Disks) DeleteDisk(ctx context.Context, d runtime.Disk) error {
	claim, err := r.Find(ctx, d)
	if claim == nil || err != nil {
		return err
	}
	switch users, err := r.Users(ctx, claim, true); {
	case err != nil:
		return err
	case len(users) > 0:
		return runtime.NewInvalidState(nil, "%s still uses PersistentVolumeClaim %s", users[0].Name, claim.Name)
	}
	same := client.Preconditions{UID: &claim.UID, ResourceVersion: &claim.ResourceVersion}
	if err := r.Client.Delete(ctx, claim, same); client.IgnoreNotFound(err) != nil {
		return runtime.APIFailure(err, "deleting PersistentVolumeClaim %s", claim.Name)
	}
	return nil
}

// Change patches a claim with its resourceVersion, and updates claim.
func (r Disks) Change(ctx context.Context, claim *corev1.PersistentVolumeClaim, doing string, change func(*corev1.PersistentVolumeClaim)) error {
	if err := r.patch(ctx, claim, change); err != nil {
		return runtime.APIFailure(err, "%s PersistentVolumeClaim %s", doing, claim.Name)
	}
	return nil
}

func (r Disks) patch(ctx context.Context, claim *corev1.PersistentVolumeClaim, change func(*corev1.PersistentVolumeClaim)) error {
	changed := claim.DeepCopy()
	change(changed)
	err := r.Client.Patch(ctx, changed, client.MergeFromWithOptions(claim, client.MergeFromWithOptimisticLock{}))
	if err == nil {
		*claim = *changed // also its resourceVersion, for the next change
	}
	return err
}

// succeed checks for claims of an earlier VirtualDisk of d's name: such a claim is an OwnedByAnother error, or is taken over if d says so.
func (r Disks) succeed(ctx context.Context, d runtime.Disk) (*corev1.PersistentVolumeClaim, error) {
	if d.Earlier == runtime.MakeAnew {
		return nil, nil
	}
	var list corev1.PersistentVolumeClaimList
	if err := r.Client.List(ctx, &list, client.InNamespace(d.Namespace), client.HasLabels{LabelDisk}); err != nil {
		return nil, runtime.APIFailure(err, "listing the PersistentVolumeClaims of disks")
	}
	claims := slices.DeleteFunc(list.Items, func(c corev1.PersistentVolumeClaim) bool {
		return c.Name != Name(d.Name, types.UID(c.Labels[LabelDisk])) || !c.DeletionTimestamp.IsZero()
	})
	switch {
	case len(claims) == 0:
		return nil, nil
	case d.Earlier != runtime.TakeOver:
		return nil, runtime.NewHeldBack("svd", d.NamespacedName, "PersistentVolumeClaim %s", claims[0].Name)
	case len(claims) > 1:
		return nil, runtime.NewOwnedByAnother(nil, "%d PersistentVolumeClaims are the disk of an earlier VirtualDisk %s, such as %s and %s: delete all but the "+
			"one to take over", len(claims), d.Name, claims[0].Name, claims[1].Name)
	}
	err := r.Change(ctx, &claims[0], "taking over", func(c *corev1.PersistentVolumeClaim) { c.Labels[LabelTakenOver] = string(d.UID) })
	return &claims[0], err
}
