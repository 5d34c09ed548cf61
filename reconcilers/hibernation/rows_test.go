package hibernation_test

import (
	"strings"
	"testing"

	"sallyport.dev/sallyport/api/v1alpha1"
	. "sallyport.dev/sallyport/reconcilers/hibernation"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// with changes what there is.
type with func(*situation)

var (
	busy      with = func(s *situation) { s.seen.InFlight = []runtime.Task{{Kind: runtime.TaskRelocate}} }
	back      with = func(s *situation) { s.want.Back = true }
	late      with = func(s *situation) { s.want.Late, s.want.Rested = true, true }
	rested    with = func(s *situation) { s.want.Rested = true }
	toSource  with = func(s *situation) { s.want.To.NodeName = "a" }
	elsewhere with = func(s *situation) { s.want.To.NodeName = "c" }
	tried     with = func(s *situation) { s.seen.Hibernation.Tried = true }
	refused   with = func(s *situation) { s.seen.Hibernation.Refused = "there is no registry" }
	said      with = func(s *situation) { s.seen.Hibernation.Trouble = "disk full" }
	saved     with = func(s *situation) { s.seen.Hibernation.Saved = digest }
	stored    with = func(s *situation) {
		s.seen.Hibernation.Snapshot, s.seen.Hibernation.Digest = runtime.SnapshotPresent, digest
	}
	stale with = func(s *situation) {
		s.seen.Hibernation.Snapshot, s.seen.Hibernation.Digest = runtime.SnapshotPresent, "sha256:older"
	}
	absent   with = func(s *situation) { s.seen.Hibernation.Snapshot = runtime.SnapshotAbsent }
	new2     with = func(s *situation) { s.seen.Hibernation.Incarnation = "i-2" }
	off      with = func(s *situation) { s.seen.Hibernation.Power = v1alpha1.PowerStopped }
	foreign  with = func(s *situation) { s.seen.Hibernation.ID = "pod-3" }
	onTarget with = func(s *situation) { s.seen.Hibernation.Node = "b" }
	second   with = func(s *situation) {
		s.seen.Hibernation.ID, s.seen.Hibernation.Restored, s.seen.Hibernation.Node = restored, true, "b"
	}
	fits        with = func(s *situation) { s.seen.Hibernation.Fits = true }
	unreachable with = func(s *situation) { s.seen.Hibernation.Unreachable = true }
	fenced      with = func(s *situation) { s.want.Fenced = s.seen.Hibernation.ID }
	fencedOther with = func(s *situation) { s.want.Fenced = "pod-0" }
	anyNode     with = func(s *situation) { s.want.To.NodeName, s.want.Leave = "", "a" }
)

// in gives a situation of a move from node a to node b.
func in(step v1alpha1.MigrationStep, state runtime.InstanceState, changes ...with) situation {
	s := of(step, state, 0)
	s.want.Rested = false
	if s.move != nil {
		s.move.To.NodeName = "b"
	}
	for _, change := range changes {
		change(&s)
	}
	return s
}

// told says in short what a Step is.
func told(next Step, from v1alpha1.MigrationStep) string {
	switch {
	case next.Lost:
		return "lost"
	case next.Hopeless:
		return "hopeless"
	case next.Anew:
		return "a new move"
	case next.Aims:
		return "goes elsewhere"
	case next.Name != from:
		return "then " + string(next.Name)
	case next.Call != "" && next.Fenced:
		return string(next.Call) + " without its agent"
	case next.Call != "":
		return string(next.Call)
	case next.Reason != "":
		return "waits: " + string(next.Reason)
	}
	return "nothing"
}

const (
	hibernate = v1alpha1.MigrationHibernate
	wake      = v1alpha1.MigrationWake
	release   = v1alpha1.MigrationRelease
	restore   = v1alpha1.MigrationRestore
	discard   = v1alpha1.MigrationDiscard

	gone     = runtime.InstanceGone
	unplaced = runtime.InstanceUnplaced
	making   = runtime.InstanceMaking
	failed   = runtime.InstanceFailed
	live     = runtime.InstanceLive
	asleep   = runtime.InstanceAsleep
	leaving  = runtime.InstanceLeaving
)

// Every row, by what there is when it counts. H1 to H14 after a case are defects that others have had.
func TestRows(t *testing.T) {
	seen := map[string]bool{}
	for _, tc := range []struct {
		row  string
		what situation
		want string
	}{
		{"N1", in("", live, onTarget), "nothing"},
		{"N1", in("", live, onTarget, anyNode), "nothing"},
		{"N2", in("", live, refused), "hopeless"},
		{"N3", in("", live), "a new move"},
		{"N3", in("", live, anyNode), "a new move"},

		{"H1", in(hibernate, gone, stored), "lost"}, // the machine may have gone on after the push
		{"H2", in(hibernate, live, foreign), "then Discard"},
		{"H3", in(hibernate, asleep, foreign, saved, stored), "waits: InstanceInTheWay"},
		{"H4", in(hibernate, live, busy, late), "hopeless"}, // H12: no deadline
		{"H4", in(hibernate, live, busy, late, unreachable), "hopeless"},
		{"H5", in(hibernate, live, busy, unreachable), "waits: SourceUnreachable"}, // H14
		{"H5", in(hibernate, live, busy, unreachable, late, back, fenced), "waits: SourceUnreachable"},
		{"H6", in(hibernate, live, busy, late, back), "waits: Migrating"},      // it is being withdrawn
		{"H6", in(hibernate, asleep, busy, saved, stored), "waits: Migrating"}, // H5: an agent that is still at it
		{"H7", in(hibernate, live, back), "then Discard"},
		{"H7", in(hibernate, live, toSource), "then Discard"},
		{"H8", in(hibernate, live, tried, said), "hopeless"},
		{"H9", in(hibernate, live), "Hibernate"},
		{"H10", in(hibernate, asleep, back), "then Wake"},
		{"H10", in(hibernate, asleep, toSource, saved, stored), "then Wake"},
		{"H11", in(hibernate, asleep, saved, stored), "then Release"},
		{"H11", in(hibernate, asleep, saved, stored, anyNode), "then Release"}, // away from its node is not there
		{"H12", in(hibernate, asleep, saved, absent, late), "hopeless"},
		{"H13", in(hibernate, asleep, saved), "waits: RegistryUnavailable"},
		{"H14", in(hibernate, asleep, saved, absent), "waits: RegistryUnavailable"},
		{"H14", in(hibernate, asleep, saved, stale), "waits: RegistryUnavailable"},
		{"H14", in(hibernate, asleep, stored), "waits: RegistryUnavailable"}, // H7: a tag that no agent has confirmed
		{"H15", in(hibernate, leaving, saved, stored), "waits: Migrating"},

		{"W1", in(wake, gone, stored), "lost"},
		{"W2", in(wake, live, foreign), "then Discard"},
		{"W3", in(wake, asleep, foreign), "waits: InstanceInTheWay"},
		{"W4", in(wake, asleep, busy, unreachable), "waits: SourceUnreachable"},
		{"W5", in(wake, asleep, busy), "waits: Migrating"},
		{"W6", in(wake, live, new2), "then Discard"},
		{"W6", in(wake, live, off), "then Discard"},
		{"W7", in(wake, live, back), "waits: Migrating"}, // H4: what was seen before it slept
		{"W8", in(wake, asleep), "Wake"},
		{"W8", in(wake, asleep, elsewhere), "Wake"}, // H2: first it is awake, then it moves
		{"W9", in(wake, leaving), "waits: Migrating"},

		{"R1", in(release, gone, stored), "then Restore"},
		{"R1", in(release, gone, stored, back), "then Restore"}, // H6: whatever is wanted, it is restored
		{"R2", in(release, gone), "waits: RegistryUnavailable"},
		{"R3", in(release, gone, absent), "lost"},
		{"R3", in(release, gone, stale), "lost"},
		{"R4", in(release, live, foreign), "waits: InstanceInTheWay"}, // H13: another Pod of that name
		{"R5", in(release, leaving, unreachable, fenced), "Release without its agent"},
		{"R6", in(release, leaving, unreachable), "waits: SourceUnreachable"}, // H14
		{"R6", in(release, leaving, unreachable, fencedOther), "waits: SourceUnreachable"},
		{"R7", in(release, leaving), "waits: Migrating"},
		{"R7", in(release, leaving, fenced), "waits: Migrating"}, // the node answers
		{"R8", in(release, live, saved, stored), "then Discard"},
		{"R9", in(release, asleep, busy, unreachable, saved, stored), "waits: SourceUnreachable"},
		{"R10", in(release, asleep, busy, saved, stored), "waits: Migrating"},
		{"R11", in(release, asleep, back, saved, stored), "then Wake"},
		{"R12", in(release, asleep, saved, stored, late), "hopeless"}, // H12: somebody keeps the Pod
		{"R12", in(release, asleep, saved, stored, late, said), "hopeless"},
		{"R13", in(release, asleep, saved, stored), "Release"},
		{"R14", in(release, asleep, saved), "waits: RegistryUnavailable"},
		{"R14", in(release, asleep, saved, late), "waits: RegistryUnavailable"},
		{"R15", in(release, asleep, saved, absent), "then Wake"}, // H5: a tag that went after it was seen
		{"R15", in(release, asleep, saved, stale), "then Wake"},

		{"S1", in(restore, gone, stored, elsewhere), "goes elsewhere"},
		{"S1", in(restore, gone, stored, back), "goes elsewhere"},
		{"S2", in(restore, gone, stored), "Restore"},
		{"S3", in(restore, gone), "waits: RegistryUnavailable"},
		{"S4", in(restore, gone, absent), "lost"},
		{"S5", in(restore, unplaced, foreign), "waits: InstanceInTheWay"},
		{"S5", in(restore, live), "waits: InstanceInTheWay"},
		{"S6", in(restore, unplaced, second, fits, elsewhere), "goes elsewhere"}, // H3
		{"S6", in(restore, unplaced, second, fits, back), "goes elsewhere"},
		{"S7", in(restore, unplaced, second), "Retract"},
		{"S8", in(restore, unplaced, second, fits, late), "hopeless"}, // H12
		{"S9", in(restore, unplaced, second, fits), "waits: Unscheduled"},
		{"S10", in(restore, making, second, unreachable, fenced), "Retract without its agent"},
		{"S11", in(restore, making, second, unreachable), "waits: SourceUnreachable"},
		{"S12", in(restore, making, second), "waits: Migrating"},
		{"S12", in(restore, making, second, elsewhere, late), "waits: Migrating"}, // H1: what restores from it keeps it
		{"S13", in(restore, leaving, second), "waits: Migrating"},
		{"S14", in(restore, failed, second, said), "hopeless"},
		{"S15", in(restore, failed, second, back, rested), "Retract"},
		{"S16", in(restore, failed, second, back), "waits: Migrating"},
		{"S17", in(restore, live, second, new2), "then Discard"},
		{"S17", in(restore, live, second, new2, elsewhere), "then Discard"}, // H1: it is live before it moves again
		{"S17", in(restore, live, second, off), "then Discard"},             // its guest went off before it was put into the snapshot
		{"S18", in(restore, live, second), "waits: Migrating"},
		{"S19", in(restore, asleep, second), "waits: Migrating"},

		{"D1", in(discard, live, busy), "waits: Migrating"},
		{"D2", in(discard, live, second), "Discard"},
		{"D2", in(discard, live, back), "Discard"},
		{"D3", in(discard, live, elsewhere, refused), "hopeless"},
		{"D4", in(discard, live, second, elsewhere), "a new move"},
		{"D5", in(discard, gone, stored), "lost"},

		{"X", in(restore, unplaced, second, fits, func(s *situation) { s.seen.Hibernation = nil }), "waits: Migrating"},
		{"X", in(hibernate, making), "waits: Migrating"},
	} {
		next := Next(tc.what.move, &tc.what.seen, tc.what.want)
		step := v1alpha1.MigrationStep("")
		if tc.what.move != nil {
			step = tc.what.move.Step
		}
		if got := told(next, step); next.Row != tc.row || got != tc.want {
			t.Errorf("row %s (%s) is to say %q; it is row %s and says %q: %+v", tc.row, step, tc.want, next.Row, got, next)
		}
		seen[tc.row] = true
		if strings.ContainsAny(next.Message, "{}") {
			t.Errorf("row %s: the message has a name that nothing fills: %s", next.Row, next.Message)
		}
	}
	for _, r := range Rows {
		if !seen[r.Name] {
			t.Errorf("row %s has no case", r.Name)
		}
	}
}

// What people read has the names of what is there, and what somebody says of the trouble.
func TestMessages(t *testing.T) {
	for want, s := range map[string]situation{
		"the agent on node a failed to hibernate the machine: disk full":  in(hibernate, live, tried, said),
		"the machine cannot be put into a snapshot: there is no registry": in("", live, refused),
		"node a is gone or not ready: if you are certain that nothing runs on it anymore, confirm this with annotation " +
			"sallyport.dev/source-fenced=pod-1": in(release, leaving, unreachable),
		"waiting for a node to accept the machine: disk full": in(restore, unplaced, second, fits, said),
		"restoring the machine on b":                          in(restore, gone, stored),
	} {
		if next := Next(s.move, &s.seen, s.want); next.Message != want {
			t.Errorf("row %s says %q, want %q", next.Row, next.Message, want)
		}
	}
}

// outside are the rows that wait for something without a deadline and without a way back, with what ends them. Meanwhile the move does
// not count for the limits of other namespaces (policy placement-migration).
var outside = map[string]string{
	"H3": "the Pod in the way is deleted", "W3": "the Pod in the way is deleted", "R4": "the Pod in the way is deleted", "S5": "the Pod in the way is deleted",
	"H5": "the node is back", "W4": "the node is back", "R9": "the node is back",
	"R6": "the node is back, or a person confirms that it is dead", "S11": "the node is back, or a person confirms that it is dead",
	"H6": "the agent answers; while the machine is live, H4 is the deadline", "R10": "the agent answers", "S12": "the agent answers", "S18": "the agent answers",
	"S19": "the agent answers", "D1": "the agent answers", "W5": "the agent answers", "W7": "the agent answers", "W8": "the Pod can be changed: this is the way back",
	"H15": "the Pod is gone", "W9": "the Pod is gone", "R5": "the Pod is gone", "R7": "the Pod is gone", "S13": "the Pod is gone", "S10": "the Pod is gone",
	"S15": "the Pod can be deleted: nothing of it has run", "S16": "the agent's failure is followed by S15",
	"R2": "the registry answers: the machine is nowhere else", "S3": "the registry answers: the machine is nowhere else",
	"X": "the runtime reports something that is expected",
}

// Whatever a move waits for, or tries again, has a deadline or a way back, or is on the list above.
func TestEveryStepEnds(t *testing.T) {
	ends := map[string]bool{}
	every(func(s situation) {
		now := Next(s.move, &s.seen, s.want)
		if s.move == nil || now.Hopeless || now.Lost || now.Anew || now.Aims || now.Name != s.move.Step {
			return
		}
		late, back := s, s
		late.want.Late, back.want.Back = true, true
		afterwards, taken := Next(late.move, &late.seen, late.want), Next(back.move, &back.seen, back.want)
		is := afterwards.Hopeless || taken.Aims || taken.Name != s.move.Step || taken.Call == runtime.VerbDiscard
		before, seen := ends[now.Row]
		ends[now.Row] = is && (before || !seen)
	})
	for row, is := range ends {
		if is == (outside[row] != "") {
			t.Errorf("row %s has a deadline or a way back: %t, and is on the list: %q", row, is, outside[row])
		}
	}
	for row := range outside {
		if _, waits := ends[row]; !waits {
			t.Errorf("row %s waits for nothing", row)
		}
	}
}
