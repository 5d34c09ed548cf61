package disk

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/test/support/double/fake"
)

// shows gives a disk as people see it: phase, who has it, and the reason of Ready.
func (f *fixture) shows(name string) string {
	f.Helper()
	d := f.get(name)
	holder := "nobody"
	if d.Status.AttachedTo != nil {
		holder = d.Status.AttachedTo.Name
	}
	return fmt.Sprintf("%s %s %s", d.Status.Phase, holder, v1alpha1.ConditionReady.In(d.Status.Conditions).Reason)
}

func (f *fixture) get(name string) *v1alpha1.VirtualDisk {
	f.Helper()
	d := &v1alpha1.VirtualDisk{}
	if err := f.Get(f.ctx, key(name), d); err != nil {
		f.Fatal(err)
	}
	return d
}

func (f *fixture) vm(name string) *v1alpha1.VirtualMachine {
	f.Helper()
	vm := &v1alpha1.VirtualMachine{}
	if err := f.Get(f.ctx, key(name), vm); err != nil {
		f.Fatal(err)
	}
	return vm
}

// of gives the phase of a machine, the reason of its condition DisksAttached, and the disks that its instance has.
func (f *fixture) of(name string) string {
	f.Helper()
	vm := f.vm(name)
	text := string(vm.Status.Phase)
	if c := v1alpha1.ConditionDisksAttached.In(vm.Status.Conditions); c != nil {
		text += " " + c.Reason
	}
	in, _ := f.machines.Instance(vm.UID)
	for _, d := range in.Disks {
		text += " " + d.Name
	}
	return text
}

func (f *fixture) want(got, want string) {
	f.Helper()
	if got != want {
		f.Errorf("got %q, want %q", got, want)
	}
}

func (f *fixture) rename(name string, disks ...string) {
	f.Helper()
	vm := f.vm(name)
	vm.Spec.BlockDeviceRefs = refs(disks...)
	f.must(f.Update(f.ctx, vm))
}

// attached is a machine that is on and has a disk.
func attached(t *testing.T) *fixture {
	t.Helper()
	f := newFixture(t)
	f.disk("data")
	f.machine("one", "data")
	f.rests()
	return f
}

// A machine is off until it has its disks, and gets them in the order in which they come to be.
func TestWaitsForItsDisks(t *testing.T) {
	f := newFixture(t)
	f.machine("web", "a", "b")
	f.disk("b")
	f.rests()
	f.want(f.of("web"), "Stopped DiskNotFound b")
	c := v1alpha1.ConditionReady.In(f.vm("web").Status.Conditions)
	f.want(c.Message, "the machine is Stopped, but run policy AlwaysOn requires Running: waiting for VirtualDisk a to be attached: see condition DisksAttached")
	f.disk("a")
	f.rests()
	f.want(f.of("web"), "Running DisksAttached b a")
	f.want(f.shows("a"), "InUse web DiskReady")
	for _, e := range f.machines.Effects() {
		if e.Kind == fake.PoweredOn && len(f.machines.Disks()) < 2 {
			t.Errorf("it was powered on without a disk")
		}
	}
}

// A disk goes from one machine to the next with its data, while the first is on.
func TestGoesFromMachineToMachine(t *testing.T) {
	f := attached(t)
	f.machine("two", "data")
	f.rests()
	f.want(f.of("one"), "Running DisksAttached data")
	f.want(f.of("two"), "Stopped DiskInUse")
	before := f.machines.Disks()
	f.rename("one")
	f.rests()
	f.want(f.of("one"), "Running")
	f.want(f.of("two"), "Running DisksAttached data")
	f.want(f.shows("data"), "InUse two DiskReady")
	if after := f.machines.Disks(); len(after) != 1 || after[0] != before[0] {
		t.Errorf("it was %v, and is %v", before, after)
	}
}

// Where a disk is is recorded, wherever it was before.
func TestHomeIsRecorded(t *testing.T) {
	f := attached(t)
	f.rests()
	d := f.get("data")
	f.want(d.Status.DatastoreID, "store")
	d.Status.DatastoreID = "earlier"
	f.must(f.Status().Update(f.ctx, d))
	f.rests()
	f.want(f.get("data").Status.DatastoreID, "store")
}

