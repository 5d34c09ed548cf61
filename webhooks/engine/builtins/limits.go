package builtins

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"
)

const (
	// mostWork limits the steps of one call; each takes some nanoseconds.
	mostWork = 50e6
	// mostMade is the default limit for the results of all calls of an evaluation, in bytes.
	mostMade = 64 << 20
	// maxOfAll limits the results of all running evaluations together, in MiB: evaluations of many users could otherwise exhaust
	// the memory. The first mostUncounted MiB of each do not count, so that large evaluations do not stop ordinary ones.
	maxOfAll, maxUncounted = 256, 4
	// longestNumber and largestExponent limit a number, in characters and digits.
	longestNumber, largestExponent = 100, 1000
)

// cost is the upper limit of what a call of a builtin costs.
type cost struct {
	work, made float64
	small      bool // its joined result has few parts
}

// meter counts the results of the calls of an evaluation. An evaluation is one goroutine.
type meter struct {
	made  float64
	input *ast.Term // nil if unknown
	most  int       // see mostParts; 0 until it is needed
	// joined is the number of calls of joining builtins.
	joined int
	shared bool  // it counts against mostOfAll
	taken  int64 // of mostOfAll, in MiB
}

// takenOfAll is what all running evaluations have taken of mostOfAll, in MiB.
var takenOfAll atomic.Int64

type meterKey struct{}

// Metered returns a context that counts the results of an evaluation's calls together, with limits that depend on its input, which
// may be nil. The caller must call release when the evaluation has ended.
func Metered(ctx context.Context, input *ast.Term) (metered context.Context, release func()) {
	m := &meter{input: input, shared: true}
	return context.WithValue(ctx, meterKey{}, m), func() { takenOfAll.Add(-m.taken) }
}

// MeteredUpTo returns a context that limits the results of all of an evaluation's calls to a number of bytes.
func MeteredUpTo(ctx context.Context, bytes float64) context.Context {
	return context.WithValue(ctx, meterKey{}, &meter{made: mostMade - bytes})
}

// meterOf returns the meter of an evaluation, a new one for a call outside evaluations.
func meterOf(ctx context.Context) *meter {
	if ctx != nil {
		if m, ok := ctx.Value(meterKey{}).(*meter); ok {
			return m
		}
	}
	return &meter{}
}

// limited maps the builtins with limits to the cost of a call.
var limited = map[string]costs{
	"abs": plainNumbers, "ceil": plainNumbers, "floor": plainNumbers, "round": plainNumbers, "format_int": digitsCost,
	"plus": plainNumbers, "minus": minusCost, "mul": plainNumbers, "div": plainNumbers, "rem": plainNumbers,
	"sum": plainElements, "product": fewElements,
	"to_number": plainNumbers, "units.parse": plainNumbers, "units.parse_bytes": plainNumbers,
	"array.concat": each(inList, size), "array.flatten": each(inList, innerElements), "array.reverse": each(inList, size), "array.slice": fewValues(1), "sort": each(inList, size),
	"and": sets(size), "or": sets(size), "set_diff": sets(size), "union": sets(innerElements), "intersection": sets(innerElements),
	"object.keys": sets(size), "object.remove": making(removeSize), "object.filter": making(filterSize), "object.union": unionCost, "object.union_n": making(unionAllSize),
	"object.subset": subsetCost, "json.filter": making(jsonFilterSize), "json.remove": making(jsonRemoveSize), "walk": walkCost,
	"base64.decode": each(1, text), "base64.encode": each(2, text), "base64url.decode": each(1, text), "base64url.encode": each(2, text),
	"concat": making(joined), "internal.template_string": each(1, wholeSize), "json.marshal": each(6, wholeSize),
	"json.unmarshal": each(50, length), // a list of empty objects takes that many times its text
	"lower":          each(3, text), "upper": each(3, text), "strings.reverse": reverseCost, "urlquery.encode": each(3, text), "urlquery.decode": each(1, text),
	"time.format": each(10, text), "time.clock": fewValues(4), "time.date": fewValues(4), "time.diff": fewValues(7), "time.weekday": fewValues(1),
	"replace": making(replaced), "strings.replace_n": replacedAll, "split": making(splitUp), "sprintf": formatCost, "substring": making(part),
	"crypto.sha256": fewValues(2), "type_name": fewValues(1), "glob.match": globCost, "glob.quote_meta": each(2, text),
	"regex.match": matchCost, "regex.replace": substituted, "regex.split": splitCost,
	"trim": trimCost, "trim_left": trimCost, "trim_right": trimCost, "trim_prefix": fewValues(1), "trim_suffix": fewValues(1), "trim_space": fewValues(1),
}

