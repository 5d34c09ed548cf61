package hibernation

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// Want is the wanted outcome of a move.
type Want struct {
	// To is the wanted node. If it is empty, any node other than Leave is suitable.
	To    v1alpha1.MigrateTarget
	Leave string
	// Back means that the move is rolled back: the machine becomes live again, on its old node if possible, and on any node
	// otherwise.
	Back bool
	// Fenced is the instance whose node a user has confirmed to be dead.
	Fenced types.UID
	// Late means that the current step takes longer than it should ([Late]).
	Late bool
	// Rested means that the last attempt of the current step was some time ago ([Rested]).
	Rested bool
}

// Step is the next step of a move.
type Step struct {
	// Row is the name of the table's row.
	Row string
	// Name is the step of the move, or empty. If it differs from the persisted one, or Aims is set, it is persisted
	// and nothing else is done.
	Name v1alpha1.MigrationStep
	// Anew starts a new move, whatever is persisted. Aims changes the target of the current one.
	Anew, Aims bool
	// Call is the runtime call, or empty. With Fenced it does not wait for an agent.
	Call   runtime.Verb
	Fenced bool
	// Hopeless means that the move cannot succeed: its holder must give it up and roll it back with [Want.Back].
	Hopeless bool
	// Lost means that neither an instance nor a snapshot is known to contain the last state of the machine.
	Lost bool
	// Reason and Message say what the move waits for, or what is wrong.
	Reason  v1alpha1.ConditionReason
	Message string
}

// stepTimeout is how long a step may take before it is given up, where it can be; retryInterval is how long a failed
// step waits before it is retried.
const (
	stepTimeout   = 5 * time.Minute
	retryInterval = 30 * time.Second
)

// Late reports whether the current step of a move takes longer than it should.
func Late(m *v1alpha1.Migration, now time.Time) bool {
	return m != nil && now.After(m.Since.Add(stepTimeout))
}

// Rested reports whether the last attempt of the current step was long enough ago for another one.
func Rested(m *v1alpha1.Migration, now time.Time) bool {
	return m != nil && now.After(m.Since.Add(retryInterval))
}

// view is the input of a decision.
type view struct {
	Want
	move *v1alpha1.Migration
	seen *runtime.Hibernation
	busy bool
}

// Next returns the next step for an observed machine. move is nil if none has started.
func Next(move *v1alpha1.Migration, seen *runtime.Observation, want Want) Step {
	v := &view{Want: want, move: move, seen: seen.Hibernation, busy: !seen.Quiet()}
	if v.seen == nil {
		return v.step(&Row{Name: "X", Then: Outcome{Reason: v1alpha1.ReasonMigrating, Message: "the runtime does not report which instance of the machine exists"}})
	}
	for i := range Rows {
		if r := &Rows[i]; r.In == v.currentStep() && (len(r.Instance) == 0 || slices.Contains(r.Instance, v.seen.Instance)) && r.when.holds(v) {
			return v.step(r)
		}
	}
	return v.step(&Row{Name: "X", Then: Outcome{Reason: v1alpha1.ReasonMigrating, Message: "unexpected state of the instance: {state}; taking no action"}})
}

func (v *view) currentStep() v1alpha1.MigrationStep {
	if v.move == nil {
		return ""
	}
	return v.move.Step
}

// step returns the step of a row, with placeholders filled in.
func (v *view) step(r *Row) Step {
	name := v.currentStep()
	if r.Then.Step != nil {
		name = *r.Then.Step
	}
	message := v.fillIn(r.Then.Message)
	if v.seen != nil {
		if why := cmp.Or(v.seen.Refused, v.seen.Trouble); why != "" && message != "" {
			message += ": " + why
		}
	}
	return Step{
		Row: r.Name, Name: name, Anew: r.Then.Anew, Aims: r.Then.Aims, Call: r.Then.Call, Fenced: r.Then.Fenced,
		Hopeless: r.Then.Hopeless, Lost: r.Then.Lost, Reason: r.Then.Reason, Message: message,
	}
}

// fillIn replaces the placeholders of a message.
func (v *view) fillIn(message string) string {
	put := func(key, value string) { message = strings.ReplaceAll(message, key, value) }
	if v.move != nil {
		put("{move}", string(v.move.ID))
		put("{from}", v.move.Was.NodeName)
		put("{to}", v.target())
	}
	if v.seen != nil {
		put("{node}", v.seen.Node)
		put("{instance}", string(v.seen.ID))
		put("{state}", strings.ToLower(string(v.seen.Instance)))
	}
	return message
}

func (v *view) target() string {
	if v.move.Back {
		return "any node"
	}
	return cmp.Or(v.move.To.NodeName, "another node")
}

// here reports whether the machine is on the wanted node.
func (v *view) here() bool {
	switch {
	case v.Back:
		return true
	case v.To.NodeName != "":
		return v.seen.Node == v.To.NodeName
	}
	return v.Leave != "" && v.seen.Node != v.Leave
}

// aims reports whether the target of the move is the currently wanted one.
func (v *view) aims() bool {
	if v.Back || v.move.Back {
		return v.Back == v.move.Back
	}
	return equality.Semantic.DeepEqual(v.move.To, v.To)
}

// other reports whether the instance is not the source instance of the move.
func (v *view) other() bool { return v.seen.ID != v.move.Instance }

// proven reports whether the registry has the snapshot that the agent has confirmed for this move, and the same as
// before.
func (v *view) proven() bool {
	return v.seen.Saved != "" && v.seen.Snapshot == runtime.SnapshotPresent && v.seen.Digest == v.seen.Saved &&
		(v.move.Digest == "" || v.move.Digest == v.seen.Saved)
}

// kept reports whether the registry has the proven snapshot.
func (v *view) kept() bool {
	return v.seen.Snapshot == runtime.SnapshotPresent && v.move.Digest != "" && v.seen.Digest == v.move.Digest
}

// came reports whether the instance runs in a new incarnation, or is off: a guest that was off in the snapshot, or
// shut down after the move began, is restored off.
func (v *view) came() bool {
	return v.seen.Power == v1alpha1.PowerStopped || v.seen.Incarnation != "" && v.seen.Incarnation != v.move.Was.Incarnation
}
