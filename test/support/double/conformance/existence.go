package conformance

import (
	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// existence tests what there is before and after power: making, adopting, finding and removing instances.
var existence = []part{
	{"a machine that does not exist", nil, absent},
	{"ensuring twice gives one instance", nil, ensuredTwice},
	{"two machines have an instance each", nil, twoMachines},
	{"the marker finds the instance and the id gives no right to it", nil, marker},
	{"an instance that another owner has marked is left alone", []string{"Foreign"}, foreign},
	{"another's machine of the same name is found and held", []string{"Makes"}, heldBack},
	{"another's machine of the same name is taken over", nil, takenOver},
	{"deleting takes a machine away, twice is success", nil, deleting},
	{"deleting a machine that is on", nil, deletingRunning},
	{"an instance that is being made is made once", []string{"Makes", "Hold"}, making},
	{"an instance whose making lost its reply is made once", []string{"Makes", "LoseReply"}, makingUnseen},
}

func absent(s *suite) {
	m := s.Machine(s.T, "absent")
	want := func(what string) {
		s.Helper()
		if seen := s.observe(m); seen.Exists || !seen.Quiet() {
			s.Errorf("%s: got %+v, want a machine that does not exist", what, seen)
		}
	}
	want("at first")
	for _, c := range s.calls() {
		switch c.verb {
		case runtime.VerbPowerOn, runtime.VerbPowerOff, runtime.VerbMigrate:
			s.wants(runtime.IsNotFound, c.do(s.ctx, s.Runtime, m), "NotFound", string(c.verb))
		case runtime.VerbCancel, runtime.VerbDelete, runtime.VerbObserve:
			s.must(c.do(s.ctx, s.Runtime, m), string(c.verb))
		}
		want("after " + string(c.verb))
	}
	s.wants(runtime.IsNotFound, s.Runtime.PowerOff(s.ctx, s.known(m), runtime.Graceful), "NotFound", "shutting down")
}

func ensuredTwice(s *suite) {
	m := s.Machine(s.T, "twice")
	first := s.ensure(m)
	was := s.quiet(m)
	if !was.Exists || was.InstanceID != first || was.Power != v1alpha1.PowerStopped {
		s.Errorf("got %+v, want instance %s, off", was, first)
	}
	if second := s.ensure(m); second != first {
		s.Errorf("the second Ensure gave %s, the first %s", second, first)
	}
	m.InstanceID = first
	if third := s.ensure(m); third != first {
		s.Errorf("an Ensure that knew the instance %s gave %s", first, third)
	}
	s.stays(m, was)
	running := s.on(m)
	s.ensure(m)
	s.stays(m, running)
	s.countsOne(m)
}

// countsOne fails the part if the machine has more or fewer than one instance, where that can be counted.
func (s *suite) countsOne(m runtime.Machine) {
	s.Helper()
	if s.Instances == nil {
		s.Log("instances are not counted: the harness has no Instances")
		return
	}
	if got := s.Instances(s.T, m); got != 1 {
		s.Errorf("got %d instances, want one", got)
	}
}

func twoMachines(s *suite) {
	a, b := s.made("a"), s.made("b")
	was := s.quiet(b)
	if seen := s.on(a); seen.InstanceID == was.InstanceID {
		s.Errorf("both machines have the instance %s", seen.InstanceID)
	}
	s.stays(b, was)
	s.off(a)
	s.must(s.Runtime.Delete(s.ctx, s.known(a)), "deleting")
	s.until(a, "gone", func(o runtime.Observation) bool { return !o.Exists })
	s.stays(b, was)
}

func marker(s *suite) {
	m := s.made("marked")
	was := s.on(m)
	known := m
	known.InstanceID = was.InstanceID
	s.stays(known, was)

	// Another VirtualMachine of the same name, or one whose status was tampered with.
	other := known
	other.UID = m.UID + "-other"
	for _, c := range s.calls() {
		s.wants(runtime.IsOwnedByAnother, c.do(s.ctx, s.Runtime, other), "OwnedByAnother", string(c.verb))
	}
	s.stays(m, was)
}

func foreign(s *suite) {
	m, untouched := s.Foreign(s.T)
	for range 2 {
		for _, c := range s.calls() {
			s.wants(runtime.IsOwnedByAnother, c.do(s.ctx, s.Runtime, m), "OwnedByAnother", string(c.verb))
			s.advance(m)
			s.must(untouched(), "looking at the other owner's machine after "+string(c.verb))
		}
	}
	s.wants(runtime.IsOwnedByAnother, s.Runtime.PowerOff(s.ctx, s.known(m), runtime.Graceful), "OwnedByAnother", "shutting down")
	s.must(untouched(), "looking at the other owner's machine after a shutdown")
}

// restored is the machine of a VirtualMachine that was restored from a backup: of the same name, with another UID and no status.
func restored(m runtime.Machine, earlier runtime.Earlier) runtime.Machine {
	m.UID, m.InstanceID, m.Earlier = m.UID+"-restored", "", earlier
	return m
}

// A restored backup does not double machines: velero#2554, cluster-api#5957, crossplane#1410.
func heldBack(s *suite) {
	m := s.made("restored")
	was := s.on(m)
	again := restored(m, "")
	for range 2 {
		_, err := s.Runtime.Ensure(s.ctx, s.known(again))
		s.wants(runtime.IsOwnedByAnother, err, "OwnedByAnother", "ensuring")
		s.advance(again)
	}
	s.stays(m, was)
	s.countsNone(again)
	if err := s.Runtime.Delete(s.ctx, s.known(again)); err != nil {
		s.wants(runtime.IsOwnedByAnother, err, "success or OwnedByAnother", "deleting what was held back")
	}
	s.stays(m, was)
	anew := restored(m, runtime.MakeAnew)
	if id := s.ensure(anew); id == was.InstanceID {
		s.Errorf("the other machine was made as %s, which is the first", id)
	}
	s.stays(m, was)
	s.countsOne(anew)
	s.gone(anew)
	s.stays(m, was)
}

// countsNone fails the part if the machine has an instance, where that can be counted.
func (s *suite) countsNone(m runtime.Machine) {
	s.Helper()
	if s.Instances != nil && s.Instances(s.T, m) != 0 {
		s.Errorf("%s has an instance", m)
	}
}

// What is taken over stays as it is, and its former owner has it no more.
func takenOver(s *suite) {
	m := s.made("taken-over")
	was := s.on(m)
	_, err := s.Runtime.Ensure(s.ctx, s.known(restored(m, "")))
	s.wants(runtime.IsOwnedByAnother, err, "OwnedByAnother", "ensuring")
	heir := restored(m, runtime.TakeOver)
	for range 2 {
		id := s.ensure(heir)
		is := s.quiet(heir)
		if is.InstanceID != id || is.Power != was.Power || is.Incarnation != was.Incarnation || is.NodeName != was.NodeName || is.Adopted != was.Adopted {
			s.Errorf("the instance %+v was taken over as %s, %+v", was, id, is)
		}
	}
	s.countsOne(heir)
	s.countsNone(m)
	if seen, err := s.Runtime.Observe(s.ctx, s.known(m)); err == nil && seen.Exists {
		s.Errorf("the former owner sees %+v", seen)
	} else if err != nil {
		s.wants(runtime.IsOwnedByAnother, err, "OwnedByAnother", "observing")
	}
	s.off(heir)
	s.gone(heir)
}

func deleting(s *suite) {
	m := s.made("deleted")
	s.on(m)
	s.off(m)
	s.gone(m)
	s.must(s.Runtime.Delete(s.ctx, s.known(m)), "deleting again")
	s.wants(runtime.IsNotFound, s.Runtime.PowerOn(s.ctx, s.known(m)), "NotFound", "powering on")
	s.ensure(m)
	s.gone(m)
}

// gone deletes the machine and waits until it does not exist.
func (s *suite) gone(m runtime.Machine) {
	s.Helper()
	s.until(m, "deleted", func(runtime.Observation) bool {
		err := s.Runtime.Delete(s.ctx, s.known(m))
		if s.Makes && runtime.IsInvalidState(err) {
			return false // the task that made it may end a moment after the machine is there
		}
		s.must(err, "deleting")
		return true
	})
	s.until(m, "gone", func(o runtime.Observation) bool { return o.Quiet() && !o.Exists })
	if s.Instances != nil && s.Instances(s.T, m) != 0 {
		s.Error("an instance still carries the marker")
	}
}

// A machine that was made is not deleted while it is on; one that was adopted is released as it is.
func deletingRunning(s *suite) {
	m := s.made("running")
	was := s.on(m)
	err := s.Runtime.Delete(s.ctx, s.known(m))
	if was.Adopted == (err != nil) {
		s.Errorf("an instance that is shown with Adopted %v was deleted with the error %v", was.Adopted, err)
	}
	if err != nil {
		s.wants(runtime.IsInvalidState, err, "InvalidState", "deleting")
		s.stays(m, was)
		return
	}
	s.until(m, "released", func(o runtime.Observation) bool { return o.Quiet() && !o.Exists })
	s.ensure(m)
	if seen := s.quiet(m); seen.Power != v1alpha1.PowerRunning || seen.Incarnation != was.Incarnation {
		s.Errorf("a machine was released as %+v and adopted again as %+v", was, seen)
	}
}

func making(s *suite) {
	m := s.Machine(s.T, "making")
	release := s.Hold(s.T, m, runtime.TaskCreate)
	for range 3 {
		id, err := s.Runtime.Ensure(s.ctx, s.known(m))
		s.must(err, "ensuring")
		if id != "" {
			s.Errorf("an instance that is being made has the ID %s", id)
		}
		s.beingMade(m)
	}
	for _, c := range s.calls() {
		if c.verb == runtime.VerbPowerOn || c.verb == runtime.VerbMigrate {
			s.wants(runtime.IsNotFound, c.do(s.ctx, s.Runtime, m), "NotFound", string(c.verb))
		}
	}
	s.wants(runtime.IsInvalidState, s.Runtime.Delete(s.ctx, s.known(m)), "InvalidState", "deleting")
	s.beingMade(m)
	release()
	s.ensure(m)
	s.countsOne(m)
	s.gone(m)
}

// beingMade fails the part unless the machine is being made, and does not exist yet.
func (s *suite) beingMade(m runtime.Machine) {
	s.Helper()
	seen := s.observe(m)
	if seen.Exists || len(seen.InFlight) != 1 || seen.InFlight[0].Kind != runtime.TaskCreate {
		s.Errorf("got %+v, want one that is being made", seen)
	}
}

func makingUnseen(s *suite) {
	m := s.Machine(s.T, "unseen")
	release := s.Hold(s.T, m, runtime.TaskCreate)
	s.LoseReply(s.T, m, runtime.VerbEnsure)
	if _, err := s.Runtime.Ensure(s.ctx, s.known(m)); !runtime.MayHaveActed(err) {
		s.Errorf("ensuring without a reply: got error %v, want one that may have acted", err)
	}
	s.beingMade(m)
	release()
	s.ensure(m)
	s.countsOne(m)
}
