package vsphere_test

import (
	"path"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere"
)

// victim gives the file of the disk of somebody else's machine, and its UUID.
func (w *world) victim() (file, uuid string) {
	w.Helper()
	path := w.path(w.ensure(w.cloned("victim")))
	return w.Hardware(path).Files[0], w.DeviceUUID(path)
}

// Whoever may edit a machine in vCenter can write any mark. It moves no file but that of a disk that is attached to the machine.
func TestForgedMarksMoveNothing(t *testing.T) {
	for name, mark := range map[string]func(d runtime.Disk, file, uuid string) (disk types.UID, text string){
		"a path, for a disk of the machine": func(d runtime.Disk, file, uuid string) (types.UID, string) {
			return d.UID, d.Name + " " + uuid + " datastore-46 1000 " + file
		},
		"a path, for a disk that has the UUID": func(d runtime.Disk, file, uuid string) (types.UID, string) {
			return d.UID, d.Name + " " + d.ID + " datastore-46 1000 " + file
		},
		"a path, for no disk at all": func(d runtime.Disk, file, uuid string) (types.UID, string) {
			return "u-1", "data " + uuid + " datastore-46 1000 " + file
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			file, uuid := w.victim()
			m, d := w.holding()
			w.Must(w.runtime.Detach(t.Context(), with(m, d), d.UID))
			disk, text := mark(d, file, uuid)
			w.SetExtraConfig(w.path(m), map[string]string{vsphere.DiskKey + string(disk): text})
			w.invalid(w.runtime.Detach(t.Context(), with(m, d), disk))
			w.invalid(w.runtime.Delete(t.Context(), with(m, d)))
			if !w.HasFile(file) || !w.observe(m).Exists {
				t.Errorf("%s was moved, or the machine was destroyed", file)
			}
			w.free(d) // the mark says nothing about the disk either
		})
	}
}

// A copy of the disk may have its UUID: only what is in the machine's own folder is moved.
func TestOnlyTheMachinesOwnFolderIsMovedFrom(t *testing.T) {
	w := newWorld(t)
	file, _ := w.victim()
	m, d := w.holding()
	w.Must(w.runtime.Detach(t.Context(), with(m, d), d.UID))
	w.RemoveFile(home(d))
	w.SetDiskUUID(file, d.ID)
	w.SetExtraConfig(w.path(m), map[string]string{vsphere.DiskKey + string(d.UID): d.Name + " " + d.ID + " datastore-46 1000 " + file})
	w.invalid(w.runtime.Detach(t.Context(), with(m, d), d.UID), file, "folder")
	if !w.HasFile(file) {
		t.Errorf("%s was moved", file)
	}
}

// A device of the machine that only a mark calls a VirtualDisk is neither moved, nor grown, nor destroyed as one.
func TestForgedMarkOfADevice(t *testing.T) {
	w := newWorld(t)
	m := w.ensure(w.cloned("web"))
	d := w.disk("data")
	file, uuid := w.Hardware(w.path(m)).Files[0], w.DeviceUUID(w.path(m))
	before := w.Hardware(w.path(m)).Disks[0]
	w.SetExtraConfig(w.path(m), map[string]string{vsphere.DiskKey + string(d.UID): d.Name + " " + uuid + " datastore-46"})
	w.invalid(w.runtime.Detach(t.Context(), with(m, d), d.UID), d.Name)
	w.invalid(w.runtime.Detach(t.Context(), m, d.UID), d.Name, vsphere.DiskKey+string(d.UID))
	w.free(d)
	d.Spec.Size = resource.MustParse("2Gi")
	if _, err := w.runtime.EnsureDisk(t.Context(), d); err != nil {
		t.Errorf("growing: %v", err)
	}
	if after := w.Hardware(w.path(m)).Disks[0]; after != before {
		t.Errorf("%s had %d bytes, and has %d", file, before, after)
	}
	w.Must(w.runtime.DeleteDisk(t.Context(), d))
	if !w.HasFile(file) {
		t.Errorf("%s was destroyed", file)
	}
}

// A file in the place of a disk that is not the disk is held: it is neither attached nor grown nor destroyed.
func TestAnotherFileInThePlaceOfADisk(t *testing.T) {
	w := newWorld(t)
	m, d := w.ensure(w.cloned("web")), w.disk("data")
	w.SetDiskUUID(home(d), "60 00 C2 98 5e b5 b8 1c-90 41 6f f6 06 53 9c 7b")
	w.invalid(w.runtime.Attach(t.Context(), m, d), "attached", home(d), d.ID)
	w.invalid(w.runtime.DeleteDisk(t.Context(), d), "deleted", home(d), d.ID)
	larger := d
	larger.Spec = d.Spec.DeepCopy()
	larger.Spec.Size = resource.MustParse("1Gi")
	_, err := w.runtime.EnsureDisk(t.Context(), larger)
	w.invalid(err, "grown")
	if !w.HasFile(home(d)) {
		t.Error("the file is gone")
	}
	w.RemoveFile(home(d)) // the way out
	w.Must(w.runtime.DeleteDisk(t.Context(), d))
}

// A datastore that takes the name of the one that the disk was made on is not that one.
func TestAnotherDatastoreOfTheName(t *testing.T) {
	w := newWorld(t)
	m, d := w.ensure(w.cloned("web")), w.disk("data")
	d.Home = w.seen(d).Home
	w.free(d)
	d.Home = "datastore-0"
	for _, err := range []error{w.runtime.Attach(t.Context(), m, d), w.runtime.DeleteDisk(t.Context(), d)} {
		w.invalid(err, "spec.runtime.vsphere.datastore", "datastore-0")
	}
}

// A copy of a machine has its marks, and copies of its disks: the disk itself is free once its machine has let it go.
func TestCopyOfAMachineHasNoHoldOnItsDisk(t *testing.T) {
	w := newWorld(t)
	m, d := w.holding()
	attacker := w.ensure(w.cloned("copy"))
	copied := path.Dir(w.Hardware(w.path(attacker)).Files[0]) + "/copied.vmdk"
	w.Must(w.runtime.Detach(t.Context(), with(m, d), d.UID))
	w.CopyDisk(home(d), copied)
	w.SetDiskUUID(copied, d.ID)
	w.HandAttach(w.path(attacker), copied)
	w.SetExtraConfig(w.path(attacker), map[string]string{vsphere.DiskKey + string(d.UID): d.Name + " " + d.ID + " datastore-46"})
	w.free(d)
	w.Must(w.runtime.Attach(t.Context(), m, d))
	if seen := w.seen(d); !slices.Equal(seen.AttachedTo, []string{string(m.UID)}) {
		t.Errorf("the disk is %+v", seen)
	}
}

// Without its mark a disk that vCenter has moved into the machine's own folder is not destroyed with the machine.
func TestDestroyingAMachineWhoseMarkIsGone(t *testing.T) {
	w := newWorld(t)
	m, d := w.holding()
	w.MoveDisk(w.path(m), home(d))
	w.SetExtraConfig(w.path(m), map[string]string{vsphere.DiskKey + string(d.UID): ""})
	w.Must(w.runtime.Delete(t.Context(), with(m, d)))
	w.Eventually("the machine to be gone", func() bool {
		seen, err := w.runtime.Observe(t.Context(), m)
		return err == nil && !seen.Exists
	})
	w.free(d)
}