// The disks of a machine that is deleted are free, with a clock that tells since when.
func TestOutlivesItsMachine(t *testing.T) {
	f := attached(t)
	f.must(f.Delete(f.ctx, f.vm("one")))
	f.rests()
	f.want(f.shows("data"), "Available nobody DiskReady")
	since := f.get("data").Status.FreeSince
	f.rests()
	if now := f.get("data").Status.FreeSince; since == nil || !now.Equal(since) {
		t.Errorf("it is free since %v, and then since %v", since, now)
	}
	f.machine("two", "data")
	f.rests()
	f.want(f.shows("data"), "InUse two DiskReady")
	if f.get("data").Status.FreeSince != nil {
		t.Error("the clock runs on")
	}
}

// A disk that is deleted waits for its machine, and then is gone with its data.
func TestDeletedWhileInUse(t *testing.T) {
	f := attached(t)
	f.must(f.Delete(f.ctx, f.get("data")))
	f.rests()
	f.want(f.shows("data"), "Terminating one DiskInUse")
	f.want(f.of("one"), "Running DisksAttached data")
	f.machine("two", "data") // comes too late
	f.rename("one")
	f.rests()
	if disks := f.allDisks(); len(disks) != 0 || len(f.machines.Disks()) != 0 {
		t.Errorf("there is %+v, %+v", disks, f.machines.Disks())
	}
	f.want(f.of("two"), "Stopped DiskNotFound")
}

// A deletion of its machine in the foreground, which waits for the disk, does not wait for ever.
func TestForegroundDeletion(t *testing.T) {
	f := attached(t)
	vm := f.vm("one")
	vm.Finalizers = append(vm.Finalizers, metav1.FinalizerDeleteDependents)
	f.must(f.Update(f.ctx, vm))
	f.must(f.Delete(f.ctx, vm))
	f.must(f.Delete(f.ctx, f.get("data")))
	f.rests()
	if disks := f.allDisks(); len(disks) != 0 {
		t.Errorf("it waits: %+v", disks[0].Status)
	}
}

// Two machines that write to one disk would destroy what is on it: a disk stays with an instance that was given up on.
func TestInstanceGivenUpOn(t *testing.T) {
	f := attached(t)
	vm := f.vm("one")
	vm.Annotations = map[string]string{v1alpha1.AnnotationAbandonInstance: string(vm.UID)}
	f.must(f.Update(f.ctx, vm))
	f.must(f.Delete(f.ctx, vm))
	f.machine("two", "data")
	f.rests()
	f.want(f.shows("data"), "InUse one DiskInUse")
	f.want(f.of("two"), "Stopped DiskInUse")
	f.machines.Lose(vm.UID)
	f.rests()
	f.want(f.shows("data"), "InUse two DiskReady")
}

// A disk that somebody removed is not made again, empty. One that was copied from an image would be copied again, which people are told.
func TestLost(t *testing.T) {
	f := newFixture(t)
	f.image(v1alpha1.VMDiskImageReady)
	d, boot := f.disk("data"), f.copied("boot")
	f.rests()
	f.machines.LoseDisk(d.UID)
	f.machines.LoseDisk(boot.UID)
	f.rests()
	f.want(f.shows("data"), "Lost nobody DiskLost")
	if ready := v1alpha1.ConditionReady.In(f.get("boot").Status.Conditions); !strings.HasSuffix(ready.Message, "create it again, copied from its image again") {
		t.Errorf("it says %s", ready.Message)
	}
	f.must(f.Delete(f.ctx, f.get("boot")))
	f.rests()
	f.machine("one", "data")
	f.rests()
	f.want(f.of("one"), "Stopped DiskNotReady")
	f.want(f.shows("data"), "Lost nobody DiskLost")
	if len(f.machines.Disks()) != 0 {
		t.Error("it was made again")
	}
	f.said()
	f.must(f.Delete(f.ctx, f.get("data")))
	f.rests()
	if disks := f.allDisks(); len(disks) != 0 {
		t.Errorf("it cannot be deleted: %+v", disks[0].Status)
	}
	if said := strings.Join(f.said(), "\n"); !strings.Contains(said, "DiskLost the runtime does not find disk") {
		t.Errorf("the events are %s", said)
	}
}

