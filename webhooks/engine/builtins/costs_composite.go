package builtins

import (
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// fewValues is the cost of a builtin that makes a few values, or a substring of an operand.
func fewValues(values float64) costs {
	return making(func([]*ast.Term) float64 { return single * values })
}

// trimCost compares all characters of a string with all that are cut.
func trimCost(operands []*ast.Term) (cost, error) {
	return cost{work: length(operands[0]) * length(operands[1]), made: single}, nil
}

// reverseCost: a short string is made in a buffer of 255 bytes.
func reverseCost(operands []*ast.Term) (cost, error) {
	return cost{made: single + max(255, length(operands[0]))}, nil
}

// part is the result of substring: up to that many characters, of four bytes at most.
func part(operands []*ast.Term) float64 {
	left := length(operands[0])
	if characters, ok := operands[2].Value.(ast.Number); ok {
		if n, ok := characters.Int(); ok && n >= 0 {
			left = min(left, 4*float64(n))
		}
	}
	return single + left
}

// digitsCost: a number can have as many digits as its exponent says.
func digitsCost(operands []*ast.Term) (cost, error) {
	c, err := plainNumbers(operands[:1])
	number := written(operands[0])
	c.made = single + 4*float64(len(number))
	if strings.ContainsAny(number, "eE") {
		c.made += 4 * largestExponent
	}
	return c, err
}

// minusCost are numbers or sets.
func minusCost(operands []*ast.Term) (cost, error) {
	if _, numbers := operands[0].Value.(ast.Number); !numbers {
		return sets(size)(operands)
	}
	return plainNumbers(operands)
}

// removeSize is the result of object.remove, and the set of removed keys.
func removeSize(operands []*ast.Term) float64 {
	return 2*single + inObject*size(operands[0]) + inSet*size(operands[1])
}

// filterSize is the result of object.filter, which first makes a set and an object of the kept keys.
func filterSize(operands []*ast.Term) float64 {
	return 3*single + (2*inObject+inSet)*size(operands[1])
}

// steps returns the number of steps of all JSON paths together.
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

// jsonFilterSize is the result of json.filter: each step is an object that contains the next one, in the operand and in the result.
func jsonFilterSize(operands []*ast.Term) float64 {
	return single + 2*(2*single+inObject)*steps(operands[1]) + wholeSize(operands[1])
}

// jsonRemoveSize is the result of json.remove: every collection on the paths is copied.
func jsonRemoveSize(operands []*ast.Term) float64 {
	return jsonFilterSize(operands) + sum(operands[0], mostMade, container)
}

// container returns the size of a list, a set or an object without its parts.
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

// unionCost: if both operands have an object under a key, it is copied, too. The operands are compared first.
func unionCost(operands []*ast.Term) (c cost, err error) {
	a, _ := operands[0].Value.(ast.Object)
	b, _ := operands[1].Value.(ast.Object)
	if a == nil || b == nil {
		return c, nil // the builtin rejects it
	}
	written := wholeSize(operands[0]) + wholeSize(operands[1])
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

// unionAllSize: all operands are copied, with the objects in them.
func unionAllSize(operands []*ast.Term) float64 {
	return single + sum(operands[0], mostMade, container)
}

// subsetCost: if both operands have a list, one is searched at each position of the other.
func subsetCost(operands []*ast.Term) (cost, error) {
	longest := 1.0
	sum(operands[0], mostMade, func(part *ast.Term, _ int) float64 {
		if list, ok := part.Value.(*ast.Array); ok {
			longest = max(longest, float64(list.Len()))
		}
		return 1
	})
	return cost{work: longest * wholeSize(operands[1])}, nil
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
	made := sum(operands[0], mostMade, func(_ *ast.Term, depth int) float64 {
		if parts++; !paths {
			return 0
		}
		return 2*single + inList*float64(depth)
	})
	return cost{work: parts, made: made}, nil
}
