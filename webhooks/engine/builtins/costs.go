package builtins

import (
	"errors"
	"math"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// element is what a term costs that stands in a list: itself, and where it stands.
const element = 64

// length of a text in bytes; 0 for what is none, which the builtin refuses.
func length(t *ast.Term) float64 {
	s, _ := t.Value.(ast.String)
	return float64(len(s))
}

// written is how a text or a number is written; "" for what is neither.
func written(t *ast.Term) string {
	switch v := t.Value.(type) {
	case ast.String:
		return string(v)
	case ast.Number:
		return string(v)
	}
	return ""
}

// size is how many elements or members a term has.
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

// WrittenSize is about how long a term is when it is written down, or more than the limit. Values can be in each other so often that
// going through all of them would not end.
func WrittenSize(t *ast.Term, limit float64) (total float64) {
	ast.WalkTerms(t, func(t *ast.Term) (enough bool) {
		if total > limit {
			return true
		}
		total += 2
		switch t.Value.(type) {
		case ast.String, ast.Number:
			total += float64(len(written(t)))
		case *ast.Array, ast.Set, ast.Object:
		default:
			total += 4
		}
		return false
	})
	return total
}

// costs tells what a call of a builtin would do with its operands, or why it must not.
type costs func(operands []*ast.Term) (cost, error)

// each is the cost of what makes something of each of its operands, so many times what is measured.
func each(times float64, measure func(*ast.Term) float64) costs {
	return making(func(operands []*ast.Term) (made float64) {
		for _, o := range operands {
			made += times * measure(o)
		}
		return made
	})
}

// making is the cost of what takes no longer than what it makes.
func making(made func(operands []*ast.Term) float64) costs {
	return func(operands []*ast.Term) (cost, error) { return cost{made: made(operands)}, nil }
}

// text is how much there is of a text, or of a list of them.
func text(t *ast.Term) float64 {
	if _, list := t.Value.(*ast.Array); list {
		return whole(t)
	}
	return length(t)
}

// whole is how much there is of a term with all that is in it.
func whole(t *ast.Term) float64 { return WrittenSize(t, mostMade) }

// product is the cost of what compares all of its operands with each other.
func product(of ...func(*ast.Term) float64) costs {
	return func(operands []*ast.Term) (cost, error) {
		work := 1.0
		for i, measure := range of {
			work *= measure(operands[i])
		}
		return cost{work: work}, nil
	}
}

// inner is how many elements the lists in a list have.
func inner(t *ast.Term) (elements float64) {
	if list, ok := t.Value.(*ast.Array); ok {
		list.Foreach(func(inner *ast.Term) { elements += size(inner) })
	}
	return elements
}

func joined(operands []*ast.Term) float64 {
	return length(operands[0])*size(operands[1]) + whole(operands[1])
}

func splitUp(operands []*ast.Term) float64 {
	return element * (occurrences(operands[0], operands[1]) + 1)
}

// occurrences of a text in another.
func occurrences(in, of *ast.Term) float64 {
	all, _ := in.Value.(ast.String)
	part, _ := of.Value.(ast.String)
	return float64(strings.Count(string(all), string(part)))
}

func replaced(operands []*ast.Term) float64 {
	return length(operands[0]) + occurrences(operands[0], operands[1])*length(operands[2])
}

func replacedAll(operands []*ast.Term) (cost, error) {
	c := cost{made: length(operands[1])}
	if patterns, ok := operands[0].Value.(ast.Object); ok {
		c.work = float64(patterns.Len()) * c.made
		if c.work <= mostWork {
			patterns.Foreach(func(old, new *ast.Term) { c.made += occurrences(operands[1], old) * length(new) })
		}
	}
	return c, nil
}

// formatted: a format can name an operand as often as it likes, and have it padded to a width that it, or an operand, says.
func formatted(operands []*ast.Term) (cost, error) {
	format, _ := operands[0].Value.(ast.String)
	arguments := whole(operands[1])
	c := cost{made: length(operands[0])}
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

// largest number in a text.
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

// globbed: for each wildcard or choice but one, all places in the text may be tried again.
func globbed(operands []*ast.Term) (cost, error) {
	pattern, _ := operands[0].Value.(ast.String)
	wild := float64(strings.Count(string(pattern), "*") + strings.Count(string(pattern), "{"))
	return cost{work: length(operands[0]) * math.Pow(max(2, length(operands[2])), max(1, wild-1))}, nil
}

// matched: each character of the text may be tried against each instruction that a pattern becomes; repetitions repeat those.
func matched(operands []*ast.Term) (cost, error) {
	pattern, text := operands[0], operands[1]
	return cost{work: length(pattern) * repetitions(pattern) * max(1, length(text)), made: element}, nil
}

// repetitions is how often a part of a pattern is repeated at most: a pattern in which that is more than 1000 does not compile.
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
		made: length(text)*(1+float64(strings.Count(string(v), "$"))) + (length(text)+1)*length(value),
	}, nil
}
