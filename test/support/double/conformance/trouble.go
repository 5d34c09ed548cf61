package conformance

import (
	"context"
	"sync"
	"time"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// trouble tests lost replies, ended contexts and callers that do not wait for each other.
var trouble = []part{
	{"another client finds what a lost reply left", []string{"Reconnect", "LoseReply"}, lostEnsure},
	{"a power-on whose reply was lost is repeated without a second", []string{"LoseReply"}, lostPowerOn},
	{"a power-off whose reply was lost is repeated", []string{"LoseReply"}, lostPowerOff},
	{"a deletion whose reply was lost is repeated", []string{"LoseReply"}, lostDelete},
	{"a move whose reply was lost is repeated without a second", []string{"LoseReply", "Migrator", "OtherNode"}, lostMigrate},
	{"a lost look is an error, not an absent machine", []string{"LoseReply"}, lostObserve},
	{"another client sees what is in flight", []string{"Reconnect", "Hold"}, otherClient},
	{"a call whose context has ended does nothing", nil, endedContext},
	{"a call that gets no answer returns when its context ends", []string{"Stall"}, stalled},
	{"calls for several machines at once", nil, atOnce},
}

// lost fails the part unless the error says that the request may have been done.
func (s *suite) lost(err error, doing string) {
	s.Helper()
	if err == nil || !runtime.MayHaveActed(err) || runtime.Reason(err) != v1alpha1.ReasonRuntimeUnavailable {
		s.Fatalf("%s without a reply: got error %v, want Unavailable", doing, err)
	}
}

func lostEnsure(s *suite) {
	m := s.Machine(s.T, "found-again")
	s.LoseReply(s.T, m, runtime.VerbEnsure)
	_, err := s.Runtime.Ensure(s.ctx, s.known(m))
	s.lost(err, "ensuring")
	s.Runtime = s.Reconnect(s.T)
	was := s.until(m, "found", func(o runtime.Observation) bool { return o.Quiet() && o.Exists })
	if id := s.ensure(m); id != was.InstanceID {
		s.Errorf("instance %s was there, Ensure gave %s", was.InstanceID, id)
	}
	s.countsOne(m)
}

func lostPowerOn(s *suite) {
	m := s.made("on-twice")
	s.LoseReply(s.T, m, runtime.VerbPowerOn)
	s.lost(s.Runtime.PowerOn(s.ctx, s.known(m)), "powering on")
	s.must(s.Runtime.PowerOn(s.ctx, s.known(m)), "powering on again")
	was := s.power(m, v1alpha1.PowerRunning)
	s.must(s.Runtime.PowerOn(s.ctx, s.known(m)), "powering on what is on")
	s.stays(m, was)
}

func lostPowerOff(s *suite) {
	m := s.made("off-twice")
	for _, mode := range []runtime.Mode{runtime.Graceful, runtime.Forced} {
		s.on(m)
		s.LoseReply(s.T, m, runtime.VerbPowerOff)
		s.lost(s.Runtime.PowerOff(s.ctx, s.known(m), mode), "powering off, "+string(mode))
		s.must(s.Runtime.PowerOff(s.ctx, s.known(m), mode), "powering off again, "+string(mode))
		s.stays(m, s.power(m, v1alpha1.PowerStopped))
	}
}

func lostDelete(s *suite) {
	m := s.made("deleted-twice")
	s.LoseReply(s.T, m, runtime.VerbDelete)
	s.lost(s.Runtime.Delete(s.ctx, s.known(m)), "deleting")
	s.gone(m)
}

func lostMigrate(s *suite) {
	m := s.made("moved-twice")
	was := s.on(m)
	target := runtime.Target{Leave: was.NodeName}
	s.LoseReply(s.T, m, runtime.VerbMigrate)
	s.lost(s.migrate(m, target), "moving")
	s.must(s.migrate(m, target), "moving again")
	seen := s.moved(m, was, "")
	s.must(s.migrate(m, target), "moving a third time")
	s.moved(m, was, seen.NodeName)
}

func lostObserve(s *suite) {
	m := s.made("unseen")
	s.LoseReply(s.T, m, runtime.VerbObserve)
	_, err := s.Runtime.Observe(s.ctx, s.known(m))
	s.lost(err, "observing")
}

func otherClient(s *suite) {
	m, release := s.held("seen-by-another")
	s.Runtime = s.Reconnect(s.T)
	s.shows(m, runtime.TaskPowerOn)
	s.must(s.Runtime.PowerOn(s.ctx, s.known(m)), "powering on again")
	s.cancel(m, runtime.TaskPowerOn)
	release()
	s.stays(m, s.quiet(m))
}

func endedContext(s *suite) {
	absent, m := s.Machine(s.T, "never-made"), s.made("unasked")
	was := s.on(m)
	none := s.observe(absent)
	ended, cancel := context.WithCancel(s.ctx)
	cancel()
	for _, c := range s.calls() {
		for _, about := range []runtime.Machine{absent, m} {
			s.wants(runtime.IsUnavailable, c.do(ended, s.Runtime, about), "Unavailable", string(c.verb))
		}
	}
	s.stays(m, was)
	s.stays(absent, none)
}

func stalled(s *suite) {
	m := s.made("stalled")
	for _, c := range s.calls() {
		reached := s.Stall(s.T, m, c.verb)
		ctx, cancel := context.WithCancel(s.ctx)
		returned := make(chan error, 1)
		go func() { returned <- c.do(ctx, s.Runtime, m) }()
		select {
		case <-reached:
		case err := <-returned:
			cancel()
			s.Errorf("%s returns without an answer: %v", c.verb, err)
			continue
		}
		cancel()
		select {
		case err := <-returned:
			s.wants(runtime.IsUnavailable, err, "Unavailable", string(c.verb))
		case <-time.After(patience):
			s.Errorf("%s has not returned %s after its context ended", c.verb, patience)
		}
	}
}

func atOnce(s *suite) {
	var all []runtime.Machine
	for _, name := range []string{"one", "two", "three", "four"} {
		all = append(all, s.made(name))
	}
	var group sync.WaitGroup
	errs := make([]error, len(all))
	for i, m := range all {
		group.Go(func() {
			errs[i] = s.Runtime.PowerOn(s.ctx, s.known(m))
			for _, other := range all {
				if _, err := s.Runtime.Observe(s.ctx, s.known(other)); err != nil {
					errs[i] = err
				}
			}
		})
	}
	group.Wait()
	for i, m := range all {
		s.must(errs[i], "powering on and observing "+m.Name)
		s.power(m, v1alpha1.PowerRunning)
	}
}
