package disk

import (
	"context"
	"fmt"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/double/fake"
)

// collect does what the garbage collector does: it deletes objects all of whose owners are gone.
func (w *world) collect() {
	there := map[types.UID]bool{}
	for _, vm := range w.allMachines() {
		there[vm.UID] = true
	}
	for _, d := range w.allDisks() {
		owners := d.OwnerReferences
		if len(owners) > 0 && !slices.ContainsFunc(owners, func(o metav1.OwnerReference) bool { return there[o.UID] }) {
			w.must(client.IgnoreNotFound(w.Delete(w.ctx, &d)))
		}
	}
}

// lose removes an object without anybody noticing, as with the cluster that it was in.
func (w *world) lose(o client.Object) {
	o.SetFinalizers(nil)
	w.must(w.Update(w.ctx, o))
	w.must(w.Delete(w.ctx, o))
}

// backup is what a tool has saved of a machine that boots from an image, and how it restores that.
type backup struct {
	vm                  v1alpha1.VirtualMachine
	disk                v1alpha1.VirtualDisk
	withStatus          bool // of the disk
	withoutOwners       bool
	machineComesFirst   bool
	collectsBeforeTake  bool // the garbage collector comes before the data is taken over
	collectsImmediately bool // the garbage collector comes before anything is looked at
}

func (b *backup) String() string {
	return fmt.Sprintf("status %t, without owners %t, machine first %t, garbage collected before %t, at once %t",
		b.withStatus, b.withoutOwners, b.machineComesFirst, b.collectsBeforeTake, b.collectsImmediately)
}

// restoreDisk creates the disk that was saved, unless there is one. Its status is written as by tools that restore it.
func (b *backup) restoreDisk(f *world) {
	d := b.disk.DeepCopy()
	d.ResourceVersion, d.Status = "", v1alpha1.VirtualDiskStatus{}
	if b.withoutOwners {
		d.OwnerReferences = nil
	}
	if f.Create(f.ctx, d) == nil && b.withStatus {
		d.Status = *b.disk.Status.DeepCopy()
		f.must(f.Status().Update(f.ctx, d))
	}
}

func (b *backup) restoreMachine(f *world) {
	vm := b.vm.DeepCopy()
	vm.ResourceVersion, vm.Status = "", v1alpha1.VirtualMachineStatus{}
	f.must(f.Create(f.ctx, vm))
}

func (b *backup) restore(f *fixture) {
	restores := []func(*world){b.restoreDisk, b.restoreMachine}
	if b.machineComesFirst {
		slices.Reverse(restores)
	}
	for _, restore := range restores {
		restore(f.world)
		if b.collectsImmediately {
			f.collect()
		}
		f.rests()
		if b.collectsBeforeTake {
			f.collect()
			f.rests()
		}
	}
}

// takeOver has the objects take over what earlier objects have on the runtime.
func (f *fixture) takeOver() {
	f.Helper()
	objects := []client.Object{f.vm("web")}
	for _, d := range f.allDisks() {
		objects = append(objects, &d)
	}
	for _, o := range objects {
		o.SetAnnotations(map[string]string{v1alpha1.AnnotationTakeOver: string(o.GetUID())})
		f.must(f.Update(f.ctx, o))
	}
	f.rests()
	f.collect()
	f.rests()
}

// The disk that a machine boots from, and the machine, are restored in any order with any part of what was saved: the data stays, and is
// the machine's once both have taken over what is there.
func TestBootDiskIsRestored(t *testing.T) {
	for i := range 32 {
		b := &backup{withStatus: i&1 > 0, withoutOwners: i&2 > 0, machineComesFirst: i&4 > 0, collectsBeforeTake: i&8 > 0, collectsImmediately: i&16 > 0}
		t.Run(b.String(), func(t *testing.T) {
			f := newFixture(t)
			f.image(v1alpha1.VMDiskImageReady)
			f.booting(ubuntu(v1alpha1.FailIfNotExist))
			f.rests()
			data := f.machines.Disks()[0].ID
			b.vm, b.disk = *f.vm("web"), *f.get("web-boot")
			f.lose(b.vm.DeepCopy())
			f.lose(b.disk.DeepCopy())

			b.restore(f)
			f.takeOver()
			f.takeOver() // a disk that the machine has created again
			f.want(f.of("web"), "Running DisksAttached web-boot")
			f.want(f.shows("web-boot"), "InUse web DiskReady")
			if d := f.get("web-boot"); d.Status.DiskID != data || len(f.machines.Disks()) != 1 || !metav1.IsControlledBy(d, f.vm("web")) {
				t.Errorf("the disk is %+v, the data %+v", d, f.machines.Disks())
			}
			if slices.ContainsFunc(f.machines.Effects(), func(e fake.Effect) bool { return e.Kind == fake.DiskDeleted }) {
				t.Error("data was destroyed")
			}
			// From now on the data goes with the machine, as that of every machine.
			f.must(f.Delete(f.ctx, f.vm("web")))
			f.rests()
			f.collect()
			f.rests()
			if len(f.allDisks())+len(f.machines.Disks()) > 0 {
				t.Errorf("left: %+v %+v", f.allDisks(), f.machines.Disks())
			}
		})
	}
}

