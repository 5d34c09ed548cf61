package plan

import (
	"context"
	"errors"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// machine is the state of a run.
type machine struct {
	program  *Program
	results  []result     // of rules
	stack    []*ast.Term  // of the frames
	operands [8]*ast.Term // of the builtin that runs
	found    topdown.QueryResultSet
	value    *ast.Term // that a function returns
	err      error

	context topdown.BuiltinContext
	steps   int
	until   time.Time
}

// result is that of a rule.
type result struct {
	known bool
	value *ast.Term
}

// errSlow is an error after which topdown may still have a result: it also keeps those of functions, and can be left behind.
var errSlow = errors.New("it takes too long")

// Run executes a program on an input. It fails if the context is cancelled, or half of the time until its deadline is over: when the builtin
// that is running has returned.
func (p *Program) Run(ctx context.Context, input *ast.Term) (topdown.QueryResultSet, error) {
	m := p.machines.Get().(*machine)
	defer m.release()
	m.context = topdown.BuiltinContext{Context: ctx}
	if deadline, ok := ctx.Deadline(); ok {
		now := time.Now()
		m.until = now.Add(deadline.Sub(now) / 2)
	}
	f := m.push(p.main)
	f[0], f[1] = input, p.data
	for _, b := range p.main.blocks {
		if b.run(m, f) == returned {
			break
		}
	}
	return m.found, m.err
}

// release puts the machine, without its values, where later runs take theirs from.
func (m *machine) release() {
	clear(m.results)
	clear(m.stack[:cap(m.stack)])
	*m = machine{program: m.program, results: m.results, stack: m.stack[:0]}
	m.program.machines.Put(m)
}

func (m *machine) fail(err error) flow {
	m.err = err
	return returned
}

// checked is the number of steps between two looks at the clock and the context.
const checked = 1024

// mayGoOn counts a step, and reports whether the run is neither cancelled nor too slow.
func (m *machine) mayGoOn() bool {
	if m.steps++; m.err == nil && m.steps%checked == 0 {
		switch {
		case m.context.Context.Err() != nil:
			m.err = m.context.Context.Err()
		case !m.until.IsZero() && time.Now().After(m.until):
			m.err = errSlow
		}
	}
	return m.err == nil
}

// push returns the frame of a function.
func (m *machine) push(f *function) frame {
	from := len(m.stack)
	if from+f.locals > cap(m.stack) { // frames in use stay where they are
		m.stack, from = make([]*ast.Term, 0, max(256, 2*cap(m.stack), f.locals)), 0
	}
	m.stack = m.stack[:from+f.locals]
	return m.stack[from : from+f.locals : from+f.locals]
}

// call returns the value of a function; nil if it is undefined, or the run has failed.
func (m *machine) call(fn *function, arguments []operand, caller frame) *ast.Term {
	if v := fn.value.Load(); v != nil {
		return v
	}
	if fn.rule >= 0 && m.results[fn.rule].known {
		return m.results[fn.rule].value
	}
	if !m.mayGoOn() {
		return nil
	}
	stack := m.stack
	f := m.push(fn)
	for i, a := range arguments {
		f[fn.parameters[i]] = a.in(caller)
	}
	for _, b := range fn.blocks {
		if b.run(m, f) == returned {
			break
		}
	}
	v := m.value
	clear(f)
	m.stack = stack
	if m.err == nil {
		m.keep(fn, v)
	}
	return v
}

// keep keeps the result of a rule: for this run, or for all if it is constant.
func (m *machine) keep(fn *function, v *ast.Term) {
	if fn.rule >= 0 {
		m.results[fn.rule] = result{true, v}
	}
	if fn.constant && v != nil {
		fn.value.Store(v)
	}
}
