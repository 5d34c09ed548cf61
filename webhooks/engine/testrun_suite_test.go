package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/tester"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// manyTests have every form of test, passing and failing.
const manyTests = `package toy.lending_test

import data.toy.lending

test_plain if lending

test_false := false

test_undefined if input.nothing

test_number := 7

test_text := "true"

test_set contains x if { some x in [1, 2] }

test_same if true

test_same if false

test_same if input.nothing

test_row[note] if { some note, n in {"good": 1, "bad": 2, "a/b": 1, "/c/": 3}; n == 1 }

test_row[note] if { some note, n in {"other": 1}; n == 1 }

test_cells[a][b] if { some a in ["x", "y"]; some b in [1, 2, 3]; [a, b] != ["y", 2] }

test_keys[k] if { some k in [7, true, null, ["l"], {"o": 1}]; is_array(k) }

test_values[k] := v if { some k, v in {"yes": true, "no": false, "one": 1} }

test_none[k] if { some k in array.slice([1], 1, 1) }

test_nested.deep if false

test_deep.row[k] if { some k in ["a"]; k == "b" }

test_builtin if not to_number("x") == 1

test_builtins[k] if { some k in ["x", "y"]; to_number(k) == 1 }

test_long_conflict := x if { some x in [1, 2] }

todo_test_later if input.nothing

todo_later if false

not_a_test if false
`

// OPA's runner and ours must agree about every test: which there are, which pass, and which rows fail.
func TestSuiteAgreesWithOPA(t *testing.T) {
	src := lending()
	src.Tests = []Module{{"lending_test.rego", manyTests}}
	ours, err := TestRunner{}.Run(t.Context(), src)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, test := range ours.Tests {
		got[test.Name+" at "+test.Place] = fmt.Sprintf("failed %t %q", test.Problem != "", test.Cases)
	}
	if diff := cmp.Diff(opas(t, src), got); diff != "" {
		t.Errorf("OPA (-) and ours (+):\n%s", diff)
	}
	if n, err := CountTests(src.Tests); err != nil || n != len(ours.Tests) {
		t.Errorf("of %d tests %d are counted: %v", len(ours.Tests), n, err)
	}
	if len(got) < 20 {
		t.Errorf("only %d tests ran: %v", len(got), slices.Sorted(maps.Keys(got)))
	}
}

// opas is what OPA's runner says.
func opas(t *testing.T, src Source) map[string]string {
	t.Helper()
	modules, libraries, err := assemble(src)
	if err != nil {
		t.Fatal(err)
	}
	tests, errs := parse(src.Tests)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	results, err := tester.NewRunner().SetCompiler(newCompiler().WithEnablePrintStatements(true)).
		SetModules(byName(slices.Concat(modules, libraries, tests))).RaiseBuiltinErrors(true).RunTests(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	said := map[string]string{}
	for r := range results {
		if r.Skip {
			continue
		}
		var failed []string
		for path, sub := range r.SubResults.Iter {
			if sub.Fail && len(sub.SubResults) == 0 {
				failed = append(failed, strings.Join(path, "/"))
			}
		}
		if r.Error != nil {
			failed = nil
		}
		slices.Sort(failed)
		empty := strings.HasPrefix(r.Name, "test_none") // which OPA lets pass
		name := strings.TrimPrefix(r.Package, "data.") + "." + r.Name + " at " + r.Location.String()
		said[name] = fmt.Sprintf("failed %t %q", r.Fail || r.Error != nil || empty, failed)
	}
	return said
}

func TestSuiteIsEndedByItsContext(t *testing.T) {
	src := lending()
	src.Tests = []Module{{"lending_test.rego", `package toy.lending_test

_n := [i | some a in split("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", ""); i := a]

test_a if true

test_endless if { some a in _n; some b in _n; some c in _n; some d in _n; some e in _n; some f in _n; concat("", [a, b, c, d, e, f]) == "b" }

test_z if true
`}}
	ctx, cancel := context.WithCancelCause(t.Context())
	late := errors.New("enough")
	var begun []string
	_, err := TestRunner{Begins: func(name, place string) {
		begun = append(begun, name+" "+place)
		if strings.HasSuffix(name, "endless") {
			time.AfterFunc(10*time.Millisecond, func() { cancel(late) })
		}
	}}.Run(ctx, src)
	if !errors.Is(err, late) {
		t.Errorf("got %v", err)
	}
	want := []string{"toy.lending_test.test_a lending_test.rego:5", "toy.lending_test.test_endless lending_test.rego:7"}
	if diff := cmp.Diff(want, begun); diff != "" {
		t.Errorf("begun (-want +got):\n%s", diff)
	}
}

func TestSuiteKeepsTheBeginningOfWhatIsPrinted(t *testing.T) {
	src := lending()
	src.Tests = []Module{{"lending_test.rego", `package toy.lending_test

test_x if { print("begin"); some a in split("` + strings.Repeat("a", 9000) + `", ""); print("0123456789", a); false }
`}}
	r, err := RunNamedTests(t.Context(), src, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, got, _ := strings.Cut(r.Tests[0].Output, "\n") // the first line is what it got
	if len(got) != maxPrinted || !strings.HasPrefix(got, "begin\n0123456789 a\n") {
		t.Errorf("got %d bytes, %.30q", len(got), got)
	}
}

func TestTestRef(t *testing.T) {
	for text, want := range map[string]string{
		"test_x if true": "test_x", "test_x[a] if a := 1": "test_x", "a.b.test_c[d] if d := 1": "a.b.test_c", "a if true": "", "todo_test_x if true": "",
	} {
		m, err := ast.ParseModuleWithOpts("x.rego", "package p\n\n"+text+"\n", ast.ParserOptions{})
		if err != nil {
			t.Fatal(err)
		}
		ref, ok := testRef(m.Rules[0])
		if got := ref.String(); ok != (want != "") || got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}

// Recording the rows of tables must not change OPA's builtins, which other users of OPA in the process share.
func TestBuiltinsOfOPAAreUnchanged(t *testing.T) {
	of := runtime.FuncForPC(reflect.ValueOf(topdown.GetBuiltin(ast.InternalTestCase.Name)).Pointer()).Name()
	if strings.Contains(of, "sallyport") {
		t.Errorf("%s is implemented by %s", ast.InternalTestCase.Name, of)
	}
}
