// Package depth says how much tests look at of what has no end: random histories, every fault at every request, whole tables.
package depth

import (
	"flag"
	"os"
	"strconv"
	"testing"
	"time"
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

// Whole is the variable of the environment that has `make test-deep` take all rows of tables, and four times as many random runs. `make
// test-whole` sets it.
const Whole = "SALLYPORT_TEST_WHOLE"

// Every returns how many rows of a table there are to one that is taken, in `make test` or in `make test-deep`.
func Every(shallow, deep int) int {
	if os.Getenv(Whole) != "" {
		return 1
	}
	return Of(shallow, deep)
}

// Only leaves a test to `make test-deep`: what it looks at is looked at by others in `make test`, less closely.
func Only(t testing.TB) {
	t.Helper()
	if !Deep() {
		t.Skip("left to make test-deep")
	}
}

// Unraced leaves a test to the run without the race detector: it does one thing after another and takes ten times as long with it.
func Unraced(t testing.TB) {
	t.Helper()
	if Raced {
		t.Skip("left to the run without the race detector")
	}
}

// Day is the variable of the environment with the day of the year. hack/deep.sh sets it, so that a second run after midnight takes the same
// rows and tests.
const Day = "SALLYPORT_TEST_DAY"

// Turn returns at which row a walk through a table begins that takes only each n-th row. In depth it changes with the day, so that n days
// take all.
func Turn(n int) int {
	if !Deep() {
		return 0
	}
	if day, err := strconv.Atoi(os.Getenv(Day)); err == nil {
		return day % n
	}
	return time.Now().UTC().YearDay() % n
}

// OneDayIn leaves a test that takes minutes to `make test-deep` on one day in n, the which-th, counted from 0. `make test-whole` runs it
// every day.
func OneDayIn(t testing.TB, n, which int) {
	t.Helper()
	Only(t)
	if every := Every(n, n); which%every != Turn(every) {
		t.Skipf("make test-deep runs it on one day in %d: to run it today, set %s=1", n, Whole)
	}
}

// Deep is for the steps of a walk that `make test-deep` takes beside those of `make test`.
func Deep() bool { return os.Getenv(Variable) != "" }

// Checks has rapid make so many runs in the rest of the test, unless its flag says how many.
func Checks(t testing.TB, shallow, deep int) {
	t.Helper()
	const name = "rapid.checks"
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == name })
	if given {
		return
	}
	before := flag.Lookup(name).Value.String()
	set := func(value string) {
		// Not flag.Set, after which the flag would count as given.
		if err := flag.Lookup(name).Value.Set(value); err != nil {
			t.Fatal(err)
		}
	}
	runs := Of(shallow, deep)
	if os.Getenv(Whole) != "" {
		runs *= 4
	}
	set(strconv.Itoa(runs))
	t.Cleanup(func() { set(before) })
}
