package conformance

import (
	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// fixedDisks tests runtimes whose machines have the disks that they were made with.
var fixedDisks = []part{
	{"a machine is not made before it has its disks", []string{"FixedDisk"}, madeWithDisks},
	{"a machine keeps the disks that it was made with", []string{"FixedDisk"}, keepsDisks},
	{"a disk that another machine has is not attached to a second", []string{"FixedDisk"}, fixedTaken},
	{"deleting a machine frees the disks that it was made with", []string{"FixedDisk", "Makes"}, fixedOutlives},
	{"an attachment before the machine is made is repeated if its reply was lost", []string{"FixedDisk", "LoseReply"}, fixedUnseen},
	{"a machine is moved with the disks that it was made with", append(hibernates, "FixedDisk"), movesWithDisks},
}

// naming is a machine whose spec names the disks.
func (s *suite) naming(name string, disks ...runtime.Disk) runtime.Machine {
	m := s.Machine(s.T, name)
	m.Spec = m.Spec.DeepCopy()
	for _, d := range disks {
		m.Spec.BlockDeviceRefs = append(m.Spec.BlockDeviceRefs, v1alpha1.BlockDeviceRef{Kind: v1alpha1.BlockDeviceVirtualDisk, Name: d.Name})
	}
	return m
}

// with gives a machine that was made with the disks.
func (s *suite) with(name string, disks ...runtime.Disk) runtime.Machine {
	s.Helper()
	m := s.naming(name, disks...)
	for _, d := range disks {
		s.must(s.tryAttach(m, d), "attaching")
	}
	s.ensure(m)
	return m
}

func madeWithDisks(s *suite) {
	a, b := s.madeDisk("first"), s.madeDisk("second")
	m := s.naming("with-two", a, b)
	for _, d := range []runtime.Disk{a, b} {
		_, err := s.Runtime.Ensure(s.ctx, s.known(m))
		s.wants(runtime.IsInvalidState, err, "InvalidState", "ensuring a machine that lacks a disk")
		for range 2 {
			s.must(s.tryAttach(m, d), "attaching")
			s.has(m, d, true)
		}
	}
	for range 2 {
		s.must(s.tryDetach(m, b.UID), "detaching")
		s.has(m, b, false)
		s.has(m, a, true)
	}
	if seen := s.observe(m); seen.Exists {
		s.Errorf("a machine that was never ensured is seen as %+v", seen)
	}
	s.diskIs(a)
	s.attach(m, b)
	s.ensure(m)
	s.has(m, a, true)
	s.has(m, b, true)
	s.diskIs(a, m)
	s.diskIs(b, m)
}

func keepsDisks(s *suite) {
	d, other := s.madeDisk("kept"), s.madeDisk("later")
	m := s.with("keeping", d)
	for range 2 {
		s.on(m)
		s.has(m, d, true)
		s.off(m)
		was := s.has(m, d, true)
		s.must(s.tryAttach(m, d), "attaching what it has")
		s.must(s.tryDetach(m, other.UID), "detaching what it does not have")
		s.wants(runtime.IsInvalidState, s.tryAttach(m, other), "InvalidState", "attaching another disk")
		s.wants(runtime.IsInvalidState, s.tryDetach(m, d.UID), "InvalidState", "detaching")
		s.wants(runtime.IsInvalidState, s.deleteDisk(d), "InvalidState", "deleting a disk that is attached")
		s.stays(m, was)
	}
	s.diskIs(d, m)
	s.diskIs(other)
}

func fixedTaken(s *suite) {
	d := s.madeDisk("taken")
	m, second := s.with("holder", d), s.naming("taker", d)
	s.wants(runtime.IsInvalidState, s.tryAttach(second, d), "InvalidState", "attaching what another machine has")
	s.must(s.tryDetach(second, d.UID), "detaching what another machine has")
	s.diskIs(d, m)
	if seen := s.observe(second); len(seen.Disks) > 0 {
		s.Errorf("two machines have the disk %v", seen.Disks)
	}
}

func fixedOutlives(s *suite) {
	d := s.madeDisk("outliving")
	m := s.with("mortal", d)
	s.on(m)
	s.off(m)
	s.gone(m)
	s.diskIs(d)
	next := s.with("next", d)
	s.has(next, d, true)
	s.diskIs(d, next)
	s.gone(next)
	s.must(s.deleteDisk(d), "deleting")
}

func fixedUnseen(s *suite) {
	d := s.madeDisk("unseen")
	m := s.naming("unseen", d)
	s.LoseReply(s.T, m, runtime.VerbAttach)
	s.lost(s.tryAttach(m, d), "attaching")
	s.attach(m, d)
	s.LoseReply(s.T, m, runtime.VerbDetach)
	s.lost(s.tryDetach(m, d.UID), "detaching")
	s.detach(m, d)
}

func movesWithDisks(s *suite) {
	d, other := s.madeDisk("moved"), s.madeDisk("wanted-later")
	m := s.with("moved-with-disk", d)
	s.on(m)
	m, was := s.leaving(m, "move-of-moved-with-disk", s.OtherNode(s.T, m))
	m = in(s.asleep(m), v1alpha1.MigrationRelease)
	s.must(s.able(runtime.VerbRelease, m), "releasing")
	s.travels(m, was)
	s.has(m, d, true)
	s.wants(runtime.IsInvalidState, s.tryDetach(m, d.UID), "InvalidState", "detaching from a machine that is on no node")
	s.wants(runtime.IsInvalidState, s.tryAttach(m, other), "InvalidState", "attaching to a machine that is on no node")
	lost := in(m, v1alpha1.MigrationRestore)
	lost.Migration.Disks = append(lost.Migration.Disks, v1alpha1.AttachedDisk{Name: "deleted", UID: "uid-of-deleted"})
	s.wants(runtime.IsInvalidState, s.able(runtime.VerbRestore, lost), "InvalidState", "restoring without a disk")
	s.becomes(m, runtime.InstanceGone)
	without := m
	without.Spec = m.Spec.DeepCopy()
	without.Spec.BlockDeviceRefs = nil
	without = in(without, v1alpha1.MigrationRestore)
	seen := s.restores(without)
	s.arrived(without, was, seen)
	s.has(without, d, true)
	s.diskIs(d, without)
}
