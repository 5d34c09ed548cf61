package main

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/cmd/internal/terminal"
)

// patience is how long the show waits for anything; it only matters if something is wrong.
const patience = 2 * time.Minute

// show does what a user would, shows it, and holds it against what should come of it. After the first thing that is not as it
// should be it does nothing any more.
type show struct {
	terminal.Printer
	*stage
	ctx      context.Context
	admitted int
	refused  int
	last     string // the name of the operation that was created last
	wrong    string
	dense    bool // what was shown last is many lines, and needs a gap below it
}

// chapter begins with what it is about, and with what the vCenter is made to do in it.
func (s *show) chapter(title, text string) {
	if s.wrong == "" {
		s.Say("\n%s\n%s", s.Paint(terminal.Bold, title), text)
		s.dense = true
	}
}

func (s *show) tell(text string) {
	if s.wrong == "" {
		s.Say("\n%s", text)
		s.dense = false
	}
}

// gap is an empty line where it helps to read.
func (s *show) gap() {
	if s.dense {
		s.Say("")
	}
	s.dense = false
}

// kubectl runs it, with what the user must read. The word OPERATION is the operation that was created last.
func (s *show) kubectl(line string, reads ...string) { s.run(line, "", false, reads) }

// create has kubectl create what the manifest says.
func (s *show) create(manifest string, reads ...string) { s.run("create -f -", manifest, false, reads) }

// denied is kubectl with a request that must be refused.
func (s *show) denied(line, manifest string, reads ...string) { s.run(line, manifest, true, reads) }

// made are the requests that are counted.
var made = regexp.MustCompile(`(?m)^virtualmachine(operation)?\.sallyport\.dev/(\S+) created$`)

// patch is what a shell needs quotes around.
var patch = regexp.MustCompile(`--patch=(\S+)`)

func (s *show) run(line, stdin string, refused bool, reads []string) {
	if s.wrong != "" {
		return
	}
	s.gap()
	line = strings.ReplaceAll(line, "OPERATION", s.last)
	typed := "$ kubectl " + patch.ReplaceAllString(line, "--patch='$1'")
	if stdin == "" {
		s.Say("%s", s.Paint(terminal.Bold, typed))
	} else {
		s.Say("%s\n%s\nEOF", s.Paint(terminal.Bold, typed+" <<EOF"), strings.TrimSpace(stdin))
	}
	out, errs, code := s.plane.KubectlAs(s.ctx, s.plane.Kubeconfig(), strings.NewReader(stdin), strings.Fields(line)...)
	if s.ctx.Err() != nil {
		s.wrong = "interrupted"
		return
	}
	const many = 8
	s.dense = strings.Count(stdin+out+errs, "\n") > many || refused
	fmt.Fprint(s, out)
	if refused {
		fmt.Fprint(s, s.Paint(terminal.Red, errs))
		s.refused++
	} else {
		fmt.Fprint(s, errs)
	}
	for _, created := range made.FindAllStringSubmatch(out, -1) {
		s.admitted++
		s.last = created[2]
	}
	if (code != 0) != refused {
		s.fail("kubectl %s: exit code %d", line, code)
	}
	s.reads("kubectl "+line, out+errs, reads)
}

// helm runs it, with what the user must read.
func (s *show) helm(line string, reads ...string) {
	if s.wrong != "" {
		return
	}
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

// reads fails if something that the user must read is not there.
func (s *show) reads(what, text string, wanted []string) {
	for _, want := range wanted {
		if !strings.Contains(text, want) {
			s.fail("%s: %q is not in its output", what, want)
		}
	}
}

func (s *show) fail(format string, args ...any) {
	if s.wrong == "" {
		s.wrong = fmt.Sprintf(format, args...)
	}
}

// words are what vCenter calls power states.
var words = map[v1alpha1.PowerState]string{
	v1alpha1.PowerRunning: "poweredOn", v1alpha1.PowerStopped: "poweredOff", v1alpha1.PowerPaused: "suspended",
}

// vCenterSays asks the vCenter itself, behind Sallyport's back, and waits for nothing.
func (s *show) vCenterSays(machine string, power v1alpha1.PowerState, host string, powerOns int) {
	if s.wrong != "" {
		return
	}
	is := s.vcenter.State(inventory + machine)
	text := fmt.Sprintf("vCenter says: %s is %s on %s; power-ons so far: %d", machine, words[is.Power], is.Host, is.PowerOns)
	if is.Busy {
		text += "; a task is in flight"
	}
	s.gap()
	s.Say("%s", s.Paint(terminal.Cyan, text))
	if is.Power != power || is.Host != host || is.PowerOns != powerOns {
		s.fail("%s; wanted are %s on %s and %d power-ons", text, words[power], host, powerOns)
	}
}

// until waits for something at the vCenter.
func (s *show) until(what string, seen func() bool) {
	if s.wrong != "" {
		return
	}
	err := wait.PollUntilContextTimeout(s.ctx, visible/10, patience, true, func(context.Context) (bool, error) { return seen(), nil })
	if err != nil {
		s.fail("waiting until %s: %v", what, err)
	}
}

func (s *show) verdict() error {
	if s.wrong != "" {
		return fmt.Errorf("\nDEMO FAILED: %s\nthe end of what the manager logged:\n%s", s.wrong, s.logTail())
	}
	s.Say("\n%s", s.Paint(terminal.Green, fmt.Sprintf("DEMO OK: %d admitted, %d refused, each as it should be", s.admitted, s.refused)))
	return nil
}
