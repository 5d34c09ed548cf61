package disk

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// creators is two machines that create the same image if it is missing, with two processes that take themselves for the leader, die at any
// call and look in the middle of each other's looks, while the image is deleted and imported.
type creators struct {
	*rapid.T
	*world
	processes [2]*process
	gone      map[types.UID]bool // images whose data was deleted
}

var creatorNames = []string{"vm-0", "vm-1"}

// look has a process look at a machine or its disk, with whatever happens meanwhile.
func (m *creators) look() {
	p := m.processes[rapid.IntRange(0, 1).Draw(m.T, "process")]
	if rapid.IntRange(0, 3).Draw(m.T, "dies") == 0 {
		p.Die(rapid.IntRange(1, 10).Draw(m.T, "at"), rapid.Bool().Draw(m.T, "after"))
	}
	if rapid.Bool().Draw(m.T, "meanwhile") {
		happens := rapid.SampledFrom([]func(){m.deleteImage, m.release, m.imported, m.deleteMachine, m.other}).Draw(m.T, "what")
		p.Before(rapid.IntRange(1, 10).Draw(m.T, "when"), happens)
	}
	m.lookBy(p)
}

func (m *creators) lookBy(p *process) {
	name := rapid.SampledFrom(creatorNames).Draw(m.T, "machine")
	if rapid.Bool().Draw(m.T, "disk") {
		_ = p.look(p.disks, v1alpha1.ImageDiskName(name))
	} else {
		_ = p.look(p.vms, name)
	}
}

func (m *creators) other() {
	for _, p := range m.processes {
		if p.Rests() {
			m.lookBy(p)
			return
		}
	}
}

// imported does what the image reconciler does once an image is imported.
func (m *creators) imported() {
	i := &v1alpha1.VMDiskImage{}
	if m.Get(m.ctx, key(imageName), i) == nil && i.DeletionTimestamp.IsZero() && i.Status.Phase == "" {
		i.Finalizers = []string{v1alpha1.VMDiskImageFinalizer}
		m.must(m.Update(m.ctx, i))
		m.phase(i, v1alpha1.VMDiskImageReady)
	}
}

// release deletes the data of images that are being deleted and that no disk references.
func (m *creators) release() {
	for _, uid := range m.releaseImages() {
		m.gone[uid] = true
	}
}

func (m *creators) deleteMachine() {
	if vm := m.machineOf(rapid.SampledFrom(creatorNames).Draw(m.T, "deletes")); vm != nil {
		m.must(m.Delete(m.ctx, vm))
	}
}

func (m *creators) machineOf(name string) *v1alpha1.VirtualMachine {
	vm := &v1alpha1.VirtualMachine{}
	if m.Get(m.ctx, key(name), vm) != nil {
		return nil
	}
	return vm
}

// create creates the machines that do not exist.
func (m *creators) create() {
	for _, name := range creatorNames {
		if m.machineOf(name) == nil {
			m.boots(name, ubuntu(v1alpha1.CreateIfNotExist))
		}
	}
}

// check holds the disks against what may never happen. A disk whose status names no image was copied in the middle of a look that gave the image
// up: its claim, which the runtime here fills nevertheless, would never be bound.
func (m *creators) check() {
	made := map[types.UID]bool{}
	for _, d := range m.machines.Disks() {
		if made[d.Owner] || m.gone[d.Image] && m.references(d.Owner) == d.Image {
			m.Fatalf("disk %+v is a copy of an image whose data is gone, or is there twice", d)
		}
		made[d.Owner] = true
	}
}

// references returns the image that the status of a VirtualDisk names.
func (m *creators) references(disk types.UID) types.UID {
	for _, d := range m.allDisks() {
		if d.UID == disk && d.Status.Image != nil {
			return d.Status.Image.UID
		}
	}
	return ""
}

// end lets everything settle: each machine runs from a disk of its own, or waits for an image that the other one's disk keeps from being gone.
func (m *creators) end() {
	m.create()
	for range 6 {
		m.settle(m.processes[0])
		m.collect()
		m.release()
		m.imported()
		m.create()
	}
	m.check()
	for _, name := range creatorNames {
		vm := m.machineOf(name)
		image := v1alpha1.ConditionImageReady.In(vm.Status.Conditions)
		if vm.Status.Phase == v1alpha1.VirtualMachineWaitingForImage && image.Reason == string(v1alpha1.ReasonImageTerminating) && len(m.copies()) == 1 {
			continue
		}
		d, of := &v1alpha1.VirtualDisk{}, types.UID("")
		m.must(m.Get(m.ctx, key(v1alpha1.ImageDiskName(name)), d))
		for _, made := range m.machines.Disks() {
			if made.Owner == d.UID {
				of = made.Image
			}
		}
		if vm.Status.Phase != v1alpha1.VirtualMachineRunning || of == "" || m.references(d.UID) != of && !m.gone[of] {
			m.Fatalf("machine %s shows %+v, its disk, a copy of %s, %+v", name, vm.Status, of, d.Status)
		}
	}
}

// Two machines create one image. No disk is copied from an image that is gone, and both machines run in the end.
func TestImageOfTwoMachinesModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &creators{T: t, world: newWorld(t.Context()), gone: map[types.UID]bool{}}
		for i, name := range []string{"one", "other"} {
			m.processes[i] = m.process(name)
		}
		t.Repeat(map[string]func(*rapid.T){
			"look": func(*rapid.T) { m.look() }, "look again": func(*rapid.T) { m.look() }, "and again": func(*rapid.T) { m.look() },
			"create": func(*rapid.T) { m.create() }, "delete machine": func(*rapid.T) { m.deleteMachine() },
			"delete image": func(*rapid.T) { m.deleteImage() }, "release": func(*rapid.T) { m.release() }, "import": func(*rapid.T) { m.imported() },
			"collect": func(*rapid.T) { m.collect() }, "advance": func(*rapid.T) { m.machines.AdvanceAll() },
			"time": func(*rapid.T) { m.now = m.now.Add(20 * time.Second) }, "": func(*rapid.T) { m.check() },
		})
		m.end()
	})
}
