package conformance

import (
	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// undoing tests what is in flight and how it is withdrawn.
var undoing = []part{
	{"cancelling with nothing in flight", nil, cancelNothing},
	{"a cancel does not reach what is begun after it", nil, cancelNotAhead},
	{"a power-on in flight can be seen and joined", []string{"Hold"}, powerOnInFlight},
	{"what does not go with a power-on in flight", []string{"Hold"}, conflicts},
	{"a power-on in flight is cancelled", []string{"Hold"}, cancelPowerOn},
	{"a task in flight that somebody else began is not cancelled", []string{"BeginForeign", "Hold"}, cancelForeign},
	{"a power-off in flight can be seen and joined", []string{"Hold"}, powerOffInFlight},
}

func cancelNothing(s *suite) {
	m := s.made("idle")
	was := s.quiet(m)
	s.must(s.Runtime.Cancel(s.ctx, s.known(m), "no-such-task"), "cancelling while off")
	s.stays(m, was)
	was = s.on(m)
	s.must(s.Runtime.Cancel(s.ctx, s.known(m), "no-such-task"), "cancelling while on")
	s.stays(m, was)
}

func cancelNotAhead(s *suite) {
	m := s.made("ahead")
	s.must(s.Runtime.Cancel(s.ctx, s.known(m), "no-such-task"), "cancelling")
	s.stays(m, s.on(m))
}

// cancel withdraws the task of that kind that is in flight.
func (s *suite) cancel(m runtime.Machine, kind runtime.TaskKind) {
	s.Helper()
	task := s.shows(m, kind)
	if !task.Ours || task.By != "" {
		s.Errorf("a task that was begun here is shown as another's: %+v", task)
	}
	for range 2 {
		s.must(s.Runtime.Cancel(s.ctx, s.known(m), task.ID), "cancelling")
	}
}

// cancelForeign has the machine be powered on here, so that whatever a runtime remembers of that is there to mistake the task
// for its own by, and then a task of another's.
func cancelForeign(s *suite) {
	for _, kind := range []runtime.TaskKind{runtime.TaskPowerOn, runtime.TaskRelocate} {
		m := s.made("foreign-" + string(kind))
		was := s.on(m)
		if kind == runtime.TaskPowerOn {
			was = s.off(m)
		}
		release := s.Hold(s.T, m, kind)
		s.BeginForeign(s.T, m, kind)
		task := s.shows(m, kind)
		if task.Ours || task.By == "" {
			s.Errorf("what somebody else began is not shown as theirs: %+v", task)
		}
		s.must(s.Runtime.Cancel(s.ctx, s.known(m), task.ID), "cancelling")
		for range 3 {
			s.advance(m)
			s.shows(m, kind)
		}
		release()
		seen := s.quiet(m)
		if seen.NodeName == was.NodeName && seen.Power == was.Power {
			s.Errorf("the task of kind %s that somebody else began had no effect: %+v", kind, seen)
		}
		s.stays(m, seen)
	}
}

// held powers the machine on and keeps that in flight.
func (s *suite) held(name string) (m runtime.Machine, release func()) {
	s.Helper()
	m = s.made(name)
	release = s.Hold(s.T, m, runtime.TaskPowerOn)
	s.must(s.Runtime.PowerOn(s.ctx, s.known(m)), "powering on")
	s.shows(m, runtime.TaskPowerOn)
	return m, release
}

func powerOnInFlight(s *suite) {
	m, release := s.held("joined")
	for range 3 {
		s.advance(m)
		s.shows(m, runtime.TaskPowerOn)
		s.must(s.Runtime.PowerOn(s.ctx, s.known(m)), "powering on again")
		if tasks := s.observe(m).InFlight; len(tasks) != 1 {
			s.Errorf("a repeated power-on is in flight of its own: %+v", tasks)
		}
	}
	release()
	s.stays(m, s.power(m, v1alpha1.PowerRunning))
}

func conflicts(s *suite) {
	m, release := s.held("busy")
	s.wants(runtime.IsInvalidState, s.Runtime.PowerOff(s.ctx, s.known(m), runtime.Graceful), "InvalidState", "shutting down")
	s.wants(runtime.IsInvalidState, s.Runtime.PowerOff(s.ctx, s.known(m), runtime.Forced), "InvalidState", "powering off by force")
	if err := s.Runtime.Delete(s.ctx, s.known(m)); !runtime.IsInvalidState(err) {
		s.Fatalf("deleting: got error %v, want InvalidState", err)
	}
	release()
	s.stays(m, s.power(m, v1alpha1.PowerRunning))
}

func cancelPowerOn(s *suite) {
	m, release := s.held("cancelled")
	s.cancel(m, runtime.TaskPowerOn)
	release()
	was := s.quiet(m)
	if was.Power != v1alpha1.PowerStopped && was.Power != v1alpha1.PowerRunning {
		s.Errorf("a cancelled power-on left the machine %s", was.Power)
	}
	s.stays(m, was)

	// Whatever came of it, the machine goes on and off as ever.
	s.on(m)
	s.off(m)
	s.stays(m, s.on(m))
}

func powerOffInFlight(s *suite) {
	m := s.made("going")
	s.on(m)
	release := s.Hold(s.T, m, runtime.TaskPowerOff)
	s.must(s.Runtime.PowerOff(s.ctx, s.known(m), runtime.Forced), "powering off by force")
	s.shows(m, runtime.TaskPowerOff)
	s.must(s.Runtime.PowerOff(s.ctx, s.known(m), runtime.Forced), "powering off by force again")
	s.wants(runtime.IsInvalidState, s.Runtime.PowerOn(s.ctx, s.known(m)), "InvalidState", "powering on")
	release()
	s.stays(m, s.power(m, v1alpha1.PowerStopped))
}
