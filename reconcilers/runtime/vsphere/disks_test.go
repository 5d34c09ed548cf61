package vsphere_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vmware/govmomi/vim25/types"
	"k8s.io/apimachinery/pkg/api/resource"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/disk"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/machine"
	"sallyport.dev/sallyport/test/support/double/vcsim"
	"sallyport.dev/sallyport/test/support/race"
)

// fileOf gives where the file of a disk is.
func (w *world) fileOf(d runtime.Disk) string { return w.FCD(d.ID).File }

// disk gives a disk that is made.
func (w *world) disk(name string) runtime.Disk {
	w.Helper()
	d := diskOf(name)
	id, err := w.runtime.EnsureDisk(w.Context(), d)
	w.Must(err)
	if d.ID = id; id == "" || w.FCD(id).Name != "ns-"+name {
		w.Fatalf("the disk %s was not made", name)
	}
	return d
}

// with is the machine as its VirtualDisks have it, which are attached to it.
func with(m runtime.Machine, disks ...runtime.Disk) runtime.Machine {
	m.Disks = disks
	return m
}

// holding gives a machine that is made, and has a disk.
func (w *world) holding() (runtime.Machine, runtime.Disk) {
	w.Helper()
	m, d := w.ensure(w.cloned("web")), w.disk("of-web")
	w.Must(w.runtime.Attach(w.Context(), m, d))
	return m, d
}

func (w *world) seen(d runtime.Disk) runtime.DiskObservation {
	w.Helper()
	seen, err := w.runtime.ObserveDisk(w.Context(), d)
	w.Must(err)
	return seen
}

// free fails the test unless the disk is there, and nobody has it.
func (w *world) free(d runtime.Disk) {
	w.Helper()
	seen := w.seen(d)
	want := runtime.DiskObservation{Exists: true, ID: d.ID, Home: seen.Home, Bytes: d.Bytes()}
	if diff := cmp.Diff(want, seen); diff != "" || !w.HasFile(w.fileOf(d)) {
		w.Errorf("the disk is not free (-want +got):\n%s", diff)
	}
}

func (w *world) invalid(err error, say ...string) {
	w.Helper()
	if !runtime.IsInvalidState(err) || runtime.MayHaveActed(err) {
		w.Errorf("got error %v, want InvalidState", err)
	}
	for _, text := range say {
		if !strings.Contains(runtime.Message(err), text) {
			w.Errorf("got the message %q, which does not say %q", runtime.Message(err), text)
		}
	}
}

// larger is the disk with a larger size in its spec.
func larger(d runtime.Disk) runtime.Disk {
	d.Spec = d.Spec.DeepCopy()
	d.Spec.Size = resource.MustParse("1Gi")
	return d
}

// gone waits until the machine is gone.
func (w *world) gone(m runtime.Machine) {
	w.Helper()
	w.Eventually("the machine to be gone", func() bool {
		seen, err := w.runtime.Observe(w.Context(), m)
		return err == nil && !seen.Exists
	})
}

// Wherever vCenter moves a disk with its machine, it is the same disk: it stays there when it is detached, and is not destroyed with the machine.
func TestDiskThatWasMoved(t *testing.T) {
	race.Skip(t)
	for _, datastore := range []string{"LocalDS_0", "LocalDS_1"} {
		t.Run(datastore, func(t *testing.T) {
			v, err := vcsim.Start(vcsim.Options{Datastores: 2})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(v.Close)
			w := worldOf(t, v)
			m, d := w.holding()
			other := w.disk("other")
			w.Must(w.runtime.Attach(t.Context(), m, other))
			d.Home = w.seen(d).Home
			moved := w.MoveDisk(w.path(m), d.ID, datastore)
			own := w.Hardware(w.path(m)).Files[0]
			if seen := w.seen(d); !slices.Equal(seen.AttachedTo, []string{string(m.UID)}) || seen.ID != d.ID || (seen.Home == d.Home) != (datastore == "LocalDS_0") {
				t.Errorf("the disk at %s is %+v", moved, seen)
			}
			if id, err := w.runtime.EnsureDisk(t.Context(), d); err != nil || id != d.ID {
				t.Errorf("ensuring a disk that was moved: %q, %v", id, err)
			}
			w.invalid(w.runtime.DeleteDisk(t.Context(), d), "deleted", m.Name)
			w.Must(w.runtime.Detach(t.Context(), with(m, d), d.UID))
			w.free(d)
			w.Must(w.runtime.Attach(t.Context(), m, d))
			w.Must(w.runtime.Delete(t.Context(), with(m, d, other)))
			w.gone(m)
			w.free(d)
			w.free(other)
			if w.fileOf(d) != moved || w.HasFile(own) {
				t.Errorf("the disk is at %s, or the machine's own file is left", w.fileOf(d))
			}
			w.Must(w.runtime.DeleteDisk(t.Context(), d))
			if w.seen(d).Exists || w.HasFile(moved) {
				t.Error("the disk is left")
			}
		})
	}
}

