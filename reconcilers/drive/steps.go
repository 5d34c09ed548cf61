package drive

import (
	"context"
	"slices"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/claim"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

const (
	cannotMove = "the machine's runtime does not support migration"
	cannotHear = "the machine is suspended, so its guest cannot be asked to shut down: start it first, or use --force"
)

// plan is an intent and how far it has come on a machine as it was seen.
type plan struct {
	Intent
	Record
	seen runtime.Observation
	// moves tells that the machine is being moved by hibernation: wherever it is, it is not there for good.
	moves bool
}

// Baseline is the observed state of a machine, to keep in a [Record].
func Baseline(seen *runtime.Observation) *v1alpha1.OperationBaseline {
	return &v1alpha1.OperationBaseline{PowerState: seen.Power, Incarnation: seen.Incarnation, NodeName: seen.NodeName}
}

// Reached reports whether a machine already is in the state of an intent that has not
// started.
func Reached(in Intent, seen runtime.Observation) bool {
	return (&plan{Intent: in, Record: Record{Was: Baseline(&seen)}, seen: seen}).reached()
}

// step is what is done now.
func (p *plan) step() runtime.TaskKind {
	all := claim.Steps(p.Type)
	if claim.Hides(p.Type) {
		return all[max(slices.Index(all, runtime.TaskKind(p.Step)), 0)]
	}
	for _, k := range all {
		if !p.over(k) {
			return k
		}
	}
	return p.goal()
}

// over reports whether the effect of a step is seen, or not wanted: a machine that was adopted is released as it is.
func (p *plan) over(k runtime.TaskKind) bool {
	return p.seen.Power == claim.Effect(k) || (p.seen.Adopted && p.goal() == runtime.TaskDelete)
}

// next is the step after this one, where that has to be written down, and whether there is one.
func (p *plan) next() (after v1alpha1.OperationStep, more bool) {
	all := claim.Steps(p.Type)
	i := slices.Index(all, p.step()) + 1
	if i >= len(all) || !claim.Hides(p.Type) {
		return "", false
	}
	return v1alpha1.OperationStep(all[i]), true
}

// goal is the last step.
func (p *plan) goal() runtime.TaskKind { return claim.Goal(p.Type) }

// reached reports whether the machine is as it is wanted.
func (p *plan) reached() bool {
	switch goal := p.goal(); {
	case !p.seen.Exists: // what is not there is off
		return goal == runtime.TaskPowerOff || goal == runtime.TaskDelete
	case goal == runtime.TaskDelete:
		return false
	case goal == runtime.TaskPowerOff:
		return p.seen.Power == v1alpha1.PowerStopped
	case p.Was == nil:
		return false
	case goal == runtime.TaskPowerOn: // of one that was got off before, in another incarnation
		return p.seen.Power == v1alpha1.PowerRunning && (!claim.Hides(p.Type) || p.seen.Incarnation != p.Was.Incarnation)
	case p.moves:
		return false
	case p.Target.NodeName != "":
		return p.seen.NodeName == p.Target.NodeName
	}
	return p.Was.NodeName == "" || (p.seen.NodeName != "" && p.seen.NodeName != p.Was.NodeName)
}

// done reports whether that is so for good: nothing is in flight, and it is known what was before, where that is told.
func (p *plan) done() bool {
	return p.seen.Quiet() && p.reached() && (p.Was != nil || p.goal() == runtime.TaskDelete)
}

// achieved says for people what the machine was seen to be like at the end.
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

// asksGuest reports whether the guest is asked now. That is done once: a guest that was asked has its reasons, and whoever does not
// want to wait for them forces it.
func (p *plan) asksGuest() bool { return p.step() == runtime.TaskPowerOff && !p.Force }

// verb says for people what the runtime is told.
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

// sender gives the call that tells the runtime, nil if the runtime cannot be told that.
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
