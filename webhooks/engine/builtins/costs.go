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

// sum adds up the measures of the parts of a term. It returns infinity if there are too many parts, and stops above the limit:
// values can be nested in each other so often that visiting all of them would not end.
func sum(t *ast.Term, limit float64, each func(part *ast.Term, depth int) float64) float64 {
	m := &measuring{limit: limit, each: each}
	m.member = func(key, value *ast.Term) bool { return m.add(key) || m.add(value) }
	m.element = m.add
	m.add(t)
	return m.total
}

// measuring is the state of a sum; member and element are closures that are made once.
type measuring struct {
	limit, total float64
	parts, depth int
	each         func(part *ast.Term, depth int) float64
	member       func(key, value *ast.Term) bool
	element      func(*ast.Term) bool
}

// add adds a term with its parts, and reports whether the sum has reached its limit.
func (m *measuring) add(t *ast.Term) bool {
	if m.parts++; m.parts > 16*mostParts {
		m.total = math.Inf(1)
	}
	m.depth++
	m.total += m.each(t, m.depth)
	switch v := t.Value.(type) {
	case *ast.Array:
		for i := 0; i < v.Len() && m.total <= m.limit; i++ {
			m.add(v.Elem(i))
		}
	case ast.Set:
		v.Until(m.element)
	case ast.Object:
		v.Until(m.member)
	}
	m.depth--
	return m.total > m.limit
}

// WrittenSize returns the approximate length of a term as text, or more than the limit.
func WrittenSize(t *ast.Term, limit float64) float64 {
	return sum(t, limit, func(part *ast.Term, _ int) float64 {
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

// sets is the cost of a builtin that makes a set.
func sets(measure func(*ast.Term) float64) costs {
	return func(operands []*ast.Term) (cost, error) {
		c, err := each(inSet, measure)(operands)
		c.made += single
		return c, err
	}
}

// text returns the size of a string, or of a list of strings.
func text(t *ast.Term) float64 {
	if _, list := t.Value.(*ast.Array); list {
		return wholeSize(t)
	}
	return length(t)
}

// wholeSize returns the size of a term with all its parts.
func wholeSize(t *ast.Term) float64 { return WrittenSize(t, mostMade) }

// innerElements returns the number of elements of the lists and sets in a list or set.
func innerElements(t *ast.Term) (elements float64) {
	if all, ok := t.Value.(iterable); ok {
		_ = all.Iter(func(inner *ast.Term) error {
			elements += size(inner)
			return nil
		})
	}
	return elements
}

// iterable is a list or a set.
type iterable interface {
	Iter(each func(*ast.Term) error) error
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
