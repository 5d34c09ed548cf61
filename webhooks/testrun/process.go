package testrun

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// Process runs tests in child processes.
type Process struct {
	// Command is the program and its arguments, which are followed by those for the limits; the program itself, with its hidden
	// command, if it is empty.
	Command []string
	// Memory in bytes that a child may use.
	Memory int64
}

const (
	// maxSaid bounds what a child may say, maxComplaint what is kept of its standard error.
	maxSaid, maxComplaint = 4 << 20, 8 << 10
	// afterlife is how long the end of a killed child is waited for.
	afterlife = time.Second
)

// DefaultMemory is the default memory limit of a test run, in bytes.
const DefaultMemory = 256 << 20

// Subcommand is the program's hidden command for children.
const Subcommand = "test-run"

// run has a child carry out a test run within that time. The error says why nothing is known.
func (p Process) run(ctx context.Context, run []byte, name string, within time.Duration) (*Finding, error) {
	command, err := p.command(within)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, within, errOverdue)
	defer cancel()
	child := exec.CommandContext(ctx, command[0], command[1:]...)
	apart(child)
	child.WaitDelay = afterlife
	child.Dir = "/"
	// Nothing of ours concerns it, and a stack is of no use to whoever wrote a policy.
	child.Env = []string{"GOTRACEBACK=none"}
	child.Stdin = bytes.NewReader(run)
	heard, complaint := &hearing{cancel: cancel}, &head{most: maxComplaint}
	child.Stdout, child.Stderr = heard, complaint
	ended := child.Run()
	return conclude(ctx, name, within, p.Memory, heard, complaint.String(), ended)
}

// errOverdue is the cause of a context whose time was up.
var errOverdue = errors.New("the time is up")

func (p Process) command(within time.Duration) ([]string, error) {
	command := p.Command
	if len(command) == 0 {
		program, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("finding the program itself: %w", err)
		}
		command = []string{program, Subcommand}
	}
	return append(command[:len(command):len(command)], "--memory="+strconv.FormatInt(p.Memory, 10), "--within="+within.String()), nil
}

// conclude makes a finding out of how a child ended.
func conclude(ctx context.Context, name string, within time.Duration, memory int64, heard *hearing, complaint string, ended error) (*Finding, error) {
	exceeded := func(what string) (*Finding, error) {
		f := &Finding{Took: within.String(), Problems: []Problem{{Kind: v1alpha1.ReasonLimitExceeded, File: name, Message: what}}}
		f.bound()
		return f, nil
	}
	where := heard.last.At
	if where == "" {
		where = "starting"
	}
	var exit *exec.ExitError
	switch {
	case heard.wrong != nil:
		return nil, fmt.Errorf("reading the output of the rehearsal: %w", heard.wrong)
	case ended == nil && heard.last.Finding != nil:
		return heard.last.Finding, nil
	case errors.Is(context.Cause(ctx), errOverdue):
		return exceeded(fmt.Sprintf("its rehearsal did not finish within %v; last step: %s", within.Round(time.Millisecond), where))
	case ctx.Err() != nil:
		return nil, fmt.Errorf("the rehearsal was canceled: %w", context.Cause(ctx))
	case ended != nil && strings.Contains(complaint, outOfTime):
		return exceeded("its rehearsal used all of its CPU time; last step: " + where)
	case ended != nil && outOfMemory.MatchString(complaint):
		return exceeded(fmt.Sprintf("its rehearsal needs more than %d MiB of memory; last step: %s", memory>>20, where))
	case ended != nil && strings.Contains(complaint, "stack overflow"):
		return exceeded("its rehearsal nests too deeply; last step: " + where)
	case ended == nil:
		return nil, errors.New("the rehearsal ended without a result")
	case !errors.As(ended, &exit):
		return nil, fmt.Errorf("the rehearsal could not be started: %w", ended)
	}
	complaint, _, _ = strings.Cut(strings.TrimSpace(complaint), "\n")
	return nil, fmt.Errorf("the rehearsal failed: %w: %s; last step: %s", ended, complaint, where)
}

// outOfTime is what a child says when it has had its processor time.
const outOfTime = "out of processor time"

// outOfMemory is what Go says when the system gives it no more.
var outOfMemory = regexp.MustCompile(`out of memory|cannot allocate memory|cannot map pages`)

// hearing understands what a child says, line by line.
type hearing struct {
	cancel context.CancelFunc
	line   []byte
	said   int
	last   message
	wrong  error
}

// Write takes some of it. What is too much, or cannot be understood, ends the child.
func (h *hearing) Write(text []byte) (int, error) {
	if h.said += len(text); h.said > maxSaid {
		return h.fail(fmt.Errorf("more than %d bytes", maxSaid))
	}
	h.line = append(h.line, text...)
	for {
		line, rest, complete := bytes.Cut(h.line, []byte("\n"))
		if !complete {
			return len(text), nil
		}
		m := h.last
		if err := json.Unmarshal(line, &m); err != nil {
			return h.fail(fmt.Errorf("%.80q: %w", line, err))
		}
		h.last, h.line = m, rest
	}
}

func (h *hearing) fail(err error) (int, error) {
	h.wrong = err
	h.cancel()
	return 0, err
}

// head keeps the beginning of what is written to it.
type head struct {
	strings.Builder
	most int
}

// Write never fails.
func (h *head) Write(text []byte) (int, error) {
	if room := h.most - h.Len(); room > 0 {
		h.Builder.Write(text[:min(len(text), room)])
	}
	return len(text), nil
}
