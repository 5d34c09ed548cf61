package pod

import (
	"cmp"
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/agent"
	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/volumes"
)

// A disk is a PersistentVolumeClaim, see [volumes]. A Pod's volumes cannot change, so a machine has the disks with which its Pod was created:
// those that are attached to it according to their status. Attach also writes the UID of the machine into [agent.LabelMachine] of the claim,
// and whose machine had it before. A restored guest gets the disks named in its Migration.

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

// users returns the Pods that have the claim, from the cache only those of machines.
func (r *Runtime) users(ctx context.Context, claim *corev1.PersistentVolumeClaim, live bool) ([]volumes.User, error) {
	var pods corev1.PodList
	from, of := client.Reader(r.Client), []client.ListOption{client.InNamespace(claim.Namespace), client.HasLabels{agent.LabelMachine}}
	if live {
		from, of = r.Live, of[:1]
	}
	if err := from.List(ctx, &pods, of...); err != nil {
		return nil, failed(err, "listing the Pods that use PersistentVolumeClaim %s", claim.Name)
	}
	return volumes.PodsUsing(pods.Items, claim.Name, agent.LabelMachine), nil
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
	users, err := r.users(ctx, claim, true)
	if err != nil {
		return err
	}
	if other, used := volumes.ByOthers(users, m.UID); used {
		return runtime.NewInUse("%s uses PersistentVolumeClaim %s", other.Name, claim.Name)
	}
	if len(users) > 0 {
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
			metav1.SetMetaDataLabel(&c.ObjectMeta, labelFormerMachine, former)
		}
		metav1.SetMetaDataLabel(&c.ObjectMeta, agent.LabelMachine, string(m.UID)) // users may have removed all labels
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
	d, reserved := m.Disk(disk)
	if !reserved {
		return nil
	}
	claim, err := r.disks().Find(ctx, d)
	if claim == nil || err != nil || claim.Labels[agent.LabelMachine] != string(m.UID) {
		return err
	}
	return r.disks().Change(ctx, claim, "releasing", func(c *corev1.PersistentVolumeClaim) { delete(c.Labels, agent.LabelMachine) })
}

// held is a disk and its claim.
type held struct {
	runtime.Disk
	claim *corev1.PersistentVolumeClaim
}

// reserved returns the disks for a Pod of the machine in boot order: those that Attach has reserved and that are attached to it according to
// their status. Users who may edit claims can write their labels.
func (r *Runtime) reserved(ctx context.Context, m runtime.Machine) (disks []held, err error) {
	refs := m.Spec.InBootOrder()
	for _, d := range m.Disks {
		if d.Holder != m.UID {
			continue
		}
		claim, err := r.disks().Find(ctx, d)
		if err != nil {
			return nil, err
		}
		if claim != nil && claim.Labels[agent.LabelMachine] == string(m.UID) {
			disks = append(disks, held{d, claim})
		}
	}
	place := func(d held) int {
		return slices.IndexFunc(refs, func(ref v1alpha1.BlockDeviceRef) bool { return ref.Name == d.Name })
	}
	slices.SortFunc(disks, func(a, b held) int { return cmp.Or(cmp.Compare(place(a), place(b)), strings.Compare(a.Name, b.Name)) })
	return disks, nil
}

// disksFor returns the disks with which a machine was put to sleep. A claim that is missing or being deleted is an InvalidState error: the
// machine would be restored without it.
func (r *Runtime) disksFor(ctx context.Context, m runtime.Machine, disks []v1alpha1.AttachedDisk) (all []held, err error) {
	for _, on := range disks {
		d, recorded := m.Disk(on.UID)
		if !recorded { // its VirtualDisk is gone, or has not recorded the claim yet
			d = runtime.Disk{NamespacedName: types.NamespacedName{Namespace: m.Namespace, Name: on.Name}, UID: on.UID}
		}
		claim, err := r.disks().Find(ctx, d)
		switch {
		case err != nil:
			return nil, err
		case claim == nil || !claim.DeletionTimestamp.IsZero():
			return nil, runtime.NewInvalidState(nil, "PersistentVolumeClaim %s of VirtualDisk %s was deleted, and the machine cannot be restored without it",
				cmp.Or(d.ID, volumes.Name(d.Name, d.UID)), d.Name)
		}
		all = append(all, held{d, claim})
	}
	return all, nil
}

func withDisks(pod *corev1.Pod, disks []held) *corev1.Pod {
	for _, d := range disks {
		mount(pod, d)
	}
	return pod
}

// complete returns an error unless every disk of the spec is reserved for the machine: its Pod cannot get it later.
func complete(m runtime.Machine, disks []held) error {
	for _, ref := range m.Spec.BlockDeviceRefs {
		if !slices.ContainsFunc(disks, func(d held) bool { return d.Name == ref.Name }) {
			return runtime.NewInvalidState(nil, "VirtualDisk %s is not attached yet", ref.Name)
		}
	}
	return nil
}

// mount adds a volume to the Pod: a block device, or a file system in which the agent keeps the disk.
func mount(pod *corev1.Pod, d held) {
	volume, machine := "disk-"+strings.ToLower(string(d.UID)), machineIn(pod)
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: volume, VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: d.claim.Name},
	}})
	if mode := d.claim.Spec.VolumeMode; mode != nil && *mode == corev1.PersistentVolumeBlock {
		machine.VolumeDevices = append(machine.VolumeDevices, corev1.VolumeDevice{Name: volume, DevicePath: agent.DevicePath(d.Name)})
		return
	}
	machine.VolumeMounts = append(machine.VolumeMounts, corev1.VolumeMount{Name: volume, MountPath: agent.MountPath(d.Name)})
}

// disksOf returns the disks of a machine that its Pod has, by the claims that they record.
func disksOf(pod *corev1.Pod, m runtime.Machine) (all []v1alpha1.AttachedDisk) {
	for _, v := range pod.Spec.Volumes {
		if v.PersistentVolumeClaim == nil {
			continue
		}
		if d, is := m.DiskWithID(v.PersistentVolumeClaim.ClaimName); is {
			all = append(all, v1alpha1.AttachedDisk{Name: d.Name, UID: d.UID})
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
	disks, err := r.reserved(ctx, m)
	for _, d := range disks {
		all = append(all, v1alpha1.AttachedDisk{Name: d.Name, UID: d.UID})
	}
	return all, err
}
