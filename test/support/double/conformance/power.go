package conformance

import (
	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// power tests power and incarnations.
var power = []part{
	{"every power-on has an incarnation of its own", nil, incarnations},
	{"a machine is shut down gracefully", nil, graceful},
	{"what is off can be powered off", nil, offTwice},
	{"a guest that ignores a shutdown is powered off by force", []string{"IgnoreShutdown"}, forcedOverGraceful},
	{"a shutdown that a guest ignores is not in flight", []string{"IgnoreShutdown"}, ignoredIsQuiet},
	{"a late guest goes off", []string{"IgnoreShutdown", "HeedShutdown"}, lateGuest},
	{"a shutdown does not outlive its incarnation", []string{"IgnoreShutdown", "HeedShutdown"}, shutdownDies},
	{"a guest without tools cannot be asked", []string{"RemoveTools"}, noTools},
	{"a paused machine", []string{"Pause"}, paused},
	{"a machine that was made into something else", []string{"Spoil"}, unusable},
}

func incarnations(s *suite) {
	m := s.made("incarnations")
	earlier := map[string]bool{"": true}
	for range 3 {
		seen := s.on(m)
		if earlier[seen.Incarnation] {
			s.Errorf("incarnation %q is empty or was there before", seen.Incarnation)
		}
		earlier[seen.Incarnation] = true
		s.must(s.Runtime.PowerOn(s.ctx, s.known(m)), "powering on what is on")
		s.stays(m, seen)
		s.off(m)
	}
}

func graceful(s *suite) {
	m := s.made("graceful")
	was := s.on(m)
	s.must(s.Runtime.PowerOff(s.ctx, s.known(m), runtime.Graceful), "shutting down")
	seen := s.power(m, v1alpha1.PowerStopped)
	s.stays(m, seen)
	if again := s.on(m); again.Incarnation == was.Incarnation {
		s.Errorf("incarnation %s came back after a shutdown", was.Incarnation)
	}
}

func offTwice(s *suite) {
	m := s.made("off")
	s.on(m)
	was := s.off(m)
	for _, mode := range []runtime.Mode{runtime.Graceful, runtime.Forced} {
		s.must(s.Runtime.PowerOff(s.ctx, s.known(m), mode), "powering off what is off, "+string(mode))
		s.stays(m, was)
	}
}

func forcedOverGraceful(s *suite) {
	m := s.made("stubborn")
	s.IgnoreShutdown(s.T, m)
	was := s.on(m)
	for range 2 {
		s.must(s.Runtime.PowerOff(s.ctx, s.known(m), runtime.Graceful), "shutting down")
	}
	s.stays(m, was)
	s.stays(m, s.off(m))
}

func ignoredIsQuiet(s *suite) {
	m := s.made("ignoring")
	s.IgnoreShutdown(s.T, m)
	was := s.on(m)
	s.must(s.Runtime.PowerOff(s.ctx, s.known(m), runtime.Graceful), "shutting down")
	// stays also compares what is in flight: nothing.
	s.stays(m, was)
	s.must(s.Runtime.PowerOn(s.ctx, s.known(m)), "powering on")
	s.stays(m, was)
	s.must(s.Runtime.Cancel(s.ctx, s.known(m), "no-such-task"), "cancelling")
	s.stays(m, was)
}

func lateGuest(s *suite) {
	m := s.made("late")
	s.IgnoreShutdown(s.T, m)
	s.on(m)
	s.must(s.Runtime.PowerOff(s.ctx, s.known(m), runtime.Graceful), "shutting down")
	s.HeedShutdown(s.T, m)
	s.power(m, v1alpha1.PowerStopped)
}

func shutdownDies(s *suite) {
	m := s.made("reborn")
	s.IgnoreShutdown(s.T, m)
	s.on(m)
	s.must(s.Runtime.PowerOff(s.ctx, s.known(m), runtime.Graceful), "shutting down")
	s.off(m)
	was := s.on(m)
	s.HeedShutdown(s.T, m)
	s.stays(m, was)
}

func noTools(s *suite) {
	m := s.made("bare")
	s.RemoveTools(s.T, m)
	was := s.on(m)
	s.wants(runtime.IsToolsUnavailable, s.Runtime.PowerOff(s.ctx, s.known(m), runtime.Graceful), "ToolsUnavailable", "shutting down")
	s.stays(m, was)
	s.off(m)
	s.must(s.Runtime.PowerOff(s.ctx, s.known(m), runtime.Graceful), "shutting down what is off")
}

func paused(s *suite) {
	m := s.made("paused")
	was := s.on(m)
	s.Pause(s.T, m)
	s.power(m, v1alpha1.PowerPaused)
	s.wants(runtime.IsInvalidState, s.Runtime.PowerOff(s.ctx, s.known(m), runtime.Graceful), "InvalidState", "shutting down")
	if seen := s.on(m); seen.Incarnation != was.Incarnation {
		s.Errorf("a paused machine went on as incarnation %s, not %s", seen.Incarnation, was.Incarnation)
	}
	s.Pause(s.T, m)
	s.power(m, v1alpha1.PowerPaused)
	s.off(m)
	if seen := s.on(m); seen.Incarnation == was.Incarnation {
		s.Errorf("incarnation %s came back after a power-off", was.Incarnation)
	}
}

func unusable(s *suite) {
	m := s.made("unusable")
	if seen := s.observe(m); seen.Unusable != "" {
		s.Errorf("a machine that can be used: %s", seen.Unusable)
	}
	repair := s.Spoil(s.T, m)
	if seen := s.observe(m); seen.Unusable == "" || !seen.Exists || seen.Power != v1alpha1.PowerStopped {
		s.Errorf("a machine that cannot be used is seen as %+v", seen)
	}
	s.wants(runtime.IsInvalidState, s.Runtime.PowerOn(s.ctx, s.known(m)), "InvalidState", "powering on")
	s.wants(runtime.IsInvalidState, s.Runtime.Delete(s.ctx, s.known(m)), "InvalidState", "deleting")
	repair()
	s.on(m)
	s.off(m)
}
