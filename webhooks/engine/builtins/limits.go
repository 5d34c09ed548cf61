package builtins

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"
	"github.com/open-policy-agent/opa/v1/types"
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
type cost struct{ work, made float64 }

// meter counts the results of the calls of an evaluation. An evaluation is one goroutine.
type meter struct {
	made   float64
	shared bool  // it counts against maxOfAll
	taken  int64 // of maxOfAll, in MiB
}

// takenOfAll is what all running evaluations have taken of maxOfAll, in MiB.
var takenOfAll atomic.Int64

type meterKey struct{}

// Metered returns a context that counts the results of an evaluation's calls together. The caller must call release when the evaluation has
// ended.
func Metered(ctx context.Context) (metered context.Context, release func()) {
	m := &meter{shared: true}
	return context.WithValue(ctx, meterKey{}, m), func() { takenOfAll.Add(-m.taken) }
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

// limited maps the builtins of which one call can take long or make much, and those that make more than their result shows, to the cost of a
// call, which is charged first. What others make is charged when it is there.
var limited = map[string]costs{
	"to_number": plainNumbers, "units.parse": plainNumbers, "units.parse_bytes": plainNumbers, "product": fewElements,
	"concat": making(joined), "sprintf": formatCost, "internal.template_string": each(1, wholeSize), "json.marshal": each(6, wholeSize),
	"json.unmarshal": each(50, length), // a list of empty objects takes that many times its text
	"replace":        making(replaced), "strings.replace_n": replacedAll, "split": making(splitUp), "strings.reverse": making(reversed),
	"trim": trimCost, "trim_left": trimCost, "trim_right": trimCost,
	"glob.match": globCost, "regex.match": matchCost, "regex.replace": substituted, "regex.split": splitCost,
	"json.filter": making(filtered), "json.remove": making(copied), "object.union": making(united), "object.union_n": making(copied),
	"object.remove": making(without), "object.subset": subsetCost, "walk": walkCost,
	"time.clock": fewValues(4), "time.date": fewValues(4), "time.diff": fewValues(7),
}

// givesOperands are the builtins whose result is one of their operands, or in one.
var givesOperands = []string{"max", "min", "object.get"}

func init() {
	for _, b := range usable() {
		if tells := limited[b.Name]; tells != nil || makes(b.Decl.Result()) && !slices.Contains(givesOperands, b.Name) {
			limit(b.Name, tells)
		}
	}
}

// makes reports whether a result can be a text or have parts.
func makes(result types.Type) bool {
	switch result := result.(type) {
	case nil, types.Null, types.Boolean, types.Number:
		return false
	case *types.NamedType:
		return makes(result.Type)
	case types.Any:
		return len(result) == 0 || slices.ContainsFunc(result, makes)
	}
	return true
}

// limit has a builtin charge for its calls: before them if tells is not nil.
func limit(name string, tells costs) {
	ast.BuiltinMap[name].CanSkipBctx = false // the context has the meter
	call := topdown.GetBuiltin(name)
	topdown.RegisterBuiltinFunc(name, func(ctx topdown.BuiltinContext, operands []*ast.Term, iter func(*ast.Term) error) error {
		if tells != nil {
			c, err := tells(operands)
			if err != nil {
				return err
			}
			if err := charge(ctx.Context, c); err != nil {
				return stop(ctx, name+": ", err)
			}
		}
		return call(ctx, operands, func(result *ast.Term) error {
			if name == "json.unmarshal" && TooLarge(result) != nil {
				return ErrNumber
			}
			if tells == nil {
				if err := charge(ctx.Context, cost{made: made(result)}); err != nil {
					return stop(ctx, name+": ", err)
				}
			}
			return iter(result)
		})
	})
}

// Together is the code of the error when all running evaluations together reach their limit.
const Together = "sallyport_together"

var errTogether = fmt.Errorf("all running evaluations would create more than %d MiB of values together", maxOfAll)

// haltEvaluation ends an evaluation: after an ordinary error it would continue and collect further results.
func haltEvaluation(ctx topdown.BuiltinContext, code, message string) error {
	return topdown.Halt{Err: &topdown.Error{Code: code, Location: ctx.Location, Message: message}}
}

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

// fewElements is for products, which have as many digits as all factors together.
func fewElements(operands []*ast.Term) (cost, error) {
	if size(operands[0]) > 100 {
		return cost{}, fmt.Errorf("it has more than 100 factors")
	}
	return cost{}, nil
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
