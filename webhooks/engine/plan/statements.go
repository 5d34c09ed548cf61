package plan

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/ir"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// frame has the values of a function's variables.
type frame []*ast.Term

// statement executes one statement of a plan.
type statement func(m *machine, f frame) flow

// flow is where execution goes on after a statement or a block. A number n > 0 ends the block and n blocks around it.
type flow int

const (
	next      flow = -1      // with the next statement: this one is defined
	undefined flow = 0       // after the block
	returned  flow = 1 << 20 // after the function, because it returns or fails
)

// block is a sequence of statements.
type block []statement

func (b block) run(m *machine, f frame) flow {
	for _, s := range b {
		if to := s(m, f); to != next {
			return to
		}
	}
	return next
}

// set stores a value, which is undefined if it is nil.
func (f frame) set(x ir.Local, v *ast.Term) flow {
	f[x] = v
	return when(v != nil)
}

// when returns next if a condition holds.
func when(holds bool) flow {
	if holds {
		return next
	}
	return undefined
}

var (
	errConflict = errors.New("two results where one is allowed")
	errMerge    = errors.New("an object would be merged with another value")
)

// statement lowers a statement.
func (l *lowering) statement(s ir.Stmt) statement {
	switch s := s.(type) {
	case *ir.CallStmt:
		return l.call(s)
	case *ir.BlockStmt:
		return runBlocks(l.blocks(s.Blocks))
	case *ir.NotStmt:
		return negate(l.block(s.Block))
	case *ir.ScanStmt:
		return scan(l.read(s.Source), l.local(s.Key), l.local(s.Value), l.block(s.Block))
	case *ir.BreakStmt:
		return func(*machine, frame) flow { return flow(s.Index) }
	case *ir.NopStmt:
		return func(*machine, frame) flow { return next }
	case *ir.ReturnLocalStmt:
		return give(l.read(s.Source))
	case *ir.AssignVarOnceStmt:
		if l.agreed != nil && s.Source.Value == l.agreed {
			return give(l.operand(s.Source))
		}
	case *ir.ResultSetAddStmt:
		value := l.read(s.Value)
		return func(m *machine, f frame) flow {
			found := topdown.QueryResult{}
			value.in(f).Value.(ast.Object).Foreach(func(name, v *ast.Term) { found[ast.Var(name.Value.(ast.String))] = v })
			m.found = append(m.found, found)
			return next
		}
	}
	if test := l.test(s); test != nil {
		return func(_ *machine, f frame) flow { return when(test(f)) }
	}
	if made, target := l.maker(s); made != nil {
		ofData := l.ofData(s)
		l.data[l.local(target)] = ofData
		return func(_ *machine, f frame) flow { return f.set(target, made(f)) }
	}
	if change := l.change(s); change != nil {
		return func(m *machine, f frame) flow {
			if err := change(f); err != nil {
				return m.fail(err)
			}
			return next
		}
	}
	switch s.(type) {
	case *ir.WithStmt:
		return l.unsupported(s, "`with`")
	case *ir.CallDynamicStmt:
		return l.unsupported(s, "a rule whose name is only known from values")
	}
	return l.unsupported(s, fmt.Sprintf("a statement of type %T", s))
}

// give returns from the function with a value.
func give(source operand) statement {
	return func(m *machine, f frame) flow {
		m.value = source.in(f)
		return returned
	}
}

// test lowers a statement that is a condition; nil for others.
func (l *lowering) test(s ir.Stmt) func(frame) bool {
	switch s := s.(type) {
	case *ir.EqualStmt:
		a, b := l.operand(s.A), l.operand(s.B)
		return func(f frame) bool { return equal(a.in(f), b.in(f)) }
	case *ir.NotEqualStmt:
		a, b := l.operand(s.A), l.operand(s.B)
		return func(f frame) bool { return !equal(a.in(f), b.in(f)) }
	case *ir.IsDefinedStmt:
		source := l.read(s.Source)
		return func(f frame) bool { return source.in(f) != nil }
	case *ir.IsUndefinedStmt:
		source := l.read(s.Source)
		return func(f frame) bool { return source.in(f) == nil }
	case *ir.IsArrayStmt:
		return l.isOf(s.Source, array)
	case *ir.IsObjectStmt:
		return l.isOf(s.Source, object)
	case *ir.IsSetStmt:
		return l.isOf(s.Source, set)
	}
	return nil
}

func (l *lowering) isOf(source ir.Operand, wanted kind) func(frame) bool {
	of := l.operand(source)
	return func(f frame) bool { return kindOf(of.in(f)) == wanted }
}

// maker lowers a statement that gives a variable a value; nil for others.
func (l *lowering) maker(s ir.Stmt) (func(frame) *ast.Term, ir.Local) {
	constant := func(t *ast.Term) func(frame) *ast.Term { return func(frame) *ast.Term { return t } }
	switch s := s.(type) {
	case *ir.DotStmt:
		return dot(l.operand(s.Source), l.operand(s.Key), l.ofData(s)), s.Target
	case *ir.LenStmt:
		source := l.operand(s.Source)
		return func(f frame) *ast.Term {
			if n, ok := size(source.in(f)); ok {
				return ast.InternedTerm(n)
			}
			return nil
		}, s.Target
	case *ir.AssignVarStmt:
		return l.operand(s.Source).in, s.Target
	case *ir.AssignIntStmt:
		return constant(ast.InternedTerm(int(s.Value))), s.Target
	case *ir.MakeNullStmt:
		return constant(ast.InternedNullTerm), s.Target
	case *ir.MakeNumberIntStmt:
		return constant(ast.InternedTerm(int(s.Value))), s.Target
	case *ir.MakeNumberRefStmt:
		return constant(ast.NumberTerm(json.Number(l.policy.Static.Strings[s.Index].Value))), s.Target
	case *ir.MakeArrayStmt:
		return func(frame) *ast.Term { return ast.ArrayTerm() }, s.Target
	case *ir.MakeObjectStmt:
		return func(frame) *ast.Term { return ast.NewTerm(ast.NewObject()) }, s.Target
	case *ir.MakeSetStmt:
		return func(frame) *ast.Term { return ast.SetTerm() }, s.Target
	}
	return nil, 0
}