func TestGrows(t *testing.T) {
	f := newFixture(t)
	f.disk("data")
	f.rests()
	d := f.get("data")
	d.Spec.Size = resource.MustParse("2Gi")
	f.must(f.Update(f.ctx, d))
	f.machines.Script(fake.At{Verb: runtime.VerbEnsureDisk}, fake.Fail(runtime.NewInvalidState(nil, "it has a snapshot")).Always())
	f.rests()
	f.want(f.shows("data"), "Available nobody Resizing")
	if m := v1alpha1.ConditionReady.In(f.get("data").Status.Conditions).Message; m != "the disk has 1Gi and cannot grow to 2Gi yet: it has a snapshot" {
		t.Errorf("people are told %q", m)
	}
	f.machines.ClearScripts()
	f.rests()
	f.want(f.shows("data"), "Available nobody DiskReady")
	if c := f.get("data").Status.Capacity.String(); c != "2Gi" {
		t.Errorf("it has %s", c)
	}
}

// What a machine and a disk say of each other has to be of one runtime.
func TestElsewhere(t *testing.T) {
	f := newFixture(t)
	d := f.disk("data")
	d.Spec.Runtime = v1alpha1.VirtualDiskRuntime{VSphere: &v1alpha1.VSphereDisk{ServerRef: v1alpha1.VSphereServerReference{Name: "vc"}, Datastore: "/dc/datastore/fast"}}
	f.must(f.Update(f.ctx, d))
	f.machine("one", "data")
	f.rests()
	f.want(f.of("one"), "Stopped DiskElsewhere")
}

// While the runtime is away nothing is given back, and nothing deleted.
func TestRuntimeAway(t *testing.T) {
	f := attached(t)
	f.must(f.Delete(f.ctx, f.vm("one")))
	f.machines.Script(fake.At{Verb: runtime.VerbObserveDisk}, fake.Fail(runtime.NewUnavailable(nil, "it is away")).Always())
	f.rests()
	f.want(f.shows("data"), "InUse one RuntimeUnavailable")
	f.machines.ClearScripts()
	f.rests()
	f.want(f.shows("data"), "Available nobody DiskReady")
}

// A disk that cannot be attached stays with the machine that is to have it, so that no other takes it meanwhile; but not when it is being
// deleted, which would wait for ever.
func TestCannotBeAttached(t *testing.T) {
	f := newFixture(t)
	f.disk("data")
	f.machines.Script(fake.At{Verb: runtime.VerbAttach}, fake.Fail(runtime.NewInvalidState(nil, "all controllers are full")).Always())
	f.machine("one", "data")
	for range 5 {
		_ = f.p.look(f.p.disks, "data")
		_ = f.p.look(f.p.vms, "one")
		f.machines.AdvanceAll()
	}
	for range 5 {
		_ = f.p.look(f.p.vms, "one")
		f.want(f.shows("data"), "InUse one DiskReady")
	}
	if c := v1alpha1.ConditionDisksAttached.In(f.vm("one").Status.Conditions); c.Message != "VirtualDisk data: all controllers are full" {
		t.Errorf("people are told %q", c.Message)
	}
	f.must(f.Delete(f.ctx, f.get("data")))
	_ = f.p.look(f.p.disks, "data")
	f.want(f.shows("data"), "Terminating one DiskInUse")
	f.want(fmt.Sprint(len(f.machines.Disks())), "1")
	for range 5 {
		_ = f.p.look(f.p.vms, "one")
		_ = f.p.look(f.p.disks, "data")
	}
	if disks := f.allDisks(); len(disks) != 0 {
		t.Errorf("it waits: %+v", disks[0].Status)
	}
}

// A machine that has the name of another one does not give its disks back.
func TestAnotherOfTheSameName(t *testing.T) {
	f := newFixture(t)
	f.disk("data")
	f.rests()
	d := f.get("data")
	d.Status.AttachedTo = &v1alpha1.DiskHolder{Name: "one", UID: "of-another"}
	f.must(f.Status().Update(f.ctx, d))
	f.machines.AddInstance(fake.Instance{Owner: "of-another", Place: "elsewhere", Disks: []v1alpha1.AttachedDisk{{Name: "data", UID: d.UID}}})
	f.machine("one")
	f.rests()
	f.want(f.of("one"), "Running")
	if holder := f.get("data").Status.AttachedTo; holder == nil || holder.UID != "of-another" {
		t.Errorf("it has %v", holder)
	}
}

