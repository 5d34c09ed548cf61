package kubevirt

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
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
	// waits is set while KubeVirt cannot plug the volume, which may be for ever.
	waits bool
	// says is what KubeVirt says of a volume that is not ready.
	says string
}

// claimIn returns the name of the claim of a volume, or "".
func claimIn(v *virtv1.VolumeSource) string {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName
	case v.DataVolume != nil:
		return v.DataVolume.Name
	case v.Ephemeral != nil && v.Ephemeral.PersistentVolumeClaim != nil:
		return v.Ephemeral.PersistentVolumeClaim.ClaimName
	case v.MemoryDump != nil:
		return v.MemoryDump.ClaimName
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

// use is how a machine uses a claim.
type use struct {
	at            place
	volume, claim string
	// hot is set if the volume can be unplugged.
	hot bool
	// reads is set if nothing is written to the claim, shared if the machine is made to share it.
	reads, shared bool
	status        *virtv1.VolumeStatus
}

// uses returns the volumes of a machine that are claims. Either of vm and vmi can be nil. An instance that has ended has none, and other volumes,
// such as container disks, are none.
func uses(vm *virtv1.VirtualMachine, vmi *virtv1.VirtualMachineInstance) (all []use) {
	if vm != nil && vm.Spec.Template != nil {
		all = append(all, usesIn(&vm.Spec.Template.Spec, inTemplate)...)
	}
	if vm != nil {
		for _, request := range vm.Status.VolumeRequests {
			if add := request.AddVolumeOptions; add != nil && add.VolumeSource != nil {
				source := virtv1.VolumeSource{PersistentVolumeClaim: add.VolumeSource.PersistentVolumeClaim, DataVolume: add.VolumeSource.DataVolume}
				all = append(all, useOf(inRequest, add.Name, &source, add.Disk))
			}
		}
	}
	if vmi != nil && !vmi.IsFinal() {
		all = append(all, usesNow(vmi)...)
	}
	return slices.DeleteFunc(all, func(u use) bool { return u.claim == "" })
}

// usesNow returns the volumes of an instance.
func usesNow(vmi *virtv1.VirtualMachineInstance) []use {
	all := usesIn(&vmi.Spec, inInstance)
	for i := range vmi.Status.VolumeStatus {
		if status := &vmi.Status.VolumeStatus[i]; status.PersistentVolumeClaimInfo != nil {
			u := use{at: inStatus, volume: status.Name, claim: status.PersistentVolumeClaimInfo.ClaimName, hot: status.HotplugVolume != nil, status: status}
			if i := slices.IndexFunc(all, func(spec use) bool { return spec.at == inInstance && spec.volume == u.volume }); i >= 0 {
				u.reads, u.shared = all[i].reads, all[i].shared
			}
			all = append(all, u)
		}
	}
	return all
}

func usesIn(spec *virtv1.VirtualMachineInstanceSpec, at place) (all []use) {
	for i := range spec.Volumes {
		v := &spec.Volumes[i]
		var device *virtv1.Disk
		if d := slices.IndexFunc(spec.Domain.Devices.Disks, func(d virtv1.Disk) bool { return d.Name == v.Name }); d >= 0 {
			device = &spec.Domain.Devices.Disks[d]
		}
		u := useOf(at, v.Name, &v.VolumeSource, device)
		u.shared = u.shared || slices.ContainsFunc(spec.Domain.Devices.Filesystems, func(f virtv1.Filesystem) bool { return f.Name == v.Name })
		all = append(all, u)
	}
	return all
}

// useOf returns how a machine uses a volume as that device, which may be nil.
func useOf(at place, volume string, source *virtv1.VolumeSource, device *virtv1.Disk) use {
	claim := source.PersistentVolumeClaim
	u := use{at: at, volume: volume, claim: claimIn(source), hot: claim != nil && claim.Hotpluggable}
	u.reads = source.Ephemeral != nil || claim != nil && claim.ReadOnly
	if device != nil {
		cd := device.CDRom != nil && (device.CDRom.ReadOnly == nil || *device.CDRom.ReadOnly)
		u.reads = u.reads || cd || device.Disk != nil && device.Disk.ReadOnly || device.LUN != nil && device.LUN.ReadOnly
		u.shared = device.Shareable != nil && *device.Shareable
	}
	return u
}

// usesOf returns how a machine or an instance uses a claim, or is about to.
func usesOf(vm *virtv1.VirtualMachine, vmi *virtv1.VirtualMachineInstance, claim string) []use {
	return slices.DeleteFunc(uses(vm, vmi), func(u use) bool { return u.claim != claim })
}

// claimsOf returns the claims of a machine.
func claimsOf(vm *virtv1.VirtualMachine) (names []string) {
	for _, u := range uses(vm, nil) {
		names = append(names, u.claim)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// diskIn returns the VirtualDisk of m that a volume is. Its status decides, which records the claim; the name of the volume only tells it from
// one that another client has added for the claim.
func diskIn(m runtime.Machine, volume, claim string) (runtime.Disk, bool) {
	d, is := m.DiskWithID(claim)
	former, named := strings.CutPrefix(volume, volumePrefix)
	return d, is && named && (volume == volumeFor(d) || claim == volumes.Name(d.Name, types.UID(former)))
}

// volumePrefix and the UID of the VirtualDisk form the name of a volume of a machine.
const volumePrefix = "disk-"

// volumeFor returns the name of the volume of a disk that is attached. One that was taken over may have the name of its former VirtualDisk.
func volumeFor(d runtime.Disk) string { return volumePrefix + strings.ToLower(string(d.UID)) }

// plugsOf returns the VirtualDisks of m that are in its machine.
func plugsOf(vm *virtv1.VirtualMachine, vmi *virtv1.VirtualMachineInstance, m runtime.Machine) (all []plug) {
	for _, u := range uses(vm, vmi) {
		d, is := diskIn(m, u.volume, u.claim)
		if !is {
			continue
		}
		i := slices.IndexFunc(all, func(p plug) bool { return p.volume == u.volume })
		if i < 0 {
			i, all = len(all), append(all, plug{AttachedDisk: v1alpha1.AttachedDisk{Name: d.Name, UID: d.UID}, volume: u.volume})
		}
		p := &all[i]
		p.hot = p.hot || u.hot
		switch u.at {
		case inTemplate:
			p.declared = true
		case inRequest:
			p.adding = true
		case inInstance:
			p.present, p.adding = true, p.adding || u.hot
		case inStatus:
			p.follow(u.status)
		}
	}
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
		p.adding, p.waits, p.says = false, true, status.Message
	default:
		p.says = status.Message
	}
}

// doing returns what KubeVirt does with the volume, or waits to do, for messages.
func (p *plug) doing() string {
	text := "VirtualDisk " + p.Name + " is being attached"
	if p.removing {
		text = "VirtualDisk " + p.Name + " is being detached"
	}
	if p.says != "" {
		text += ": " + p.says
	}
	return text
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

// claimOf returns the claim of a volume of the machine, or "".
func (s *sight) claimOf(volume string) string {
	for _, u := range uses(s.vm, s.vmi) {
		if u.volume == volume {
			return u.claim
		}
	}
	return ""
}

// off reports whether the machine has no instance, so that its template can be changed.
func (s *sight) off() bool { return s.vmi == nil || s.vmi.IsFinal() }

// plugging returns what KubeVirt still does so that an instance has the disks of its machine, or waits to do, and "" if it has them. That is
// no task in flight: it may never end, and changes neither power nor node. An instance that is being stopped gets and loses none.
func (s *sight) plugging() string {
	if p := s.plugOf(func(p *plug) bool { return p.adding || p.removing || p.waits }); p != nil && !s.off() && !s.leaving() {
		return p.doing()
	}
	return ""
}

// attached returns the disks of the machine. One that is being attached or detached is one of them.
func (s *sight) attached() (all []v1alpha1.AttachedDisk) {
	for i := range s.plugs {
		if p := &s.plugs[i]; p.declared || p.present || p.adding || p.removing {
			all = append(all, p.AttachedDisk)
		}
	}
	return all
}
