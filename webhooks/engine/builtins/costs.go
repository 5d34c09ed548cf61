package builtins

import (
	"errors"
	"math"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// Memory of values in bytes, without the texts in them: a value by itself, and its place in a list, a set and an object.
// TestBuiltinsMakeNoMoreThanTheySay measures them.
const single, inList, inSet, inObject = 128, 16, 64, 128

// length returns the length of a string in bytes; 0 for other values, which the builtin rejects.
func length(t *ast.Term) float64 {
	s, _ := t.Value.(ast.String)
	return float64(len(s))
}

// written returns the text of a string or a number; "" for other values.
func written(t *ast.Term) string {
	switch v := t.Value.(type) {
	case ast.String:
		return string(v)
	case ast.Number:
		return string(v)
	}
	return ""
}

// size returns the number of elements or members of a term.
func size(t *ast.Term) float64 {
	switch v := t.Value.(type) {
	case *ast.Array:
		return float64(v.Len())
	case ast.Set:
		return float64(v.Len())
	case ast.Object:
		return float64(v.Len())
	}
	return 1
}

// mostParts is how many parts of a value are visited, to measure it.
const mostParts = 1 << 22

// sum adds up the measures of the parts of a term. It returns infinity if there are too many parts, and stops above mostMade:
// values can be nested in each other so often that visiting all of them would not end.
func sum(t *ast.Term, each func(part *ast.Term, depth int) float64) float64 {
	m := &measuring{each: each}
	m.member = func(key, value *ast.Term) bool { return m.add(key) || m.add(value) }
	m.element = m.add
	m.add(t)
	return m.total
}

// measuring is the state of a sum; member and element are closures that are made once.
type measuring struct {
	total        float64
	parts, depth int
	each         func(part *ast.Term, depth int) float64
	member       func(key, value *ast.Term) bool
	element      func(*ast.Term) bool
}

// add adds a term with its parts, and reports whether the sum is above mostMade.
func (m *measuring) add(t *ast.Term) bool {
	if m.parts++; m.parts > mostParts {
		m.total = math.Inf(1)
	}
	m.depth++
	m.total += m.each(t, m.depth)
	switch v := t.Value.(type) {
	case *ast.Array:
		for i := 0; i < v.Len() && m.total <= mostMade; i++ {
			m.add(v.Elem(i))
		}
	case ast.Set:
		v.Until(m.element)
	case ast.Object:
		v.Until(m.member)
	}
	m.depth--
	return m.total > mostMade
}

// wholeSize returns the approximate length of a term as text, or more than mostMade.
func wholeSize(t *ast.Term) float64 {
	return sum(t, func(part *ast.Term, _ int) float64 {
		switch v := part.Value.(type) {
		case ast.String:
			return 2 + float64(len(v))
		case ast.Number:
			return 2 + float64(len(v))
		case *ast.Array, ast.Set, ast.Object:
			return 2
		}
		return 6
	})
}

// costs returns the cost of a call of a builtin, or why it must not run.
type costs func(operands []*ast.Term) (cost, error)

// made returns the size of a result, without the values that it has from the operands.
func made(result *ast.Term) float64 {
	if text, is := result.Value.(ast.String); is {
		return single + float64(len(text))
	}
	return container(result, 0)
}

// each is the cost of a builtin whose result grows with the measure of each operand, times a factor.
func each(times float64, measure func(*ast.Term) float64) costs {
	return making(func(operands []*ast.Term) (made float64) {
		made = single
		for _, o := range operands {
			made += times * measure(o)
		}
		return made
	})
}

// making is the cost of a builtin that takes time in proportion to its result.
func making(made func(operands []*ast.Term) float64) costs {
	return func(operands []*ast.Term) (cost, error) { return cost{made: made(operands)}, nil }
}

func joined(operands []*ast.Term) float64 {
	return 24 + length(operands[0])*size(operands[1]) + wholeSize(operands[1]) // includes spare capacity of the text
}

func splitUp(operands []*ast.Term) float64 {
	return (single + inList) * (occurrences(operands[0], operands[1]) + 1)
}

// occurrences counts a string in another.
func occurrences(in, of *ast.Term) float64 {
	all, _ := in.Value.(ast.String)
	part, _ := of.Value.(ast.String)
	return float64(strings.Count(string(all), string(part)))
}

func replaced(operands []*ast.Term) float64 {
	return single + length(operands[0]) + occurrences(operands[0], operands[1])*length(operands[2])
}

func replacedAll(operands []*ast.Term) (cost, error) {
	c := cost{made: single + length(operands[1])}
	if patterns, ok := operands[0].Value.(ast.Object); ok {
		c.work = float64(patterns.Len()) * c.made
		if c.work <= mostWork {
			patterns.Foreach(func(old, new *ast.Term) { c.made += occurrences(operands[1], old) * length(new) })
		}
	}
	return c, nil
}

// formatCost: a format can use an operand any number of times, and pad it to a width in the format or an operand.
func formatCost(operands []*ast.Term) (cost, error) {
	format, _ := operands[0].Value.(ast.String)
	arguments := wholeSize(operands[1])
	c := cost{made: single + length(operands[0])}
	for i, verb := range strings.Split(string(format), "%") {
		if i == 0 {
			continue
		}
		flags := verb[:len(verb)-len(strings.TrimLeft(verb, "+-# 0123456789.[]*"))]
		if strings.Contains(flags, "*") {
			return c, errors.New("a width that is an argument is not supported")
		}
		c.made += arguments + largest(flags)
	}
	return c, nil
}

// largest returns the largest number in a text.
func largest(text string) (most float64) {
	number := 0.0
	for _, c := range text {
		if c < '0' || c > '9' {
			number = 0
			continue
		}
		number = number*10 + float64(c-'0')
		most = max(most, number)
	}
	return most
}

// globCost: for each wildcard or choice but one, all positions in the text may be tried again.
func globCost(operands []*ast.Term) (cost, error) {
	pattern, _ := operands[0].Value.(ast.String)
	wild := float64(strings.Count(string(pattern), "*") + strings.Count(string(pattern), "{"))
	return cost{work: length(operands[0]) * math.Pow(max(2, length(operands[2])), max(1, wild-1))}, nil
}

// matchCost: each character of the text may be tried against each instruction of the pattern; repetitions multiply these.
func matchCost(operands []*ast.Term) (cost, error) {
	pattern, text := operands[0], operands[1]
	return cost{work: length(pattern) * repetitions(pattern) * max(1, length(text))}, nil
}

// splitCost: a pattern can match before each character.
func splitCost(operands []*ast.Term) (cost, error) {
	c, err := matchCost(operands)
	c.made = (single + inList) * (length(operands[1]) + 1)
	return c, err
}

// repetitions returns how often a part of a pattern is repeated at most: above 1000 the pattern does not compile.
func repetitions(pattern *ast.Term) float64 {
	text, _ := pattern.Value.(ast.String)
	times := 1.0
	for _, part := range strings.Split(string(text), "{")[1:] {
		counts, _, _ := strings.Cut(part, "}")
		times = min(1000, times*max(1, largest(counts)))
	}
	return times
}

func substituted(operands []*ast.Term) (cost, error) {
	text, pattern, value := operands[0], operands[1], operands[2]
	v, _ := value.Value.(ast.String)
	return cost{
		work: length(pattern) * repetitions(pattern) * max(1, length(text)),
		made: single + length(text)*(1+float64(strings.Count(string(v), "$"))) + (length(text)+1)*length(value),
	}, nil
}

// trimCost compares all characters of a string with all that are cut.
func trimCost(operands []*ast.Term) (cost, error) {
	return cost{work: length(operands[0]) * length(operands[1]), made: single}, nil
}

// subsetCost: if both operands have a list, one is searched at each position of the other.
func subsetCost(operands []*ast.Term) (cost, error) {
	longest := 1.0
	sum(operands[0], func(part *ast.Term, _ int) float64 {
		if list, ok := part.Value.(*ast.Array); ok {
			longest = max(longest, float64(list.Len()))
		}
		return 1
	})
	return cost{work: longest * wholeSize(operands[1])}, nil
}

// container returns the size of a list, a set or an object without its parts.
func container(t *ast.Term, _ int) float64 {
	switch v := t.Value.(type) {
	case *ast.Array:
		return single + inList*float64(v.Len())
	case ast.Set:
		return 2*single + inSet*float64(v.Len())
	case ast.Object:
		return 2*single + inObject*float64(v.Len())
	}
	return 0
}

// copied is the result of a builtin that copies the lists and objects in its first operand.
func copied(operands []*ast.Term) float64 { return 2*single + sum(operands[0], container) }

// united is the result of object.union: if both operands have an object under a key, it is made, too.
func united(operands []*ast.Term) float64 {
	a, _ := operands[0].Value.(ast.Object)
	b, _ := operands[1].Value.(ast.Object)
	if a == nil || b == nil {
		return 0 // the builtin rejects it
	}
	return both(a, b)
}

func both(a, b ast.Object) (made float64) {
	made = 2*single + inObject*float64(a.Len()+b.Len())
	b.Until(func(key, theirs *ast.Term) bool {
		if mine := a.Get(key); mine != nil {
			inA, _ := mine.Value.(ast.Object)
			inB, _ := theirs.Value.(ast.Object)
			if inA != nil && inB != nil {
				made += both(inA, inB)
			}
		}
		return made > mostMade
	})
	return made
}

// filtered is the result of json.filter: each step of a path is an object that contains the next one, for a while twice.
func filtered(operands []*ast.Term) (made float64) {
	made = single
	paths, _ := operands[1].Value.(interface {
		Iter(each func(*ast.Term) error) error
	})
	if paths == nil {
		return made // the builtin rejects it
	}
	_ = paths.Iter(func(path *ast.Term) error {
		made += 2 * (2*single + inObject) * (size(path) + float64(strings.Count(written(path), "/")))
		return nil
	})
	return made
}

// without is the result of object.remove, which has room for all members, and the set of those that it lacks.
func without(operands []*ast.Term) float64 {
	return 2*single + inObject*size(operands[0]) + inSet*size(operands[1])
}

// walkCost: each part comes with its path, unless paths are not requested.
func walkCost(operands []*ast.Term) (cost, error) {
	paths := true
	if len(operands) > 1 {
		if pair, ok := operands[1].Value.(*ast.Array); ok && pair.Len() == 2 {
			name, isVar := pair.Elem(0).Value.(ast.Var)
			paths = !isVar || !name.IsWildcard()
		}
	}
	parts := 0.0
	made := sum(operands[0], func(_ *ast.Term, depth int) float64 {
		if parts++; !paths {
			return 0
		}
		return 2*single + inList*float64(depth)
	})
	return cost{work: parts, made: made}, nil
}

// fewValues is the cost of a builtin that makes that many values.
func fewValues(values float64) costs {
	return making(func([]*ast.Term) float64 { return single * values })
}

// reversed is the result of strings.reverse, which is made in a buffer of 255 bytes.
func reversed(operands []*ast.Term) float64 { return single + max(255, length(operands[0])) }