// A machine never lets go of a disk that it is to have, not for a moment: another waits for it.
func TestHeldOnTo(t *testing.T) {
	for call := 1; ; call++ {
		happened := false
		f := newFixture(t)
		other := f.process("other")
		f.disk("data")
		f.machine("one", "data")
		f.machine("two")
		f.machines.Script(fake.At{Verb: runtime.VerbAttach}, fake.Fail(runtime.NewInvalidState(nil, "all controllers are full")).Always())
		for range 5 {
			_ = f.p.look(f.p.disks, "data")
			_ = f.p.look(f.p.vms, "one")
			_ = f.p.look(f.p.vms, "two")
			f.machines.AdvanceAll()
		}
		f.rename("two", "data")
		f.p.Before(call, func() {
			happened = true
			_ = other.look(other.vms, "two")
		})
		_ = f.p.look(f.p.vms, "one")
		if !happened {
			return
		}
		f.want(f.shows("data"), "InUse one DiskReady")
	}
}

// While something is done to a machine its disks wait, and it says so.
func TestWaitsWhileTheMachineIsBusy(t *testing.T) {
	f := newFixture(t)
	f.disk("data")
	vm := f.machine("one")
	release := f.machines.Hold(vm.UID, runtime.TaskPowerOn)
	for range 5 {
		_ = f.p.look(f.p.disks, "data")
		_ = f.p.look(f.p.vms, "one")
		f.machines.AdvanceAll()
	}
	f.rename("one", "data")
	_ = f.p.look(f.p.vms, "one")
	f.want(f.of("one"), "Starting Attaching")
	f.want(f.shows("data"), "Available nobody DiskReady")
	release()
	f.rests()
	f.want(f.of("one"), "Running DisksAttached data")
}

// Between any two calls of a process that attaches a disk, another takes it off and has a third machine have it. No call of the first
// comes too late.
func TestTakenAwayMeanwhile(t *testing.T) {
	for call := 1; ; call++ {
		happened := false
		f := newFixture(t)
		other := f.process("other")
		f.disk("data")
		f.machine("one")
		f.machine("two", "later")
		f.rests()
		f.rename("one", "data")
		f.p.Before(call, func() {
			happened = true
			f.rename("one")
			f.rename("two", "data")
			for range 5 {
				_ = other.look(other.vms, "one")
				_ = other.look(other.vms, "two")
				f.machines.AdvanceAll()
			}
		})
		_ = f.p.look(f.p.vms, "one")
		if !happened {
			f.want(fmt.Sprint(call > 8), "true")
			return
		}
		f.rests()
		for _, c := range f.machines.Calls() {
			if c.Verb == runtime.VerbAttach && runtime.IsInvalidState(c.Err) {
				t.Errorf("before call %d: %s was to have %s: %v", call, c.Machine, c.Disk, c.Err)
			}
		}
		f.want(f.of("two"), "Running DisksAttached data")
	}
}

// The next machine of a name is not the one that has the disk.
func TestNextOfTheSameName(t *testing.T) {
	f := newFixture(t)
	f.disk("data")
	first := f.machine("one", "data")
	f.rests()
	f.must(f.Delete(f.ctx, f.vm("one")))
	for range 5 {
		_ = f.p.look(f.p.vms, "one")
		f.machines.AdvanceAll()
	}
	second := f.machine("one", "data")
	f.rests()
	f.want(f.of("one"), "Running DisksAttached data")
	if holder := f.get("data").Status.AttachedTo.UID; holder != second.UID || holder == first.UID {
		t.Errorf("%s has it", holder)
	}
}

// An object stays until its data was seen to be gone.
func TestDeletionTakesTime(t *testing.T) {
	f := newFixture(t)
	f.disk("data")
	f.rests()
	f.machines.Script(fake.At{Verb: runtime.VerbDeleteDisk}, fake.ActLate(2), fake.ActLate(2), fake.ActLate(2))
	f.must(f.Delete(f.ctx, f.get("data")))
	for range 3 {
		_ = f.p.look(f.p.disks, "data")
	}
	f.want(f.shows("data"), "Terminating nobody Terminating")
	f.rests()
	if disks := f.allDisks(); len(disks) != 0 {
		t.Errorf("it stays: %+v", disks[0].Status)
	}
	if said := strings.Join(f.said(), "\n"); strings.Contains(said, "DiskLost") {
		t.Errorf("the events are %s", said)
	}
}
