package engine

import (
	"errors"
	"strings"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"
)

// Each of these facts would fail whenever it is asked for, and not before.
func TestCompileHoldsFactsToTheirShape(t *testing.T) {
	const kind = `"apiVersion": "toy/v1", "kind": "Loan"`
	for name, tc := range map[string]struct{ fact, want string }{
		"a misspelt key":           {`{"apiVerison": "toy/v1", "kind": "Loan"}`, `p.rego:6:13: facts.x has no key "apiVerison": did you mean "apiVersion"? allowed are access, apiVersion, except, fields, freshness, kind, labels, name, namespace, namespaces, parent and testRun`},
		"another":                  {`{` + kind + `, "freshnes": "live"}`, `p.rego:6:53: facts.x has no key "freshnes": did you mean "freshness"?`},
		"a form that is misspelt":  {`{"acces": {"verb": "get", "resource": "books"}}`, `facts.x has no key "acces": did you mean "access"?`},
		"an unknown freshness":     {`{` + kind + `, "freshness": "Live"}`, `p.rego:6:66: facts.x.freshness is "Live", not live`},
		"no kind":                  {`{"apiVersion": "toy/v1", "name": input.request.book}`, `p.rego:6:12: facts.x has no kind`},
		"an empty kind":            {`{"apiVersion": "toy/v1", "kind": ""}`, `facts.x.kind must be a non-empty string, not ""`},
		"a name that is null":      {`{` + kind + `, "name": null}`, `facts.x.name must be a non-empty string, not null`},
		"a name and a selection":   {`{` + kind + `, "name": input.request.book, "labels": {"a": "b"}}`, `facts.x has no key "labels": allowed are apiVersion, freshness, kind, name and namespace`},
		"two fields":               {`{` + kind + `, "fields": {"book": "a", "branch": "b"}}`, `p.rego:6:64: facts.x looks Loan up by book,branch, which is not among its indexes in spec.reads`},
		"half of an index":         {`{` + kind + `, "fields": {"pages[].number": "1"}}`, `facts.x looks Loan up by pages[].number, which is not among its indexes in spec.reads`},
		"a path that is none":      {`{` + kind + `, "fields": {"pages[.number": "1"}}`, `p.rego:6:64: facts.x.fields has "pages[.number", which is not a field path such as spec.nodeName or spec.disks[].name`},
		"an exception by no path":  {`{` + kind + `, "except": {"pages[0].number": ["1"]}}`, `p.rego:6:64: facts.x.except has "pages[0].number", which is not a field path`},
		"no field":                 {`{` + kind + `, "fields": {}}`, `facts.x.fields must have a field`},
		"a field of a number":      {`{` + kind + `, "fields": {"book": 7}}`, `facts.x.fields.book must be a non-empty string, not number`},
		"labels as a list":         {`{` + kind + `, "labels": ["a"]}`, `facts.x.labels must be an object, not array`},
		"an exception of one":      {`{` + kind + `, "except": {"phase": "Done"}}`, `facts.x.except.phase must be a list of non-empty strings, not string`},
		"an exception of a set":    {`{` + kind + `, "except": {"phase": {"Done"}}}`, `facts.x.except.phase must be a list of non-empty strings, not set`},
		"an exception of null":     {`{` + kind + `, "except": {"phase": null}}`, `facts.x.except.phase must be a list of non-empty strings, not null`},
		"no parent":                {`{"parent": false}`, `facts.x.parent must be true, not boolean`},
		"a parent by name":         {`{"parent": true, "name": "b"}`, `facts.x has no key "name": allowed are freshness and parent`},
		"a misspelt verb":          {`{"access": {"verbs": "get", "resource": "books"}}`, `facts.x.access has no key "verbs": did you mean "verb"?`},
		"no verb":                  {`{"access": {"resource": "books"}}`, `facts.x.access has no verb`},
		"a group that is null":     {`{"access": {"verb": "get", "resource": "books", "group": null}}`, `facts.x.access.group must be a string, not null`},
		"a test run of nothing":    {`{"testRun": null}`, `facts.x.testRun must be something, not null`},
		"a text":                   {`"Loan"`, `facts.x must be an object, not string`},
		"a list":                   {`[]`, `facts.x must be an object, not array`},
		"behind a function":        {`_loan(input.request.book)`, `p.rego:10:57: facts.x has no key "nam": did you mean "name"?`},
		"behind a rule":            {`_all`, `p.rego:12:50: facts.x has no key "namespaec": did you mean "namespace"?`},
		"a kind that is not read":  {`{"apiVersion": "toy/v1", "kind": "Lone"}`, `p.rego:6:45: facts.x asks for toy/v1 Lone, which spec.reads does not list`},
		"a version that is not":    {`{"apiVersion": "toy/v2", "kind": "Loan", "name": input.request.book}`, `facts.x asks for toy/v2 Loan, which spec.reads does not list`},
		"a field without an index": {`{` + kind + `, "fields": {"reader": input.request.reader}}`, `p.rego:6:64: facts.x looks Loan up by reader, which is not among its indexes in spec.reads`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := compile(wanting(tc.fact))
			var errs CompileErrors
			if !errors.As(err, &errs) || !errs[0].Contract || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got:\n%v\nwant %q in it", err, tc.want)
			}
		})
	}
	for _, fact := range []string{
		`null`, `{` + kind + `}`, `{` + kind + `, "fields": {"book": input.request.book}, "labels": {"a": $"{input.request.b}"}, "except": {"phase": ["Done", input.request.phase]}, "freshness": "live"}`,
		`{` + kind + `, "namespace": input.request.branch, "name": "b", "freshness": "live"}`, `{"parent": true, "freshness": "live"}`,
		`{"access": {"verb": "get", "resource": "books", "group": "", "name": input.request.book}}`, `{"testRun": false}`, `{"testRun": input.request}`,
		`{` + kind + `, "fields": {"reader": "r", "pages[].number": input.request.page}, "except": {"pages[].word": ["a"]}}`,
		`object.union({` + kind + `}, input.request.more)`, `input.request.question`, `{"apiVersion": input.request.version, "kind": "Lone"}`,
	} {
		mustCompile(t, wanting(fact))
		if term, err := ast.ParseTerm(fact); err == nil && ast.IsConstant(term.Value) && fact != "null" {
			if _, err := decodeQuery("x", term); err != nil {
				t.Errorf("%s is compiled, and to ask it is %v", fact, err)
			}
		}
	}
}

