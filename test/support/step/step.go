// Package step has what tests share that lead through real components: their steps follow one another, an error ends them, and what
// comes in its time is waited for.
package step

import (
	"context"
	"flag"
	"strconv"
	"strings"
	"testing"
	"time"
)

const (
	// Patience is how long a test waits for anything. It only matters if something is wrong.
	Patience = 3 * time.Minute
	// Whoever waits looks a quarter of the time at most, since a look is a request or a program that is run, and what is waited for
	// needs the processor, too; and more and more seldom, so that the wait is a tenth longer than need be.
	shortest, longest = 5 * time.Millisecond, 500 * time.Millisecond
)

// T is a test, or a step of one.
type T struct{ *testing.T }

// Must ends the test if there is an error.
func (t T) Must(err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Until waits until something is so, which is to be said as in "the pod is ready". What was last seen is in the message if it does not
// come.
func (t T) Until(what string, is func() (seen string, done bool)) {
	t.Helper()
	last := ""
	err := Await(t.Context(), func(context.Context) (done bool, _ error) {
		last, done = is()
		return done, nil
	})
	if err != nil {
		t.Fatalf("waiting until %s: %v; last seen: %s", what, err, last)
	}
}

// Eventually is Until where nothing is to be seen.
func (t T) Eventually(what string, is func() bool) {
	t.Helper()
	t.Until(what, func() (string, bool) { return "nothing of it", is() })
}

// Await waits until something is so, as long as Patience. It gives the error of a look, or of the context.
func Await(ctx context.Context, is func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	for began := time.Now(); ; {
		looked := time.Now()
		if done, err := is(ctx); done || err != nil {
			return err
		}
		pause := max(shortest, min(longest, time.Since(began)/10), 3*time.Since(looked))
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Step runs a part of a test, after which the next makes sense only if it went well.
func (t T) Step(name string, do func(T)) {
	t.Helper()
	began := time.Now()
	if !t.Run(strings.ReplaceAll(name, " ", "-"), func(inner *testing.T) { do(T{inner}) }) {
		t.FailNow()
	}
	t.Logf("%s: %.1f s", name, time.Since(began).Seconds())
}

// Parallel sets how many tests of a package run at a time of those that call t.Parallel, if the command line does not. A TestMain calls it
// when these tests mostly wait: otherwise go test runs as many as there are processors.
func Parallel(tests int) {
	if err := flag.Set("test.parallel", strconv.Itoa(tests)); err != nil {
		panic(err) // there is no such flag outside of tests
	}
}