func init() {
	for name, tells := range limited {
		ast.BuiltinMap[name].CanSkipBctx = false // the context has the meter
		call := topdown.GetBuiltin(name)
		topdown.RegisterBuiltinFunc(name, func(ctx topdown.BuiltinContext, operands []*ast.Term, iter func(*ast.Term) error) error {
			c, err := tells(operands)
			if err != nil {
				return err
			}
			if err := charge(ctx.Context, c); err != nil {
				return stop(ctx, name+": ", err)
			}
			return call(ctx, operands, func(result *ast.Term) error {
				if name == "json.unmarshal" && TooLarge(result) != nil {
					return ErrNumber
				}
				if joins[name] && !c.small {
					if err := meterOf(ctx.Context).join(ctx, result); err != nil {
						return err
					}
				}
				return iter(result)
			})
		})
	}
}

// Together is the code of the error when all running evaluations together reach their limit.
const Together = "sallyport_together"

var errTogether = fmt.Errorf("all running evaluations would create more than %d MiB of values together", maxOfAll)

// stop ends an evaluation with an error of [charge].
func stop(ctx topdown.BuiltinContext, what string, err error) error {
	code := topdown.BuiltinErr
	if errors.Is(err, errTogether) {
		code = Together
	}
	return haltEvaluation(ctx, code, what+err.Error())
}

func charge(ctx context.Context, c cost) error {
	if c.work > mostWork {
		return fmt.Errorf("evaluation would take too long with operands of this size")
	}
	m := meterOf(ctx)
	m.made += c.made
	if m.made > mostMade {
		return fmt.Errorf("the evaluation would create more than %d MiB of values", mostMade>>20)
	}
	if more := int64(m.made)>>20 - maxUncounted - m.taken; m.shared && more > 0 {
		if takenOfAll.Add(more) > maxOfAll {
			takenOfAll.Add(-more)
			return errTogether
		}
		m.taken += more
	}
	return nil
}

// ErrNumber is the error for a number that is out of proportion with its text.
var ErrNumber = fmt.Errorf("a number has more than %d characters or an exponent of more than %d", longestNumber, largestExponent)

// plainNumber reports whether a number is as large as its text suggests, as all 64-bit numbers are.
func plainNumber(number string) bool {
	if len(number) > longestNumber {
		return false
	}
	at := strings.IndexAny(number, "eEpP")
	if at < 0 {
		return true
	}
	exponent := 0
	for _, c := range number[at+1:] {
		if c >= '0' && c <= '9' {
			exponent = exponent*10 + int(c-'0')
		}
		if exponent > largestExponent {
			return false
		}
	}
	return true
}

func plainNumbers(operands []*ast.Term) (cost, error) {
	for _, o := range operands {
		if !plainNumber(written(o)) {
			return cost{}, ErrNumber
		}
	}
	return cost{}, nil
}

func plainElements(operands []*ast.Term) (cost, error) {
	each, fine := operands[0].Value.(iterable)
	if !fine {
		return cost{}, nil // the builtin rejects it
	}
	return cost{}, each.Iter(func(element *ast.Term) error {
		_, err := plainNumbers([]*ast.Term{element})
		return err
	})
}

// fewElements is for products, which have as many digits as all factors together.
func fewElements(operands []*ast.Term) (cost, error) {
	if size(operands[0]) > 100 {
		return cost{}, fmt.Errorf("it has more than 100 factors")
	}
	return plainElements(operands)
}

var nowhere = &ast.Location{}

// TooLarge returns the place of a number that is out of proportion with its text; nil if there is none.
func TooLarge(in any) (at *ast.Location) {
	ast.WalkTerms(in, func(t *ast.Term) bool {
		if n, ok := t.Value.(ast.Number); ok && at == nil && !plainNumber(string(n)) {
			at = cmp.Or(t.Location, nowhere)
		}
		return at != nil
	})
	return at
}
