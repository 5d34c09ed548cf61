package pod

import (
	"cmp"
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/agent"
	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/volumes"
)

// A disk is a PersistentVolumeClaim, see [volumes]. A Pod's volumes cannot change, so a machine has the disks with which
// its Pod was created. Attach writes the UID of the machine into [agent.LabelMachine] of the claim before there is a Pod;
// Ensure creates the Pod with the claims that have it. A restored guest gets the disks named in its Migration.

var _ runtime.FixedDisks = (*Runtime)(nil)

// DisksAreFixed marks the runtime as a [runtime.FixedDisks].
func (*Runtime) DisksAreFixed() {}

func (r *Runtime) disks() volumes.Disks {
	return volumes.Disks{Client: r.Client, Live: r.Live, Users: r.users}
}

// ObserveDisk observes the claim and the Pods that use it.
func (r *Runtime) ObserveDisk(ctx context.Context, d runtime.Disk) (runtime.DiskObservation, error) {
	return r.disks().ObserveDisk(ctx, d)
}

// EnsureDisk creates the claim, or raises its request.
func (r *Runtime) EnsureDisk(ctx context.Context, d runtime.Disk) (string, error) {
	return r.disks().EnsureDisk(ctx, d)
}

// DeleteDisk deletes the claim.
func (r *Runtime) DeleteDisk(ctx context.Context, d runtime.Disk) error {
	return r.disks().DeleteDisk(ctx, d)
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

// Attach reserves the disk for the machine's Pod. A machine whose Pod exists without the disk cannot get it.
func (r *Runtime) Attach(ctx context.Context, m runtime.Machine, d runtime.Disk) error {
	claim, err := r.disks().Find(ctx, d)
	switch {
	case err != nil:
		return err
	case claim == nil:
		return runtime.NewNotFound(nil, "PersistentVolumeClaim %s does not exist", volumes.Name(d.Name, d.UID))
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
	return r.disks().Change(ctx, claim, "reserving", func(c *corev1.PersistentVolumeClaim) {
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
			return r.disks().Change(ctx, &claims[i], "releasing", func(c *corev1.PersistentVolumeClaim) { delete(c.Labels, agent.LabelMachine) })
		}
	}
	return nil
}

// reserved returns the claims for a Pod of the machine in boot order, and their disks. Users who may edit claims can
// write their labels, so only the claim of a VirtualDisk counts.
func (r *Runtime) reserved(ctx context.Context, m runtime.Machine) (claims []corev1.PersistentVolumeClaim, disks []v1alpha1.AttachedDisk, err error) {
	var list corev1.PersistentVolumeClaimList
	err = r.Live.List(ctx, &list, client.InNamespace(m.Namespace), client.MatchingLabels{agent.LabelMachine: string(m.UID)}, client.HasLabels{volumes.LabelDisk})
	if err != nil {
		return nil, nil, failed(err, "listing the PersistentVolumeClaims of VirtualMachine %s", m.Name)
	}
	refs := m.Spec.InBootOrder()
	place := func(c *corev1.PersistentVolumeClaim) int {
		return slices.IndexFunc(refs, func(ref v1alpha1.BlockDeviceRef) bool { return ref.Name == volumes.Of(c).Name })
	}
	slices.SortFunc(list.Items, func(a, b corev1.PersistentVolumeClaim) int {
		return cmp.Or(cmp.Compare(place(&a), place(&b)), strings.Compare(a.Name, b.Name))
	})
	for i := range list.Items {
		d := volumes.Of(&list.Items[i])
		if d.Name == list.Items[i].Name { // a claim of another name is not a disk, whatever its labels are
			continue
		}
		if d.UID, err = r.disks().Current(ctx, m.Namespace, list.Items[i].Name, d); err != nil {
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
		claim, err := r.disks().Find(ctx, disk)
		switch {
		case err != nil:
			return nil, err
		case claim == nil || !claim.DeletionTimestamp.IsZero():
			return nil, runtime.NewInvalidState(nil, "PersistentVolumeClaim %s of VirtualDisk %s was deleted, and the machine cannot be restored without it",
				volumes.Name(d.Name, d.UID), d.Name)
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
	d, machine := volumes.Of(claim), &pod.Spec.Containers[0]
	volume := volumes.VolumeOf(types.UID(claim.Labels[volumes.LabelDisk]))
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: volume, VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name},
	}})
	if mode := claim.Spec.VolumeMode; mode != nil && *mode == corev1.PersistentVolumeBlock {
		machine.VolumeDevices = append(machine.VolumeDevices, corev1.VolumeDevice{Name: volume, DevicePath: agent.DevicePath(d.Name)})
		return
	}
	machine.VolumeMounts = append(machine.VolumeMounts, corev1.VolumeMount{Name: volume, MountPath: agent.MountPath(d.Name)})
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
		if d, is := volumes.InVolume(v.Name, claimIn(v)); is {
			all = append(all, d)
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