// One mistake is told once: neither again for each rule that makes it by the same function, nor by what follows from it.
func TestCompileTellsOfAFactWhatIsWrongOnce(t *testing.T) {
	for name, tc := range map[string]struct{ fact, want string }{
		"by two rules":   {`_loan("a") if input.request.a` + "\n\n" + `facts.x := _loan("b") if input.request.b`, `p.rego:12:57: facts.x has no key "nam": did you mean "name"?`},
		"shape and kind": {`{"apiVersion": "toy/v1", "kind": "Lone", "nam": "b"}`, `p.rego:6:53: facts.x has no key "nam": did you mean "name"?`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := compile(wanting(tc.fact))
			var errs CompileErrors
			if !errors.As(err, &errs) || len(errs) != 1 || !strings.HasPrefix(errs[0].Error(), tc.want) {
				t.Errorf("got:\n%v\nwant only %q", err, tc.want)
			}
		})
	}
}

// Rules that say each other's values have ways to a literal by the power: each literal is found once, or a short policy would take
// hours to compile.
func TestLiteralsAreFoundOnce(t *testing.T) {
	const more = "\n\nvalid_input if true\n\n_a := _b if input.x\n\n_a := _b if input.y\n\n_b := _c if input.x\n\n_b := _c if input.y\n\n_c := {\"a\": 1}\n"
	m := ast.MustParseModule(wanting("v if { v := _a }" + more).Modules[0].Source)
	if found := (literals{m}).resolve(m.Rules[0], m.Rules[0].Head.Value); len(found) != 1 {
		t.Errorf("got %v, want what _c says, once", found)
	}
}

// wanting is a policy with a fact.
func wanting(fact string) Source {
	const helpers = "\n\nvalid_input if true\n\n" + `_loan(name) := {"apiVersion": "toy/v1", "kind": "Loan", "nam": name}` + "\n\n" +
		`_all := {"apiVersion": "toy/v1", "kind": "Loan", "namespaec": "x"}` + "\n\nwarn contains \"w\" if true\n"
	src := policy("facts.x := " + fact + helpers)
	src.Reads = []Read{{APIVersion: "toy/v1", Kind: "Loan", Indexes: []string{"book", "pages[].number,reader"}}}
	return src
}
