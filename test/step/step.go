// Package step has what tests share that lead through real components: their steps follow one another, an error ends them, and what
// comes in its time is waited for.
package step

import (
	"context"
	"strings"
	"testing"
	"time"
)

const (
	// Patience is how long a test waits for anything. It only matters if something is wrong.
	Patience = 3 * time.Minute
	// pause is the time between two looks, at least: it is as long as a look takes, since many a look is a program that is run, and what
	// is waited for needs the processor too.
	pause = 50 * time.Millisecond
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
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	for {
		began := time.Now()
		seen, done := is()
		if done {
			return
		}
		select {
		case <-time.After(max(pause, time.Since(began))):
		case <-ctx.Done():
			t.Fatalf("waiting until %s: %v; last seen: %s", what, ctx.Err(), seen)
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
