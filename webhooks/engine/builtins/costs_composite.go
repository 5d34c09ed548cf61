package builtins

import (
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// little is the cost of what makes no more than a value or a few, or a text that is part of one that is there already.
func little(values float64) costs {
	return making(func([]*ast.Term) float64 { return single * values })
}

// trimmed compares all characters of a text with all that are to go.
func trimmed(operands []*ast.Term) (cost, error) {
	return cost{work: length(operands[0]) * length(operands[1]), made: single}, nil
}

// reversed: a short text is made in 255 bytes.
func reversed(operands []*ast.Term) (cost, error) {
	return cost{made: single + max(255, length(operands[0]))}, nil
}

// part is what substring makes: so many characters at most, of four bytes at most.
func part(operands []*ast.Term) float64 {
	left := length(operands[0])
	if characters, ok := operands[2].Value.(ast.Number); ok {
		if n, ok := characters.Int(); ok && n >= 0 {
			left = min(left, 4*float64(n))
		}
	}
	return single + left
}

// digits: a number can have as many as its exponent says.
func digits(operands []*ast.Term) (cost, error) {
	c, err := plainNumbers(operands[:1])
	number := written(operands[0])
	c.made = single + 4*float64(len(number))
	if strings.ContainsAny(number, "eE") {
		c.made += 4 * largestExponent
	}
	return c, err
}

// subtracted are numbers or sets.
func subtracted(operands []*ast.Term) (cost, error) {
	if _, numbers := operands[0].Value.(ast.Number); !numbers {
		return sets(size)(operands)
	}
	return plainNumbers(operands)
}

// without is what object.remove makes, and of what goes.
func without(operands []*ast.Term) float64 {
	return 2*single + inObject*size(operands[0]) + inSet*size(operands[1])
}

// filtered is what object.filter makes: of what stays it makes a set and an object before.
func filtered(operands []*ast.Term) float64 {
	return 3*single + (2*inObject+inSet)*size(operands[1])
}

// steps is how many steps JSON paths have together.
func steps(paths *ast.Term) (all float64) {
	if list, ok := paths.Value.(iterable); ok {
		_ = list.Iter(func(path *ast.Term) error {
			all += size(path)
			if text, ok := path.Value.(ast.String); ok {
				all += float64(strings.Count(string(text), "/"))
			}
			return nil
		})
	}
	return all
}

// followed is what json.filter makes: each step is an object that leads to the next one, in what is asked and in the result.
func followed(operands []*ast.Term) float64 {
	return single + 2*(2*single+inObject)*steps(operands[1]) + whole(operands[1])
}

// thinned is what json.remove makes: all that it goes through is made again.
func thinned(operands []*ast.Term) float64 {
	return followed(operands) + sum(operands[0], mostMade, container)
}

// container is what a list, a set or an object takes without what is in it.
func container(t *ast.Term, _ int) float64 {
	switch v := t.Value.(type) {
	case *ast.Array:
		return single + inList*float64(v.Len())
	case ast.Set:
		return single + inSet*float64(v.Len())
	case ast.Object:
		return single + inObject*float64(v.Len())
	}
	return 0
}

// merged: where both have an object that is made again, too. Before that they are compared.
func merged(operands []*ast.Term) (c cost, err error) {
	a, _ := operands[0].Value.(ast.Object)
	b, _ := operands[1].Value.(ast.Object)
	if a == nil || b == nil {
		return c, nil // which the builtin refuses
	}
	written := whole(operands[0]) + whole(operands[1])
	return cost{work: written, made: both(a, b), small: written < mostParts}, nil
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

// mergedAll are copied, each with the objects in it.
func mergedAll(operands []*ast.Term) float64 { return single + sum(operands[0], mostMade, container) }

// within: a list is looked for at each place of a list, wherever both have one.
func within(operands []*ast.Term) (cost, error) {
	longest := 1.0
	sum(operands[0], mostMade, func(part *ast.Term, _ int) float64 {
		if list, ok := part.Value.(*ast.Array); ok {
			longest = max(longest, float64(list.Len()))
		}
		return 1
	})
	return cost{work: longest * whole(operands[1])}, nil
}

// walked: each part comes with the path to it, if that is asked for.
func walked(operands []*ast.Term) (cost, error) {
	paths := true
	if len(operands) > 1 {
		if pair, ok := operands[1].Value.(*ast.Array); ok && pair.Len() == 2 {
			name, isVar := pair.Elem(0).Value.(ast.Var)
			paths = !isVar || !name.IsWildcard()
		}
	}
	parts := 0.0
	made := sum(operands[0], mostMade, func(_ *ast.Term, depth int) float64 {
		if parts++; !paths {
			return 0
		}
		return 2*single + inList*float64(depth)
	})
	return cost{work: parts, made: made}, nil
}