// Disks that no VirtualDisk of the machine is, such as those of CSI volumes, are not destroyed with it either, and an administrator who
// destroys a machine in vCenter destroys no VirtualDisk.
func TestDisksSurviveTheirMachine(t *testing.T) {
	w := newWorld(t)
	m, d := w.holding()
	foreign := w.disk("foreign")
	w.HandAttach(w.path(m), w.fileOf(foreign))
	w.Must(w.runtime.Delete(t.Context(), m)) // no status records that it has a disk
	w.gone(m)
	w.free(d)
	w.free(foreign)
	other := w.ensure(w.cloned("other"))
	w.Must(w.runtime.Attach(t.Context(), other, d))
	w.Remove(w.path(other))
	w.free(d)
}

// A machine that is made from a machine or a template with a disk has a copy, and no hold on the disk.
func TestCopyOfADisk(t *testing.T) {
	w := newWorld(t)
	m, d := w.holding()
	w.SetTemplate(w.path(m), true)
	copied := w.cloned("copy")
	cloneOf(copied).Template.InventoryPath = v1alpha1.InventoryPath(w.path(m))
	copied = w.ensure(copied)
	if got := len(w.Hardware(w.path(copied)).Files); got != 2 {
		t.Errorf("the copy has %d disks", got)
	}
	if seen := w.seen(d); !slices.Equal(seen.AttachedTo, []string{string(m.UID)}) {
		t.Errorf("the disk is %+v", seen)
	}
	if seen := w.observe(with(copied, d)); len(seen.Disks) != 0 {
		t.Errorf("the copy has %v", seen.Disks)
	}
	w.Must(w.runtime.Detach(t.Context(), with(copied, d), d.UID))
	w.Must(w.runtime.Delete(t.Context(), with(copied, d)))
	w.gone(copied)
	w.SetTemplate(w.path(m), false)
	w.Must(w.runtime.Detach(t.Context(), with(m, d), d.UID))
	w.free(d)
}

// A disk that vCenter has lost is not made anew, and keeps no machine.
func TestDiskThatIsLost(t *testing.T) {
	w := newWorld(t)
	m, d := w.holding()
	w.Forget(d.ID)
	if seen := w.seen(d); seen.Exists || seen.InFlight {
		t.Errorf("the disk is %+v", seen)
	}
	if _, err := w.runtime.EnsureDisk(t.Context(), d); !runtime.IsNotFound(err) || !strings.Contains(runtime.Message(err), d.ID) {
		t.Errorf("ensuring a disk that is gone: got error %v, want NotFound", err)
	}
	if err := w.runtime.Attach(t.Context(), w.ensure(w.cloned("other")), d); !runtime.IsNotFound(err) {
		t.Errorf("attaching a disk that is gone: got error %v, want NotFound", err)
	}
	w.Must(w.runtime.DeleteDisk(t.Context(), d))
	w.Must(w.runtime.Detach(t.Context(), with(m, d), d.UID))
	if seen := w.observe(with(m, d)); len(seen.Disks) != 0 {
		t.Errorf("the machine has %v", seen.Disks)
	}
	w.Must(w.runtime.Delete(t.Context(), with(m, d)))
	w.gone(m)
}

