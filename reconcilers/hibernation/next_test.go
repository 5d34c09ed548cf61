package hibernation_test

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	. "sallyport.dev/sallyport/reconcilers/hibernation"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

const (
	source, restored types.UID = "pod-1", "pod-2"
	digest                     = "sha256:d"
)

// situation is one of all that there can be.
type situation struct {
	move *v1alpha1.Migration
	seen runtime.Observation
	want Want
}

func (s situation) String() string {
	move := "none"
	if s.move != nil {
		move = fmt.Sprintf("%s to %+v (back %t) with digest %q", s.move.Step, s.move.To, s.move.Back, s.move.Digest)
	}
	return fmt.Sprintf("move %s, seen %+v (in flight %v), want %+v", move, *s.seen.Hibernation, s.seen.InFlight, s.want)
}

// asleep tells whether the instance that is left is hibernated.
func (s situation) asleep() bool {
	return s.seen.Hibernation.Instance == runtime.InstanceAsleep && s.seen.Hibernation.ID == s.move.Instance
}

var (
	steps = []v1alpha1.MigrationStep{
		"", v1alpha1.MigrationHibernate, v1alpha1.MigrationWake, v1alpha1.MigrationRelease, v1alpha1.MigrationRestore, v1alpha1.MigrationDiscard,
	}
	states = []runtime.InstanceState{
		runtime.InstanceGone, runtime.InstanceUnplaced, runtime.InstanceMaking, runtime.InstanceFailed, runtime.InstanceLive,
		runtime.InstanceAsleep, runtime.InstanceLeaving,
	}
)

// every calls visit with every situation that differs in what the table can tell apart.
func every(visit func(situation)) {
	for _, step := range steps {
		for _, state := range states {
			for bits := range 1 << 14 {
				visit(of(step, state, bits))
			}
		}
	}
}

// of gives the situation that the bits say.
func of(step v1alpha1.MigrationStep, state runtime.InstanceState, bits int) situation {
	bit := func() bool {
		is := bits&1 == 1
		bits >>= 1
		return is
	}
	s := situation{want: Want{To: v1alpha1.MigrateTarget{NodeName: "b"}, Back: bit(), Late: bit()}}
	s.want.Rested = s.want.Late
	h := &runtime.Hibernation{Instance: state, ID: source, Node: "a", Power: v1alpha1.PowerRunning, Incarnation: "i-1", Tried: bit(), Fits: bit()}
	if bit() {
		h.ID, h.Restored = restored, bit()
	}
	if bit() {
		h.Node = "b"
	}
	if bit() {
		h.Incarnation = "i-2"
	}
	if h.Unreachable = bit(); h.Unreachable && h.Restored == s.want.Late {
		s.want.Fenced = h.ID
	}
	if bit() {
		h.Saved = digest
	}
	h.Snapshot = []runtime.SnapshotState{runtime.SnapshotUnknown, runtime.SnapshotAbsent, runtime.SnapshotPresent, runtime.SnapshotPresent}[bits&3]
	if h.Digest = map[int]string{2: digest, 3: "sha256:other"}[bits&3]; state == runtime.InstanceGone {
		h.ID, h.Node, h.Saved = "", "", ""
	}
	bits >>= 2
	if s.seen.Hibernation = h; bit() {
		h.Power = v1alpha1.PowerStopped
	}
	if h.Refused = "for a reason"; !h.Tried || !h.Fits { // which matters where these do not
		h.Refused = ""
	}
	if bit() && (state == runtime.InstanceLive || state == runtime.InstanceAsleep) {
		s.seen.InFlight = []runtime.Task{{Kind: runtime.TaskRelocate}}
	}
	if step == "" {
		return s
	}
	s.move = &v1alpha1.Migration{
		ID: "m-1", Step: step, Instance: source, To: s.want.To,
		Was: v1alpha1.OperationBaseline{PowerState: v1alpha1.PowerRunning, Incarnation: "i-1", NodeName: "a"},
	}
	if step != v1alpha1.MigrationHibernate {
		s.move.Digest = digest
	}
	if h.Fits != h.Tried { // which do not matter to each other
		s.move.To.NodeName = "c"
	}
	return s
}

