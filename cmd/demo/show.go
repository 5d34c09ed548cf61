package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"sallyport.dev/sallyport/cmd/internal/terminal"
)

// patience is the timeout of each wait, and glance the interval at which it polls.
const patience, glance = 2 * time.Minute, 50 * time.Millisecond

// show runs the commands of a user, prints them, and checks their output. The first failure ends the walk.
type show struct {
	terminal.Printer
	*stage
	ctx      context.Context
	chapters int
	admitted int
	refused  int
	asked    int    // by the load
	last     string // the name of the operation that was created last
	dense    bool   // what was shown last is many lines, and needs a gap below it
	client   *client
	powersOn func() // has web-2 powered on, when that hangs
	drained  func() // waits for kubectl drain
}

// chapter prints the number, title and introduction of a chapter.
func (s *show) chapter(title, text string) {
	s.chapters++
	s.Say("\n%s\n%s", s.Paint(terminal.Bold, fmt.Sprintf("%d. %s", s.chapters, title)), text)
	s.dense = true
}

func (s *show) tell(text string) {
	s.Say("\n%s", text)
	s.dense = false
}

// gap is an empty line where it helps to read.
func (s *show) gap() {
	if s.dense {
		s.Say("")
	}
	s.dense = false
}

type command struct {
	line, stdin string
	editor      string // for kubectl edit
	refused     bool   // it must be
}

// kubectl runs a kubectl command and checks its output. The word OPERATION stands for the operation that was created last.
func (s *show) kubectl(line string, reads ...string) { s.run(command{line: line}, reads) }

// create creates the objects of a manifest.
func (s *show) create(manifest string, reads ...string) {
	s.run(command{line: "create -f -", stdin: manifest}, reads)
}

func (s *show) denied(line, manifest string, reads ...string) {
	s.run(command{line: line, stdin: manifest, refused: true}, reads)
}

// edit runs kubectl edit with a command as the editor. deniedEdit is an edit that must be denied.
func (s *show) edit(what, editor string) {
	s.run(command{line: "edit " + what, editor: editor}, []string{"edited"})
}

func (s *show) deniedEdit(what, editor string, reads ...string) {
	s.run(command{line: "edit " + what, editor: editor, refused: true}, reads)
}

var made = regexp.MustCompile(`(?m)^virtualmachine(operation)?\.sallyport\.dev/(\S+) created$`)

// patch is what a shell needs quotes around.
var patch = regexp.MustCompile(`--patch=(\S+)`)

// busy matches the denial of a policy whose test run timed out. A user would retry.
var busy = regexp.MustCompile(`\[policies-self/(LimitExceeded|DeadlineExceeded)\]`)

const mostTries = 10

func (s *show) run(c command, reads []string) {
	s.gap()
	line := strings.ReplaceAll(c.line, "OPERATION", s.last)
	typed := "$ kubectl " + patch.ReplaceAllString(line, "--patch='$1'")
	if c.editor != "" {
		typed = fmt.Sprintf("$ KUBE_EDITOR=%q kubectl %s", c.editor, line)
		os.Setenv("KUBE_EDITOR", c.editor)
		os.Setenv("SHELL", "/bin/sh") // kubectl has it understand the quotes
	}
	if c.stdin == "" {
		s.Say("%s", s.Paint(terminal.Bold, typed))
	} else {
		s.Say("%s\n%s\nEOF", s.Paint(terminal.Bold, typed+" <<EOF"), strings.TrimSpace(c.stdin))
	}
	out, code := s.output(c, strings.Fields(line))
	for tries := 1; busy.MatchString(out) && tries < mostTries && s.ctx.Err() == nil; tries++ {
		s.tell("The test run of the policy timed out because this machine is busy. Retrying:")
		out, code = s.output(c, strings.Fields(line))
	}
	if s.ctx.Err() != nil {
		s.fail("interrupted")
	}
	const many = 8
	s.dense = strings.Count(c.stdin+out, "\n") > many || c.refused
	if c.refused {
		s.refused++
	}
	for _, created := range made.FindAllStringSubmatch(out, -1) {
		s.admitted++
		s.last = created[2]
	}
	if (code != 0) != c.refused {
		s.fail("kubectl %s: exit code %d", line, code)
	}
	s.reads("kubectl "+line, out, reads)
}

// background starts a kubectl command. The returned function waits for its end, prints its output, and checks it.
func (s *show) background(line string, reads ...string) (finish func()) {
	s.gap()
	s.Say("%s", s.Paint(terminal.Bold, "$ kubectl "+line+" &"))
	ctx, cancel := context.WithCancel(s.ctx)
	type result struct {
		out  string
		code int
	}
	ended := make(chan result, 1)
	go func() {
		var out strings.Builder
		code := s.plane.KubectlTo(ctx, s.plane.Kubeconfig(), nil, &out, strings.Fields(line)...)
		ended <- result{out.String(), code}
	}()
	s.onClose(func() error { cancel(); return nil })
	return func() {
		r := <-ended
		fmt.Fprint(s, r.out)
		s.dense = true
		if r.code != 0 {
			s.fail("kubectl %s: exit code %d", line, r.code)
		}
		s.reads("kubectl "+line, r.out, reads)
	}
}

// output runs kubectl and prints its output. The output of a denied request is red.
func (s *show) output(c command, args []string) (out string, code int) {
	var heard strings.Builder
	var to io.Writer = &heard
	if !c.refused {
		to = io.MultiWriter(s, &heard)
	}
	code = s.plane.KubectlTo(s.ctx, s.plane.Kubeconfig(), strings.NewReader(c.stdin), to, args...)
	if c.refused {
		fmt.Fprint(s, s.Paint(terminal.Red, heard.String()))
	}
	return heard.String(), code
}

// helm runs a helm command and checks its output.
func (s *show) helm(line string, reads ...string) {
	s.gap()
	s.Say("%s", s.Paint(terminal.Bold, "$ helm "+line))
	words := strings.Fields(strings.ReplaceAll(line, "charts/sallyport", s.sallyport.Chart()))
	out, errs, code := s.plane.Helm(s.ctx, words...)
	told, _, _ := strings.Cut(out, "NOTES:")
	fmt.Fprint(s, told, errs)
	s.dense = true
	if code != 0 {
		s.fail("helm %s: exit code %d", line, code)
	}
	s.reads("helm "+line, out+errs, reads)
}

// reads fails if the output does not contain an expected text.
func (s *show) reads(what, text string, wanted []string) {
	for _, want := range wanted {
		if !strings.Contains(text, want) {
			s.fail("%s: the output does not contain %q", what, want)
		}
	}
}

// failure is the panic of fail, which ends the walk.
type failure string

func (s *show) fail(format string, args ...any) { panic(failure(fmt.Sprintf(format, args...))) }

// until polls until a condition holds.
func (s *show) until(what string, seen func() bool) {
	err := wait.PollUntilContextTimeout(s.ctx, glance, patience, true, func(context.Context) (bool, error) { return seen(), nil })
	if err != nil {
		s.fail("waiting until %s: %v", what, err)
	}
}

func (s *show) printSuccess() {
	client := ""
	if s.client != nil {
		client = fmt.Sprintf("; %d client requests during the changes, none lost", s.asked)
	}
	s.Say("\n%s", s.Paint(terminal.Green, fmt.Sprintf("DEMO OK: %d operations admitted and %d requests denied, as expected%s", s.admitted, s.refused, client)))
}
