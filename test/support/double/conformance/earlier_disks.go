package conformance

import "sallyport.dev/sallyport/reconcilers/runtime"

// restoredDisk is the disk of a VirtualDisk that was restored from a backup: of the same name, with another UID and no status.
func restoredDisk(d runtime.Disk, earlier runtime.Earlier) runtime.Disk {
	d.UID, d.ID, d.Earlier = d.UID+"-r", "", earlier
	return d
}

// ensureDisk has the disk made or taken over, and gives it with its ID.
func (s *suite) ensureDisk(d runtime.Disk) runtime.Disk {
	s.Helper()
	for range steps {
		id, err := s.tryEnsureDisk(d)
		s.must(err, "ensuring the disk")
		if d.ID = id; id != "" {
			return d
		}
	}
	s.Fatal("the disk never has an ID")
	return d
}

// A restored VirtualDisk gets no empty disk in the place of its data: velero#2554.
func diskTakenOver(s *suite) {
	d := s.madeDisk("restored")
	for range 2 {
		_, err := s.tryEnsureDisk(restoredDisk(d, ""))
		s.wants(runtime.IsOwnedByAnother, err, "OwnedByAnother", "ensuring")
	}
	s.diskIs(d)
	anew := s.ensureDisk(restoredDisk(d, runtime.MakeAnew))
	if anew.ID == d.ID {
		s.Errorf("the other disk was made as %s, which is the first", d.ID)
	}
	s.must(s.deleteDisk(anew), "deleting the other disk")
	s.diskIs(d)
	heir := s.ensureDisk(restoredDisk(d, runtime.TakeOver))
	heir.Earlier = ""
	fresh := d
	fresh.ID = ""
	if seen := s.observeDisk(fresh); seen.Exists {
		s.Errorf("the former owner sees %+v", seen)
	}
	s.diskIs(heir)
	s.must(s.deleteDisk(heir), "deleting")
	if seen := s.observeDisk(heir); seen.Exists {
		s.Errorf("a disk that was deleted is %+v", seen)
	}
	again := s.ensureDisk(restoredDisk(restoredDisk(d, ""), "")) // nothing is left that would hold it
	s.must(s.deleteDisk(again), "deleting the last one")
}

func attachedTakenOver(s *suite) {
	m, d := s.made("with-restored"), s.madeDisk("restored")
	was := s.attach(m, d)
	_, err := s.tryEnsureDisk(restoredDisk(d, ""))
	s.wants(runtime.IsOwnedByAnother, err, "OwnedByAnother", "ensuring")
	s.stays(m, was)
	heir := s.ensureDisk(restoredDisk(d, runtime.TakeOver))
	s.forget(m, d.UID)
	s.record(m, heir)
	s.has(m, heir, true)
	s.diskIs(heir, m)
	s.must(s.tryAttach(m, heir), "attaching what is attached")
	s.detach(m, heir)
	s.diskIs(heir)
	s.attach(m, heir)
	s.detach(m, heir)
	s.must(s.deleteDisk(heir), "deleting")
}
