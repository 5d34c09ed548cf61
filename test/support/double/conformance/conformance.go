// Package conformance tests that a runtime keeps the contract of [runtime.Runtime]: every runtime of ours passes it.
package conformance

import (
	"context"
	goruntime "runtime"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// patience is how long the suite waits for something that takes the runtime real time. Only the suite's own test changes it.
var patience = time.Minute

// steps is how often the suite calls Advance where that is what takes the place of time.
const steps = 50

// Harness is a runtime under test, and what a test can do to the world behind it. Runtime and Machine are required; parts
// of the suite whose hook is nil are skipped and say so.
type Harness struct {
	// Runtime is the runtime under test.
	Runtime runtime.Runtime
	// Machine gives a machine of that name, without an InstanceID, that does not exist. Ensure can make it, or adopt
	// what its spec names; it is then off, its guest heeds requests to shut down, and its node is connected.
	Machine func(t *testing.T, name string) runtime.Machine
	// Makes says that Ensure makes the machines, and does not adopt them.
	Makes bool
	// Advance takes what is in flight for the machine, and its guest, a step on. A runtime whose tasks end in real time
	// leaves it nil.
	Advance func(machine runtime.Machine)
	// Reconnect gives another client of the same world, which remembers nothing.
	Reconnect func(t *testing.T) runtime.Runtime
	// Instances counts the instances that carry the machine's marker.
	Instances func(t *testing.T, machine runtime.Machine) int
	// IgnoreShutdown has the machine's guest ignore requests to shut down from now on.
	IgnoreShutdown func(t *testing.T, machine runtime.Machine)
	// HeedShutdown has a guest that ignored a request heed it now, if the request is still good.
	HeedShutdown func(t *testing.T, machine runtime.Machine)
	// RemoveTools leaves the machine's guest without anything that could be asked.
	RemoveTools func(t *testing.T, machine runtime.Machine)
	// SetGuest has the machine's guest say that of itself from now on, whenever the machine is on.
	SetGuest func(t *testing.T, machine runtime.Machine, guest runtime.Guest)
	// Ask has the runtime ask people about the machine.
	Ask func(t *testing.T, machine runtime.Machine, question v1alpha1.PendingQuestion)
	// Pause suspends the machine, which is on.
	Pause func(t *testing.T, machine runtime.Machine)
	// Spoil makes something of the machine, which is off, that can be neither powered on nor deleted, until repair is called.
	Spoil func(t *testing.T, machine runtime.Machine) (repair func())
	// Hold keeps the machine's tasks of that kind in flight from their begin until release is called.
	Hold func(t *testing.T, machine runtime.Machine, kind runtime.TaskKind) (release func())
	// BeginForeign begins a task of that kind for the machine as an administrator does, or the runtime itself.
	BeginForeign func(t *testing.T, machine runtime.Machine, kind runtime.TaskKind)
	// OtherNode names a connected node that the machine is not on. It is needed for a Migrator or a Hibernator only.
	OtherNode func(t *testing.T, machine runtime.Machine) string
	// Foreign gives a machine whose instance carries the marker of another owner, and a check that nothing has
	// happened to that instance since.
	Foreign func(t *testing.T) (machine runtime.Machine, untouched func() error)
	// Disk gives a disk of that name, without an ID, that does not exist, of a size of which the machines' node has room for
	// ten times as much. It is needed for a Disks only.
	Disk func(t *testing.T, name string) runtime.Disk
	// Source gives what disks can be made from, of half the size of a disk at most. Without it, they are made empty only.
	Source func(t *testing.T) runtime.DiskSource
	// Registry is that of snapshots. It is needed for a Hibernator only.
	Registry *Registry
	// LoseReply has the next call of that verb for the machine do its work and lose its reply. A call about a disk alone has an
	// empty one.
	LoseReply func(t *testing.T, machine runtime.Machine, verb runtime.Verb)
	// Stall leaves the next call of that verb for the machine without an answer. What it returns is closed when the call waits.
	Stall func(t *testing.T, machine runtime.Machine, verb runtime.Verb) (reached <-chan struct{})
}

// part is a test of the suite.
type part struct {
	name string
	// needs are the hooks and abilities without which it is skipped.
	needs []string
	test  func(s *suite)
}

// Run tests the runtime, each part with a new one.
func Run(t *testing.T, newRuntime func(t *testing.T) Harness) {
	for _, p := range slices.Concat(existence, power, guests, undoing, moving, hibernating, disks, fixedDisks, trouble) {
		t.Run(p.name, func(t *testing.T) {
			h := newRuntime(t)
			has := h.abilities()
			if lacks := slices.IndexFunc(p.needs, func(name string) bool { return !has[name] }); lacks >= 0 {
				t.Skipf("the harness has no %s", p.needs[lacks])
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
			defer cancel()
			p.test(&suite{T: t, Harness: h, ctx: ctx, recorded: map[types.UID][]runtime.Disk{}})
		})
	}
}

// suite is one part being tested.
type suite struct {
	*testing.T
	Harness
	ctx context.Context
	// recorded are the disks that machines have according to the status of the VirtualDisks.
	recorded map[types.UID][]runtime.Disk
}

// must fails the part on an error.
func (s *suite) must(err error, doing string) {
	s.Helper()
	if err != nil {
		s.Fatalf("%s: %v", doing, err)
	}
}

// wants fails the part unless the error is of the kind that is says.
func (s *suite) wants(is func(error) bool, err error, want, doing string) {
	s.Helper()
	if !is(err) {
		s.Errorf("%s: got error %v, want %s", doing, err, want)
	}
}

// observe looks once.
func (s *suite) observe(m runtime.Machine) runtime.Observation {
	s.Helper()
	seen, err := s.Runtime.Observe(s.ctx, s.known(m))
	s.must(err, "observing")
	return seen
}

// advance lets the world go on.
func (s *suite) advance(m runtime.Machine) {
	if s.Advance != nil {
		s.Advance(m)
		return
	}
	goruntime.Gosched()
}

// until observes until the machine is as wanted and gives the last look.
func (s *suite) until(m runtime.Machine, want string, is func(runtime.Observation) bool) runtime.Observation {
	s.Helper()
	began := time.Now()
	for i := 0; ; i++ {
		seen := s.observe(m)
		if is(seen) {
			return seen
		}
		if (s.Advance != nil && i == steps) || time.Since(began) > patience {
			s.Fatalf("the machine never was %s; last seen: %+v", want, seen)
		}
		s.advance(m)
	}
}

// quiet observes until nothing is in flight.
func (s *suite) quiet(m runtime.Machine) runtime.Observation {
	s.Helper()
	return s.until(m, "quiet", runtime.Observation.Quiet)
}

// power observes until nothing is in flight and the machine is in that state.
func (s *suite) power(m runtime.Machine, want v1alpha1.PowerState) runtime.Observation {
	s.Helper()
	return s.until(m, "quiet and "+string(want), func(o runtime.Observation) bool { return o.Quiet() && o.Power == want })
}

// stays fails the part unless the machine stays as it was seen.
func (s *suite) stays(m runtime.Machine, was runtime.Observation) {
	s.Helper()
	for range 5 {
		s.advance(m)
		if diff := cmp.Diff(was, s.observe(m)); diff != "" {
			s.Errorf("the machine changed though nothing was in flight (-before +after):\n%s", diff)
			return
		}
	}
}

// made gives a machine that exists and is off.
func (s *suite) made(name string) runtime.Machine {
	s.Helper()
	m := s.Machine(s.T, name)
	s.ensure(m)
	return m
}

// ensure calls Ensure until it gives the instance's ID.
func (s *suite) ensure(m runtime.Machine) (instanceID string) {
	s.Helper()
	s.until(m, "made", func(runtime.Observation) bool {
		id, err := s.Runtime.Ensure(s.ctx, s.known(m))
		s.must(err, "ensuring")
		instanceID = id
		return id != ""
	})
	return instanceID
}

// on powers the machine on and gives the look that shows it on.
func (s *suite) on(m runtime.Machine) runtime.Observation {
	s.Helper()
	s.must(s.Runtime.PowerOn(s.ctx, s.known(m)), "powering on")
	return s.power(m, v1alpha1.PowerRunning)
}

// off takes the machine's power away.
func (s *suite) off(m runtime.Machine) runtime.Observation {
	s.Helper()
	s.must(s.Runtime.PowerOff(s.ctx, s.known(m), runtime.Forced), "powering off by force")
	return s.power(m, v1alpha1.PowerStopped)
}

// shows fails the part unless a task of that kind is in flight, which it gives.
func (s *suite) shows(m runtime.Machine, kind runtime.TaskKind) runtime.Task {
	s.Helper()
	seen := s.observe(m)
	for _, task := range seen.InFlight {
		if task.Kind == kind && task.ID != "" {
			return task
		}
	}
	s.Fatalf("a task of kind %s is in flight, but Observe shows %+v", kind, seen.InFlight)
	return runtime.Task{}
}

// call is a call of one verb.
type call struct {
	verb runtime.Verb
	do   func(ctx context.Context, rt runtime.Runtime, m runtime.Machine) error
}

// calls gives a call of every verb that the runtime has.
func (s *suite) calls() []call {
	all := []call{
		{runtime.VerbObserve, func(ctx context.Context, rt runtime.Runtime, m runtime.Machine) error {
			_, err := rt.Observe(ctx, m)
			return err
		}},
		{runtime.VerbEnsure, func(ctx context.Context, rt runtime.Runtime, m runtime.Machine) error {
			_, err := rt.Ensure(ctx, m)
			return err
		}},
		{runtime.VerbPowerOn, func(ctx context.Context, rt runtime.Runtime, m runtime.Machine) error {
			return rt.PowerOn(ctx, m)
		}},
		{runtime.VerbPowerOff, func(ctx context.Context, rt runtime.Runtime, m runtime.Machine) error {
			return rt.PowerOff(ctx, m, runtime.Forced)
		}},
		{runtime.VerbCancel, func(ctx context.Context, rt runtime.Runtime, m runtime.Machine) error {
			return rt.Cancel(ctx, m, "no-such-task")
		}},
		{runtime.VerbDelete, func(ctx context.Context, rt runtime.Runtime, m runtime.Machine) error {
			return rt.Delete(ctx, m)
		}},
	}
	if runtime.Can[runtime.Migrator](runtime.NewClient(s.Runtime)) {
		all = append(all, call{runtime.VerbMigrate, func(ctx context.Context, rt runtime.Runtime, m runtime.Machine) error {
			return migrate(ctx, rt, m, runtime.Target{})
		}})
	}
	return all
}

// abilities tells which hooks and abilities there are, by name.
func (h *Harness) abilities() map[string]bool {
	client := runtime.NewClient(h.Runtime)
	return map[string]bool{
		"Reconnect": h.Reconnect != nil, "Instances": h.Instances != nil,
		"IgnoreShutdown": h.IgnoreShutdown != nil, "HeedShutdown": h.HeedShutdown != nil,
		"SetGuest": h.SetGuest != nil, "Ask": h.Ask != nil,
		"RemoveTools": h.RemoveTools != nil, "Pause": h.Pause != nil, "Spoil": h.Spoil != nil, "Hold": h.Hold != nil,
		"BeginForeign": h.BeginForeign != nil,
		"OtherNode":    h.OtherNode != nil, "Foreign": h.Foreign != nil,
		"LoseReply": h.LoseReply != nil, "Stall": h.Stall != nil, "Makes": h.Makes,
		"Migrator": runtime.Can[runtime.Migrator](client),
		"Registry": h.Registry != nil, "Hibernator": runtime.Can[runtime.Hibernator](client),
		"Source":    h.Source != nil,
		"Disk":      h.Disk != nil && runtime.Can[runtime.Disks](client),
		"HotDisk":   h.Disk != nil && runtime.Can[runtime.Disks](client) && !runtime.Can[runtime.FixedDisks](client),
		"FixedDisk": h.Disk != nil && runtime.Can[runtime.FixedDisks](client),
	}
}
