package conformance

import (
	"context"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// moving tests runtimes that can move a machine.
var moving = []part{
	{"a machine is moved to a node by name", []string{"Migrator", "OtherNode"}, moveByName},
	{"a machine is moved off its node once", []string{"Migrator", "OtherNode"}, moveAway},
	{"a move to where there is no node", []string{"Migrator"}, moveNowhere},
	{"a move in flight is joined, and nothing else goes with it", []string{"Migrator", "OtherNode", "Hold"}, moveInFlight},
	{"a move in flight is cancelled", []string{"Migrator", "OtherNode", "Hold"}, cancelMove},
}

// migrate begins to move the machine.
func (s *suite) migrate(m runtime.Machine, target runtime.Target) error {
	return migrate(s.ctx, s.Runtime, m, target)
}

func migrate(ctx context.Context, rt runtime.Runtime, m runtime.Machine, target runtime.Target) error {
	return runtime.Use(ctx, runtime.NewClient(rt), runtime.VerbMigrate, m, func(ctx context.Context, able runtime.Migrator) error {
		return able.Migrate(ctx, m, target)
	})
}

// moved fails the part unless the machine is on, on that node or, for "", on another than before, as it was.
func (s *suite) moved(m runtime.Machine, before runtime.Observation, node string) runtime.Observation {
	s.Helper()
	seen := s.quiet(m)
	if node == "" && seen.NodeName == before.NodeName || node != "" && seen.NodeName != node {
		s.Errorf("the machine was on %s and is on %s, want it on %q", before.NodeName, seen.NodeName, node)
	}
	if seen.Power != v1alpha1.PowerRunning || seen.Incarnation != before.Incarnation {
		s.Errorf("the move of a machine that was on turned %+v into %+v", before, seen)
	}
	s.stays(m, seen)
	return seen
}

func moveByName(s *suite) {
	m := s.made("named")
	was := s.on(m)
	target := runtime.Target{NodeName: s.OtherNode(s.T, m), Leave: was.NodeName}
	for range 2 {
		s.must(s.migrate(m, target), "moving to "+target.NodeName)
		s.moved(m, was, target.NodeName)
	}
	s.must(s.migrate(m, runtime.Target{NodeName: was.NodeName}), "moving back")
	s.moved(m, was, was.NodeName)
}

func moveAway(s *suite) {
	m := s.made("evicted")
	was := s.on(m)
	target := runtime.Target{Leave: was.NodeName}
	s.must(s.migrate(m, target), "moving off the node")
	seen := s.moved(m, was, "")
	s.must(s.migrate(m, target), "moving off the node again")
	s.moved(m, was, seen.NodeName)
	s.must(s.migrate(m, runtime.Target{}), "moving off the node that it is on")
	s.moved(m, seen, "")
}

func moveNowhere(s *suite) {
	m := s.made("nowhere")
	was := s.on(m)
	for _, target := range []runtime.Target{
		{NodeName: "no-such-node"},
		{NodeSelector: map[string]v1alpha1.LabelValue{"conformance.sallyport.dev/no-such-label": "x"}},
	} {
		s.wants(runtime.IsInvalidState, s.migrate(m, target), "InvalidState", "moving to where there is no node")
		s.stays(m, was)
	}
	choosy := m
	choosy.Spec = m.Spec.DeepCopy()
	choosy.Spec.NodeSelector = map[string]v1alpha1.LabelValue{"conformance.sallyport.dev/no-such-label": "x"}
	s.wants(runtime.IsInvalidState, s.migrate(choosy, runtime.Target{}), "InvalidState", "moving off a node when the spec selects none")
	s.stays(m, was)
}

// heldMove gives a machine that is on, and its move to the target that is kept in flight.
func (s *suite) heldMove(name string) (m runtime.Machine, was runtime.Observation, target runtime.Target, release func()) {
	s.Helper()
	m = s.made(name)
	was = s.on(m)
	target = runtime.Target{NodeName: s.OtherNode(s.T, m), Leave: was.NodeName}
	release = s.Hold(s.T, m, runtime.TaskRelocate)
	s.must(s.migrate(m, target), "moving")
	s.shows(m, runtime.TaskRelocate)
	return m, was, target, release
}

func moveInFlight(s *suite) {
	m, was, target, release := s.heldMove("on-its-way")
	s.must(s.migrate(m, target), "moving again")
	if tasks := s.observe(m).InFlight; len(tasks) != 1 {
		s.Errorf("a repeated move is in flight of its own: %+v", tasks)
	}
	s.must(s.Runtime.PowerOn(s.ctx, s.known(m)), "powering on what is on")
	s.wants(runtime.IsInvalidState, s.Runtime.PowerOff(s.ctx, s.known(m), runtime.Forced), "InvalidState", "powering off by force")
	s.wants(runtime.IsInvalidState, s.migrate(m, runtime.Target{NodeName: was.NodeName}), "InvalidState", "moving elsewhere")
	release()
	s.moved(m, was, target.NodeName)
}

func cancelMove(s *suite) {
	m, was, target, release := s.heldMove("cancelled-move")
	s.cancel(m, runtime.TaskRelocate)
	release()
	node := s.quiet(m).NodeName
	if node != was.NodeName && node != target.NodeName {
		s.Errorf("a cancelled move from %s to %s ended on %s", was.NodeName, target.NodeName, node)
	}
	s.moved(m, was, node)
	s.must(s.migrate(m, target), "moving after a cancelled move")
	s.moved(m, was, target.NodeName)
}
