// Package step has what tests share that lead through real components: their steps follow one another, an error ends them, and what
// comes in its time is waited for.
package step

import (
	"context"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// Patience is how long a test waits for anything. It only matters if something is wrong.
	Patience = 3 * time.Minute
	pause    = 50 * time.Millisecond
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
	err := wait.PollUntilContextTimeout(t.Context(), pause, Patience, true, func(context.Context) (done bool, _ error) {
		last, done = is()
		return done, nil
	})
	if err != nil {
		t.Fatalf("waiting until %s: %v; last seen: %s", what, err, last)
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
