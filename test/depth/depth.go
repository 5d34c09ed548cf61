// Package depth says how much tests look at of what has no end: random histories, every fault at every request, whole tables.
package depth

import (
	"os"
	"testing"
)

// Variable of the environment that makes tests deep. `make test-deep` sets it.
const Variable = "SALLYPORT_TEST_DEEP"

// Of gives what a test looks at in `make test`, which everybody waits for before a push, or in `make test-deep`.
func Of[T any](shallow, deep T) T {
	if Deep() {
		return deep
	}
	return shallow
}

// Only leaves a test to `make test-deep`: what it looks at is looked at by others in `make test`, less closely.
func Only(t testing.TB) {
	t.Helper()
	if !Deep() {
		t.Skip("left to make test-deep")
	}
}

// Deep is for the steps of a walk that `make test-deep` takes beside those of `make test`.
func Deep() bool { return os.Getenv(Variable) != "" }
