package drive

import (
	"context"
	"slices"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/claim"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

const (
	cannotMove     = "the machine's runtime does not support migration"
	guestSuspended = "the machine is suspended, so its guest cannot be asked to shut down: start it first, or use --force"
)

// plan is an intent with its progress and an observation of the machine.
type plan struct {
	Intent
	Record
	seen runtime.Observation
	// moves is set during a move by hibernation: the node of the machine is not final.
	moves bool
}

// Baseline returns the observed state of a machine, to keep in a [Record].
func Baseline(seen *runtime.Observation) *v1alpha1.OperationBaseline {
	return &v1alpha1.OperationBaseline{PowerState: seen.Power, Incarnation: seen.Incarnation, NodeName: seen.NodeName}
}

// Reached reports whether a machine already is in the state of an intent that has not started.
func Reached(in Intent, seen runtime.Observation) bool {
	return (&plan{Intent: in, Record: Record{Was: Baseline(&seen)}, seen: seen}).reached()
}

// step returns the current step.
func (p *plan) step() runtime.TaskKind {
	all := claim.Steps(p.Type)
	if claim.Hides(p.Type) {
		return all[max(slices.Index(all, runtime.TaskKind(p.Step)), 0)]
	}
	for _, k := range all {
		if !p.effectSeen(k) {
			return k
		}
	}
	return p.goal()
}

// effectSeen reports whether the effect of a step is observed or not needed: an adopted machine is released in its
// current power state. A machine that others are starting is not off.
func (p *plan) effectSeen(k runtime.TaskKind) bool {
	if p.seen.Adopted && p.goal() == runtime.TaskDelete {
		return true
	}
	return p.seen.Power == claim.Effect(k) && (k != runtime.TaskPowerOff || !p.startedByOthers())
}

// startedByOthers reports whether others are powering on a machine that is off, which a PowerOff ends.
func (p *plan) startedByOthers() bool {
	return p.seen.Power == v1alpha1.PowerStopped && slices.ContainsFunc(p.seen.InFlight, func(t runtime.Task) bool {
		return t.Kind == runtime.TaskPowerOn && t.Yields
	})
}

// next returns the step after the current one, and whether there is one that must be persisted.
func (p *plan) next() (after v1alpha1.OperationStep, more bool) {
	all := claim.Steps(p.Type)
	i := slices.Index(all, p.step()) + 1
	if i >= len(all) || !claim.Hides(p.Type) {
		return "", false
	}
	return v1alpha1.OperationStep(all[i]), true
}

func (p *plan) goal() runtime.TaskKind { return claim.Goal(p.Type) }

// reached reports whether the observed state is that of the intent.
func (p *plan) reached() bool {
	switch goal := p.goal(); {
	case !p.seen.Exists: // a machine that does not exist is off; one that is not adopted yet may be on
		return goal == runtime.TaskPowerOff && !p.seen.Unadopted || goal == runtime.TaskDelete
	case goal == runtime.TaskDelete:
		return false
	case goal == runtime.TaskPowerOff:
		return p.seen.Power == v1alpha1.PowerStopped
	case p.Was == nil:
		return false
	case goal == runtime.TaskPowerOn: // with a restart, only in a new incarnation
		return p.seen.Power == v1alpha1.PowerRunning && (!claim.Hides(p.Type) || p.seen.Incarnation != p.Was.Incarnation)
	case p.moves:
		return false
	case p.Target.NodeName != "":
		return p.seen.NodeName == p.Target.NodeName
	}
	return p.Was.NodeName == "" || (p.seen.NodeName != "" && p.seen.NodeName != p.Was.NodeName)
}

// done reports whether the intent is reached for good: nothing is in flight, and the baseline is known if one is
// needed.
func (p *plan) done() bool {
	return p.seen.Quiet() && p.reached() && (p.Was != nil || p.goal() == runtime.TaskDelete)
}

// achieved returns the message for a completed intent.
func (p *plan) achieved() string {
	switch {
	case !p.seen.Exists:
		return "the machine does not exist, so it is already off"
	case claim.Moves(p.Type) && p.seen.NodeName != "":
		return "the machine is on node " + p.seen.NodeName
	case p.seen.Power == v1alpha1.PowerStopped:
		return "the machine is off"
	case claim.Hides(p.Type):
		return "the machine was powered off and is on again"
	}
	return "the machine is on"
}

// asksGuest reports whether the current step asks the guest to shut down. The guest is asked only once; a user who
// does not want to wait forces the stop.
func (p *plan) asksGuest() bool { return p.step() == runtime.TaskPowerOff && !p.Force }

func (p *plan) verb() string {
	switch {
	case p.asksGuest():
		return "guest shutdown request"
	case p.step() == runtime.TaskPowerOff:
		return "power-off"
	case p.step() == runtime.TaskRelocate:
		return "migration request"
	case p.step() == runtime.TaskDelete:
		return "deletion"
	}
	return "power-on"
}

// sender returns the runtime call of the current step, or nil if the runtime does not support it.
func (p *plan) sender(rt *runtime.Client) func(context.Context, runtime.Machine) error {
	switch k := p.step(); {
	case p.asksGuest():
		return func(ctx context.Context, m runtime.Machine) error { return rt.PowerOff(ctx, m, runtime.Graceful) }
	case k == runtime.TaskPowerOff:
		return func(ctx context.Context, m runtime.Machine) error { return rt.PowerOff(ctx, m, runtime.Forced) }
	case k == runtime.TaskPowerOn:
		return rt.PowerOn
	case k == runtime.TaskDelete:
		return rt.Delete
	case k != runtime.TaskRelocate, !runtime.Can[runtime.Migrator](rt):
		return nil
	}
	target := runtime.Target{NodeName: p.Target.NodeName, NodeSelector: p.Target.NodeSelector, Leave: p.Was.NodeName, Force: p.Force}
	return func(ctx context.Context, m runtime.Machine) error {
		return runtime.Use(ctx, rt, runtime.VerbMigrate, m, func(ctx context.Context, able runtime.Migrator) error {
			return able.Migrate(ctx, m, target)
		})
	}
}
