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

// Limits of a child.
type Limits struct {
	// Memory in bytes, beyond what the program has at its start.
	Memory int64
	// Within is how long it may take. Who started the child ends it then; this is for what the child leaves out in time, and for
	// the processor time that it gets if nobody ends it.
	Within time.Duration
}

// message is a line of what a child says: where it is, and in the end what it found.
type message struct {
	At      string   `json:"at,omitempty"`
	Finding *Finding `json:"finding,omitempty"`
}

// maxTrial bounds what a child reads: more than all policies of a cluster can be.
const maxTrial = 64 << 20

// Serve is what the child does: it takes its limits, reads a test run, and writes what it finds. It must be the first thing that
// the process does.
func Serve(in io.Reader, out io.Writer, l Limits) error {
	if l.Memory <= 0 || l.Within <= 0 {
		return errors.New("a test run needs limits of memory and time that are more than 0")
	}
	// One processor, so that it costs the decisions that are made meanwhile no more than that.
	runtime.GOMAXPROCS(1)
	if err := l.take(); err != nil {
		return fmt.Errorf("setting the limits: %w", err)
	}
	// It is soon over, and most of it is never collected. Before the memory is at its end Go tries harder.
	debug.SetGCPercent(400)
	debug.SetMemoryLimit(memoryInUse() + l.Memory*3/4)
	var t Run
	if err := json.NewDecoder(io.LimitReader(in, maxTrial)).Decode(&t); err != nil {
		return fmt.Errorf("reading the test run: %w", err)
	}
	if (t.Candidate == nil) == (t.Deleted == "") {
		return errors.New("a test run has either a candidate or the name of a policy that is deleted")
	}
	say := json.NewEncoder(out)
	var silent error
	finding := t.Run(context.Background(), l.Within, func(what string) {
		silent = errors.Join(silent, say.Encode(message{At: what}))
	})
	return errors.Join(silent, say.Encode(message{Finding: finding}))
}

// memoryInUse is what Go counts against its memory limit.
func memoryInUse() int64 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.Sys - stats.HeapReleased)
}
