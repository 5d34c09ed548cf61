// Package check asks a vCenter whether what Sallyport relies on is so: read-only, or with a few small objects that it makes and removes. The
// double of a vCenter for tests has the same facts (test/support/double/vcsim).
package check

import (
	"context"
	"errors"
	"fmt"

	"sallyport.dev/sallyport/reconcilers/runtime"
)

// Fact is something that Sallyport relies on.
type Fact struct {
	// Name says what it is, as a user of vCenter would.
	Name string
	// Check returns what was found, or why it is not so.
	Check func(ctx context.Context) (found string, err error)
	// Needed says that what comes after it cannot be checked without it.
	Needed bool
}

// Result is what a check has found.
type Result struct {
	Name, Found string
	// Err is why it is not so, nil if it is.
	Err error
}

// errSkipped is the result of a fact that depends on one that is not so.
var errSkipped = errors.New("not checked, because something before it failed")

// Run checks the facts one after another, and reports each result.
func Run(ctx context.Context, facts []Fact, report func(Result)) (failed int) {
	skip := false
	for _, f := range facts {
		result := Result{Name: f.Name, Err: errSkipped}
		if !skip {
			result.Found, result.Err = f.Check(ctx)
			skip = f.Needed && result.Err != nil
		}
		if result.Err != nil {
			failed++
			result.Err = errors.New(message(result.Err))
		}
		report(result)
	}
	return failed
}

// message returns the message of a runtime error for users, with what vCenter said.
func message(err error) string {
	text := runtime.Message(err)
	if cause := errors.Unwrap(err); cause != nil && text != err.Error() {
		return fmt.Sprintf("%s (%v)", text, cause)
	}
	return text
}
