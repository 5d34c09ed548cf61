package policies

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
	"github.com/open-policy-agent/opa/v1/topdown"
	"sigs.k8s.io/yaml"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// No decision of a shipped policy costs more than in proportion to a list that it reads: an update with 350 owners took 0.4 s, because a
// set was made anew for each of them. The lists are those of the inputs in the tests of each policy, made longer.
func TestDecisionsGrowNoFasterThanTheirLists(t *testing.T) {
	shipped, err := Shipped()
	if err != nil {
		t.Fatal(err)
	}
	modules, tests := map[string]*ast.Module{}, map[string]*ast.Module{}
	for i := range shipped {
		for _, m := range shipped[i].Spec.Modules {
			modules[shipped[i].Name+"/"+m.Name] = ast.MustParseModule(m.Source)
		}
		for _, m := range shipped[i].Spec.Tests {
			tests[shipped[i].Name+"/"+m.Name] = ast.MustParseModule(m.Source)
		}
	}
	maps.Copy(tests, modules)
	policies, withTests := compiled(t, modules), compiled(t, tests)
	for i := range shipped {
		if p := &shipped[i]; !p.Spec.Library {
			t.Run(p.Name, func(t *testing.T) { growth(t, p, policies, withTests) })
		}
	}
}

func compiled(t *testing.T, modules map[string]*ast.Module) *ast.Compiler {
	t.Helper()
	c := ast.NewCompiler()
	if c.Compile(modules); c.Failed() {
		t.Fatal(c.Errors)
	}
	return c
}

// subject is a policy that is asked.
type subject struct {
	t        *testing.T
	pkg      string
	compiler *ast.Compiler
	store    storage.Store
}

// bounded are the lists that have at most 32 entries by the schema, each of which is compared with each.
var bounded = map[string][]string{"policies-self": {"request.object.spec.match.resources"}}

func growth(t *testing.T, p *v1alpha1.RegoPolicy, policies, withTests *ast.Compiler) {
	parameters := map[string]any{}
	if p.Spec.Parameters != nil {
		if err := yaml.Unmarshal(p.Spec.Parameters.Raw, &parameters); err != nil {
			t.Fatal(err)
		}
	}
	s := &subject{t, p.Spec.Package, policies, inmem.NewFromObject(map[string]any{"parameters": parameters})}
	seen := &inputs{of: map[string]any{}}
	s.eval(withTests, "data."+p.Spec.Package+"_test", nil, seen)

	understood, byList := 0, map[string][]any{}
	for _, key := range slices.Sorted(maps.Keys(seen.of)) {
		if input := seen.of[key]; s.valid(input) {
			understood++
			for list := range listsOf(input, "", map[string]bool{}) {
				byList[list] = append(byList[list], input)
			}
		}
	}
	if understood == 0 {
		t.Error("no input of its tests is understood with the shipped parameters")
	}
	longest := 300
	if testing.Short() {
		longest = 150
	}
	for _, list := range slices.Sorted(maps.Keys(byList)) {
		input := s.dearest(byList[list], list)
		if input == nil {
			continue // it cannot be longer, or what is longer is another request
		}
		few, many := s.cost(longer(input, list, longest/10)), s.cost(longer(input, list, longest))
		t.Logf("%-60s %8d %8d", list, few, many)
		if many > 15*few && !slices.Contains(bounded[p.Name], list) {
			t.Errorf("%s: %d entries cost %d, and %d cost %d", list, longest/10, few, longest, many)
		}
	}
}

// dearest gives the input that costs most with a list of 20 entries, nil if none is understood then.
func (s *subject) dearest(all []any, list string) (most any) {
	tried := 25
	if testing.Short() {
		tried = 8
	}
	cost, step := 0, max(1, len(all)/tried)
	for i := 0; i < len(all); i += step {
		if input := longer(all[i], list, 20); s.valid(input) {
			if c := s.cost(input); c > cost {
				cost, most = c, all[i]
			}
		}
	}
	return most
}

func (s *subject) valid(input any) bool {
	return len(s.eval(s.compiler, "data."+s.pkg+".valid_input = true", input, nil)) > 0
}

// cost is what a decision costs, in steps of OPA's evaluation.
func (s *subject) cost(input any) int {
	n := &steps{}
	for _, rule := range []string{"facts", "valid_input", "deny", "warn", "patch", "outcome"} {
		s.eval(s.compiler, "x = data."+s.pkg+"."+rule, input, n)
	}
	return n.count
}

