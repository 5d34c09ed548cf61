package pod

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

	"sallyport.dev/sallyport/api/agent"
	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// A disk is a PersistentVolumeClaim, found by its name and identified by the label with the UID of its VirtualDisk. A
// Pod's volumes cannot change, so a machine has the disks with which its Pod was created. Attach writes the UID of
// the machine into [agent.LabelMachine] of the claim before there is a Pod; Ensure creates the Pod with the claims
// that have it. A restored guest gets the disks named in its Migration.

const (
	// LabelDisk contains the UID of the VirtualDisk of a claim.
	LabelDisk = "sallyport.dev/virtual-disk-uid"
	// annotationImage on a claim contains the UID of the VMDiskImage that the disk is a copy of. It is not a label,
	// so that the claim does not count as one of the image.
	annotationImage = "sallyport.dev/copied-from-image"
	// volumePrefix and the UID of the VirtualDisk form the name of a volume in a Pod.
	volumePrefix = "disk-"
)

var _ runtime.FixedDisks = (*Runtime)(nil)

// DisksAreFixed marks the runtime as a [runtime.FixedDisks].
func (*Runtime) DisksAreFixed() {}

// claimName returns the name of a disk's claim. It contains the UID, so that a recreated VirtualDisk gets no old
// data.
func claimName(name string, uid types.UID) string { return name + "-" + strings.ToLower(string(uid)) }

// claimOf reads the claim of a disk. It returns nil if there is none.
func (r *Runtime) claimOf(ctx context.Context, d runtime.Disk) (*corev1.PersistentVolumeClaim, error) {
	claim, name := &corev1.PersistentVolumeClaim{}, cmp.Or(d.ID, claimName(d.Name, d.UID))
	if len(name) > maxName {
		return nil, runtime.NewInvalidSpec(nil, "metadata.name: the name of a VirtualDisk for machines of kind pod can have at most %d characters, because the name of its PersistentVolumeClaim includes the UID",
			maxName-len(name)+len(d.Name))
	}
	err := r.Live.Get(ctx, types.NamespacedName{Namespace: d.Namespace, Name: name}, claim)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, failed(err, "reading PersistentVolumeClaim %s", name)
	case d.ID == "" && claim.Labels[LabelTakenOver] != "":
		return nil, nil
	case diskOf(claim).Name != d.Name: // with d.ID, a claim that was taken over has another UID
		return nil, runtime.NewOwnedByAnother(nil, "PersistentVolumeClaim %s is not the disk of VirtualDisk %s", name, d.Name)
	}
	return claim, nil
}

// users returns the UIDs of the machines whose Pods have the claim. It reads the cache, because a namespace may have
// many Pods: a machine reserves the VirtualDisk in a write with resourceVersion before it attaches the disk, and
// Kubernetes keeps a claim that a Pod uses.
func (r *Runtime) users(ctx context.Context, claim *corev1.PersistentVolumeClaim) (uids []string, err error) {
	var pods corev1.PodList
	if err := r.Client.List(ctx, &pods, client.InNamespace(claim.Namespace), client.HasLabels{agent.LabelMachine}); err != nil {
		return nil, failed(err, "listing the Pods that use PersistentVolumeClaim %s", claim.Name)
	}
	for i := range pods.Items {
		if slices.ContainsFunc(pods.Items[i].Spec.Volumes, func(v corev1.Volume) bool { return claimIn(v) == claim.Name }) {
			uids = append(uids, pods.Items[i].Labels[agent.LabelMachine])
		}
	}
	slices.Sort(uids)
	return slices.Compact(uids), nil
}

