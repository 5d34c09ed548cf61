package engine

import (
	"testing"
)

// A rule that looks for objects by a field of the request is told of an index, unless the query of the fact selects them already.
func TestComparisonsThatAnIndexWouldSave(t *testing.T) {
	const all = "facts.all := {\"apiVersion\": \"toy/v1\", \"kind\": \"Loan\"}\n\n"
	deny := func(body string) string {
		return denyMetadata + "deny contains {\"reason\": \"R\", \"message\": \"m\"} if { " + body + " }\n"
	}
	for name, tc := range map[string]struct{ facts, rule, want string }{
		"some in":              {all, deny(`some x in input.facts.all; x.data.host == input.request.object.data.host`), "facts.all data.host"},
		"the other way round":  {all, deny(`some x in input.facts.all; input.request.name == x.spec.owner`), "facts.all spec.owner"},
		"unified":              {all, deny(`some x in input.facts.all; x.data.host = input.request.object.data.host`), "facts.all data.host"},
		"a position":           {all, deny(`x := input.facts.all[_]; x.data.host == object.get(input.request.object, "host", "")`), "facts.all data.host"},
		"a count":              {all, deny(`count([1 | some x in input.facts.all; x.data.team == input.request.namespace]) > 3`), "facts.all data.team"},
		"a constant":           {all, deny(`some x in input.facts.all; x.data.host == "a"`), ""},
		"another object":       {all, deny(`some x in input.facts.all; some y in input.facts.all; x.data.host == y.data.next`), ""},
		"another":              {all, deny(`some x in input.facts.all; not x.data.host == input.request.name`), ""},
		"greater":              {all, deny(`some x in input.facts.all; x.data.host > input.request.name`), ""},
		"a name with a dot":    {all, deny(`some x in input.facts.all; x.metadata.labels["a.b/c"] == input.request.name`), ""},
		"fields are named":     {"facts.all := {\"apiVersion\": \"toy/v1\", \"kind\": \"Loan\", \"fields\": {\"book\": input.request.name}}\n\n", deny(`some x in input.facts.all; x.book == input.request.name`), ""},
		"the object of a name": {"facts.all := {\"apiVersion\": \"toy/v1\", \"kind\": \"Loan\", \"namespace\": \"a\", \"name\": \"b\"}\n\n", deny(`some x in input.facts.all; x == input.request.name`), ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := mustCompile(t, policy(tc.facts+"valid_input if true\n\n"+tc.rule))
			got := ""
			for _, place := range p.Unindexed() {
				got += place.Message
			}
			if got != tc.want {
				t.Errorf("got %q", got)
			}
		})
	}
}
