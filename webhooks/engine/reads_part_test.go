package engine

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// partOf compiles a policy that reads of each object of a list what the condition does.
func partOf(t *testing.T, condition string) *Part {
	t.Helper()
	p := mustCompile(t, policy(`facts.list := {"apiVersion": "toy/v1", "kind": "Loan"}

valid_input if true

warn contains "w" if { some loan in input.facts.list; `+condition+" }\n"))
	return p.parts["list"]
}

const identified = `"apiVersion":true,"kind":true,"metadata":{"creationTimestamp":true,"name":true,"namespace":true,"resourceVersion":true,"uid":true`

// What is kept of the objects of a list is what the policy reads of them, and who they are.
func TestPartOfObjects(t *testing.T) {
	const object = `{"kind":"Loan","metadata":{"name":"x","annotations":{"fat":"aaaa","a/b":"c"}},"book":"b","pages":[{"n":1,"text":"t"},{"text":"u"},7],"open":{"a":{"x":1,"y":2}}}`
	for name, tc := range map[string]struct{ condition, part, of string }{
		"a member": {`loan.book == "b"`, `{` + identified + `},"book":{}}`, `{"kind":"Loan","metadata":{"name":"x"},"book":"b"}`},
		"of each element": {`some page in loan.pages; page.n == 1`, `{` + identified + `},"pages":{"[]":{"n":{}}}}`,
			`{"kind":"Loan","metadata":{"name":"x"},"pages":[{"n":1},{},7]}`},
		"of each member": {`some k, v in loan.open; v.x == 1`, `{` + identified + `},"open":{"[]":{"x":{}}}}`, `{"kind":"Loan","metadata":{"name":"x"},"open":{"a":{"x":1}}}`},
		"an annotation": {`loan.metadata.annotations["a/b"] == "c"`, `{` + identified + `,"annotations":{"a/b":{}}}}`,
			`{"kind":"Loan","metadata":{"name":"x","annotations":{"a/b":"c"}}}`},
		"all of a member": {`count(loan.open) > 0`, `{` + identified + `},"open":true}`, `{"kind":"Loan","metadata":{"name":"x"},"open":{"a":{"x":1,"y":2}}}`},
		"its type":        {`is_object(loan.open)`, `{` + identified + `},"open":{}}`, `{"kind":"Loan","metadata":{"name":"x"},"open":{}}`},
		"all of it":       {`count(loan) > 0`, `null`, object},
	} {
		t.Run(name, func(t *testing.T) {
			part := partOf(t, tc.condition)
			text, err := json.Marshal(part)
			if err != nil {
				t.Fatal(err)
			}
			var got, want any
			if json.Unmarshal(text, &got) != nil || json.Unmarshal([]byte(tc.part), &want) != nil {
				t.Fatalf("%s is no JSON, or %s is", tc.part, text)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("part (-want +got):\n%s", diff)
			}
			if got := string(part.Of(Text([]byte(object))).Raw()); got != tc.of {
				t.Errorf("got  %s\nwant %s", got, tc.of)
			}
			var again *Part
			if err := json.Unmarshal(text, &again); err != nil || !again.Equal(part) {
				t.Errorf("read again: %v, %v", again, err)
			}
		})
	}
}

func TestPartsThatCoverOthers(t *testing.T) {
	part := func(text string) (p *Part) {
		if err := json.Unmarshal([]byte(text), &p); err != nil {
			t.Fatal(err)
		}
		return p
	}
	for name, tc := range map[string]struct {
		wide, narrow string
		want         bool
	}{
		"the whole":                  {`null`, `{"a":true}`, true},
		"the whole is wanted":        {`{"a":true}`, `null`, false},
		"both":                       {`null`, `null`, true},
		"the same":                   {`{"a":{"b":{}}}`, `{"a":{"b":{}}}`, true},
		"less":                       {`{"a":{"b":{}},"c":true}`, `{"a":{}}`, true},
		"more":                       {`{"a":{"b":{}}}`, `{"a":{"b":{},"c":{}}}`, false},
		"all of a member":            {`{"a":{"b":{}}}`, `{"a":true}`, false},
		"in all of a member":         {`{"a":true}`, `{"a":{"b":{"c":{}}}}`, true},
		"elements":                   {`{"a":{"[]":{"b":{}}}}`, `{"a":{"[]":{}}}`, true},
		"elements that are not read": {`{"a":{"b":{}}}`, `{"a":{"[]":{}}}`, false},
		"a member of any":            {`{"a":{"[]":{"b":{}}}}`, `{"a":{"x":{"b":{}}}}`, true},
	} {
		if got := part(tc.wide).Covers(part(tc.narrow)); got != tc.want {
			t.Errorf("%s: got %t", name, got)
		}
	}
	if err := json.Unmarshal([]byte(`{"a":7}`), new(Part)); err == nil {
		t.Error("a number is understood as a part")
	}
}
