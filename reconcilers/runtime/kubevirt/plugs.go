package kubevirt

import (
	"context"
	"slices"

	virtv1 "kubevirt.io/api/core/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/volumes"
)

// plug is a VirtualDisk in a machine.
type plug struct {
	v1alpha1.AttachedDisk
	volume string
	// declared is set if the template has the volume, present if the spec of the instance has it.
	declared, present bool
	// adding and removing are set while KubeVirt plugs or unplugs the volume.
	adding, removing bool
	// hot is set if the volume can be unplugged.
	hot bool
	// waits is why KubeVirt cannot plug the volume yet.
	waits string
}

// claimIn returns the name of the claim of a volume, or "".
func claimIn(v *virtv1.VolumeSource) string {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName
	case v.DataVolume != nil:
		return v.DataVolume.Name
	}
	return ""
}

// place is where the volume of a claim is.
type place int

const (
	inTemplate place = iota
	inRequest
	inInstance
	inStatus
)

// eachVolume calls visit for the volumes of a machine that are claims. Either of vm and vmi can be nil. An instance that has ended has none.
func eachVolume(vm *virtv1.VirtualMachine, vmi *virtv1.VirtualMachineInstance, visit func(at place, volume, claim string, hot bool, status *virtv1.VolumeStatus)) {
	source := func(at place, name string, v *virtv1.VolumeSource) {
		visit(at, name, claimIn(v), v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.Hotpluggable, nil)
	}
	if vm != nil && vm.Spec.Template != nil {
		for i := range vm.Spec.Template.Spec.Volumes {
			source(inTemplate, vm.Spec.Template.Spec.Volumes[i].Name, &vm.Spec.Template.Spec.Volumes[i].VolumeSource)
		}
	}
	if vm != nil {
		for _, request := range vm.Status.VolumeRequests {
			if add := request.AddVolumeOptions; add != nil && add.VolumeSource != nil {
				source(inRequest, add.Name, &virtv1.VolumeSource{PersistentVolumeClaim: add.VolumeSource.PersistentVolumeClaim, DataVolume: add.VolumeSource.DataVolume})
			}
		}
	}
	if vmi == nil || vmi.IsFinal() {
		return
	}
	for i := range vmi.Spec.Volumes {
		source(inInstance, vmi.Spec.Volumes[i].Name, &vmi.Spec.Volumes[i].VolumeSource)
	}
	for i := range vmi.Status.VolumeStatus {
		if status := &vmi.Status.VolumeStatus[i]; status.PersistentVolumeClaimInfo != nil {
			visit(inStatus, status.Name, status.PersistentVolumeClaimInfo.ClaimName, status.HotplugVolume != nil, status)
		}
	}
}

// uses reports whether a machine or an instance has a volume of the claim, or is about to get one.
func uses(vm *virtv1.VirtualMachine, vmi *virtv1.VirtualMachineInstance, claim string) (is bool) {
	eachVolume(vm, vmi, func(_ place, _, of string, _ bool, _ *virtv1.VolumeStatus) { is = is || of == claim })
	return is
}

// plugsOf returns the VirtualDisks in a machine, with the UIDs that they had when they were attached.
func plugsOf(vm *virtv1.VirtualMachine, vmi *virtv1.VirtualMachineInstance) (all []plug) {
	eachVolume(vm, vmi, func(at place, volume, claim string, hot bool, status *virtv1.VolumeStatus) {
		disk, is := volumes.InVolume(volume, claim)
		if !is {
			return
		}
		i := slices.IndexFunc(all, func(p plug) bool { return p.volume == volume })
		if i < 0 {
			i, all = len(all), append(all, plug{AttachedDisk: disk, volume: volume})
		}
		p := &all[i]
		p.hot = p.hot || hot
		switch at {
		case inTemplate:
			p.declared = true
		case inRequest:
			p.adding = true
		case inInstance:
			p.present, p.adding = true, p.adding || hot
		case inStatus:
			p.follow(status)
		}
	})
	for i := range all {
		p := &all[i]
		p.removing = p.hot && !p.declared && !p.adding || slices.ContainsFunc(vm.Status.VolumeRequests, func(r virtv1.VirtualMachineVolumeRequest) bool {
			return r.RemoveVolumeOptions != nil && r.RemoveVolumeOptions.Name == p.volume
		})
	}
	return all
}

// follow sets what the status of the instance says of the volume. One that waits for its claim may do so for ever, and is not in flight.
func (p *plug) follow(status *virtv1.VolumeStatus) {
	switch {
	case status.HotplugVolume == nil:
	case !p.present:
		p.adding = false
	case status.Phase == virtv1.VolumeReady:
		p.adding = false
	case status.Phase == virtv1.VolumePending:
		p.adding, p.waits = false, status.Message
	}
}

// plugOf returns the first disk of the machine that is so, or nil.
func (s *sight) plugOf(is func(*plug) bool) *plug {
	for i := range s.plugs {
		if is(&s.plugs[i]) {
			return &s.plugs[i]
		}
	}
	return nil
}

// off reports whether the machine has no instance, so that its template can be changed.
func (s *sight) off() bool { return s.vmi == nil || s.vmi.IsFinal() }

// plugging returns the tasks that change the disks of an instance that runs. One that is being stopped gets and loses none.
func (s *sight) plugging() (all []runtime.Task) {
	if s.off() || s.leaving() {
		return nil
	}
	for i := range s.plugs {
		if p := &s.plugs[i]; p.adding || p.removing {
			all = append(all, runtime.Task{ID: p.volume, Kind: runtime.TaskReconfigure, Ours: true})
		}
	}
	return all
}

// attached returns the disks of the machine. One that is being attached or detached is one of them.
func (s *sight) attached() (all []v1alpha1.AttachedDisk) {
	for i := range s.plugs {
		if p := &s.plugs[i]; p.declared || p.present || p.removing {
			all = append(all, p.AttachedDisk)
		}
	}
	return all
}

// currentDisks replaces the UIDs of disks that were taken over. The names of volumes keep the former UIDs.
func (r *Runtime) currentDisks(ctx context.Context, s *sight) error {
	for i := range s.plugs {
		p := &s.plugs[i]
		uid, err := r.disks().Current(ctx, s.vm.Namespace, volumes.Name(p.Name, p.UID), p.AttachedDisk)
		if err != nil {
			return err
		}
		if uid != "" {
			p.UID = uid
		}
	}
	return nil
}
