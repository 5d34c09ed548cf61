package kubevirt

import (
	"cmp"
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"

	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/volumes"
)

// A disk is a PersistentVolumeClaim, see [volumes]. A machine has it by a volume with the claim that the VirtualDisk records and a name with
// the UID of the VirtualDisk; other volumes are left alone. While the machine is off, the volume is put into its template or removed from there. While it is on,
// KubeVirt plugs the volume into the instance: as the status of the machine requests, or as its template says, see plug.

var _ runtime.Disks = (*Runtime)(nil)

func (r *Runtime) disks() volumes.Disks {
	return volumes.Disks{Client: r.Client, Live: r.Live, Users: r.users}
}

// ObserveDisk observes the claim and the machines of KubeVirt that use it.
func (r *Runtime) ObserveDisk(ctx context.Context, d runtime.Disk) (runtime.DiskObservation, error) {
	return r.disks().ObserveDisk(ctx, d)
}

// EnsureDisk creates the claim, or raises its request. Kubernetes writes a claim several times when it is created.
func (r *Runtime) EnsureDisk(ctx context.Context, d runtime.Disk) (id string, err error) {
	err = decide(func() (err error) {
		id, err = r.disks().EnsureDisk(ctx, d)
		return err
	})
	return id, err
}

// DeleteDisk deletes the claim.
func (r *Runtime) DeleteDisk(ctx context.Context, d runtime.Disk) error {
	return decide(func() error { return r.disks().DeleteDisk(ctx, d) })
}

// Attach puts the disk into the template of a machine that is off, or has KubeVirt plug it into the instance.
func (r *Runtime) Attach(ctx context.Context, m runtime.Machine, d runtime.Disk) error {
	return decide(func() error { return r.attach(ctx, m, d) })
}

func (r *Runtime) attach(ctx context.Context, m runtime.Machine, d runtime.Disk) error {
	claim, err := r.disks().Find(ctx, d)
	switch {
	case err != nil:
		return err
	case claim == nil:
		return runtime.NewNotFound(nil, "PersistentVolumeClaim %s does not exist", cmp.Or(d.ID, volumes.Name(d.Name, d.UID)))
	case !claim.DeletionTimestamp.IsZero():
		return runtime.NewInvalidState(nil, "PersistentVolumeClaim %s is being deleted", claim.Name)
	}
	s, err := r.existing(ctx, m.With(d))
	if err != nil {
		return err
	}
	users, err := r.users(ctx, claim, true)
	if err != nil {
		return err
	}
	other, used := volumes.ByOthers(users, m.UID)
	p := s.plugOf(func(p *plug) bool { return p.UID == d.UID })
	switch {
	case used:
		return runtime.NewInUse("%s uses PersistentVolumeClaim %s", other.Name, claim.Name)
	case p != nil && p.declared && !p.removing, p != nil && p.adding:
		return nil
	case s.busy() != nil:
		return s.conflict()
	case p != nil && p.removing:
		return runtime.NewInvalidState(nil, "KubeVirt VirtualMachine %s: %s", s.vm.Name, p.doing())
	case len(users) > 0:
		return runtime.NewInvalidState(nil, "another client has added PersistentVolumeClaim %s to KubeVirt VirtualMachine %s: remove it there", claim.Name, s.vm.Name)
	}
	volume := volumeFor(d)
	if claim := s.claimOf(volume); claim != "" {
		return r.replaced(ctx, s, d, claim)
	}
	disk, source := diskFor(m, d, volume), &virtv1.PersistentVolumeClaimVolumeSource{
		PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name},
		Hotpluggable:                      bootRank(m, d.Name) == 0 || !s.off(),
	}
	add := &virtv1.AddVolumeOptions{Name: volume, Disk: &disk, VolumeSource: &virtv1.HotplugVolumeSource{PersistentVolumeClaim: source}}
	return r.plug(ctx, s, "attaching VirtualDisk "+d.Name+" to", virtv1.VirtualMachineVolumeRequest{AddVolumeOptions: add}, func(spec *virtv1.VirtualMachineInstanceSpec) {
		spec.Volumes = append(spec.Volumes, virtv1.Volume{Name: volume, VolumeSource: virtv1.VolumeSource{PersistentVolumeClaim: source}})
		spec.Domain.Devices.Disks = append(spec.Domain.Devices.Disks, disk)
		if s.off() {
			orderDisks(spec, m.With(d))
		}
	})
}

// Detach removes the disk from the template of a machine that is off, or has KubeVirt unplug it from the instance.
func (r *Runtime) Detach(ctx context.Context, m runtime.Machine, disk types.UID) error {
	return decide(func() error { return r.detach(ctx, m, disk) })
}

