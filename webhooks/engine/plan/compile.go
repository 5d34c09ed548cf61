package plan

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/ir"
	"github.com/open-policy-agent/opa/v1/rego"
)

// Program is a compiled query. It is safe for concurrent use.
type Program struct {
	main     *function
	rules    int // number of results that a run keeps
	data     *ast.Term
	machines sync.Pool
}

// function is a rule, or all rules of one name.
type function struct {
	parameters []ir.Local
	locals     int
	blocks     []block
	// rule is the place of its result among those that a run keeps; negative for functions with arguments.
	rule int
	// calls and readsInput tell whether the result is the same for every input.
	calls      []*function
	readsInput bool
	constant   bool
	value      atomic.Pointer[ast.Term] // of a constant, once it is known
}

// Compile returns the program of a query of compiled modules, with a document for `data`. The error tells what has no plan, or what programs
// do not support.
func Compile(ctx context.Context, modules *ast.Compiler, query ast.Body, data *ast.Term) (*Program, error) {
	var policy *ir.Policy
	ctx = context.WithValue(ctx, target{}, &policy)
	if _, err := rego.New(rego.Compiler(modules), rego.ParsedQuery(query), rego.Target(targetName), rego.EvalMode(ast.EvalModeTopdown)).PrepareForEval(ctx); err != nil {
		return nil, err
	}
	return lower(policy, data)
}

// target is how OPA gives a plan away: as the one that would evaluate it.
type target struct{}

const targetName = "sallyport"

func init() { rego.RegisterPlugin("rego.target."+targetName, target{}) }

// IsTarget implements rego.TargetPlugin.
func (target) IsTarget(name string) bool { return name == targetName }

// PrepareForEval implements rego.TargetPlugin.
func (t target) PrepareForEval(ctx context.Context, policy *ir.Policy, _ ...rego.PrepareOption) (rego.TargetPluginEval, error) {
	*ctx.Value(t).(**ir.Policy) = policy
	return nil, nil
}

func lower(policy *ir.Policy, data *ast.Term) (*Program, error) {
	l := &lowering{policy: policy, functions: map[string]*function{}}
	program := &Program{data: data}
	for _, f := range policy.Funcs.Funcs {
		made := &function{parameters: f.Params, rule: -1}
		if len(f.Params) == 2 { // input and data
			made.rule = program.rules
			program.rules++
		}
		l.functions[f.Name] = made
	}
	for _, f := range policy.Funcs.Funcs {
		l.agreed = agreement(f)
		l.lower(l.functions[f.Name], f.Blocks)
	}
	l.agreed = nil
	program.main = &function{parameters: []ir.Local{ir.Input, ir.Data}, rule: -1}
	l.lower(program.main, policy.Plans.Plans[0].Blocks)
	l.findConstants()
	program.machines.New = func() any { return &machine{program: program, results: make([]result, program.rules)} }
	return program, l.err
}

// lowering makes functions of a plan.
type lowering struct {
	policy    *ir.Policy
	functions map[string]*function
	current   *function
	data      map[ir.Local]bool // variables of the current function that are in data
	agreed    ir.Val            // the value of all rules of the current function; nil if they may have different ones
	err       error
}

// agreement returns the constant that all rules of a function have for their value, so that the first that applies decides: topdown looks no
// further, either. It returns nil if there is none.
func agreement(f *ir.Func) ir.Val {
	found := &values{returned: f.Return}
	_ = ir.Walk(found, f) // fails only if a visitor does
	if len(found.all) == 0 {
		return nil
	}
	first := found.all[0]
	if _, isVariable := first.(ir.Local); isVariable || slices.ContainsFunc(found.all, func(v ir.Val) bool { return v != first }) {
		return nil
	}
	return first
}

// values are those of the rules of a function, except its default.
type values struct {
	returned ir.Local
	all      []ir.Val
}

// Before implements ir.Visitor.
func (*values) Before(any) {}

// After implements ir.Visitor.
func (*values) After(any) {}

// Visit implements ir.Visitor.
func (v *values) Visit(x any) (ir.Visitor, error) {
	if s, ok := x.(*ir.AssignVarOnceStmt); ok && s.Target != v.returned {
		v.all = append(v.all, s.Source.Value)
	}
	return v, nil
}

func (l *lowering) lower(f *function, blocks []*ir.Block) {
	l.current, l.data = f, map[ir.Local]bool{}
	for _, p := range f.parameters {
		l.local(p)
	}
	f.blocks = l.blocks(blocks)
}

// findConstants marks the rules that do not read the input, directly or by what they call.
func (l *lowering) findConstants() {
	for changed := true; changed; {
		changed = false
		for _, f := range l.functions {
			for _, called := range f.calls {
				if called.readsInput && !f.readsInput {
					f.readsInput, changed = true, true
				}
			}
		}
	}
	for _, f := range l.functions {
		f.constant = f.rule >= 0 && !f.readsInput
	}
}

// local notes a variable that a statement of the current function changes.
func (l *lowering) local(x ir.Local) ir.Local {
	delete(l.data, x)
	l.current.locals = max(l.current.locals, int(x)+1)
	return x
}

// operand is a variable, or a constant if that is not nil.
type operand struct {
	local    ir.Local
	constant *ast.Term
}

func (o operand) in(f frame) *ast.Term {
	if o.constant != nil {
		return o.constant
	}
	return f[o.local]
}

// operand lowers what a statement reads.
func (l *lowering) operand(o ir.Operand) operand {
	switch v := o.Value.(type) {
	case ir.StringIndex:
		return operand{constant: l.text(int(v))}
	case ir.Bool:
		return operand{constant: ast.InternedTerm(bool(v))}
	case ir.Local:
		return l.read(v)
	}
	panic(fmt.Sprintf("operand %T", o.Value)) // there are no others
}

// read lowers a variable that a statement reads.
func (l *lowering) read(x ir.Local) operand {
	l.current.readsInput = l.current.readsInput || x == ir.Input
	l.current.locals = max(l.current.locals, int(x)+1)
	return operand{local: x}
}

// text returns a constant of the plan.
func (l *lowering) text(i int) *ast.Term { return ast.StringTerm(l.policy.Static.Strings[i].Value) }

// arguments lowers those of a call. A called function that reads the input is found by findConstants.
func (l *lowering) arguments(s *ir.CallStmt, f *function) []operand {
	made := make([]operand, len(s.Args))
	for i, a := range s.Args {
		if f != nil && i < 2 {
			made[i] = operand{local: ir.Local(i)}
			continue
		}
		made[i] = l.operand(a)
	}
	return made
}

func (l *lowering) blocks(all []*ir.Block) []block {
	made := make([]block, len(all))
	for i, b := range all {
		made[i] = l.block(b)
	}
	return made
}

func (l *lowering) block(b *ir.Block) block {
	made := make(block, 0, len(b.Stmts))
	for _, s := range b.Stmts {
		made = append(made, l.statement(s))
	}
	return made
}

// Unsupported is the error for what programs cannot do.
type Unsupported struct {
	File     string
	Row, Col int
	What     string
}

func (e *Unsupported) Error() string {
	return fmt.Sprintf("%s:%d: %s is not supported", e.File, e.Row, e.What)
}

func (l *lowering) unsupported(s ir.Stmt, what string) statement {
	if at := s.GetLocation(); l.err == nil {
		l.err = &Unsupported{l.policy.Static.Files[at.File].Value, at.Row, at.Col, what}
	}
	return nil
}
