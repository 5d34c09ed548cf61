package conformance

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// mutantVariable names the broken runtime that TestMutant is to run, in the environment of a test binary that is started
// for it: a suite that fails as it should cannot fail inside a test that passes.
const mutantVariable = "SALLYPORT_CONFORMANCE_MUTANT"

// mutant is a runtime that breaks the contract in one way.
type mutant struct {
	*both
	part string // The part of the suite that must fail.

	observe  func(m *mutant, ctx context.Context, vm runtime.Machine) (runtime.Observation, error)
	powerOn  func(m *mutant, ctx context.Context, vm runtime.Machine) error
	powerOff func(m *mutant, ctx context.Context, vm runtime.Machine, mode runtime.Mode) error
	cancel   func(m *mutant, ctx context.Context, vm runtime.Machine, task string) error
	remove   func(m *mutant, ctx context.Context, vm runtime.Machine) error
	migrate  func(m *mutant, ctx context.Context, vm runtime.Machine, target runtime.Target) error
	disk     func(m *mutant) runtime.Disks

	count int
}

// both is a runtime that keeps the contract.
type both struct {
	runtime.Runtime
	runtime.Migrator
	runtime.Disks
}

func (m *mutant) Observe(ctx context.Context, vm runtime.Machine) (runtime.Observation, error) {
	if m.observe != nil {
		return m.observe(m, ctx, vm)
	}
	return m.both.Observe(ctx, vm)
}

func (m *mutant) PowerOn(ctx context.Context, vm runtime.Machine) error {
	if m.powerOn != nil {
		return m.powerOn(m, ctx, vm)
	}
	return m.both.PowerOn(ctx, vm)
}

func (m *mutant) PowerOff(ctx context.Context, vm runtime.Machine, mode runtime.Mode) error {
	if m.powerOff != nil {
		return m.powerOff(m, ctx, vm, mode)
	}
	return m.both.PowerOff(ctx, vm, mode)
}

func (m *mutant) Cancel(ctx context.Context, vm runtime.Machine, task string) error {
	if m.cancel != nil {
		return m.cancel(m, ctx, vm, task)
	}
	return m.both.Cancel(ctx, vm, task)
}

func (m *mutant) Delete(ctx context.Context, vm runtime.Machine) error {
	if m.remove != nil {
		return m.remove(m, ctx, vm)
	}
	return m.both.Delete(ctx, vm)
}

func (m *mutant) Migrate(ctx context.Context, vm runtime.Machine, target runtime.Target) error {
	if m.migrate != nil {
		return m.migrate(m, ctx, vm, target)
	}
	return m.both.Migrate(ctx, vm, target)
}

// seen changes what Observe gives.
func seen(change func(m *mutant, o *runtime.Observation, err *error)) func(*mutant, context.Context, runtime.Machine) (runtime.Observation, error) {
	return func(m *mutant, ctx context.Context, vm runtime.Machine) (runtime.Observation, error) {
		o, err := m.both.Observe(ctx, vm)
		change(m, &o, &err)
		return o, err
	}
}

