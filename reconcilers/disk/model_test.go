package disk

import (
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/test/support/double/fake"
)

// model is three machines and two disks that come and go, with two processes that take themselves for the leader, die at any call and
// look in the middle of each other's looks, and a runtime that loses replies.
type model struct {
	*rapid.T
	*world
	processes [2]*process
	checked   int                // effects
	called    int                // calls
	wanted    map[types.UID]bool // disks that nobody has deleted
}

var (
	machineNames = []string{"vm-0", "vm-1", "vm-2"}
	diskNames    = []string{"a", "b"}
)

// images has images deleted, and those released that no disk holds.
func (m *model) images() {
	if rapid.Bool().Draw(m.T, "deletes the image") {
		m.deleteImage()
	}
	m.releaseImages()
}

func (m *model) draw(of []string, label string) string { return rapid.SampledFrom(of).Draw(m.T, label) }

// pass has a process look at something, with whatever happens meanwhile.
func (m *model) pass() {
	p := m.processes[rapid.IntRange(0, 1).Draw(m.T, "process")]
	if rapid.IntRange(0, 3).Draw(m.T, "dies") == 0 {
		p.Die(rapid.IntRange(1, 8).Draw(m.T, "at"), rapid.Bool().Draw(m.T, "after"))
	}
	if rapid.IntRange(0, 2).Draw(m.T, "meanwhile") == 0 {
		happens := rapid.SampledFrom([]func(){m.refs, m.deleteMachine, m.deleteDisk, m.other, m.create, m.images}).Draw(m.T, "what")
		p.Before(rapid.IntRange(1, 8).Draw(m.T, "when"), happens)
	}
	m.lookAt(p)
	m.check()
}

func (m *model) lookAt(p *process) {
	if rapid.Bool().Draw(m.T, "disk") {
		_ = p.look(p.disks, m.draw(diskNames, "name"))
	} else {
		_ = p.look(p.vms, m.draw(machineNames, "name"))
	}
}

// other has the other process look in the middle of everything.
func (m *model) other() {
	for _, p := range m.processes {
		if p.Rests() {
			m.lookAt(p)
			return
		}
	}
}

// create makes a machine or a disk that is not there.
func (m *model) create() {
	if name := m.draw(diskNames, "disk"); m.Get(m.ctx, key(name), &v1alpha1.VirtualDisk{}) != nil {
		make := rapid.SampledFrom([]func(string) *v1alpha1.VirtualDisk{m.disk, m.copied}).Draw(m.T, "source")
		m.wanted[make(name).UID] = true
		return
	}
	if m.Get(m.ctx, key(imageName), &v1alpha1.VMDiskImage{}) != nil {
		m.image(v1alpha1.VMDiskImageReady)
		return
	}
	if name := m.draw(machineNames, "machine"); m.Get(m.ctx, key(name), &v1alpha1.VirtualMachine{}) != nil {
		m.machine(name, m.drawRefs()...)
	}
}

func (m *model) drawRefs() (all []string) {
	for _, name := range diskNames {
		if rapid.Bool().Draw(m.T, "names "+name) {
			all = append(all, name)
		}
	}
	return all
}

// refs changes which disks a machine is to have.
func (m *model) refs() {
	vm := &v1alpha1.VirtualMachine{}
	if m.Get(m.ctx, key(m.draw(machineNames, "machine")), vm) == nil {
		vm.Spec.BlockDeviceRefs = refs(m.drawRefs()...)
		m.must(m.Update(m.ctx, vm))
	}
}

func (m *model) deleteMachine() {
	vm := &v1alpha1.VirtualMachine{}
	if m.Get(m.ctx, key(m.draw(machineNames, "machine")), vm) == nil {
		m.must(m.Delete(m.ctx, vm))
	}
}

func (m *model) deleteDisk() {
	d := &v1alpha1.VirtualDisk{}
	if m.Get(m.ctx, key(m.draw(diskNames, "disk")), d) == nil {
		m.must(m.Delete(m.ctx, d))
		delete(m.wanted, d.UID)
	}
}

func (m *model) grow() {
	d := &v1alpha1.VirtualDisk{}
	if m.Get(m.ctx, key(m.draw(diskNames, "disk")), d) == nil {
		d.Spec.Size.Add(resource.MustParse("1Gi"))
		m.must(m.Update(m.ctx, d))
	}
}

// fails has the next call of some verb lose its reply, or fail.
func (m *model) fails() {
	verb := rapid.SampledFrom([]runtime.Verb{
		runtime.VerbObserve, runtime.VerbEnsure, runtime.VerbDelete, runtime.VerbPowerOn,
		runtime.VerbObserveDisk, runtime.VerbEnsureDisk, runtime.VerbDeleteDisk, runtime.VerbAttach, runtime.VerbDetach,
	}).Draw(m.T, "verb")
	fault := rapid.SampledFrom([]fake.Fault{fake.LoseReply(), fake.Fail(runtime.NewUnavailable(nil, "it is away"))}).Draw(m.T, "fault")
	m.machines.Script(fake.At{Verb: verb}, fault)
}

// check holds what happened since the last time against what may never happen.
func (m *model) check() {
	calls, effects := m.machines.Calls(), m.machines.Effects()
	for _, c := range calls[m.called:] {
		if c.Verb == runtime.VerbAttach && c.Err != nil && strings.Contains(c.Err.Error(), "is attached to machine") {
			m.Fatalf("%s was to have %s, which another machine has: %v", c.Machine, c.Disk, c.Err)
		}
	}
	for _, e := range effects[m.checked:] {
		if e.Kind == fake.DiskDeleted && m.wanted[e.Disk] {
			m.Fatalf("the data of %s is gone, and nobody has deleted it", e.Disk)
		}
	}
	m.called, m.checked = len(calls), len(effects)
	made := map[types.UID]int{}
	for _, e := range effects {
		if e.Kind == fake.DiskCreated {
			made[e.Disk]++
		}
	}
	for uid, n := range made {
		if n > 1 {
			m.Fatalf("disk %s was made %d times", uid, n)
		}
	}
}