// What somebody else has attached is theirs to detach, and is named. What vCenter names nobody can see.
func TestDiskThatSomebodyElseHasAttached(t *testing.T) {
	w := newWorld(t)
	m, theirs, d := w.ensure(w.cloned("web")), w.ensure(w.cloned("theirs")), w.disk("data")
	w.SetExtraConfig(w.path(theirs), map[string]string{machine.OwnerKey: ""})
	w.HandAttach(w.path(theirs), w.fileOf(d))
	if seen := w.seen(d); !slices.Equal(seen.AttachedTo, []string{theirs.InstanceID}) {
		t.Errorf("the disk is %+v", seen)
	}
	w.invalid(w.runtime.Attach(t.Context(), m, d), "theirs", "not one of Sallyport")
	w.invalid(w.runtime.DeleteDisk(t.Context(), d), "theirs")
	if _, err := w.runtime.EnsureDisk(t.Context(), larger(d)); err != nil {
		t.Errorf("growing: %v", err)
	}
	w.Unregister(w.path(theirs))
	if seen := w.seen(d); len(seen.AttachedTo) != 1 {
		t.Errorf("the disk is %+v", seen)
	}
	w.invalid(w.runtime.Attach(t.Context(), m, d), "a machine that vCenter does not show")
	w.invalid(w.runtime.DeleteDisk(t.Context(), d), "a machine that vCenter does not show")
}

// The ID that a status records says which disk it is: who writes other marks gets no disk by that, and who removes them takes none away.
func TestMarksOfADisk(t *testing.T) {
	w := newWorld(t)
	m, d := w.holding()
	w.SetMetadata(d.ID, machine.OwnerKey, "")
	if seen := w.seen(d); !slices.Equal(seen.AttachedTo, []string{string(m.UID)}) {
		t.Errorf("without its mark the disk is %+v", seen)
	}
	w.SetMetadata(d.ID, machine.OwnerKey, string(diskOf("data").UID))
	if seen := w.seen(d); seen.Exists {
		t.Errorf("a disk that another VirtualDisk has taken over is %+v", seen)
	}
	w.Must(w.runtime.DeleteDisk(t.Context(), d)) // which is not ours any more
	if w.fileOf(d) == "" {
		t.Error("another's disk was deleted")
	}
	victim, thief := w.disk("victim"), diskOf("thief")
	w.SetMetadata(victim.ID, machine.NameKey, thief.String())
	if _, err := w.runtime.EnsureDisk(t.Context(), thief); !runtime.IsOwnedByAnother(err) {
		t.Errorf("got error %v, want OwnedByAnother", err)
	}
}

// A disk of which a copy of the request was carried out, too, is one of them, and always the same one.
func TestDiskThatWasMadeTwice(t *testing.T) {
	w := newWorld(t)
	d, twin := w.disk("data"), w.disk("twin")
	w.SetMetadata(twin.ID, machine.OwnerKey, string(d.UID))
	lost := d
	lost.ID = ""
	for range 2 {
		if id, err := w.runtime.EnsureDisk(t.Context(), lost); err != nil || id != d.ID {
			t.Errorf("got the disk %q of %s and %s, error %v", id, d.ID, twin.ID, err)
		}
	}
}

