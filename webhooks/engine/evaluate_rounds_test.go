package engine

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// roundsPolicy asks for the loans in the branches of a member. In the first round, two of its rules for them hold.
const roundsPolicy = `facts.member := {"apiVersion": "toy/v1", "kind": "Loan", "name": input.request.reader}

facts.loans := {"apiVersion": "toy/v1", "kind": "Loan", "namespaces": _branches} if not _stranger

facts.loans := null if _stranger

facts.loans := null if not _known

_known if input.facts.member.branches

_known if _stranger

_stranger if input.facts.member == null

_branches := input.facts.member.branches if input.facts.member.branches != null

_branches := ["all"] if not input.facts.member.branches

valid_input if true

` + denyMetadata + `deny contains {"reason": "R", "message": $"{loan.book} is lent"} if some loan in input.facts.loans
`

// A fact may read facts that read none. It is asked for when these are known, and what it asks for is made of them.
func TestFactsThatReadFacts(t *testing.T) {
	loans := func(branches ...string) Query {
		return Query{Fact: "loans", APIVersion: "toy/v1", Kind: "Loan", Namespaces: branches}
	}
	member := Query{Fact: "member", APIVersion: "toy/v1", Kind: "Loan", Name: "ann"}
	live := func(q Query) Query { q.Live = true; return q }
	some := func(q Query) Query { q.Live, q.Some = true, true; return q }
	of := func(branches ...any) map[string]any {
		return map[string]any{"member": map[string]any{"branches": branches}, "loans": []any{map[string]any{"book": "b"}}}
	}
	none := func(facts map[string]any) map[string]any { facts["loans"] = []any{}; return facts }
	for name, tc := range map[string]struct {
		world   *shelf
		asked   []Query
		denials int
		err     string
	}{
		"nothing is found":      {&shelf{cached: none(of("a", "b"))}, []Query{member, loans("a", "b")}, 0, ""},
		"an empty list":         {&shelf{cached: none(of())}, []Query{member, loans([]string{}...)}, 0, ""},
		"it is not wanted":      {&shelf{cached: map[string]any{}}, []Query{member}, 0, ""},
		"a denial is confirmed": {&shelf{cached: of("a"), live: of("a")}, []Query{member, loans("a"), live(member), some(loans("a"))}, 1, ""},
		"what it is made of changed": {&shelf{cached: of("a"), live: none(of("b"))},
			[]Query{member, loans("a"), live(member), some(loans("b"))}, 0, ""},
		"it is of the wrong type": {&shelf{cached: map[string]any{"member": map[string]any{"branches": "a"}}}, []Query{member}, 0,
			"facts.loans.namespaces must be a list of non-empty strings"},
	} {
		t.Run(name, func(t *testing.T) {
			p, in := mustCompile(t, policy(roundsPolicy)), input(t, `{"reader": "ann"}`)
			d, err := p.Decide(t.Context(), in, tc.world)
			if tc.err != "" {
				wantCause(t, err, ContractViolated, tc.err)
			} else if err != nil || len(d.Denials) != tc.denials {
				t.Fatalf("got %+v, %v", d, err)
			}
			// Whoever only makes decisions fast tells what is read of each object.
			if diff := cmp.Diff(tc.asked, tc.world.asked, cmpopts.IgnoreFields(Query{}, "Part")); diff != "" {
				t.Errorf("asked (-want +got):\n%s", diff)
			}
		})
	}
}

// An explanation names the facts of both rounds.
func TestExplainFactsThatReadFacts(t *testing.T) {
	world := &shelf{cached: map[string]any{"member": map[string]any{"branches": []any{"a"}}, "loans": []any{}}}
	source := policy("facts.member := {\"apiVersion\": \"toy/v1\", \"kind\": \"Loan\", \"name\": \"ann\"}\n\n" +
		"facts.loans := {\"apiVersion\": \"toy/v1\", \"kind\": \"Loan\", \"namespaces\": input.facts.member.branches}\n\n" +
		"valid_input if is_array(input.facts.loans)\n\nwarn contains \"none\" if count(input.facts.loans) == 0\n")
	x, err := mustCompile(t, source).Explain(t.Context(), input(t, `{}`), world, false)
	if err != nil || !x.Asked || len(x.Facts) != 2 || len(x.Decision.Warnings) != 1 {
		t.Fatalf("got %+v, %v", x, err)
	}
	if f := x.Facts[0]; f.Name != "loans" || f.Query == nil || f.Query.String() != "every Loan in namespaces a" || f.Row == 0 {
		t.Errorf("got %+v", f)
	}
}
