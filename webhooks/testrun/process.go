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
)

// Process runs tests in child processes.
type Process struct {
	// Command is the program and its arguments, to which those for the limits are appended; if empty, the program itself with its
	// hidden command.
	Command []string
	// Memory is the memory limit of a child in bytes.
	Memory int64
}

const (
	// maxOutput limits a child's output, maxComplaint what is kept of its standard error.
	maxOutput, maxComplaint = 4 << 20, 8 << 10
	// waitDelay is the time to wait for a killed child to end.
	waitDelay = time.Second
)

// DefaultMemory is the default memory limit of a test run, in bytes.
const DefaultMemory = 256 << 20

// Subcommand is the program's hidden command for children.
const Subcommand = "test-run"

// run runs a test run in a child within that time. An error means that there is no finding.
func (p Process) run(ctx context.Context, run []byte, name string, within time.Duration) (*Finding, error) {
	command, err := p.command(within)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, within, errOverdue)
	defer cancel()
	child := exec.CommandContext(ctx, command[0], command[1:]...)
	setProcessGroup(child)
	child.WaitDelay = waitDelay
	child.Dir = "/"
	// The environment is of no use to the child, nor is a stack trace to the policy's author.
	child.Env = []string{"GOTRACEBACK=none"}
	child.Stdin = bytes.NewReader(run)
	heard, complaint := &outputParser{cancel: cancel}, &head{most: maxComplaint}
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

// conclude makes a finding of how a child ended.
func conclude(ctx context.Context, name string, within time.Duration, memory int64, heard *outputParser, complaint string, ended error) (*Finding, error) {
	exceeded := func(what string) (*Finding, error) {
		f := &Finding{Took: within.String(), Problems: []Problem{{Kind: LimitExceeded, File: name, Message: what}}}
		f.truncate()
		return f, nil
	}
	where := heard.last.At
	if where == "" {
		where = "starting"
	}
	var exit *exec.ExitError
	switch {
	case heard.wrong != nil:
		return nil, fmt.Errorf("reading the output of the test run: %w", heard.wrong)
	case ended == nil && heard.last.Finding != nil:
		return heard.last.Finding, nil
	case errors.Is(context.Cause(ctx), errOverdue):
		return exceeded(fmt.Sprintf("its test run did not finish within %v; last step: %s", within.Round(time.Millisecond), where))
	case ctx.Err() != nil:
		return nil, fmt.Errorf("the test run was canceled: %w", context.Cause(ctx))
	case ended != nil && strings.Contains(complaint, outOfTime):
		return exceeded("its test run used all of its CPU time; last step: " + where)
	case ended != nil && outOfMemory.MatchString(complaint):
		return exceeded(fmt.Sprintf("its test run needs more than %d MiB of memory; last step: %s", memory>>20, where))
	case ended != nil && strings.Contains(complaint, "stack overflow"):
		return exceeded("its test run nests too deeply; last step: " + where)
	case ended == nil:
		return nil, errors.New("the test run ended without a result")
	case !errors.As(ended, &exit):
		return nil, fmt.Errorf("the test run could not be started: %w", ended)
	}
	complaint, _, _ = strings.Cut(strings.TrimSpace(complaint), "\n")
	return nil, fmt.Errorf("the test run failed: %w: %s; last step: %s", ended, complaint, where)
}

// outOfTime is what a child prints when its processor time is used up.
const outOfTime = "out of processor time"

// outOfMemory matches what Go prints when it cannot allocate memory.
var outOfMemory = regexp.MustCompile(`out of memory|cannot allocate memory|cannot map pages`)

// outputParser parses a child's output, line by line.
type outputParser struct {
	cancel context.CancelFunc
	line   []byte
	bytes  int
	last   message
	wrong  error
}

// Write parses a part of the output. If it is too long or invalid, the child is killed.
func (h *outputParser) Write(text []byte) (int, error) {
	if h.bytes += len(text); h.bytes > maxOutput {
		return h.fail(fmt.Errorf("more than %d bytes", maxOutput))
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

func (h *outputParser) fail(err error) (int, error) {
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