// The disk of an earlier VirtualDisk is found on whatever datastore it is, and taken over only where the spec says.
func TestEarlierDiskOnAnotherDatastore(t *testing.T) {
	v, err := vcsim.Start(vcsim.Options{Datastores: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.Close)
	w := worldOf(t, v)
	m, d := w.holding()
	w.MoveDisk(w.path(m), d.ID, "LocalDS_1")
	heir := diskOf(d.Name)
	for earlier, text := range map[runtime.Earlier]string{"": d.ID, runtime.TakeOver: "spec.runtime.vsphere.datastore: disk " + d.ID} {
		heir.Earlier = earlier
		if _, err := w.runtime.EnsureDisk(t.Context(), heir); !runtime.IsOwnedByAnother(err) || !strings.Contains(runtime.Message(err), text) {
			t.Errorf("got error %v, want OwnedByAnother", err)
		}
	}
	heir.Earlier = runtime.TakeOver
	heir.Spec.Runtime.VSphere.Datastore = "/DC0/datastore/LocalDS_1"
	if id, err := w.runtime.EnsureDisk(t.Context(), heir); err != nil || id != d.ID {
		t.Errorf("taking over gave %q, error %v", id, err)
	}
}

// Attaching what the machine already has, by somebody else's hand, is success.
func TestAttachingWhatIsAttached(t *testing.T) {
	w := newWorld(t)
	m, d := w.ensure(w.cloned("web")), w.disk("data")
	w.HandAttach(w.path(m), w.fileOf(d))
	w.Must(w.runtime.Attach(w.Context(), m, d))
	want := []v1alpha1.AttachedDisk{{Name: d.Name, UID: d.UID}}
	if diff := cmp.Diff(want, w.observe(with(m, d)).Disks); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// What is being made is not taken for nothing: whoever is told so could let go of it. It holds up no other disk of this process, of which it
// is known which one it makes; another process waits until it is made.
func TestDiskThatIsBeingMade(t *testing.T) {
	w := newWorld(t)
	d, other := diskOf("data"), diskOf("other")
	release := w.HoldDisks()
	ctx, cancel := context.WithCancel(t.Context())
	made := make(chan error)
	go func() {
		_, err := w.runtime.EnsureDisk(ctx, d)
		made <- err
	}()
	w.Eventually("the disk to be in flight, and known", func() bool { return w.seen(d).InFlight && !w.seen(other).InFlight })
	cancel()
	if err := <-made; !runtime.IsUnavailable(err) {
		t.Errorf("got error %v", err)
	}
	if seen := w.seen(d); seen.Exists || !seen.InFlight {
		t.Errorf("the disk is %+v", seen)
	}
	if id, err := w.runtime.EnsureDisk(t.Context(), d); err != nil || id != "" {
		t.Errorf("ensuring what is being made gave %q, error %v", id, err)
	}
	w.invalid(w.runtime.DeleteDisk(t.Context(), d))
	if seen := w.seen(other); seen.InFlight {
		t.Errorf("another disk is %+v", seen)
	}
	if id, err := disk.New(w.server).EnsureDisk(t.Context(), other); err != nil || id != "" {
		t.Errorf("another process got %q, error %v", id, err)
	}
	release()
	w.Eventually("the disk", func() bool { return w.seen(d).Exists })
	id, err := w.runtime.EnsureDisk(t.Context(), d)
	w.Must(err)
	d.ID = id
	w.free(d)
	if got := len(w.FCDs()); got != 1 {
		t.Errorf("there are %d disks", got)
	}
}

// A datastore that is not there says nothing of the disks on it.
func TestDiskOnADatastoreThatIsNotThere(t *testing.T) {
	w := newWorld(t)
	d, absent := w.disk("data"), diskOf("absent")
	for _, o := range []runtime.Disk{d, absent} {
		o.Spec.Runtime.VSphere.Datastore = "/DC0/datastore/renamed"
	}
	if _, err := w.runtime.EnsureDisk(t.Context(), absent); !runtime.IsInvalidSpec(err) || !strings.Contains(err.Error(), "spec.runtime.vsphere.datastore: ") {
		t.Errorf("ensuring: got error %v", err)
	}
	d.Home = "datastore-0"
	w.free(d)
	w.Must(w.runtime.DeleteDisk(t.Context(), d))
}

// vCenter refuses to grow a disk of a machine that has snapshots, and says why.
func TestGrowingADiskUnderSnapshots(t *testing.T) {
	w := newWorld(t)
	m, d := w.holding()
	w.SetSnapshot(w.path(m), true)
	_, err := w.runtime.EnsureDisk(t.Context(), larger(d))
	w.invalid(err, "the disk cannot be grown while a machine has it", "The operation is not allowed in the current state.")
	w.SetSnapshot(w.path(m), false)
	_, err = w.runtime.EnsureDisk(t.Context(), larger(d))
	w.Must(err)
	if seen := w.seen(d); seen.Bytes != larger(d).Bytes() || !slices.Contains(w.Hardware(w.path(m)).Disks, seen.Bytes) {
		t.Errorf("the disk is %+v", seen)
	}
}

// The disks that a spec names come first, whatever else the machine boots from comes after them, and nothing changes without.
func TestBootOrder(t *testing.T) {
	race.Skip(t)
	w := newWorld(t)
	m, first := w.holding()
	second := w.disk("second")
	w.Must(w.runtime.Attach(t.Context(), m, second))
	m = with(m, first, second)
	path := w.path(m)
	w.SetBootOrder(path)
	own := w.BootOrder(path)
	m.Spec.BlockDeviceRefs = []v1alpha1.BlockDeviceRef{
		{Kind: v1alpha1.BlockDeviceVirtualDisk, Name: second.Name}, {Kind: v1alpha1.BlockDeviceVirtualDisk, Name: first.Name},
	}
	turn := func(differences int, want ...string) {
		t.Helper()
		if seen := w.observe(m); len(seen.Differences) != differences {
			t.Errorf("the differences are %v", seen.Differences)
		}
		if seen := w.on(m); len(seen.Differences) != 0 {
			t.Errorf("after the power-on there are the differences %v", seen.Differences)
		}
		if diff := cmp.Diff(append(want, own...), w.BootOrder(path)); diff != "" {
			t.Errorf("the boot order (-want +got):\n%s", diff)
		}
		w.Must(w.runtime.PowerOff(t.Context(), m, runtime.Forced))
		w.observe(m)
	}
	turn(0)
	m.Spec.BlockDeviceRefs[0].BootOrder = new(int32(2))
	turn(1, w.fileOf(second))
	m.Spec.BlockDeviceRefs[1].BootOrder = new(int32(1))
	turn(1, w.fileOf(first), w.fileOf(second))
	turn(0, w.fileOf(first), w.fileOf(second))
	m.Spec.BlockDeviceRefs[0].BootOrder = nil
	turn(0, w.fileOf(first), w.fileOf(second))
	m.Spec.BlockDeviceRefs = append(m.Spec.BlockDeviceRefs,
		v1alpha1.BlockDeviceRef{Kind: v1alpha1.BlockDeviceVirtualDisk, Name: "not-attached", BootOrder: new(int32(3))})
	turn(0, w.fileOf(first), w.fileOf(second))
}

func TestDiskOfAnotherVCenter(t *testing.T) {
	w := newWorld(t)
	m, d := w.ensure(w.cloned("web")), w.disk("data")
	d.Spec.Runtime.VSphere.ServerRef.Name = "another"
	w.invalid(w.runtime.Attach(t.Context(), m, d), "VSphereServer another")
}

// Of a change of the configuration that somebody else has begun nobody knows what it changes.
func TestDiskDuringAForeignChange(t *testing.T) {
	race.Skip(t)
	w := newWorld(t)
	m, d := w.holding()
	other := w.disk("other")
	path := w.path(m)
	release := w.Hold(path, runtime.TaskReconfigure)
	w.Begin(path, runtime.TaskReconfigure, &types.TaskReasonUser{UserName: `LAB\somebody`})
	seen, err := w.runtime.Observe(t.Context(), m)
	w.Must(err)
	if len(seen.InFlight) != 1 || seen.InFlight[0].Kind != runtime.TaskReconfigure || seen.InFlight[0].Ours || seen.InFlight[0].By == "" {
		t.Errorf("in flight is %+v", seen.InFlight)
	}
	for _, err := range []error{
		w.runtime.Attach(t.Context(), m, d), w.runtime.Detach(t.Context(), with(m, other), other.UID), // as they are, but for how long?
	} {
		w.invalid(err, "Reconfigure")
	}
	release()
	w.observe(m)
	w.Must(w.runtime.Attach(t.Context(), m, other))
}

// What was written since a snapshot is not in the disk's own file: the machine keeps the disk, and stays.
func TestDiskUnderASnapshot(t *testing.T) {
	w := newWorld(t)
	m, d := w.holding()
	w.SnapshotDisk(w.path(m), w.fileOf(d))
	if seen := w.observe(with(m, d)); len(seen.Disks) != 1 {
		t.Errorf("the machine has %v", seen.Disks)
	}
	for _, err := range []error{
		w.runtime.Detach(t.Context(), with(m, d), d.UID), w.runtime.Delete(t.Context(), with(m, d)),
		w.runtime.DeleteDisk(t.Context(), d), w.runtime.Attach(t.Context(), w.ensure(w.cloned("other")), d),
	} {
		w.invalid(err)
	}
	w.invalid(w.runtime.Detach(t.Context(), with(m, d), d.UID), d.Name, "snapshots")
	if seen := w.observe(with(m, d)); !seen.Exists || !w.HasFile(w.fileOf(d)) {
		t.Errorf("the machine is %+v", seen)
	}
}

// A disk that no VirtualDisk of the machine is would lose its data with the snapshots: the machine stays until they are deleted, with all its
// disks.
func TestForeignDiskUnderASnapshot(t *testing.T) {
	w := newWorld(t)
	m, d := w.holding()
	other := w.disk("other")
	w.SnapshotDisk(w.path(m), w.fileOf(d))
	w.Must(w.runtime.Attach(t.Context(), m, other))
	for _, err := range []error{w.runtime.Delete(t.Context(), with(m, other)), w.runtime.Delete(t.Context(), m)} { // no status records d, or any
		w.invalid(err, "snapshots", "vCenter")
	}
	if has := w.Disks(w.path(m)); !slices.Contains(has, d.ID) || !slices.Contains(has, other.ID) || !w.HasFile(w.fileOf(d)) {
		t.Errorf("the machine has %v", has)
	}
	w.Consolidate(w.path(m))
	w.Must(w.runtime.Delete(t.Context(), m))
	w.gone(m)
	w.free(d)
	w.free(other)
}

// The files to which snapshots refer go with the machine, also those of a disk that somebody has detached since.
func TestDiskThatOnlyASnapshotHas(t *testing.T) {
	w := newWorld(t)
	m := w.ensure(w.cloned("web"))
	w.SetSnapshot(w.path(m), true)
	d := w.disk("data")
	w.Must(w.runtime.Attach(t.Context(), m, d))
	w.SetSnapshot(w.path(m), true) // below the first one
	w.HandDetach(w.path(m), d.ID)
	w.invalid(w.runtime.Delete(t.Context(), m), "snapshots", "vCenter")
	w.free(d)
	w.Consolidate(w.path(m))
	w.Must(w.runtime.Delete(t.Context(), m))
	w.gone(m)
	w.free(d)
}

// A machine whose snapshots hold only what is its own is destroyed with them.
func TestSnapshotsOfOwnDisks(t *testing.T) {
	w := newWorld(t)
	m := w.ensure(w.cloned("web"))
	w.SnapshotDisk(w.path(m), w.Hardware(w.path(m)).Files[0])
	d := w.disk("data")
	w.Must(w.runtime.Attach(t.Context(), m, d))
	w.Must(w.runtime.Delete(t.Context(), with(m, d)))
	w.gone(m)
	w.free(d)
}

// A disk can rest on another file without a snapshot: after a snapshot was deleted in part it must be consolidated first, and else it is whole,
// such as one that somebody has made as a linked clone.
func TestDiskThatRestsOnAnother(t *testing.T) {
	w := newWorld(t)
	m, d := w.holding()
	w.LayerDisk(w.path(m), w.fileOf(d), true)
	for _, err := range []error{w.runtime.Detach(t.Context(), with(m, d), d.UID), w.runtime.Delete(t.Context(), with(m, d))} {
		w.invalid(err, d.Name, "Consolidate", "vCenter")
	}
	w.Consolidate(w.path(m))
	w.LayerDisk(w.path(m), w.fileOf(d), false)
	w.Must(w.runtime.Detach(t.Context(), with(m, d), d.UID))
	w.free(d)
}

// Through the sessions a disk has the runtime of its vCenter, as far as its tenants let it.
func TestSessionsOfDisks(t *testing.T) {
	w := newWorld(t)
	var asked []string
	sessions := w.connected(vsphere.NewSessions(nil, func(_ context.Context, d *v1alpha1.VirtualDisk) error {
		asked = append(asked, d.Name)
		return nil
	}, nil, func(context.Context, runtime.Change) {}))
	d := diskOf("data")
	disk := &v1alpha1.VirtualDisk{Spec: *d.Spec}
	disk.Namespace, disk.Name, disk.UID = d.Namespace, d.Name, d.UID
	client, err := sessions.DiskRuntime(t.Context(), disk)
	w.Must(err)
	w.Must(runtime.UseDisk(t.Context(), client, runtime.VerbEnsureDisk, d, runtime.Machine{}, func(ctx context.Context, able runtime.Disks) (err error) {
		d.ID, err = able.EnsureDisk(ctx, d)
		return err
	}))
	w.free(d)
	if !slices.Equal(asked, []string{"data"}) {
		t.Errorf("the tenants were asked about %v", asked)
	}
	disk.Spec.Runtime.VSphere = nil
	if _, err := sessions.DiskRuntime(t.Context(), disk); !runtime.IsNotSupported(err) {
		t.Errorf("a disk of no vCenter: got error %v", err)
	}
}

// Many look at the same datastore, and change machines on it, at once.
func TestDisksAtOnce(t *testing.T) {
	w := newWorld(t)
	const n = 4
	machines := make([]runtime.Machine, n)
	for i := range machines {
		machines[i] = w.ensure(w.cloned("web-" + strconv.Itoa(i)))
	}
	var group sync.WaitGroup
	errs := make([]error, n)
	for i, m := range machines {
		group.Go(func() {
			d := diskOf("data-" + strconv.Itoa(i))
			for made := 0; made < 3 && errs[i] == nil; {
				id, err := w.runtime.EnsureDisk(t.Context(), d)
				if errs[i] = err; id == "" { // a creation that has just begun may be this one
					continue
				}
				made++
				d.ID = id
				_, observed := w.runtime.ObserveDisk(t.Context(), d)
				errs[i] = errors.Join(err, observed, w.runtime.Attach(t.Context(), m, d), w.runtime.Detach(t.Context(), with(m, d), d.UID))
			}
		})
	}
	group.Wait()
	w.Must(errors.Join(errs...))
	if got := len(w.FCDs()); got != n {
		t.Errorf("there are %d disks", got)
	}
}

// The catalog of the disks shares the session of vCenter, also when vCenter has ended it, and its faults are those of vCenter.
func TestCatalogOfDisks(t *testing.T) {
	w := newWorld(t)
	d := w.disk("data")
	w.ExpireSessions()
	w.free(d)
	w.faults.Fail(errors.New("the network is down"), "VslmRetrieveVStorageObject")
	if _, err := w.runtime.ObserveDisk(t.Context(), d); !runtime.IsUnavailable(err) {
		t.Errorf("got error %v, want Unavailable", err)
	}
	w.faults.Refuse(&types.NoPermission{PrivilegeId: "Datastore.FileManagement"}, "VslmRetrieveVStorageObjectMetadata")
	if _, err := w.runtime.ObserveDisk(t.Context(), d); !runtime.IsPermission(err) || !strings.Contains(runtime.Message(err), "Datastore.FileManagement") {
		t.Errorf("got error %v, want Permission", err)
	}
	w.free(d)
}

// vCenter attaches a disk that a backup tracks only to machines that it tracks, and does not say that.
func TestDiskWithChangedBlockTracking(t *testing.T) {
	w := newWorld(t)
	m, other, d := w.ensure(w.cloned("web")), w.ensure(w.cloned("other")), w.disk("data")
	w.Must(w.runtime.Attach(t.Context(), m, d))
	w.Track(w.path(m))
	w.Must(w.runtime.Detach(t.Context(), m.With(d), d.UID))
	w.invalid(w.runtime.Attach(t.Context(), other, d), "Changed block tracking is on for it", "ctkEnabled=TRUE")
	w.Track(w.path(other))
	w.Must(w.runtime.Attach(t.Context(), other, d))
}

// A machine whose controller is full gets another one.
func TestMoreDisksThanAControllerTakes(t *testing.T) {
	race.Skip(t)
	w := newWorld(t)
	m := w.ensure(w.cloned("web"))
	for i := range 17 {
		d := w.disk("data-" + strconv.Itoa(i))
		w.Must(w.runtime.Attach(t.Context(), m, d))
		m = m.With(d)
	}
	if seen := w.observe(m); len(seen.Disks) != 17 {
		t.Errorf("the machine has %d disks", len(seen.Disks))
	}
	w.Must(w.runtime.Delete(t.Context(), m))
	w.gone(m)
	for _, d := range m.Disks {
		w.free(d)
	}
}