func (r *Runtime) detach(ctx context.Context, m runtime.Machine, disk types.UID) error {
	s, err := r.existing(ctx, m)
	if err != nil {
		return err
	}
	p := s.plugOf(func(p *plug) bool { return p.UID == disk })
	switch {
	case p == nil, p.removing:
		return nil
	case s.busy() != nil:
		return s.conflict()
	case !s.off() && p.adding:
		return runtime.NewInvalidState(nil, "KubeVirt VirtualMachine %s: %s", s.vm.Name, p.doing())
	case !s.off() && !p.hot:
		return runtime.NewInvalidState(nil, "the machine boots from VirtualDisk %s, which can only be detached while the machine is off", p.Name)
	}
	remove := &virtv1.RemoveVolumeOptions{Name: p.volume}
	return r.plug(ctx, s, "detaching VirtualDisk "+p.Name+" from", virtv1.VirtualMachineVolumeRequest{RemoveVolumeOptions: remove}, func(spec *virtv1.VirtualMachineInstanceSpec) {
		spec.Volumes = slices.DeleteFunc(spec.Volumes, func(v virtv1.Volume) bool { return v.Name == p.volume })
		spec.Domain.Devices.Disks = slices.DeleteFunc(spec.Domain.Devices.Disks, func(d virtv1.Disk) bool { return d.Name == p.volume })
	})
}

// plug changes the disks of a machine with its resourceVersion: by a request in its status, if KubeVirt carries these out on the instance, or
// in its template.
func (r *Runtime) plug(
	ctx context.Context, s *sight, doing string, request virtv1.VirtualMachineVolumeRequest, edit func(*virtv1.VirtualMachineInstanceSpec),
) error {
	if !s.off() {
		switch requests, err := r.plugsRequests(ctx, s); {
		case err != nil:
			return err
		case requests:
			return r.ask(ctx, s, doing, func(status *virtv1.VirtualMachineStatus) {
				status.VolumeRequests = append(status.VolumeRequests, request)
			})
		}
	}
	return r.change(ctx, s.vm, doing, func(vm *virtv1.VirtualMachine) { edit(&vm.Spec.Template.Spec) })
}

// plugsRequests reports whether KubeVirt plugs what the status of a machine requests (feature gate HotplugVolumes), and not what its template
// has (DeclarativeHotplugVolumes). Dry runs for a volume that does not exist tell: they conflict with the instance only with the first gate,
// and are bad for the machine, too, without either.
func (r *Runtime) plugsRequests(ctx context.Context, s *sight) (bool, error) {
	none := &virtv1.RemoveVolumeOptions{Name: "sallyport-dry-run", DryRun: []string{metav1.DryRunAll}}
	var err error
	for _, resource := range []string{instances, machines} {
		err = r.put(ctx, s, resource, "removevolume", none)
		switch {
		case err == nil, apierrors.IsConflict(err):
			return resource == instances, nil
		case !apierrors.IsBadRequest(err):
			return false, err
		}
	}
	return false, runtime.NewInvalidState(err, "KubeVirt cannot change the disks of a machine that is on; they are changed when it is off: %s", reason(err))
}

// diskFor returns the disk of a volume. One that the machine boots from is part of its hardware, others can be unplugged.
func diskFor(m runtime.Machine, d runtime.Disk, volume string) virtv1.Disk {
	bus := virtv1.DiskBusSCSI
	if bootRank(m, d.Name) > 0 {
		bus = virtv1.DiskBusVirtio
	}
	return virtv1.Disk{Name: volume, DiskDevice: virtv1.DiskDevice{Disk: &virtv1.DiskTarget{Bus: bus}}}
}

// bootRank returns the position of a disk among those that a created machine boots from, from 1, or 0. The boot order of an adopted machine
// is its own.
func bootRank(m runtime.Machine, disk string) uint {
	if m.Spec.Adopts() {
		return 0
	}
	for i, ref := range m.Spec.InBootOrder() {
		if ref.Name == disk && ref.BootOrder != nil {
			return uint(i + 1)
		}
	}
	return 0
}

// orderDisks sets the boot order of a created machine: VirtualDisks come before its own disks.
func orderDisks(spec *virtv1.VirtualMachineInstanceSpec, m runtime.Machine) {
	if m.Spec.Adopts() {
		return
	}
	plugs, disks, own, next := map[string]string{}, spec.Domain.Devices.Disks, []int{}, uint(1)
	for i := range spec.Volumes {
		if d, is := diskIn(m, spec.Volumes[i].Name, claimIn(&spec.Volumes[i].VolumeSource)); is {
			plugs[spec.Volumes[i].Name] = d.Name
		}
	}
	for i := range disks {
		name, is := plugs[disks[i].Name]
		switch rank := bootRank(m, name); {
		case is && rank == 0:
			disks[i].BootOrder = nil
		case is:
			disks[i].BootOrder, next = &rank, max(next, rank+1)
		case disks[i].BootOrder != nil:
			own = append(own, i)
		}
	}
	slices.SortFunc(own, func(a, b int) int { return cmp.Compare(*disks[a].BootOrder, *disks[b].BootOrder) })
	for i, at := range own {
		disks[at].BootOrder = new(next + uint(i))
	}
}
