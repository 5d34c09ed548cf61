package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/storage/inmem"

	"sallyport.dev/sallyport/test/support/race"
)

// reference decides as the contract says, with nothing but OPA: on the author's text and the whole input, without an instrumented rule,
// a projection or a memory.
type reference map[string]rego.PreparedEvalQuery

func newReference(t *testing.T, src Source) reference {
	t.Helper()
	compiler := newCompiler()
	modules, errs := parse(slices.Concat(src.Modules, src.Libraries))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	if compiler.Compile(byName(modules)); compiler.Failed() {
		t.Fatal(compiler.Errors)
	}
	var parameters any
	if err := json.Unmarshal(src.Parameters, &parameters); err != nil {
		t.Fatal(err)
	}
	store := inmem.NewFromObject(map[string]any{"parameters": parameters})
	r := reference{}
	for _, rule := range []string{ruleFacts, ruleValid, ruleDeny, ruleWarn} {
		query, err := rego.New(rego.Query("data.toy.p."+rule), rego.Compiler(compiler), rego.Store(store),
			rego.StrictBuiltinErrors(true)).PrepareForEval(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		r[rule] = query
	}
	return r
}

func (r reference) ask(rule string, input map[string]any) (any, error) {
	query := r[rule]
	results, err := query.Eval(context.Background(), rego.EvalInput(input))
	if err != nil || len(results) == 0 {
		return nil, err
	}
	return results[0].Expressions[0].Value, nil
}

// decide gives what is said, sorted, or why there is no decision.
func (r reference) decide(request any, facts map[string]any) ([]string, string) {
	wanted, err := r.ask(ruleFacts, map[string]any{"request": request})
	switch {
	case err != nil:
		return nil, string(EvaluationFailed)
	case len(wanted.(map[string]any)) < 2:
		return nil, string(InputNotUnderstood)
	case wanted.(map[string]any)["list"] == nil:
		facts["list"] = nil
	}
	input := map[string]any{"request": request, "facts": facts, "now": "2026-11-20T10:00:00.000000005Z"}
	switch valid, err := r.ask(ruleValid, input); {
	case err != nil:
		return nil, string(EvaluationFailed)
	case valid != true:
		return nil, string(InputNotUnderstood)
	}
	var said []string
	denials, err := r.ask(ruleDeny, input)
	if err != nil {
		return nil, string(EvaluationFailed)
	}
	for _, d := range denials.([]any) {
		said = append(said, d.(map[string]any)["message"].(string))
	}
	warnings, err := r.ask(ruleWarn, input)
	if err != nil {
		return nil, string(EvaluationFailed)
	}
	for _, w := range warnings.([]any) {
		said = append(said, w.(string))
	}
	slices.Sort(said)
	return said, ""
}

// sharing answers with documents that are the same each time, as caches do.
type sharing struct {
	facts map[string]any
	live  bool
}

// Read answers live with the part of each object that the policy reads, as a store does.
func (s sharing) Read(_ context.Context, q Query) (Answer, error) {
	a := Answer{Value: shared(s.facts[q.Fact]), Live: s.live || q.Live}
	if a.Live && a.Value.source().kind() == '[' {
		var reduced []Value
		for _, object := range a.Value.Elements() {
			reduced = append(reduced, q.Part.Of(object))
		}
		a.Value, a.Part = List(reduced), q.Part
	}
	return a, nil
}

// held are the objects that have been answered with. Each is the text that was made of it first.
var held sync.Map

type holding struct {
	decoded map[string]any // which stays where it is as long as it is held
	text    func() Value
}

func shared(decoded any) Value {
	written := func() Value {
		text, err := json.Marshal(decoded)
		if err != nil {
			panic(err) // it is JSON of a test
		}
		return Text(text)
	}
	switch is := decoded.(type) {
	case []any:
		var all []Value
		for _, element := range is {
			all = append(all, shared(element))
		}
		return List(all)
	case map[string]any:
		one, _ := held.LoadOrStore(reflect.ValueOf(is).Pointer(), holding{is, sync.OnceValue(written)})
		return one.(holding).text()
	}
	return written()
}

func takenApart(t *testing.T, text []byte) Value {
	t.Helper()
	v, err := ParseText(text)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func outcomeOf(d *Decision, err error) ([]string, string) {
	var e *Error
	if errors.As(err, &e) {
		return nil, string(e.Cause)
	}
	var said []string
	for _, denial := range d.Denials {
		said = append(said, denial.Message)
	}
	said = append(said, d.Warnings...)
	slices.Sort(said)
	return said, ""
}

// Whichever way a decision is made, it is the one that OPA gives for the author's text.
func TestEveryWayDecidesTheSame(t *testing.T) {
	counts := map[string]int{}
	seeds := 100
	if testing.Short() {
		seeds = 25
	}
	for seed := range seeds {
		if difference := inEveryWay(t, seed, nil, counts); difference != "" {
			t.Fatalf("seed %d: %s", seed, difference)
		}
	}
	t.Log(counts)
}

// The random policies are worth something: a follower that takes no notice of values that are compared is found out, by which of them is
// by chance: not every decision is checked.
func TestRandomPoliciesFindValuesThatAreCompared(t *testing.T) {
	race.Skip(t)
	careless := func(p *Policy) {
		follow := func(names ...ast.Ref) *projection {
			f := newFollower(p.compiler)
			f.compared = func(*ast.Compiler, *ast.Rule) bool { return false }
			f.from(names...)
			return f.input
		}
		p.parts = follow(p.outputs()...).parts(p.facts)
	}
	for seed := range 500 {
		if difference := inEveryWay(t, seed, careless, map[string]int{}); difference != "" {
			t.Logf("seed %d: %s", seed, difference)
			return
		}
	}
	t.Error("not in all these policies")
}

// inEveryWay decides requests by a random policy, and tells the first difference to what OPA gives.
func inEveryWay(t *testing.T, seed int, change func(*Policy), counts map[string]int) string {
	t.Helper()
	r := &random{Rand: rand.New(rand.NewPCG(1, uint64(seed)))}
	src := r.source()
	p, err := compile(src)
	if err != nil {
		if !strings.Contains(err.Error(), "rego_type_error") { // what can never hold, as 1 == "a"
			return fmt.Sprintf("%v\n%s", err, src.Modules[0].Source)
		}
		counts["not compiled"]++
		return ""
	}
	if change != nil {
		change(p)
	}
	by := newReference(t, src)
	var request any
	var facts map[string]any
	for i := range 40 {
		if i%8 == 0 { // others differ from what came before in one place, which may be one that nobody reads
			request, facts = r.document(4), map[string]any{"list": r.document(3), "one": r.document(2)}
		}
		if r.IntN(4) == 0 {
			facts = map[string]any{"list": r.like(facts["list"]), "one": facts["one"]}
		} else {
			request = r.like(r.like(request))
		}
		if object, ok := request.(map[string]any); ok && r.IntN(16) > 0 {
			object["namespace"] = "n"
		}
		text, err := json.Marshal(request)
		if err != nil {
			t.Fatal(err)
		}
		want, wantErr := by.decide(request, facts)
		for way, in := range map[string]Input{
			"lean":            {Request: Text(text), VerdictOnly: true},
			"lean again":      {Request: Text(slices.Clone(text)), VerdictOnly: true},
			"taken apart":     {Request: takenApart(t, text), VerdictOnly: true},
			"on decoded JSON": {Request: mustValue(t, request)},
		} {
			same := true
			in.Now = time.Date(2026, 11, 20, 10, 0, 0, 5, time.UTC)
			in.Checked = func(_, difference string) { same = same && difference == "" }
			d, err := p.Decide(t.Context(), in, sharing{facts: facts})
			got, gotErr := outcomeOf(d, err)
			if !same || !slices.Equal(got, want) || gotErr != wantErr {
				return fmt.Sprintf("%s: got %q %q, want %q %q\nrequest %s\nfacts %v\nerror %v, checks agree: %t\n%s",
					way, got, gotErr, want, wantErr, text, facts, err, same, src.Modules[0].Source)
			}
			if d != nil {
				counts["decided: "+way]++
				counts[fmt.Sprintf("says something: %v", len(got) > 0)]++
			} else {
				counts[gotErr]++
			}
		}
	}
	return ""
}
