package hibernation

import (
	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// Row is a row of the table of [Next]. The first matching row of a step applies.
type Row struct {
	// Name identifies the row, such as R9.
	Name string
	// In is the persisted step, empty if no move has begun.
	In v1alpha1.MigrationStep
	// Instance lists the states of the instance that match. None matches any state.
	Instance []runtime.InstanceState
	when     condition
	Then     Outcome
}

// When describes the condition of the row in words.
func (r *Row) When() string { return r.when.text }

// Outcome is the outcome of a Row, as in [Step]. Without a step the move stays in its current one.
type Outcome struct {
	Step           *v1alpha1.MigrationStep
	Anew, Aims     bool
	Call           runtime.Verb
	Fenced         bool
	Hopeless, Lost bool
	Reason         v1alpha1.ConditionReason
	Message        string
}

// condition is the condition under which a row applies.
type condition struct {
	text  string
	holds func(*view) bool
}

var (
	always             = condition{"", func(*view) bool { return true }}
	busy               = condition{"its agent is working on it", func(v *view) bool { return v.busy }}
	here               = condition{"it is on the wanted node, or the move is being rolled back", (*view).here}
	refused            = condition{"it cannot be put into a snapshot", func(v *view) bool { return v.seen.Refused != "" }}
	other              = condition{"it is not the source instance of the move", (*view).other}
	notRestored        = condition{"it was not restored from the snapshot of the move", func(v *view) bool { return v.other() && !v.seen.Restored || !v.other() }}
	tried              = condition{"its agent has answered, but it is not asleep", func(v *view) bool { return v.seen.Tried }}
	late               = condition{"the step has timed out", func(v *view) bool { return v.Late }}
	unreachablePending = condition{"an agent action is pending, and its node is gone or not ready", func(v *view) bool { return v.busy && v.seen.Unreachable }}
	lateAtWork         = condition{"its agent is working on it and has timed out", func(v *view) bool { return v.busy && v.Late && !v.Back }}
	proven             = condition{"the snapshot is proven", (*view).proven}
	provenLate         = condition{"the snapshot is proven, the step has timed out, and the move is not being rolled back", func(v *view) bool { return v.proven() && v.Late && !v.Back }}
	unsure             = condition{"the registry cannot be read", func(v *view) bool { return v.seen.Snapshot == runtime.SnapshotUnknown }}
	kept               = condition{"the registry has the snapshot", (*view).kept}
	keptAstray         = condition{"the registry has the snapshot, and the wanted node has changed", func(v *view) bool { return v.kept() && !v.aims() }}
	astray             = condition{"the wanted node has changed", func(v *view) bool { return !v.aims() }}
	misfit             = condition{"its Pod has another target than the move", func(v *view) bool { return !v.seen.Fits }}
	lateForward        = condition{"the step has timed out, and the move is not being rolled back", func(v *view) bool { return v.Late && !v.Back }}
	forward            = condition{"the move is not being rolled back", func(v *view) bool { return !v.Back }}
	rested             = condition{"the retry interval has passed", func(v *view) bool { return v.Rested }}
	fenced             = condition{"a user has confirmed that its node is dead", func(v *view) bool { return v.seen.Unreachable && v.Fenced != "" && v.Fenced == v.seen.ID }}
	unreachable        = condition{"its node is gone or not ready", func(v *view) bool { return v.seen.Unreachable }}
	came               = condition{"it runs under a new instance ID, or is off", (*view).came}
)

func to(step v1alpha1.MigrationStep) Outcome { return Outcome{Step: &step} }

func call(verb runtime.Verb, message string) Outcome {
	return Outcome{Call: verb, Reason: v1alpha1.ReasonMigrating, Message: message}
}

func without(agent Outcome) Outcome {
	agent.Fenced = true
	return agent
}

func waits(reason v1alpha1.ConditionReason, message string) Outcome {
	return Outcome{Reason: reason, Message: message}
}

func hopeless(message string) Outcome {
	return Outcome{Hopeless: true, Reason: v1alpha1.ReasonMigrating, Message: message}
}

var (
	begin = Outcome{Step: new(v1alpha1.MigrationHibernate), Anew: true}
	aims  = Outcome{Aims: true}
	over  = Outcome{Step: new(v1alpha1.MigrationStep(""))}
	lost  = Outcome{Lost: true, Reason: v1alpha1.ReasonInstanceLost, Message: "no instance exists, and no snapshot is known to hold the last state of the machine (move {move})"}

	registry = waits(v1alpha1.ReasonRegistryUnavailable, "waiting for the registry: cannot tell whether it has the snapshot")
	foreign  = waits(v1alpha1.ReasonInstanceInTheWay, "waiting for the deletion of Pod {instance}, which is not an instance of this move")
	gone     = waits(v1alpha1.ReasonSourceUnreachable, "node {node}, which has the machine, is gone or not ready: the move continues when the node is back")
	vanished = waits(v1alpha1.ReasonSourceUnreachable,
		"node {node} is gone or not ready: if you are certain that nothing runs on it anymore, confirm this with annotation "+v1alpha1.AnnotationSourceFenced+"={instance}")
)

func in(states ...runtime.InstanceState) []runtime.InstanceState { return states }

// Rows is the table of [Next].
var Rows = []Row{
	{"N1", "", in(runtime.InstanceLive), here, over},
	{"N2", "", in(runtime.InstanceLive), refused, hopeless("the machine cannot be put into a snapshot")},
	{"N3", "", in(runtime.InstanceLive), always, begin},

	{"H1", v1alpha1.MigrationHibernate, in(runtime.InstanceGone), always, lost},
	{"H2", v1alpha1.MigrationHibernate, in(runtime.InstanceLive), other, to(v1alpha1.MigrationDiscard)},
	{"H3", v1alpha1.MigrationHibernate, nil, other, foreign},
	{"H4", v1alpha1.MigrationHibernate, in(runtime.InstanceLive), lateAtWork, hopeless("the agent on node {from} did not hibernate the machine in time")},
	{"H5", v1alpha1.MigrationHibernate, in(runtime.InstanceLive, runtime.InstanceAsleep), unreachablePending, gone},
	{"H6", v1alpha1.MigrationHibernate, in(runtime.InstanceLive, runtime.InstanceAsleep), busy, waits(v1alpha1.ReasonMigrating, "the agent on node {from} is hibernating the machine")},
	{"H7", v1alpha1.MigrationHibernate, in(runtime.InstanceLive), here, to(v1alpha1.MigrationDiscard)},
	{"H8", v1alpha1.MigrationHibernate, in(runtime.InstanceLive), tried, hopeless("the agent on node {from} failed to hibernate the machine")},
	{"H9", v1alpha1.MigrationHibernate, in(runtime.InstanceLive), always, call(runtime.VerbHibernate, "asking the agent on node {from} to hibernate the machine")},
	{"H10", v1alpha1.MigrationHibernate, in(runtime.InstanceAsleep), here, to(v1alpha1.MigrationWake)},
	{"H11", v1alpha1.MigrationHibernate, in(runtime.InstanceAsleep), proven, to(v1alpha1.MigrationRelease)},
	{"H12", v1alpha1.MigrationHibernate, in(runtime.InstanceAsleep), late, hopeless("the registry does not have the snapshot that the agent on node {from} confirmed")},
	{"H13", v1alpha1.MigrationHibernate, in(runtime.InstanceAsleep), unsure, registry},
	{"H14", v1alpha1.MigrationHibernate, in(runtime.InstanceAsleep), always, waits(v1alpha1.ReasonRegistryUnavailable, "waiting for the registry: it does not have the snapshot that the agent on node {from} confirmed")},
	{"H15", v1alpha1.MigrationHibernate, in(runtime.InstanceLeaving), always, waits(v1alpha1.ReasonMigrating, "Pod {instance} is being deleted, but not by this move")},

	{"W1", v1alpha1.MigrationWake, in(runtime.InstanceGone), always, lost},
	{"W2", v1alpha1.MigrationWake, in(runtime.InstanceLive), other, to(v1alpha1.MigrationDiscard)},
	{"W3", v1alpha1.MigrationWake, nil, other, foreign},
	{"W4", v1alpha1.MigrationWake, in(runtime.InstanceLive, runtime.InstanceAsleep), unreachablePending, gone},
	{"W5", v1alpha1.MigrationWake, in(runtime.InstanceLive, runtime.InstanceAsleep), busy, waits(v1alpha1.ReasonMigrating, "the agent on node {from} is waking the machine")},
	{"W6", v1alpha1.MigrationWake, in(runtime.InstanceLive), came, to(v1alpha1.MigrationDiscard)},
	{"W7", v1alpha1.MigrationWake, in(runtime.InstanceLive), always, waits(v1alpha1.ReasonMigrating, "waiting for the agent on node {from}: it still reports the machine on under the previous instance ID")},
	{"W8", v1alpha1.MigrationWake, in(runtime.InstanceAsleep), always, call(runtime.VerbWake, "asking the agent on node {from} to wake the machine")},
	{"W9", v1alpha1.MigrationWake, in(runtime.InstanceLeaving), always, waits(v1alpha1.ReasonMigrating, "Pod {instance} is being deleted, but not by this move")},

	{"R1", v1alpha1.MigrationRelease, in(runtime.InstanceGone), kept, to(v1alpha1.MigrationRestore)},
	{"R2", v1alpha1.MigrationRelease, in(runtime.InstanceGone), unsure, registry},
	{"R3", v1alpha1.MigrationRelease, in(runtime.InstanceGone), always, lost},
	{"R4", v1alpha1.MigrationRelease, nil, other, foreign},
	{"R5", v1alpha1.MigrationRelease, in(runtime.InstanceLeaving), fenced, without(call(runtime.VerbRelease, "removing Pod {instance} from node {from}, which is confirmed to be dead"))},
	{"R6", v1alpha1.MigrationRelease, in(runtime.InstanceLeaving), unreachable, vanished},
	{"R7", v1alpha1.MigrationRelease, in(runtime.InstanceLeaving), always, waits(v1alpha1.ReasonMigrating, "waiting for the agent on node {from} to clean up the machine")},
	{"R8", v1alpha1.MigrationRelease, in(runtime.InstanceLive), always, to(v1alpha1.MigrationDiscard)},
	{"R9", v1alpha1.MigrationRelease, in(runtime.InstanceAsleep), unreachablePending, gone},
	{"R10", v1alpha1.MigrationRelease, in(runtime.InstanceAsleep), busy, waits(v1alpha1.ReasonMigrating, "waiting for the agent on node {from}")},
	{"R11", v1alpha1.MigrationRelease, in(runtime.InstanceAsleep), here, to(v1alpha1.MigrationWake)},
	{"R12", v1alpha1.MigrationRelease, in(runtime.InstanceAsleep), provenLate, hopeless("Pod {instance} could not be removed from node {from} in time")},
	{"R13", v1alpha1.MigrationRelease, in(runtime.InstanceAsleep), proven, call(runtime.VerbRelease, "removing Pod {instance} from node {from}")},
	{"R14", v1alpha1.MigrationRelease, in(runtime.InstanceAsleep), unsure, registry},
	{"R15", v1alpha1.MigrationRelease, in(runtime.InstanceAsleep), always, to(v1alpha1.MigrationWake)},

	{"S1", v1alpha1.MigrationRestore, in(runtime.InstanceGone), keptAstray, aims},
	{"S2", v1alpha1.MigrationRestore, in(runtime.InstanceGone), kept, call(runtime.VerbRestore, "restoring the machine on {to}")},
	{"S3", v1alpha1.MigrationRestore, in(runtime.InstanceGone), unsure, registry},
	{"S4", v1alpha1.MigrationRestore, in(runtime.InstanceGone), always, lost},
	{"S5", v1alpha1.MigrationRestore, nil, notRestored, foreign},
	{"S6", v1alpha1.MigrationRestore, in(runtime.InstanceUnplaced), astray, aims},
	{"S7", v1alpha1.MigrationRestore, in(runtime.InstanceUnplaced), misfit, call(runtime.VerbRetract, "replacing the unscheduled Pod with one for {to}")},
	{"S8", v1alpha1.MigrationRestore, in(runtime.InstanceUnplaced), lateForward, hopeless("no node accepted the machine in time")},
	{"S9", v1alpha1.MigrationRestore, in(runtime.InstanceUnplaced), always, waits(v1alpha1.ReasonUnscheduled, "waiting for a node to accept the machine")},
	{"S10", v1alpha1.MigrationRestore, in(runtime.InstanceMaking, runtime.InstanceLeaving), fenced, without(call(runtime.VerbRetract, "removing Pod {instance} from node {node}, which is confirmed to be dead"))},
	{"S11", v1alpha1.MigrationRestore, in(runtime.InstanceMaking, runtime.InstanceLeaving), unreachable, vanished},
	{"S12", v1alpha1.MigrationRestore, in(runtime.InstanceMaking), always, waits(v1alpha1.ReasonMigrating, "the agent on node {node} is restoring the machine")},
	{"S13", v1alpha1.MigrationRestore, in(runtime.InstanceLeaving), always, waits(v1alpha1.ReasonMigrating, "Pod {instance} is being deleted")},
	{"S14", v1alpha1.MigrationRestore, in(runtime.InstanceFailed), forward, hopeless("the agent on node {node} failed to restore the machine")},
	{"S15", v1alpha1.MigrationRestore, in(runtime.InstanceFailed), rested, call(runtime.VerbRetract, "the agent on node {node} failed to restore the machine, retrying")},
	{"S16", v1alpha1.MigrationRestore, in(runtime.InstanceFailed), always, waits(v1alpha1.ReasonMigrating, "the agent on node {node} failed to restore the machine, retrying soon")},
	{"S17", v1alpha1.MigrationRestore, in(runtime.InstanceLive), came, to(v1alpha1.MigrationDiscard)},
	{"S18", v1alpha1.MigrationRestore, in(runtime.InstanceLive), always, waits(v1alpha1.ReasonMigrating, "waiting for the agent on node {node}: it does not report the restored machine on under a new instance ID yet")},
	{"S19", v1alpha1.MigrationRestore, in(runtime.InstanceAsleep), always, waits(v1alpha1.ReasonMigrating, "waiting for the agent on node {node}: it reports the restored machine as hibernated")},

	{"D1", v1alpha1.MigrationDiscard, in(runtime.InstanceLive), busy, waits(v1alpha1.ReasonMigrating, "waiting for the agent on node {node}")},
	{"D2", v1alpha1.MigrationDiscard, in(runtime.InstanceLive), here, call(runtime.VerbDiscard, "removing the snapshot of the last move")},
	{"D3", v1alpha1.MigrationDiscard, in(runtime.InstanceLive), refused, hopeless("the machine cannot be put into a snapshot")},
	{"D4", v1alpha1.MigrationDiscard, in(runtime.InstanceLive), always, begin},
	{"D5", v1alpha1.MigrationDiscard, in(runtime.InstanceGone), always, lost},
}
