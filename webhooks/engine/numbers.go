package engine

import (
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// Builtins that make numbers out of texts, which a user may have written, get no longer ones than a document may have: with one of 256 KiB
// of digits, as long as an annotation may be, they or the arithmetic after them take seconds. OPA looks for a cancel only between calls.
var _ = func() (none struct{}) {
	for name, check := range map[string]func(string) error{
		"to_number": checkDigits, "units.parse": checkDigits, "units.parse_bytes": checkDigits, "json.unmarshal": checkNumbersIn,
	} {
		original := topdown.GetBuiltin(name)
		topdown.RegisterBuiltinFunc(name, func(ctx topdown.BuiltinContext, operands []*ast.Term, yield func(*ast.Term) error) error {
			if s, ok := operands[0].Value.(ast.String); ok {
				if err := check(string(s)); err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
			}
			return original(ctx, operands, yield)
		})
	}
	return none
}()

// checkDigits is for a number that may have a unit.
func checkDigits(text string) error {
	if len(text) > longestNumber {
		return fmt.Errorf("%.16q... has %d characters, more than %d", text, len(text), longestNumber)
	}
	return nil
}

// checkNumbersIn is for JSON. What is none is the builtin's to say.
func checkNumbersIn(text string) error {
	dec := jsontext.NewDecoder(strings.NewReader(text), lenient)
	for {
		kind := dec.PeekKind()
		if kind == '0' {
			literal, err := dec.ReadValue()
			if err == nil {
				err = checkNumber(literal)
			}
			if err != nil {
				return err
			}
			continue
		}
		if _, err := dec.ReadToken(); err != nil {
			return nil //nolint:nilerr // see above
		}
	}
}