var mutants = map[string]mutant{
	"an absent machine is an error": {part: "a machine that does not exist",
		observe: seen(func(_ *mutant, o *runtime.Observation, err *error) {
			if *err == nil && !o.Exists {
				*err = runtime.NewNotFound(nil, "gone")
			}
		})},
	"an outage looks like an absent machine": {part: "a lost look is an error, not an absent machine",
		observe: seen(func(_ *mutant, o *runtime.Observation, err *error) {
			if runtime.IsUnavailable(*err) {
				*o, *err = runtime.Observation{}, nil
			}
		})},
	"a foreign machine looks absent": {part: "an instance that another owner has marked is left alone",
		observe: seen(func(_ *mutant, _ *runtime.Observation, err *error) {
			if runtime.IsOwnedByAnother(*err) {
				*err = nil
			}
		})},
	"a machine is told by its name": {part: "the marker finds the instance and the id gives no right to it",
		powerOn: func(m *mutant, ctx context.Context, vm runtime.Machine) error {
			vm.UID = PodMachine(vm.Name).UID
			return m.both.PowerOn(ctx, vm)
		}},
	"there is always a new incarnation": {part: "every power-on has an incarnation of its own",
		observe: seen(func(m *mutant, o *runtime.Observation, _ *error) {
			m.count++
			o.Incarnation += strings.Repeat("'", m.count)
		})},
	"the incarnation is always the same": {part: "every power-on has an incarnation of its own",
		observe: seen(func(_ *mutant, o *runtime.Observation, _ *error) { o.Incarnation = "same" })},
	"what is in flight is not shown": {part: "a power-on in flight can be seen and joined",
		observe: seen(func(_ *mutant, o *runtime.Observation, _ *error) { o.InFlight = nil })},
	"a waiting guest is shown in flight": {part: "a shutdown that a guest ignores is not in flight",
		powerOff: func(m *mutant, ctx context.Context, vm runtime.Machine, mode runtime.Mode) error {
			m.count++
			return m.both.PowerOff(ctx, vm, mode)
		},
		observe: seen(func(m *mutant, o *runtime.Observation, _ *error) {
			if m.count > 0 && o.Power == v1alpha1.PowerRunning {
				o.InFlight = append(o.InFlight, runtime.Task{ID: "guest", Kind: runtime.TaskOther})
			}
		})},
	"a graceful power-off escalates": {part: "a guest that ignores a shutdown is powered off by force",
		powerOff: func(m *mutant, ctx context.Context, vm runtime.Machine, _ runtime.Mode) error {
			return m.both.PowerOff(ctx, vm, runtime.Forced)
		}},
	"a forced power-off only asks": {part: "a guest that ignores a shutdown is powered off by force",
		powerOff: func(m *mutant, ctx context.Context, vm runtime.Machine, _ runtime.Mode) error {
			return m.both.PowerOff(ctx, vm, runtime.Graceful)
		}},
	"what is off cannot be powered off": {part: "what is off can be powered off",
		powerOff: func(m *mutant, ctx context.Context, vm runtime.Machine, mode runtime.Mode) error {
			if o, err := m.both.Observe(ctx, vm); err == nil && o.Power == v1alpha1.PowerStopped {
				return runtime.NewInvalidState(nil, "off")
			}
			return m.both.PowerOff(ctx, vm, mode)
		}},
	"a power-on in flight cannot be repeated": {part: "a power-on in flight can be seen and joined",
		powerOn: func(m *mutant, ctx context.Context, vm runtime.Machine) error {
			if o, err := m.both.Observe(ctx, vm); err == nil && !o.Quiet() {
				return runtime.NewInvalidState(nil, "busy")
			}
			return m.both.PowerOn(ctx, vm)
		}},
	"a lost reply is taken for success": {part: "a power-on whose reply was lost is repeated without a second",
		powerOn: func(m *mutant, ctx context.Context, vm runtime.Machine) error {
			if err := m.both.PowerOn(ctx, vm); !runtime.IsUnavailable(err) {
				return err
			}
			return nil
		}},
	"a lost reply is an error that promises nothing was done": {part: "a power-on whose reply was lost is repeated without a second",
		powerOn: func(m *mutant, ctx context.Context, vm runtime.Machine) error {
			if err := m.both.PowerOn(ctx, vm); !runtime.IsUnavailable(err) {
				return err
			}
			return runtime.NewInvalidState(nil, "lost")
		}},
	"nothing in flight cannot be cancelled": {part: "cancelling with nothing in flight",
		cancel: func(*mutant, context.Context, runtime.Machine, string) error {
			return runtime.NewInvalidState(nil, "idle")
		}},
	"a cancel powers off": {part: "cancelling with nothing in flight",
		cancel: func(m *mutant, ctx context.Context, vm runtime.Machine, _ string) error {
			return m.both.PowerOff(ctx, vm, runtime.Forced)
		}},
	"a cancel reaches the next power-on": {part: "a cancel does not reach what is begun after it",
		cancel: func(m *mutant, _ context.Context, _ runtime.Machine, _ string) error { m.count++; return nil },
		powerOn: func(m *mutant, ctx context.Context, vm runtime.Machine) error {
			if m.count > 0 {
				m.count--
				return nil
			}
			return m.both.PowerOn(ctx, vm)
		}},
	"everything in flight is taken for ours": {part: "a task in flight that somebody else began is not cancelled",
		observe: seen(func(_ *mutant, o *runtime.Observation, _ *error) {
			for i := range o.InFlight {
				o.InFlight[i].Ours, o.InFlight[i].By = true, ""
			}
		})},
	"a second deletion is an error": {part: "deleting takes a machine away, twice is success",
		remove: func(m *mutant, ctx context.Context, vm runtime.Machine) error {
			if o, err := m.both.Observe(ctx, vm); err == nil && !o.Exists {
				return runtime.NewNotFound(nil, "gone")
			}
			return m.both.Delete(ctx, vm)
		}},
	"a deletion does nothing": {part: "deleting takes a machine away, twice is success",
		remove: func(*mutant, context.Context, runtime.Machine) error { return nil }},
	"an ended context does not matter": {part: "a call whose context has ended does nothing",
		powerOn: func(m *mutant, ctx context.Context, vm runtime.Machine) error {
			return m.both.PowerOn(context.WithoutCancel(ctx), vm)
		}},
	"a call does not return while there is no answer": {part: "a call that gets no answer returns when its context ends",
		powerOn: func(m *mutant, ctx context.Context, vm runtime.Machine) error {
			return m.both.PowerOn(context.WithoutCancel(ctx), vm)
		}},
	"an ended context is an error of its own": {part: "a call whose context has ended does nothing",
		powerOn: func(m *mutant, ctx context.Context, vm runtime.Machine) error {
			if ctx.Err() != nil {
				return errors.New("the socket was closed")
			}
			return m.both.PowerOn(ctx, vm)
		}},
	"a repeated move moves again": {part: "a machine is moved off its node once",
		migrate: func(m *mutant, ctx context.Context, vm runtime.Machine, target runtime.Target) error {
			target.Leave = ""
			return m.both.Migrate(ctx, vm, target)
		}},
	"a move to nowhere is no error": {part: "a move to where there is no node",
		migrate: func(m *mutant, ctx context.Context, vm runtime.Machine, target runtime.Target) error {
			if err := m.both.Migrate(ctx, vm, target); !runtime.IsInvalidState(err) {
				return err
			}
			return nil
		}},
}

// TestMutant runs the suite over the broken runtime that the environment names.
func TestMutant(t *testing.T) {
	name := os.Getenv(mutantVariable)
	if name == "" {
		t.Skip("TestSuiteCatches runs this in a process of its own")
	}
	patience = 5 * time.Second // one of them never returns
	Run(t, func(t *testing.T) Harness {
		h := harness(variants["tasks take a step"])(t)
		m := mutants[name]
		m.both = &both{h.Runtime, h.Runtime.(runtime.Migrator), h.Runtime.(runtime.Disks)}
		if m.disk != nil {
			m.Disks = m.disk(&m)
		}
		h.Runtime = &m
		return h
	})
}

func TestSuiteCatches(t *testing.T) {
	for name, m := range mutants {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			part := strings.ReplaceAll(m.part, " ", "_")
			run := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestMutant$/^"+part+"$")
			run.Env = append(os.Environ(), mutantVariable+"="+name)
			out, err := run.CombinedOutput()
			if err == nil || !strings.Contains(string(out), "--- FAIL: TestMutant/"+part) {
				t.Errorf("%q passed: %v\n%s", m.part, err, out)
			}
		})
	}
}
