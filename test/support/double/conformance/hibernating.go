package conformance

import (
	"context"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// Registry is what a test can do to the registry behind a [runtime.Hibernator].
type Registry struct {
	// Digest is that of the snapshot of the machine's Migration, and empty if there is none.
	Digest func(t *testing.T, machine runtime.Machine) string
	// Replace puts another in its place.
	Replace func(t *testing.T, machine runtime.Machine)
	// Lose removes it.
	Lose func(t *testing.T, machine runtime.Machine)
}

// hibernating tests runtimes that move a machine by hibernation.
var hibernating = []part{
	{"a machine is put into a snapshot and woken", hibernates, sleepAndWake},
	{"a machine that is off is off again when it is woken", hibernates, sleepOff},
	{"a hibernation in flight is joined, and withdrawn", append(hibernates, "Hold"), hibernateInFlight},
	{"an instance is removed only if it is asleep with its snapshot proven", hibernates, releaseGates},
	{"a machine is restored on another node", hibernates, restoreElsewhere},
	{"a machine that is off is restored off", hibernates, restoreOff},
	{"a machine is not restored while the instance before is there", append(hibernates, "Hold"), restoreGates},
	{"what no node takes is taken back, and nothing else", hibernates, retract},
	{"a machine that is on no node is removed", hibernates, deleteTravelling},
	{"snapshots are discarded, twice is success", hibernates, discard},
	{"a move whose replies were lost is repeated without a second", append(hibernates, "LoseReply"), lostMove},
}

var hibernates = []string{"Hibernator", "Registry", "OtherNode", "Makes"}

// able calls the Hibernator.
func (s *suite) able(verb runtime.Verb, m runtime.Machine) error {
	m = s.known(m)
	return runtime.Use(s.ctx, runtime.NewClient(s.Runtime), verb, m, func(ctx context.Context, h runtime.Hibernator) error {
		switch verb {
		case runtime.VerbHibernate:
			return h.Hibernate(ctx, m)
		case runtime.VerbWake:
			return h.Wake(ctx, m)
		case runtime.VerbRelease:
			return h.Release(ctx, m, false)
		case runtime.VerbRestore:
			return h.Restore(ctx, m)
		case runtime.VerbRetract:
			return h.Retract(ctx, m, false)
		}
		return h.Discard(ctx, m)
	})
}

// in gives the machine with its Migration in a step.
func in(m runtime.Machine, step v1alpha1.MigrationStep) runtime.Machine {
	m.Migration = m.Migration.DeepCopy()
	m.Migration.Step = step
	return m
}

// leaving gives a machine that is to be moved to that node, as it was seen.
func (s *suite) leaving(m runtime.Machine, id types.UID, node string) (runtime.Machine, runtime.Observation) {
	s.Helper()
	seen := s.quiet(m)
	if seen.Hibernation == nil || seen.Hibernation.Instance != runtime.InstanceLive {
		s.Fatalf("a machine that was made is seen as %+v", seen.Hibernation)
	}
	m.InstanceID = seen.InstanceID
	m.Migration = &v1alpha1.Migration{
		ID: id, Step: v1alpha1.MigrationHibernate, To: v1alpha1.MigrateTarget{NodeName: node}, Instance: seen.Hibernation.ID,
		Was:   v1alpha1.OperationBaseline{PowerState: seen.Power, Incarnation: seen.Incarnation, NodeName: seen.NodeName},
		Disks: seen.Disks,
	}
	return m, seen
}

// becomes observes until nothing is in flight and the instance is like that.
func (s *suite) becomes(m runtime.Machine, want runtime.InstanceState) runtime.Observation {
	s.Helper()
	return s.until(m, "quiet and "+string(want), func(o runtime.Observation) bool { return o.Quiet() && o.Hibernation.Instance == want })
}

// sleeping gives a machine that was on, is asleep, and has its snapshot proven.
func (s *suite) sleeping(name string) (runtime.Machine, runtime.Observation) {
	s.Helper()
	m := s.made(name)
	s.on(m)
	m, was := s.leaving(m, types.UID("move-of-"+name), s.OtherNode(s.T, m))
	return s.asleep(m), was
}

func (s *suite) asleep(m runtime.Machine) runtime.Machine {
	s.Helper()
	s.must(s.able(runtime.VerbHibernate, m), "hibernating")
	seen := s.becomes(m, runtime.InstanceAsleep).Hibernation
	if want := s.Registry.Digest(s.T, m); want == "" || seen.Saved != want || seen.Digest != want || seen.Snapshot != runtime.SnapshotPresent {
		s.Fatalf("the registry has %q, and what is seen is %+v", want, seen)
	}
	if seen.ID != m.Migration.Instance || seen.Power == v1alpha1.PowerRunning || !seen.Tried {
		s.Errorf("an instance that is asleep is seen as %+v", seen)
	}
	m.Migration.Digest = seen.Saved
	return m
}

// released gives a machine that is on no node.
func (s *suite) released(name string) (runtime.Machine, runtime.Observation) {
	s.Helper()
	m, was := s.sleeping(name)
	m = in(m, v1alpha1.MigrationRelease)
	s.must(s.able(runtime.VerbRelease, m), "releasing")
	return m, s.travels(m, was)
}

func (s *suite) travels(m runtime.Machine, was runtime.Observation) runtime.Observation {
	s.Helper()
	seen := s.becomes(m, runtime.InstanceGone)
	if !seen.Exists || seen.Power != v1alpha1.PowerStopped || seen.InstanceID == "" || seen.Hibernation.Digest != m.Migration.Digest {
		s.Errorf("a machine that is on no node is seen as %+v with %+v", seen, seen.Hibernation)
	}
	return was
}

// restores has the machine restored and gives the look that shows it.
func (s *suite) restores(m runtime.Machine) runtime.Observation {
	s.Helper()
	s.must(s.able(runtime.VerbRestore, m), "restoring")
	return s.becomes(m, runtime.InstanceLive)
}

// arrived fails the part unless the machine is as it was, on its target, as a new instance.
func (s *suite) arrived(m runtime.Machine, was, seen runtime.Observation) {
	s.Helper()
	h := seen.Hibernation
	if !h.Restored || !h.Fits || h.ID == m.Migration.Instance || seen.NodeName != m.Migration.To.NodeName || seen.Power != was.Power {
		s.Errorf("%+v was restored as %+v with %+v", was, seen, h)
	}
	if was.Power == v1alpha1.PowerRunning && seen.Incarnation == was.Incarnation {
		s.Errorf("a machine that was on was restored in the incarnation from before, %s", seen.Incarnation)
	}
	s.countsOne(m)
	s.stays(m, seen)
}

func sleepAndWake(s *suite) {
	m, was := s.sleeping("asleep")
	asleep := s.observe(m)
	s.must(s.able(runtime.VerbHibernate, m), "hibernating what is asleep")
	s.stays(m, asleep)
	other := in(m, v1alpha1.MigrationHibernate)
	other.Migration.Instance = "another"
	for _, verb := range []runtime.Verb{runtime.VerbHibernate, runtime.VerbWake, runtime.VerbRelease} {
		s.wants(runtime.IsInvalidState, s.able(verb, other), "InvalidState", string(verb)+" of an instance that is not the move's")
	}
	s.stays(m, asleep)
	m = in(m, v1alpha1.MigrationWake)
	s.must(s.able(runtime.VerbWake, m), "waking")
	seen := s.becomes(m, runtime.InstanceLive)
	if seen.Power != v1alpha1.PowerRunning || seen.Incarnation == was.Incarnation || seen.Hibernation.ID != was.Hibernation.ID || seen.NodeName != was.NodeName {
		s.Errorf("%+v was woken as %+v", was, seen)
	}
	s.must(s.able(runtime.VerbWake, m), "waking what is awake")
	s.stays(m, seen)
}

func sleepOff(s *suite) {
	m := s.made("off")
	m, _ = s.leaving(m, "move-of-off", s.OtherNode(s.T, m))
	m = in(s.asleep(m), v1alpha1.MigrationWake)
	s.must(s.able(runtime.VerbWake, m), "waking")
	if seen := s.becomes(m, runtime.InstanceLive); seen.Power != v1alpha1.PowerStopped {
		s.Errorf("a machine that was off is %s", seen.Power)
	}
}

func hibernateInFlight(s *suite) {
	m := s.made("tired")
	s.on(m)
	m, _ = s.leaving(m, "move-of-tired", s.OtherNode(s.T, m))
	release := s.Hold(s.T, m, runtime.TaskRelocate)
	for range 2 {
		s.must(s.able(runtime.VerbHibernate, m), "hibernating")
		s.shows(m, runtime.TaskRelocate)
	}
	if seen := s.observe(m); len(seen.InFlight) != 1 || seen.Hibernation.Tried {
		s.Errorf("a hibernation in flight is seen as %+v, tried %v", seen.InFlight, seen.Hibernation.Tried)
	}
	s.wants(runtime.IsInvalidState, s.able(runtime.VerbWake, m), "InvalidState", "waking")
	s.wants(runtime.IsInvalidState, s.able(runtime.VerbRelease, m), "InvalidState", "releasing")
	s.cancel(m, runtime.TaskRelocate)
	release()
	seen := s.quiet(m)
	if state := seen.Hibernation.Instance; state != runtime.InstanceLive && state != runtime.InstanceAsleep || seen.Hibernation.Tried {
		s.Errorf("a hibernation that was withdrawn left %+v", seen.Hibernation)
	}
	s.stays(m, seen)
}

func releaseGates(s *suite) {
	m := s.made("kept")
	s.on(m)
	m, _ = s.leaving(m, "move-of-kept", s.OtherNode(s.T, m))
	refused := func(m runtime.Machine, why string) {
		s.Helper()
		m = in(m, v1alpha1.MigrationRelease)
		was := s.observe(m)
		s.wants(runtime.IsInvalidState, s.able(runtime.VerbRelease, m), "InvalidState", "releasing "+why)
		s.stays(m, was)
	}
	refused(m, "what is awake")
	m = s.asleep(m)
	unproven := in(m, v1alpha1.MigrationRelease)
	unproven.Migration.Digest = ""
	refused(unproven, "with nothing proven")
	s.Registry.Replace(s.T, m)
	refused(m, "with another snapshot in the registry")
	unproven.Migration.Digest = s.Registry.Digest(s.T, m)
	refused(unproven, "with a snapshot that its agent has not pushed")
	s.Registry.Lose(s.T, m)
	refused(m, "with no snapshot in the registry")
}

func restoreElsewhere(s *suite) {
	m, was := s.released("moved")
	s.must(s.able(runtime.VerbRelease, m), "releasing what is gone")
	m = in(m, v1alpha1.MigrationRestore)
	seen := s.restores(m)
	s.arrived(m, was, seen)
	s.must(s.able(runtime.VerbRestore, m), "restoring again")
	s.wants(runtime.IsInvalidState, s.able(runtime.VerbRetract, m), "InvalidState", "retracting what runs")
	s.wants(runtime.IsInvalidState, s.able(runtime.VerbRelease, m), "InvalidState", "releasing what was restored")
	s.arrived(m, was, seen)
	s.must(s.able(runtime.VerbDiscard, m), "discarding")
	m.InstanceID, m.Migration = seen.InstanceID, nil
	s.off(m)
	s.on(m)
}

func restoreOff(s *suite) {
	m := s.made("moved-off")
	m, was := s.leaving(m, "move-of-moved-off", s.OtherNode(s.T, m))
	m = in(s.asleep(m), v1alpha1.MigrationRelease)
	s.must(s.able(runtime.VerbRelease, m), "releasing")
	s.becomes(m, runtime.InstanceGone)
	m = in(m, v1alpha1.MigrationRestore)
	s.arrived(m, was, s.restores(m))
}

func restoreGates(s *suite) {
	m, was := s.sleeping("in-the-way")
	m = in(m, v1alpha1.MigrationRestore)
	s.wants(runtime.IsInvalidState, s.able(runtime.VerbRestore, m), "InvalidState", "restoring what is asleep")
	m = in(m, v1alpha1.MigrationRelease)
	release := s.Hold(s.T, m, runtime.TaskDelete)
	for range 2 {
		s.must(s.able(runtime.VerbRelease, m), "releasing")
		if state := s.observe(m).Hibernation.Instance; state != runtime.InstanceLeaving {
			s.Errorf("an instance that is being removed is %s", state)
		}
		s.wants(runtime.IsInvalidState, s.able(runtime.VerbRestore, in(m, v1alpha1.MigrationRestore)), "InvalidState", "restoring what is being removed")
	}
	release()
	s.travels(m, was)
	m = in(m, v1alpha1.MigrationRestore)
	none := in(m, v1alpha1.MigrationRestore)
	none.Migration.Digest = ""
	s.wants(runtime.IsInvalidState, s.able(runtime.VerbRestore, none), "InvalidState", "restoring with nothing proven")
	s.arrived(m, was, s.restores(m))
}

func retract(s *suite) {
	m, was := s.released("nowhere-to-go")
	m = in(m, v1alpha1.MigrationRestore)
	there := m.Migration.To
	m.Migration.To = v1alpha1.MigrateTarget{NodeName: "no-such-node"}
	s.must(s.able(runtime.VerbRestore, m), "restoring where there is no node")
	seen := s.becomes(m, runtime.InstanceUnplaced)
	if !seen.Exists || !seen.Hibernation.Restored || !seen.Hibernation.Fits || seen.Hibernation.ID == m.Migration.Instance {
		s.Errorf("an instance that no node has taken is seen as %+v with %+v", seen, seen.Hibernation)
	}
	s.stays(m, seen)
	m.Migration.To = there
	if s.observe(m).Hibernation.Fits {
		s.Error("an instance for one node fits a move to another")
	}
	s.must(s.able(runtime.VerbRetract, m), "retracting")
	s.becomes(m, runtime.InstanceGone)
	s.must(s.able(runtime.VerbRetract, m), "retracting what is gone")
	s.arrived(m, was, s.restores(m))
}

func deleteTravelling(s *suite) {
	m, _ := s.released("given-up")
	s.must(s.Runtime.Delete(s.ctx, s.known(m)), "deleting a machine that is on no node")
	s.until(m, "gone", func(o runtime.Observation) bool { return o.Quiet() && !o.Exists })
	if digest := s.Registry.Digest(s.T, m); digest != "" {
		s.Errorf("snapshot %s is left of a machine that was deleted", digest)
	}
	s.must(s.Runtime.Delete(s.ctx, s.known(m)), "deleting again")
}

func discard(s *suite) {
	m, _ := s.sleeping("discarded")
	m = in(m, v1alpha1.MigrationWake)
	s.must(s.able(runtime.VerbWake, m), "waking")
	m = in(m, v1alpha1.MigrationDiscard)
	was := s.becomes(m, runtime.InstanceLive)
	for range 2 {
		s.must(s.able(runtime.VerbDiscard, m), "discarding")
		if digest := s.Registry.Digest(s.T, m); digest != "" {
			s.Errorf("the registry has %s", digest)
		}
		s.stays(m, was)
	}
}

func lostMove(s *suite) {
	m := s.made("lost-replies")
	s.on(m)
	m, _ = s.leaving(m, "move-of-lost-replies", s.OtherNode(s.T, m))
	twice := func(verb runtime.Verb, m runtime.Machine, state runtime.InstanceState) runtime.Observation {
		s.Helper()
		s.LoseReply(s.T, m, verb)
		s.lost(s.able(verb, m), string(verb))
		s.must(s.able(verb, m), string(verb)+" again")
		return s.becomes(m, state)
	}
	m.Migration.Digest = twice(runtime.VerbHibernate, m, runtime.InstanceAsleep).Hibernation.Saved
	m = in(m, v1alpha1.MigrationWake)
	twice(runtime.VerbWake, m, runtime.InstanceLive)
	m, was := s.leaving(m, "second-move", m.Migration.To.NodeName)
	m = in(s.asleep(m), v1alpha1.MigrationRelease)
	twice(runtime.VerbRelease, m, runtime.InstanceGone)
	m = in(m, v1alpha1.MigrationRestore)
	s.arrived(m, was, twice(runtime.VerbRestore, m, runtime.InstanceLive))
}