// Whatever is persisted and seen: nothing is done that could lose the machine, or have two of it.
func TestGates(t *testing.T) {
	gates := map[string]func(situation, Step) bool{
		"an instance is removed only if it is asleep, its own snapshot is the one that was proven, and nothing is in flight": func(s situation, next Step) bool {
			h := s.seen.Hibernation
			return next.Call != runtime.VerbRelease || next.Fenced || s.move.Step == v1alpha1.MigrationRelease && s.asleep() && s.seen.Quiet() &&
				h.Snapshot == runtime.SnapshotPresent && h.Saved == h.Digest && h.Digest == s.move.Digest
		},
		"no agent is passed over unless a person has confirmed it, of this instance, and it is being removed or never ran": func(s situation, next Step) bool {
			h := s.seen.Hibernation
			return !next.Fenced || h.Unreachable && s.want.Fenced == h.ID && h.Instance != runtime.InstanceLive && h.Instance != runtime.InstanceAsleep
		},
		"an instance is made only where there is none, from the snapshot that was proven": func(s situation, next Step) bool {
			h := s.seen.Hibernation
			return next.Call != runtime.VerbRestore || s.move.Step == v1alpha1.MigrationRestore && h.Instance == runtime.InstanceGone &&
				h.Snapshot == runtime.SnapshotPresent && h.Digest == s.move.Digest
		},
		"a restored instance is removed only if nothing of it has run, or its node is confirmed to be dead": func(s situation, next Step) bool {
			h := s.seen.Hibernation
			return next.Call != runtime.VerbRetract || h.Restored && h.ID != s.move.Instance &&
				(next.Fenced || h.Instance == runtime.InstanceUnplaced || h.Instance == runtime.InstanceFailed)
		},
		"snapshots are removed only while the machine is live": func(s situation, next Step) bool {
			return next.Call != runtime.VerbDiscard || s.move.Step == v1alpha1.MigrationDiscard && s.seen.Hibernation.Instance == runtime.InstanceLive
		},
		"a restore is over only if the restored instance has run, or is off": func(s situation, next Step) bool {
			h := s.seen.Hibernation
			return s.move == nil || s.move.Step != v1alpha1.MigrationRestore || next.Name != v1alpha1.MigrationDiscard ||
				h.Instance == runtime.InstanceLive && h.Restored && (h.Incarnation == "i-2" || h.Power == v1alpha1.PowerStopped)
		},
		"a machine is woken only where it is asleep": func(s situation, next Step) bool {
			return next.Call != runtime.VerbWake || s.asleep()
		},
		"a machine that may be on no node begins nothing else": func(s situation, next Step) bool {
			return !s.move.Travels() || !next.Anew && (next.Name != v1alpha1.MigrationHibernate)
		},
		"what is taken back is never given up": func(s situation, next Step) bool { return !s.want.Back || !next.Hopeless },
		"nothing that is taken back is hibernated, or removed from where it sleeps": func(s situation, next Step) bool {
			return !s.want.Back || next.Call != runtime.VerbHibernate && (next.Call != runtime.VerbRelease || next.Fenced) && !next.Anew
		},
		"it is lost only if there is no instance, and no snapshot that was proven": func(s situation, next Step) bool {
			h := s.seen.Hibernation
			return !next.Lost || h.Instance == runtime.InstanceGone && (!s.move.Travels() || h.Snapshot == runtime.SnapshotAbsent || h.Digest != s.move.Digest)
		},
		"something is done, persisted or said": func(s situation, next Step) bool {
			persists := next.Aims || next.Anew || (s.move != nil && next.Name != s.move.Step) || (s.move == nil && next.Name != "")
			return persists || next.Message != "" || s.move == nil
		},
		"what is done is said": func(s situation, next Step) bool { return next.Call == "" || next.Message != "" },
		"what is persisted is not done yet": func(s situation, next Step) bool {
			return next.Call == "" || s.move != nil && next.Name == s.move.Step && !next.Anew && !next.Aims
		},
	}
	failed := map[string]int{}
	every(func(s situation) {
		next := Next(s.move, &s.seen, s.want)
		for rule, holds := range gates {
			if !holds(s, next) {
				if failed[rule]++; failed[rule] <= 3 {
					t.Errorf("%s: %s: %+v", rule, s, next)
				}
			}
		}
	})
}

// Each row counts somewhere: none is behind those before it. And none is left out of what is expected of them.
func TestRowsAreReached(t *testing.T) {
	reached := map[string]bool{}
	every(func(s situation) { reached[Next(s.move, &s.seen, s.want).Row] = true })
	seen := map[string]bool{}
	for _, r := range Rows {
		if !reached[r.Name] {
			t.Errorf("row %s never counts", r.Name)
		}
		if seen[r.Name] {
			t.Errorf("there are two rows %s", r.Name)
		}
		seen[r.Name] = true
	}
	if !reached["X"] {
		t.Error("no situation is one that no row expects, such as an instance that was never restored and fails to be made")
	}
}
