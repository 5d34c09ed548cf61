package cluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"sallyport.dev/sallyport/test/support/step"
)

// column is a condition under which every way is tried.
type column struct {
	name    string
	guarded bool
	want    func(*row) string
}

var (
	guarded   = column{"guarded", true, func(r *row) string { return r.guarded }}
	unguarded = column{"not guarded", false, func(r *row) string { return r.unguarded }}
	floor     = column{"guarded, with the floor only", true, func(r *row) string { return r.floor }}
)

// TestGuards tries the shipped guards, of scale and of deletion: every way to scale a workload down or to delete an object, what becomes of it
// with a replica that answers, what while nobody does, and what is left to the floor.
func TestGuards(t *testing.T) {
	t.Parallel()
	s := newGuardSite(t)
	s.step("every way with the guards", func(s *guardSite) { s.table(guarded, unguarded) })
	s.step("every way to lower an Explicit pool", (*guardSite).explicit)
	s.step("busy members", (*guardSite).busy)
	s.step("every kind of Sallyport's", (*guardSite).ownKinds)
	s.step("a kind of two versions", (*guardSite).versions)
	if !testing.Short() {
		s.step("while nobody answers", (*guardSite).unanswered)
		s.step("the floor alone", (*guardSite).fallen)
		s.step("every way with the floor", func(s *guardSite) { s.table(floor) })
		s.step("the floor follows the policies", (*guardSite).followed)
		s.step("as before", (*guardSite).restored)
	}
	t.Logf("as tried:\n%s", table())
}

// inShort are the ways that are tried with -short: those of most users, and one of each policy.
var inShort = []string{
	"`kubectl scale`", "`kubectl apply --server-side`", "an override by a user with the verb",
	"a VirtualMachinePool: `kubectl scale`", "so, by `kubectl edit`",
	"`kubectl delete`", "a deletion of the collection", "a Pod: its eviction, as by `kubectl drain`",
}

// table tries every way, with -short some of them.
func (s *guardSite) table(columns ...column) {
	s.T.Run("all", func(t *testing.T) {
		for what, rows := range map[string][]row{"scaling": scalingRows(), "pools": poolRows(), "deletion": deletionRows(), "KubeVirt": kubevirtRows()} {
			for i := range rows {
				if testing.Short() && !slices.Contains(inShort, rows[i].way) {
					continue
				}
				for _, c := range columns {
					t.Run(fmt.Sprintf("%s %s, %s", what, rows[i].way, c.name), func(t *testing.T) {
						t.Parallel()
						inner := *s
						inner.T = step.T{T: t}
						inner.trial(&rows[i], &c)
					})
				}
			}
		}
	})
	s.cleared()
}

// refuses reports whether a denial is that of a policy, for its reason. With the floor two ValidatingAdmissionPolicies deny a write of a
// status that takes the label off, and the API server tells what one of them says.
func refuses(said, want string) bool {
	if admission, is := strings.CutPrefix(want, "chart/"); is {
		return strings.Contains(said, "'"+admission+"'") || want == relabelled && strings.Contains(said, "["+labelRemoved+"] ")
	}
	return strings.Contains(said, "["+want+"] ")
}

// trial tries one way, and looks whether what is said is what happens.
func (s *guardSite) trial(r *row, c *column) {
	t := &trial{guardSite: s, guarded: c.guarded, space: s.namespace()}
	r.make(t)
	said, ok := r.try(t)
	want := c.want(r)
	switch {
	case want != passes:
		if ok || !refuses(said, want) {
			t.Errorf("it is not refused with [%s]: %s", want, said)
		}
		if r.happened != nil && r.happened(t) {
			t.Errorf("it was refused, and has happened")
		}
	case !ok:
		t.Errorf("it does not pass: %s", said)
	case r.happened != nil:
		t.Until("it has happened", func() (string, bool) { return said, r.happened(t) })
	}
	if n := t.get(namespaces, t.space); n != nil && n.GetDeletionTimestamp() == nil {
		t.release()
		s.spaces.give(t.space)
	}
}