// end has everything settle, and looks whether it is as it is wanted.
func (m *model) end() {
	m.machines.ClearScripts()
	m.settle(m.processes[0]) // disks give up an image that is being deleted, and that they are no copies of
	if m.releaseImages(); m.Get(m.ctx, key(imageName), &v1alpha1.VMDiskImage{}) != nil {
		m.image(v1alpha1.VMDiskImageReady)
	}
	if !m.settle(m.processes[0]) {
		m.Fatalf("it never comes to rest: %s", m.versions())
	}
	m.check()
	has := map[types.UID]string{} // machines by the disks that they have
	for _, vm := range m.allMachines() {
		in, _ := m.machines.Instance(vm.UID)
		if !vm.DeletionTimestamp.IsZero() || in.Owner == "" {
			m.Fatalf("machine %s is %+v", vm.Name, vm.Status)
		}
		for _, d := range in.Disks {
			if has[d.UID] = vm.Name; !vm.Spec.Names(d.Name) {
				m.Fatalf("%s has %s, which it is not to have", vm.Name, d.Name)
			}
		}
	}
	wanted := 0
	for _, d := range m.allDisks() {
		if m.endOfDisk(&d, has[d.UID]); !m.waits(&d) {
			wanted++
		}
	}
	if there := len(m.machines.Disks()); there != wanted {
		m.Fatalf("there are %d disks, and %d VirtualDisks that do not wait for an image", there, wanted)
	}
}

// waits reports whether the disk waits for an image that is being deleted, and that another disk is a copy of.
func (m *model) waits(d *v1alpha1.VirtualDisk) bool {
	i := &v1alpha1.VMDiskImage{}
	if d.Spec.Source == nil || d.Status.Image != nil || m.Get(m.ctx, key(imageName), i) != nil || i.DeletionTimestamp.IsZero() {
		return false
	}
	return slices.ContainsFunc(m.allDisks(), func(other v1alpha1.VirtualDisk) bool {
		return other.Status.DiskID != "" && other.Status.Image != nil && other.Status.Image.Is(i)
	})
}

// holds reports whether the disk holds the image that it is a copy of, or a look in the middle of another one copied it from an image
// that was given up and is gone.
func (m *model) holds(d *v1alpha1.VirtualDisk) bool {
	if d.Status.Image != nil {
		return d.Status.Image.UID == m.imageOf(d.UID)
	}
	i := &v1alpha1.VMDiskImage{}
	return m.Get(m.ctx, key(imageName), i) != nil || i.UID != m.imageOf(d.UID)
}

// imageOf is the image that a disk is a copy of on the runtime.
func (m *model) imageOf(disk types.UID) types.UID {
	for _, d := range m.machines.Disks() {
		if d.Owner == disk {
			return d.Image
		}
	}
	return ""
}

func (m *model) endOfDisk(d *v1alpha1.VirtualDisk, has string) {
	holder := ""
	if d.Status.AttachedTo != nil {
		holder = d.Status.AttachedTo.Name
	}
	named := slices.ContainsFunc(m.allMachines(), func(vm v1alpha1.VirtualMachine) bool { return vm.Spec.Names(d.Name) })
	switch {
	case m.waits(d):
	case d.Spec.Source != nil && !m.holds(d):
		m.Fatalf("disk %s holds %+v, and is a copy of %s", d.Name, d.Status.Image, m.imageOf(d.UID))
	case holder != has:
		m.Fatalf("%s has disk %s, by its status %s: %+v; machines: %+v", has, d.Name, holder, d, m.allMachines())
	case !d.DeletionTimestamp.IsZero() && holder == "":
		m.Fatalf("disk %s is never gone: %+v", d.Name, d.Status)
	case named && has == "" && d.DeletionTimestamp.IsZero():
		m.Fatalf("disk %s is wanted, and nobody has it: %+v", d.Name, d.Status)
	case d.Status.DiskID == "" || d.Status.Phase != d.CurrentPhase():
		m.Fatalf("disk %s shows %+v", d.Name, d.Status)
	case d.Status.FreeSince != nil && holder != "":
		m.Fatalf("disk %s has the clock %v", d.Name, d.Status.FreeSince)
	case d.DeletionTimestamp.IsZero() && d.Status.Capacity.Cmp(d.Spec.Size) != 0:
		m.Fatalf("disk %s has %s and not %s", d.Name, d.Status.Capacity, d.Spec.Size.String())
	}
}

func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &model{T: t, world: newWorld(t.Context()), wanted: map[types.UID]bool{}}
		for i, name := range []string{"one", "other"} {
			m.processes[i] = m.process(name)
		}
		t.Repeat(map[string]func(*rapid.T){
			"pass": func(*rapid.T) { m.pass() }, "pass again": func(*rapid.T) { m.pass() }, "and again": func(*rapid.T) { m.pass() },
			"create": func(*rapid.T) { m.create() }, "refs": func(*rapid.T) { m.refs() }, "grow": func(*rapid.T) { m.grow() },
			"delete machine": func(*rapid.T) { m.deleteMachine() }, "delete disk": func(*rapid.T) { m.deleteDisk() },
			"advance": func(*rapid.T) { m.machines.AdvanceAll() }, "fails": func(*rapid.T) { m.fails() },
			"time": func(*rapid.T) { m.now = m.now.Add(20 * time.Second) },
		})
		m.end()
	})
}
