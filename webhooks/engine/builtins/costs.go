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

// texts is the cost of what makes so many bytes of each byte of its operands.
func texts(times float64) func([]*ast.Term) (cost, error) {
	return func(operands []*ast.Term) (cost, error) {
		var c cost
		for _, o := range operands {
			c.made += times * length(o)
			if list, ok := o.Value.(*ast.Array); ok {
				c.made += times * WrittenSize(ast.NewTerm(list), mostMade)
			}
		}
		return c, nil
	}
}

// wholes is the cost of what goes through all of its operands.
func wholes(times float64) func([]*ast.Term) (cost, error) {
	return func(operands []*ast.Term) (cost, error) {
		var c cost
		for _, o := range operands {
			c.made += times * WrittenSize(o, mostMade)
		}
		return c, nil
	}
}

// product is the cost of what compares all of its operands with each other.
func product(of ...func(*ast.Term) float64) func([]*ast.Term) (cost, error) {
	return func(operands []*ast.Term) (cost, error) {
		work := 1.0
		for i, measure := range of {
			work *= measure(operands[i])
		}
		return cost{work: work}, nil
	}
}

// nested is the cost of a list of lists that becomes one.
func nested(operands []*ast.Term) (cost, error) {
	var c cost
	if list, ok := operands[0].Value.(*ast.Array); ok {
		list.Foreach(func(inner *ast.Term) { c.made += 16 * size(inner) })
	}
	return c, nil
}

func elements(operands []*ast.Term) (cost, error) {
	var c cost
	for _, o := range operands {
		c.made += 16 * size(o)
	}
	return c, nil
}

func joined(operands []*ast.Term) (cost, error) {
	return cost{made: length(operands[0])*size(operands[1]) + WrittenSize(operands[1], mostMade)}, nil
}

// unmarshalled: a list of empty objects takes forty times its text.
func unmarshalled(operands []*ast.Term) (cost, error) {
	return cost{made: 40 * length(operands[0])}, nil
}

func splitUp(operands []*ast.Term) (cost, error) {
	parts := occurrences(operands[0], operands[1])
	return cost{made: element * (parts + 1)}, nil
}

// occurrences of a text in another.
func occurrences(in, of *ast.Term) float64 {
	text, _ := in.Value.(ast.String)
	part, _ := of.Value.(ast.String)
	return float64(strings.Count(string(text), string(part)))
}

func replaced(operands []*ast.Term) (cost, error) {
	return cost{made: length(operands[0]) + occurrences(operands[0], operands[1])*length(operands[2])}, nil
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
	arguments := WrittenSize(operands[1], mostMade)
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