// ObserveDisk observes the claim and the Pods that use it.
func (r *Runtime) ObserveDisk(ctx context.Context, d runtime.Disk) (seen runtime.DiskObservation, err error) {
	claim, err := r.claimOf(ctx, d)
	if claim == nil || err != nil || claim.Status.Phase == corev1.ClaimLost {
		return seen, err
	}
	seen = runtime.DiskObservation{
		Exists: true, ID: claim.Name, Image: types.UID(claim.Annotations[annotationImage]), Bytes: bytesOf(claim),
	}
	seen.Copying = claim.Spec.DataSource != nil && claim.Status.Phase != corev1.ClaimBound
	seen.InFlight = !claim.DeletionTimestamp.IsZero()
	seen.AttachedTo, err = r.users(ctx, claim)
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
func (r *Runtime) EnsureDisk(ctx context.Context, d runtime.Disk) (string, error) {
	claim, err := r.claimOf(ctx, d)
	if claim == nil && err == nil && d.ID == "" {
		claim, err = r.succeedDisk(ctx, d)
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
			return "", failed(err, "creating PersistentVolumeClaim %s", claim.Name)
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

// grow raises the claim's request. The API server rejects it if the StorageClass cannot resize volumes.
func (r *Runtime) grow(ctx context.Context, claim *corev1.PersistentVolumeClaim, d runtime.Disk) error {
	err := r.patchClaim(ctx, claim, func(c *corev1.PersistentVolumeClaim) { c.Spec.Resources.Requests = storage(d) })
	switch {
	case apierrors.IsForbidden(err):
		return runtime.NewInvalidSpec(err, "spec.size: PersistentVolumeClaim %s cannot be resized: %s", claim.Name, err)
	case err != nil:
		return failed(err, "resizing PersistentVolumeClaim %s", claim.Name)
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
			Namespace: d.Namespace, Name: claimName(d.Name, d.UID), Labels: map[string]string{LabelDisk: string(d.UID)},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: storage(d)},
		},
	}
	if of := d.Spec.Runtime.Pod; of != nil {
		if of.StorageClassName != "" {
			claim.Spec.StorageClassName = &of.StorageClassName
		}
		if of.VolumeMode != "" {
			claim.Spec.VolumeMode = new(corev1.PersistentVolumeMode(of.VolumeMode))
		}
	}
	return claim
}

// fromImage sets the source of the claim, if the disk has one. A snapshot can only be restored by the driver that
// took it, with the volume mode of its claim.
func (r *Runtime) fromImage(ctx context.Context, claim *corev1.PersistentVolumeClaim, d runtime.Disk) error {
	switch {
	case d.Spec.Source == nil:
		return nil
	case d.Source == nil:
		return runtime.NoSource(d)
	}
	of := &corev1.PersistentVolumeClaim{}
	if err := r.Live.Get(ctx, d.Source.Claim, of); err != nil {
		return failed(err, "reading PersistentVolumeClaim %s of the image", d.Source.Claim)
	}
	if claim.Spec.StorageClassName == nil {
		claim.Spec.StorageClassName = of.Spec.StorageClassName
	}
	if claim.Spec.VolumeMode == nil {
		claim.Spec.VolumeMode = of.Spec.VolumeMode
	}
	if want, is := modeOf(claim), modeOf(of); want != is {
		return runtime.NewInvalidSpec(nil, "spec.runtime.pod.volumeMode: %s is not the mode of the image, which is %s: create another VirtualDisk without volumeMode", want, is)
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
func (r *Runtime) DeleteDisk(ctx context.Context, d runtime.Disk) error {
	claim, err := r.claimOf(ctx, d)
	if claim == nil || err != nil {
		return err
	}
	switch users, err := r.users(ctx, claim); {
	case err != nil:
		return err
	case len(users) > 0:
		return runtime.NewInvalidState(nil, "a Pod still uses PersistentVolumeClaim %s", claim.Name)
	}
	same := client.Preconditions{UID: &claim.UID, ResourceVersion: &claim.ResourceVersion}
	if err := r.Client.Delete(ctx, claim, same); client.IgnoreNotFound(err) != nil {
		return failed(err, "deleting PersistentVolumeClaim %s", claim.Name)
	}
	return nil
}

// Attach reserves the disk for the machine's Pod. A machine whose Pod exists without the disk cannot get it.
func (r *Runtime) Attach(ctx context.Context, m runtime.Machine, d runtime.Disk) error {
	claim, err := r.claimOf(ctx, d)
	switch {
	case err != nil:
		return err
	case claim == nil:
		return runtime.NewNotFound(nil, "PersistentVolumeClaim %s does not exist", claimName(d.Name, d.UID))
	case !claim.DeletionTimestamp.IsZero():
		return runtime.NewInvalidState(nil, "PersistentVolumeClaim %s is being deleted", claim.Name)
	}
	users, err := r.users(ctx, claim)
	switch {
	case err != nil:
		return err
	case slices.ContainsFunc(users, func(uid string) bool { return uid != string(m.UID) }):
		return runtime.NewInvalidState(nil, "the Pod of another machine uses PersistentVolumeClaim %s", claim.Name)
	case len(users) > 0:
		return nil
	}
	switch s, err := r.find(ctx, m); {
	case err != nil:
		return err
	case s != nil || m.Migration.Travels():
		return runtime.NewInvalidState(nil, "disks are attached when the Pod is created: to add this one, delete VirtualMachine %s and create it again", m.Name)
	case claim.Labels[agent.LabelMachine] == string(m.UID):
		return nil
	}
	return r.changeClaim(ctx, claim, "reserving", func(c *corev1.PersistentVolumeClaim) {
		if former := c.Labels[agent.LabelMachine]; former != "" {
			c.Labels[labelFormerMachine] = former
		}
		c.Labels[agent.LabelMachine] = string(m.UID)
	})
}

// Detach releases a disk of a machine that has no Pod yet.
func (r *Runtime) Detach(ctx context.Context, m runtime.Machine, disk types.UID) error {
	s, err := r.find(ctx, m)
	if err != nil {
		return err
	}
	has := func(d v1alpha1.AttachedDisk) bool { return d.UID == disk }
	if s != nil && !slices.ContainsFunc(s.disks, has) {
		return nil
	}
	if s != nil || m.Migration.Travels() {
		return runtime.NewInvalidState(nil, "disks stay attached until the machine is deleted: to release this one, delete VirtualMachine %s", m.Name)
	}
	claims, disks, err := r.reserved(ctx, m)
	if err != nil {
		return err
	}
	for i := range claims {
		if has(disks[i]) {
			return r.changeClaim(ctx, &claims[i], "releasing", func(c *corev1.PersistentVolumeClaim) { delete(c.Labels, agent.LabelMachine) })
		}
	}
	return nil
}

func (r *Runtime) changeClaim(ctx context.Context, claim *corev1.PersistentVolumeClaim, doing string, change func(*corev1.PersistentVolumeClaim)) error {
	if err := r.patchClaim(ctx, claim, change); err != nil {
		return failed(err, "%s PersistentVolumeClaim %s", doing, claim.Name)
	}
	return nil
}

func (r *Runtime) patchClaim(ctx context.Context, claim *corev1.PersistentVolumeClaim, change func(*corev1.PersistentVolumeClaim)) error {
	changed := claim.DeepCopy()
	change(changed)
	return r.Client.Patch(ctx, changed, client.MergeFromWithOptions(claim, client.MergeFromWithOptimisticLock{}))
}

// reserved returns the claims for a Pod of the machine in boot order, and their disks. Users who may edit claims can
// write their labels, so only the claim of a VirtualDisk counts.
func (r *Runtime) reserved(ctx context.Context, m runtime.Machine) (claims []corev1.PersistentVolumeClaim, disks []v1alpha1.AttachedDisk, err error) {
	var list corev1.PersistentVolumeClaimList
	err = r.Live.List(ctx, &list, client.InNamespace(m.Namespace), client.MatchingLabels{agent.LabelMachine: string(m.UID)}, client.HasLabels{LabelDisk})
	if err != nil {
		return nil, nil, failed(err, "listing the PersistentVolumeClaims of VirtualMachine %s", m.Name)
	}
	refs := m.Spec.InBootOrder()
	place := func(c *corev1.PersistentVolumeClaim) int {
		return slices.IndexFunc(refs, func(ref v1alpha1.BlockDeviceRef) bool { return ref.Name == diskOf(c).Name })
	}
	slices.SortFunc(list.Items, func(a, b corev1.PersistentVolumeClaim) int {
		return cmp.Or(cmp.Compare(place(&a), place(&b)), strings.Compare(a.Name, b.Name))
	})
	for i := range list.Items {
		d := diskOf(&list.Items[i])
		if d.Name == list.Items[i].Name { // a claim of another name is not a disk, whatever its labels are
			continue
		}
		if d.UID, err = r.currentDisk(ctx, m.Namespace, list.Items[i].Name, d); err != nil {
			return nil, nil, err
		}
		if d.UID != "" {
			claims, disks = append(claims, list.Items[i]), append(disks, d)
		}
	}
	return claims, disks, nil
}

// claimsOf returns the claims of a machine's disks. A claim that is missing or being deleted is an InvalidState
// error: the machine would be restored without it.
func (r *Runtime) claimsOf(ctx context.Context, m runtime.Machine, disks []v1alpha1.AttachedDisk) (claims []corev1.PersistentVolumeClaim, err error) {
	for _, d := range disks {
		disk, err := r.recorded(ctx, m.Namespace, d)
		if err != nil {
			return nil, err
		}
		claim, err := r.claimOf(ctx, disk)
		switch {
		case err != nil:
			return nil, err
		case claim == nil || !claim.DeletionTimestamp.IsZero():
			return nil, runtime.NewInvalidState(nil, "PersistentVolumeClaim %s of VirtualDisk %s was deleted, and the machine cannot be restored without it",
				claimName(d.Name, d.UID), d.Name)
		}
		claims = append(claims, *claim)
	}
	return claims, nil
}

func withDisks(pod *corev1.Pod, claims []corev1.PersistentVolumeClaim) *corev1.Pod {
	for i := range claims {
		mount(pod, &claims[i])
	}
	return pod
}

// complete returns an error unless every disk of the spec is reserved for the machine: its Pod cannot get it later.
func complete(m runtime.Machine, pod *corev1.Pod) error {
	has := disksOf(pod)
	for _, ref := range m.Spec.BlockDeviceRefs {
		if !slices.ContainsFunc(has, func(d v1alpha1.AttachedDisk) bool { return d.Name == ref.Name }) {
			return runtime.NewInvalidState(nil, "VirtualDisk %s is not attached yet", ref.Name)
		}
	}
	return nil
}

// mount adds a volume to the Pod: a block device, or a file system in which the agent keeps the disk.
func mount(pod *corev1.Pod, claim *corev1.PersistentVolumeClaim) {
	d, machine := diskOf(claim), &pod.Spec.Containers[0]
	volume := volumePrefix + strings.ToLower(claim.Labels[LabelDisk])
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: volume, VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name},
	}})
	if mode := claim.Spec.VolumeMode; mode != nil && *mode == corev1.PersistentVolumeBlock {
		machine.VolumeDevices = append(machine.VolumeDevices, corev1.VolumeDevice{Name: volume, DevicePath: agent.DevicePath(d.Name)})
		return
	}
	machine.VolumeMounts = append(machine.VolumeMounts, corev1.VolumeMount{Name: volume, MountPath: agent.MountPath(d.Name)})
}

