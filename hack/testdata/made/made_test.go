// Package made has tests that end differently in their second run, or do not.
package made

import (
	"os"
	"testing"
	"time"
)

// first reports whether a test has not run before.
func first(t *testing.T) bool { return os.Mkdir(t.Name()+".ran", 0o700) == nil }

func TestFlaky(t *testing.T) {
	if first(t) {
		t.Error("the machine is busy")
	}
}

func TestPasses(*testing.T) {}

func TestFails(t *testing.T) { t.Error("always") }

func TestEffect(t *testing.T) {
	if first(t) {
		t.Error("EFFECT: two machines of one name")
	}
}

func TestPanics(t *testing.T) {
	if first(t) {
		panic("a busy machine, too")
	}
}

func TestHangs(t *testing.T) {
	if first(t) {
		time.Sleep(time.Hour)
	}
}

func TestRaces(t *testing.T) {
	if !first(t) {
		return
	}
	n, done := 0, make(chan bool)
	go func() { n++; done <- true }()
	n++
	<-done
}

func TestVanishes(t *testing.T) {
	if first(t) {
		println("--- FAIL: TestOfAnotherPackage (0.00s)")
		os.Exit(1)
	}
}