func (s *subject) eval(c *ast.Compiler, query string, input any, tracer topdown.QueryTracer) rego.ResultSet {
	s.t.Helper()
	options := []func(*rego.Rego){rego.Query(query), rego.Compiler(c), rego.Store(s.store), rego.Input(input)}
	if tracer != nil {
		options = append(options, rego.QueryTracer(tracer))
	}
	result, err := rego.New(options...).Eval(s.t.Context())
	if err != nil {
		s.t.Fatalf("%s: %v", query, err)
	}
	return result
}

// inputs are those that a policy is asked about.
type inputs struct{ of map[string]any }

// Enabled is for OPA.
func (*inputs) Enabled() bool { return true }

// Config is for OPA.
func (*inputs) Config() topdown.TraceConfig { return topdown.TraceConfig{} }

// TraceEvent takes an input down.
func (i *inputs) TraceEvent(e topdown.Event) {
	rule, is := e.Node.(*ast.Rule)
	if e.Op != topdown.EnterOp || !is || rule.Head.Name != "valid_input" || e.Input() == nil {
		return
	}
	if text := e.Input().String(); i.of[text] == nil && len(text) < 20_000 {
		if value, err := ast.JSON(e.Input().Value); err == nil {
			i.of[text] = value
		}
	}
}

// steps counts events, and the entries of what builtins are given, as they look at each.
type steps struct{ count int }

// Enabled is for OPA.
func (*steps) Enabled() bool { return true }

// Config is for OPA.
func (*steps) Config() topdown.TraceConfig { return topdown.TraceConfig{} }

// free are the builtins that look only at what they are asked for.
var free = []string{"count", "object.get", "is_array", "is_object", "is_string", "is_number", "is_boolean", "equal", "eq", "assign"}

// TraceEvent counts.
func (n *steps) TraceEvent(e topdown.Event) {
	n.count++
	expr, is := e.Node.(*ast.Expr)
	if e.Op != topdown.EvalOp || !is || !expr.IsCall() || slices.Contains(free, expr.Operator().String()) {
		return
	}
	for _, operand := range expr.Operands() {
		switch value := e.Plug(operand).Value.(type) {
		case *ast.Array:
			n.count += value.Len()
		case ast.Object:
			if !strings.HasPrefix(expr.Operator().String(), "internal.member") {
				n.count += value.Len()
			}
		}
	}
}

// listsOf names the lists and the maps of texts in an input that have an entry. An old object and what comes of it count as one.
func listsOf(value any, path string, all map[string]bool) map[string]bool {
	switch value := value.(type) {
	case []any:
		if len(value) > 0 {
			all[path] = true
			listsOf(value[0], path+"[]", all)
		}
	case map[string]any:
		texts := len(value) > 0
		for key, v := range value {
			_, is := v.(string)
			texts = texts && is
			listsOf(v, strings.TrimPrefix(path+"."+strings.Replace(key, "oldObject", "object", 1), "."), all)
		}
		if texts && slices.ContainsFunc([]string{"labels", "annotations", "matchLabels"}, func(end string) bool { return strings.HasSuffix(path, "."+end) }) {
			all[path] = true
		}
	}
	return all
}

// longer gives an input with a list of n entries, which are like the first one but for their names.
func longer(value any, list string, n int) any { return longerAt(value, "", list, n) }

func longerAt(value any, path, list string, n int) any {
	switch value := value.(type) {
	case []any:
		more := slices.Clone(value)
		for i := len(more); path == list && len(value) > 0 && i < n; i++ {
			more = append(more, like(value[0], i, true))
		}
		for i := range more[:min(len(value), 1)] {
			more[i] = longerAt(more[i], path+"[]", list, n)
		}
		return more
	case map[string]any:
		more := map[string]any{}
		for key, v := range value {
			more[key] = longerAt(v, strings.TrimPrefix(path+"."+strings.Replace(key, "oldObject", "object", 1), "."), list, n)
		}
		for i := 0; path == list && len(more) < n; i++ {
			more[fmt.Sprintf("sallyport.dev/more-%d", i)] = "x"
		}
		return more
	}
	return value
}

// like is an entry with other names.
func like(value any, i int, top bool) any {
	switch value := value.(type) {
	case string:
		return fmt.Sprintf("%s-%d", value, i)
	case map[string]any:
		other := maps.Clone(value)
		for _, key := range []string{"name", "uid", "id"} {
			if text, is := other[key].(string); is {
				other[key] = like(text, i, false)
			}
		}
		if metadata, is := other["metadata"]; is && top {
			other["metadata"] = like(metadata, i, false)
		}
		return other
	}
	return value
}
