// Package race leaves out, where the race detector runs, what one goroutine computes alone and what has too little memory with it.
package race

import "testing"

// Skip leaves a test to the run without the race detector, which would see nothing and takes ten times as long.
func Skip(t testing.TB) {
	t.Helper()
	if Enabled {
		t.Skip("left to the run without the race detector")
	}
}