// DiskOf returns the VirtualDisk of a PersistentVolumeClaim, or an empty name.
func DiskOf(o client.Object) types.NamespacedName {
	claim, is := o.(*corev1.PersistentVolumeClaim)
	if !is || claim.Labels[LabelDisk] == "" {
		return types.NamespacedName{}
	}
	return types.NamespacedName{Namespace: claim.Namespace, Name: diskOf(claim).Name}
}

func diskOf(claim *corev1.PersistentVolumeClaim) v1alpha1.AttachedDisk {
	uid := types.UID(claim.Labels[LabelDisk])
	return v1alpha1.AttachedDisk{Name: strings.TrimSuffix(claim.Name, claimName("", uid)), UID: uid}
}

// claimIn returns the name of a volume's claim, or "".
func claimIn(v corev1.Volume) string {
	if v.PersistentVolumeClaim == nil {
		return ""
	}
	return v.PersistentVolumeClaim.ClaimName
}

// disksOf returns the disks with which a Pod was created, with the UIDs that they had then.
func disksOf(pod *corev1.Pod) (all []v1alpha1.AttachedDisk) {
	for _, v := range pod.Spec.Volumes {
		uid, ours := strings.CutPrefix(v.Name, volumePrefix)
		if name, named := strings.CutSuffix(claimIn(v), "-"+uid); ours && named {
			all = append(all, v1alpha1.AttachedDisk{Name: name, UID: types.UID(uid)})
		}
	}
	return all
}

// disksOfNone returns the disks of a machine without a Pod: those with which its next one is created.
func (r *Runtime) disksOfNone(ctx context.Context, m runtime.Machine) (all []v1alpha1.AttachedDisk, err error) {
	switch {
	case m.Migration.Travels():
		return m.Migration.Disks, nil
	case len(m.Spec.BlockDeviceRefs) == 0:
		return nil, nil
	}
	_, all, err = r.reserved(ctx, m)
	return all, err
}
