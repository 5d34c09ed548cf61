package testrun

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"time"
)

// Limits of a child process.
type Limits struct {
	// Memory in bytes, in addition to what the program has at its start.
	Memory int64
	// Within is the time limit. The parent kills the child then; the child uses it to skip optional tests, and as its limit of
	// processor time in case it is not killed.
	Within time.Duration
}

// message is a line of a child's output: its current step, and at the end its finding.
type message struct {
	At      string   `json:"at,omitempty"`
	Finding *Finding `json:"finding,omitempty"`
}

// maxInput limits the child's input: it is more than all policies of a cluster.
const maxInput = 64 << 20

// Serve is the main function of the child: it sets its limits, reads a test run, and writes the finding. It must be called before
// anything else in the process.
func Serve(in io.Reader, out io.Writer, l Limits) error {
	if l.Memory <= 0 || l.Within <= 0 {
		return errors.New("a test run needs limits of memory and time that are more than 0")
	}
	// One processor, to limit the effect on concurrent decisions.
	runtime.GOMAXPROCS(1)
	if err := l.apply(); err != nil {
		return fmt.Errorf("setting the limits: %w", err)
	}
	// The process is short-lived, so collecting garbage rarely pays. Near the memory limit Go collects more often.
	debug.SetGCPercent(400)
	debug.SetMemoryLimit(memoryInUse() + l.Memory*3/4)
	var t Run
	if err := json.NewDecoder(io.LimitReader(in, maxInput)).Decode(&t); err != nil {
		return fmt.Errorf("reading the test run: %w", err)
	}
	if (t.Candidate != nil) == (t.Deleted != "") {
		return errors.New("a test run has either a candidate or the name of a policy that is deleted")
	}
	say := json.NewEncoder(out)
	var silent error
	finding := t.Run(context.Background(), l.Within, func(what string) {
		silent = errors.Join(silent, say.Encode(message{At: what}))
	})
	return errors.Join(silent, say.Encode(message{Finding: finding}))
}

// memoryInUse returns what Go counts against its memory limit.
func memoryInUse() int64 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.Sys - stats.HeapReleased)
}