// restores is a restore in which everything happens in any order, with a process that dies at any call.
type restores struct {
	*rapid.T
	*world
	p *process
	b *backup
}

func (r *restores) takeOver(o client.Object) {
	if r.Get(r.ctx, client.ObjectKeyFromObject(o), o) == nil {
		o.SetAnnotations(map[string]string{v1alpha1.AnnotationTakeOver: string(o.GetUID())})
		r.must(r.Update(r.ctx, o))
	}
}

func (r *restores) restoreMachine() {
	if r.Get(r.ctx, key("web"), &v1alpha1.VirtualMachine{}) != nil {
		r.b.restoreMachine(r.world)
	}
}

func (r *restores) takeOverDisk() {
	r.takeOver(&v1alpha1.VirtualDisk{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web-boot"}})
}

func (r *restores) takeOverMachine() {
	r.takeOver(&v1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"}})
}

func (r *restores) look() {
	if rapid.IntRange(0, 2).Draw(r.T, "dies") == 0 {
		r.p.Die(rapid.IntRange(1, 6).Draw(r.T, "at"), rapid.Bool().Draw(r.T, "after"))
	}
	if rapid.Bool().Draw(r.T, "meanwhile") {
		r.p.Before(rapid.IntRange(1, 6).Draw(r.T, "when"), rapid.SampledFrom([]func(){r.collect, r.takeOverDisk, r.restoreMachine}).Draw(r.T, "what"))
	}
	if rapid.Bool().Draw(r.T, "disk") {
		_ = r.p.look(r.p.disks, "web-boot")
	} else {
		_ = r.p.look(r.p.vms, "web")
	}
	r.machines.AdvanceAll()
}

func (r *restores) check() {
	if slices.ContainsFunc(r.machines.Effects(), func(e fake.Effect) bool { return e.Kind == fake.DiskDeleted }) {
		r.Fatal("data was destroyed")
	}
}

func TestRestoreModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(context.Background())
		r := &restores{T: t, world: w, p: w.process("us"), b: &backup{withStatus: rapid.Bool().Draw(t, "status"), withoutOwners: rapid.Bool().Draw(t, "stripped")}}
		w.image(v1alpha1.VMDiskImageReady)
		w.booting(ubuntu(v1alpha1.FailIfNotExist))
		w.settle(r.p)
		w.must(w.Get(w.ctx, key("web"), &r.b.vm))
		w.must(w.Get(w.ctx, key("web-boot"), &r.b.disk))
		w.lose(r.b.vm.DeepCopy())
		w.lose(r.b.disk.DeepCopy())
		t.Repeat(map[string]func(*rapid.T){
			"disk": func(*rapid.T) { r.b.restoreDisk(w) }, "machine": func(*rapid.T) { r.restoreMachine() }, "collect": func(*rapid.T) { r.collect() },
			"take over disk": func(*rapid.T) { r.takeOverDisk() }, "take over machine": func(*rapid.T) { r.takeOverMachine() },
			"look": func(*rapid.T) { r.look() }, "look again": func(*rapid.T) { r.look() }, "": func(*rapid.T) { r.check() },
		})
		r.restoreMachine()
		for range 3 {
			r.takeOverDisk()
			r.takeOverMachine()
			w.settle(r.p)
			w.collect()
			w.settle(r.p)
		}
		r.check()
		d, vm := &v1alpha1.VirtualDisk{}, &v1alpha1.VirtualMachine{}
		w.must(w.Get(w.ctx, key("web"), vm))
		w.must(w.Get(w.ctx, key("web-boot"), d))
		if !metav1.IsControlledBy(d, vm) || d.Status.DiskID != r.b.disk.Status.DiskID || vm.Status.Phase != v1alpha1.VirtualMachineRunning {
			t.Fatalf("the disk is %+v, the machine %+v", d, vm.Status)
		}
	})
}
