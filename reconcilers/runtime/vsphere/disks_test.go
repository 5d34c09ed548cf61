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
	"sallyport.dev/sallyport/test/support/race"
)

// home is where the file of a disk belongs.
func home(d runtime.Disk) string { return "[LocalDS_0] sallyport/" + string(d.UID) + ".vmdk" }

// disk gives a disk that is made.
func (w *world) disk(name string) runtime.Disk {
	w.Helper()
	d := diskOf(name)
	id, err := w.runtime.EnsureDisk(w.Context(), d)
	w.Must(err)
	if d.ID = id; id == "" || !w.HasFile(home(d)) {
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

// free fails the test unless the disk is where it belongs, and nobody has it.
func (w *world) free(d runtime.Disk) {
	w.Helper()
	seen := w.seen(d)
	want := runtime.DiskObservation{Exists: true, ID: d.ID, Home: seen.Home, Bytes: d.Bytes()}
	if diff := cmp.Diff(want, seen); diff != "" || !w.HasFile(home(d)) {
		w.Errorf("the disk is not free, and where it belongs (-want +got):\n%s", diff)
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

// What vCenter has moved into the machine's own folder is destroyed with the machine, unless it is known for what it is.
func TestDestroyingAMachineWhoseDiskWasMoved(t *testing.T) {
	race.Skip(t)
	w := newWorld(t)
	m, d := w.holding()
	other := w.disk("other")
	w.Must(w.runtime.Attach(w.Context(), m, other))
	path := w.path(m)
	moved := w.MoveDisk(path, home(d))
	own := w.Hardware(path).Files[0]
	if seen := w.seen(d); !slices.Equal(seen.AttachedTo, []string{string(m.UID)}) || seen.ID != d.ID || seen.Bytes != d.Bytes() {
		t.Errorf("the disk at %s is %+v", moved, seen)
	}
	if _, err := w.runtime.EnsureDisk(w.Context(), d); err != nil {
		t.Errorf("ensuring a disk that was moved: %v", err)
	}
	w.invalid(w.runtime.DeleteDisk(w.Context(), d), "deleted", m.Name)
	w.Must(w.runtime.Delete(w.Context(), with(m, d, other)))
	w.Eventually("the machine to be gone", func() bool {
		seen, err := w.runtime.Observe(w.Context(), m)
		return err == nil && !seen.Exists
	})
	w.free(d)
	w.free(other)
	if w.HasFile(moved) || w.HasFile(own) {
		t.Error("files of the machine are left")
	}
}

// On its way back to where it belongs a disk is nobody else's, however often that is interrupted.
func TestDetachingADiskThatWasMoved(t *testing.T) {
	race.Skip(t)
	for name, trouble := range map[string]func(w *world){
		"without trouble":      func(*world) {},
		"the move fails":       func(w *world) { w.faults.Refuse(&types.FileLocked{}, "MoveVirtualDisk_Task") },
		"the move is not seen": func(w *world) { w.faults.LoseReply("MoveVirtualDisk_Task") },
		"the mark stays": func(w *world) {
			w.faults.Before(func() {}, "ReconfigVM_Task")
			w.faults.Refuse(&types.ConcurrentAccess{}, "ReconfigVM_Task")
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			m, d := w.holding()
			other := w.ensure(w.cloned("other"))
			w.MoveDisk(w.path(m), home(d))
			trouble(w)
			err := w.runtime.Detach(w.Context(), with(m, d), d.UID)
			if err != nil {
				if seen := w.observe(m); len(seen.Disks) != 1 {
					t.Errorf("after %v the machine has %v", err, seen.Disks)
				}
				if seen := w.seen(d); seen.Bytes != d.Bytes() || len(seen.AttachedTo) != 1 && !w.HasFile(home(d)) {
					t.Errorf("after %v the disk is %+v", err, seen)
				}
				w.Must(w.runtime.Detach(w.Context(), with(m, d), d.UID))
			}
			if seen := w.observe(m); len(seen.Disks) != 0 {
				t.Errorf("the machine has %v", seen.Disks)
			}
			w.free(d)
			w.Must(w.runtime.Attach(w.Context(), other, d))
		})
	}
}

// A disk whose file is nowhere keeps its mark: somebody has to say that it is gone for good.
func TestDetachingADiskThatIsNowhere(t *testing.T) {
	w := newWorld(t)
	m, d := w.holding()
	moved := w.MoveDisk(w.path(m), home(d))
	w.faults.Before(func() { w.RemoveFile(moved) }, "MoveVirtualDisk_Task")
	for range 2 {
		w.invalid(w.runtime.Detach(w.Context(), with(m, d), d.UID), moved, vsphere.DiskKey+string(d.UID))
	}
	w.SetExtraConfig(w.path(m), map[string]string{vsphere.DiskKey + string(d.UID): ""})
	w.Must(w.runtime.Detach(w.Context(), with(m, d), d.UID))
	if seen := w.seen(d); seen.Exists {
		t.Errorf("the disk is %+v", seen)
	}
	if _, err := w.runtime.EnsureDisk(w.Context(), d); !runtime.IsNotFound(err) {
		t.Errorf("ensuring a disk that is gone: got error %v, want NotFound", err)
	}
}

// What somebody else has attached is theirs to detach, and is named.
func TestDiskThatSomebodyElseHasAttached(t *testing.T) {
	w := newWorld(t)
	m, theirs, d := w.ensure(w.cloned("web")), w.ensure(w.cloned("theirs")), w.disk("data")
	w.SetExtraConfig(w.path(theirs), map[string]string{vsphere.OwnerKey: ""})
	w.HandAttach(w.path(theirs), home(d))
	if seen := w.seen(d); !slices.Equal(seen.AttachedTo, []string{theirs.InstanceID}) {
		t.Errorf("the disk is %+v", seen)
	}
	w.invalid(w.runtime.Attach(w.Context(), m, d), "theirs", "not by Sallyport")
	w.invalid(w.runtime.DeleteDisk(w.Context(), d), "theirs")
	larger := d
	larger.Spec = d.Spec.DeepCopy()
	larger.Spec.Size = resource.MustParse("1Gi")
	_, err := w.runtime.EnsureDisk(w.Context(), larger)
	w.invalid(err, "theirs")
}

// A machine whose mark somebody has taken away, or spoilt, still lets the disk go, and does not take it along.
func TestDiskWithoutItsMark(t *testing.T) {
	race.Skip(t)
	for name, text := range map[string]string{"taken away": "", "spoilt": "Not a/name", "of something else": "other 1234 datastore-1"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			m, d := w.holding()
			w.SetExtraConfig(w.path(m), map[string]string{vsphere.DiskKey + string(d.UID): text})
			if seen := w.seen(d); len(seen.AttachedTo) != 1 {
				t.Errorf("the disk is %+v", seen)
			}
			w.Must(w.runtime.Detach(w.Context(), with(m, d), d.UID))
			w.free(d)
		})
	}
}

// Attaching what the machine already has, by somebody else's hand, leaves the mark.
func TestAttachingWhatIsAttached(t *testing.T) {
	w := newWorld(t)
	m, d := w.ensure(w.cloned("web")), w.disk("data")
	w.HandAttach(w.path(m), home(d))
	w.Must(w.runtime.Attach(w.Context(), m, d))
	want := []v1alpha1.AttachedDisk{{Name: d.Name, UID: d.UID}}
	if diff := cmp.Diff(want, w.observe(m).Disks); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// What is being made is not taken for nothing: whoever is told so could let go of it.
func TestDiskThatIsBeingMade(t *testing.T) {
	w := newWorld(t)
	d, other := diskOf("data"), w.disk("other")
	release := w.HoldDisks()
	ctx, cancel := context.WithCancel(t.Context())
	made := make(chan error)
	go func() {
		_, err := w.runtime.EnsureDisk(ctx, d)
		made <- err
	}()
	w.Eventually("the disk to be in flight", func() bool { return w.seen(d).InFlight })
	cancel()
	if err := <-made; !runtime.IsUnavailable(err) {
		t.Errorf("got error %v", err)
	}
	if seen := w.seen(d); seen.Exists || !seen.InFlight {
		t.Errorf("the disk is %+v", seen)
	}
	w.invalid(w.runtime.DeleteDisk(t.Context(), d))
	w.free(other)
	release()
	w.Eventually("the disk", func() bool { return w.seen(d).Exists })
	id, err := w.runtime.EnsureDisk(t.Context(), d)
	w.Must(err)
	d.ID = id
	w.free(d)
}

// A datastore that is not there says nothing of the disks on it.
func TestDiskOnADatastoreThatIsNotThere(t *testing.T) {
	w := newWorld(t)
	d := w.disk("data")
	d.Spec.Runtime.VSphere.Datastore = "/DC0/datastore/renamed"
	if _, err := w.runtime.ObserveDisk(t.Context(), d); !runtime.IsInvalidSpec(err) {
		t.Errorf("observing: got error %v", err)
	}
	if _, err := w.runtime.EnsureDisk(t.Context(), d); !runtime.IsInvalidSpec(err) || !strings.Contains(err.Error(), "spec.runtime.vsphere.datastore: ") {
		t.Errorf("ensuring: got error %v", err)
	}
	if err := w.runtime.DeleteDisk(t.Context(), d); !runtime.IsInvalidSpec(err) {
		t.Errorf("deleting: got error %v", err)
	}
}

// vCenter refuses to grow a disk of a machine that has snapshots, and says why.
func TestGrowingADiskUnderSnapshots(t *testing.T) {
	w := newWorld(t)
	m, d := w.holding()
	w.SetSnapshot(w.path(m), true)
	d.Spec.Size = resource.MustParse("128Mi")
	_, err := w.runtime.EnsureDisk(t.Context(), d)
	w.invalid(err, "the disk cannot be grown while machine", "The operation is not allowed in the current state.")
	w.SetSnapshot(w.path(m), false)
	_, err = w.runtime.EnsureDisk(t.Context(), d)
	w.Must(err)
	if seen := w.seen(d); seen.Bytes != d.Bytes() {
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
	turn(1, home(second))
	m.Spec.BlockDeviceRefs[1].BootOrder = new(int32(1))
	turn(1, home(first), home(second))
	turn(0, home(first), home(second))
	m.Spec.BlockDeviceRefs[0].BootOrder = nil
	turn(0, home(first), home(second))
	m.Spec.BlockDeviceRefs = append(m.Spec.BlockDeviceRefs,
		v1alpha1.BlockDeviceRef{Kind: v1alpha1.BlockDeviceVirtualDisk, Name: "not-attached", BootOrder: new(int32(3))})
	turn(0, home(first), home(second))
}

func TestDiskOnVSAN(t *testing.T) {
	w := newWorld(t)
	w.SetVSAN()
	d := diskOf("data")
	id, err := w.runtime.EnsureDisk(t.Context(), d)
	w.Must(err)
	if !slices.Contains(w.faults.Called(), "CreateDirectory") {
		t.Error("the folder was not made as vSAN wants it")
	}
	d.ID = id
	if seen := w.seen(d); !seen.Exists || seen.Bytes != d.Bytes() {
		t.Errorf("the disk is %+v", seen)
	}
	w.Must(w.runtime.DeleteDisk(t.Context(), d))
	if seen := w.seen(d); seen.Exists {
		t.Errorf("the disk is %+v", seen)
	}
}

func TestDiskOfAnotherVCenter(t *testing.T) {
	w := newWorld(t)
	m, d := w.ensure(w.cloned("web")), w.disk("data")
	d.Spec.Runtime.VSphere.ServerRef.Name = "another"
	w.invalid(w.runtime.Attach(t.Context(), m, d), "VSphereServer another")
}

// Two files of a disk are one too many: nobody but a person knows which is good.
func TestDetachingADiskThatIsThereTwice(t *testing.T) {
	w := newWorld(t)
	m, d := w.holding()
	moved := w.MoveDisk(w.path(m), home(d))
	id, err := w.runtime.EnsureDisk(t.Context(), d)
	if err != nil || id != d.ID {
		t.Errorf("ensuring gave %q, with error %v", id, err)
	}
	w.CopyDisk(moved, home(d))
	w.invalid(w.runtime.Detach(t.Context(), with(m, d), d.UID), moved, home(d))
	w.RemoveFile(home(d))
	w.Must(w.runtime.Detach(t.Context(), with(m, d), d.UID))
	w.free(d)
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
		w.runtime.Attach(t.Context(), m, d), w.runtime.Detach(t.Context(), m, other.UID), // as they are, but for how long?
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
	w.SnapshotDisk(w.path(m), home(d))
	if seen := w.observe(m); len(seen.Disks) != 1 {
		t.Errorf("the machine has %v", seen.Disks)
	}
	for _, err := range []error{
		w.runtime.Detach(t.Context(), with(m, d), d.UID), w.runtime.Delete(t.Context(), m),
		w.runtime.DeleteDisk(t.Context(), d), w.runtime.Attach(t.Context(), w.ensure(w.cloned("other")), d),
	} {
		w.invalid(err)
	}
	w.invalid(w.runtime.Detach(t.Context(), with(m, d), d.UID), d.Name, "snapshots")
	if seen := w.observe(m); !seen.Exists || !w.HasFile(home(d)) {
		t.Errorf("the machine is %+v", seen)
	}
}

// Through the sessions a disk has the runtime of its vCenter, as far as its tenants let it.
func TestSessionsOfDisks(t *testing.T) {
	w := newWorld(t)
	var asked []string
	sessions := vsphere.NewSessions(nil, func(_ context.Context, d *v1alpha1.VirtualDisk) error {
		asked = append(asked, d.Name)
		return nil
	}, nil, func(context.Context, runtime.Change) {})
	defer sessions.Close()
	password, _ := w.User().Password()
	_, err := sessions.Connect(t.Context(), "lab", vsphere.Connection{
		URL: w.URL(), CABundle: string(w.CABundle()), Username: w.User().Username(), Password: runtime.Secret(password),
	})
	w.Must(err)
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
			for range 3 {
				id, err := w.runtime.EnsureDisk(t.Context(), d)
				d.ID = id
				_, observed := w.runtime.ObserveDisk(t.Context(), d)
				errs[i] = errors.Join(errs[i], err, observed,
					w.runtime.Attach(t.Context(), m, d), w.runtime.Detach(t.Context(), with(m, d), d.UID))
			}
		})
	}
	group.Wait()
	w.Must(errors.Join(errs...))
}