// dot returns the member of a value under a key. In `data`, a number stands for a name, too.
func dot(source, key operand, ofData bool) func(frame) *ast.Term {
	return func(f frame) *ast.Term {
		in, k := source.in(f), key.in(f)
		if in == nil { // there is no input
			return nil
		}
		found := in.Get(k)
		if n, ok := k.Value.(ast.Number); ok && ofData && found == nil {
			return in.Get(ast.StringTerm(string(n)))
		}
		return found
	}
}

// change lowers a statement that changes a value that the function made, or a variable; nil for others.
func (l *lowering) change(s ir.Stmt) func(frame) error {
	switch s := s.(type) {
	case *ir.ResetLocalStmt:
		target := l.local(s.Target)
		return func(f frame) error {
			f[target] = nil
			return nil
		}
	case *ir.AssignVarOnceStmt:
		source, target := l.operand(s.Source), l.local(s.Target)
		return func(f frame) error {
			v := source.in(f)
			if f[target] != nil && !equal(f[target], v) {
				return errConflict
			}
			f[target] = v
			return nil
		}
	case *ir.ArrayAppendStmt:
		value, target := l.operand(s.Value), l.local(s.Array)
		return func(f frame) error {
			f[target] = ast.NewTerm(f[target].Value.(*ast.Array).Append(whole(value.in(f))))
			return nil
		}
	case *ir.SetAddStmt:
		value, target := l.operand(s.Value), l.local(s.Set)
		return func(f frame) error {
			f[target].Value.(ast.Set).Add(whole(value.in(f)))
			return nil
		}
	case *ir.ObjectInsertStmt:
		key, value, target := l.operand(s.Key), l.operand(s.Value), l.local(s.Object)
		return func(f frame) error {
			f[target].Value.(ast.Object).Insert(whole(key.in(f)), whole(value.in(f)))
			return nil
		}
	case *ir.ObjectInsertOnceStmt:
		key, value, target := l.operand(s.Key), l.operand(s.Value), l.local(s.Object)
		return func(f frame) error {
			made, k, v := f[target].Value.(ast.Object), whole(key.in(f)), whole(value.in(f))
			if is := made.Get(k); is != nil && !equal(is, v) {
				return errConflict
			}
			made.Insert(k, v)
			return nil
		}
	case *ir.ObjectMergeStmt:
		a, b, target := l.read(s.A), l.read(s.B), l.local(s.Target)
		return func(f frame) error {
			x, ok := whole(a.in(f)).Value.(ast.Object)
			y, both := whole(b.in(f)).Value.(ast.Object)
			if !ok || !both {
				return errMerge
			}
			f[target] = ast.NewTerm(merged(x, y))
			return nil
		}
	}
	return nil
}

// ofData reports whether a statement is a step of a reference that begins with `data`: there, a number stands for a name, too.
func (l *lowering) ofData(s ir.Stmt) bool {
	step, ok := s.(*ir.DotStmt)
	if !ok {
		return false
	}
	of, ok := step.Source.Value.(ir.Local)
	return ok && (of == ir.Data || l.data[of])
}

func runBlocks(blocks []block) statement {
	return func(m *machine, f frame) flow {
		for _, b := range blocks {
			if to := b.run(m, f); to > undefined {
				return outside(to, 1)
			}
		}
		return next
	}
}

// outside returns where execution goes on outside of so many blocks.
func outside(to, blocks flow) flow {
	if to == returned {
		return returned
	}
	return to - blocks
}

func negate(b block) statement {
	return func(m *machine, f frame) flow {
		switch to := b.run(m, f); to {
		case next:
			return undefined
		case undefined:
			return next
		default:
			return outside(to, 1)
		}
	}
}

// scan runs a block for each key and value. One break ends the iteration: as in WebAssembly, a loop has a block around it.
func scan(source operand, key, value ir.Local, body block) statement {
	return func(m *machine, f frame) flow {
		to := next
		until(source.in(f), func(k, v *ast.Term) bool {
			f[key], f[value] = k, v
			if to = body.run(m, f); to <= undefined && !m.mayGoOn() {
				to = returned
			}
			return to > undefined
		})
		if to <= 1 {
			return next
		}
		return outside(to, 2)
	}
}

// call lowers the call of a function or builtin.
func (l *lowering) call(s *ir.CallStmt) statement {
	target := l.local(s.Result)
	if called := l.functions[s.Func]; called != nil {
		l.current.calls = append(l.current.calls, called)
		arguments := l.arguments(s, called)
		return func(m *machine, f frame) flow {
			v := m.call(called, arguments, f)
			if m.err != nil {
				return returned
			}
			return f.set(target, v)
		}
	}
	run := builtinNamed(s.Func)
	if run == nil {
		return l.unsupported(s, s.Func)
	}
	arguments := l.arguments(s, nil)
	return func(m *machine, f frame) flow {
		operands := m.operands[:0]
		for _, a := range arguments {
			operands = append(operands, a.in(f))
		}
		v, err := run(m, operands)
		if err != nil {
			return m.fail(err)
		}
		return f.set(target, v)
	}
}
