package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	beSubject()
	os.Exit(m.Run())
}

// Every row runs and says what it is to say, in a world that is large enough for denials. How long it takes is of no interest here.
func TestRows(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-all")
	}
	var out bytes.Buffer
	o := options{rounds: 1, batch: time.Millisecond, operations: machines, windows: 2}
	if err := o.run(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"two policies, and a decision record", "a denial, confirmed live", "in CEL", "none failed"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}
