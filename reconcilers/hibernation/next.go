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

// Want is what is wanted of a machine.
type Want struct {
	// To is the wanted node. If it is empty, every node other than Leave will do.
	To    v1alpha1.MigrateTarget
	Leave string
	// Back means that the move is rolled back: the machine becomes live again, on its old node if possible, and on any node
	// otherwise.
	Back bool
	// Fenced is the instance whose node a user has confirmed to be dead.
	Fenced types.UID
	// Late means that the present step takes longer than it should ([Late]).
	Late bool
	// Rested means that the present step was begun, or tried again, some time ago ([Rested]).
	Rested bool
}

// Step is what comes next.
type Step struct {
	// Row is the row of the table that says so.
	Row string
	// Name is the step that the move is in, and empty for none. If it is another than the persisted one, or Aims, that is persisted, and
	// nothing else is done.
	Name v1alpha1.MigrationStep
	// Anew means that a new move begins, whatever is persisted, and Aims that the present one goes to another place.
	Anew, Aims bool
	// Call is the call to the runtime, or empty: with Fenced, it does not wait for an agent.
	Call   runtime.Verb
	Fenced bool
	// Hopeless means that the move cannot succeed: its holder must give it up and roll it back with [Want.Back].
	Hopeless bool
	// Lost means that there is neither an instance nor a snapshot that is known to be the machine as it was last.
	Lost bool
	// Reason and Message say what is waited for, or what is wrong.
	Reason  v1alpha1.ConditionReason
	Message string
}

// How long a step may take before it is given up, where it can be, and how long a failed one rests before it is tried again.
const (
	patience = 5 * time.Minute
	rest     = 30 * time.Second
)

// Late reports whether the present step of a move takes longer than it should.
func Late(m *v1alpha1.Migration, now time.Time) bool {
	return m != nil && now.After(m.Since.Add(patience))
}

// Rested reports whether the present step of a move was begun, or tried again, long enough ago to be tried once more.
func Rested(m *v1alpha1.Migration, now time.Time) bool {
	return m != nil && now.After(m.Since.Add(rest))
}

// view is all that a decision rests on.
type view struct {
	Want
	move *v1alpha1.Migration
	seen *runtime.Hibernation
	busy bool
}

// Next returns the next step of a machine that was observed like that. The move is nil if none has
// started.
func Next(move *v1alpha1.Migration, seen *runtime.Observation, want Want) Step {
	v := &view{Want: want, move: move, seen: seen.Hibernation, busy: !seen.Quiet()}
	if v.seen == nil {
		return v.step(&Row{Name: "X", Then: Outcome{Reason: v1alpha1.ReasonMigrating, Message: "the runtime does not report which instance of the machine exists"}})
	}
	for i := range Rows {
		if r := &Rows[i]; r.In == v.present() && (len(r.Instance) == 0 || slices.Contains(r.Instance, v.seen.Instance)) && r.when.holds(v) {
			return v.step(r)
		}
	}
	return v.step(&Row{Name: "X", Then: Outcome{Reason: v1alpha1.ReasonMigrating, Message: "unexpected state of the instance: {state}; taking no action"}})
}

func (v *view) present() v1alpha1.MigrationStep {
	if v.move == nil {
		return ""
	}
	return v.move.Step
}

// step is what the row says, for people with the names of what is there.
func (v *view) step(r *Row) Step {
	name := v.present()
	if r.Then.Step != nil {
		name = *r.Then.Step
	}
	message := v.name(r.Then.Message)
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

// name puts the names of what is there into a message.
func (v *view) name(message string) string {
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

// target is where the move goes, for people.
func (v *view) target() string {
	if v.move.Back {
		return "any node"
	}
	return cmp.Or(v.move.To.NodeName, "another node")
}

// here reports whether the machine is wanted on the node on which it is.
func (v *view) here() bool {
	switch {
	case v.Back:
		return true
	case v.To.NodeName != "":
		return v.seen.Node == v.To.NodeName
	}
	return v.Leave != "" && v.seen.Node != v.Leave
}

// aims reports whether the move goes where it is wanted now.
func (v *view) aims() bool {
	if v.Back || v.move.Back {
		return v.Back == v.move.Back
	}
	return equality.Semantic.DeepEqual(v.move.To, v.To)
}

// other reports whether the instance is not the one that the move leaves.
func (v *view) other() bool { return v.seen.ID != v.move.Instance }

// proven reports whether the registry has what the agent has confirmed for this move, and what was proven before.
func (v *view) proven() bool {
	return v.seen.Saved != "" && v.seen.Snapshot == runtime.SnapshotPresent && v.seen.Digest == v.seen.Saved &&
		(v.move.Digest == "" || v.move.Digest == v.seen.Saved)
}

// kept reports whether the registry has what was proven.
func (v *view) kept() bool {
	return v.seen.Snapshot == runtime.SnapshotPresent && v.move.Digest != "" && v.seen.Digest == v.move.Digest
}

// came reports whether the instance shows that the machine was made to run again, or that it is off: it was put into the snapshot off,
// also if its guest went off after the move began.
func (v *view) came() bool {
	return v.seen.Power == v1alpha1.PowerStopped || v.seen.Incarnation != "" && v.seen.Incarnation != v.move.Was.Incarnation
}
