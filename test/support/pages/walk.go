package pages

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Shown is a command that a page shows, and the lines below it.
type Shown struct {
	Command string
	Lines   []string
}

// Shown are the commands of a console; none of a block in another language.
func (b Block) Shown() (all []Shown) {
	if b.Language != "console" {
		return nil
	}
	for line := range strings.Lines(b.Text) {
		if command, ok := strings.CutPrefix(line, "$ "); ok {
			all = append(all, Shown{Command: strings.TrimSpace(command)})
		} else if len(all) > 0 {
			last := &all[len(all)-1]
			last.Lines = append(last.Lines, line)
		}
	}
	return all
}

// IsIn reports what of a command and the lines below it is not in a text, but for what differs from one run to the next.
func (s *Shown) IsIn(t *testing.T, text string) {
	t.Helper()
	there := map[string]bool{}
	for line := range strings.Lines(text) {
		there[lasting(line)] = true
	}
	for _, line := range append([]string{"$ " + s.Command}, s.Lines...) {
		if line = lasting(line); !there[line] && !passing.MatchString(line) {
			t.Errorf("a page shows below %q what is not there: %q", s.Command, line)
		}
	}
	if t.Failed() {
		t.Logf("there is\n%s", text)
	}
}

// passing are the lines of steps that a watch may or may not see, and what stands for lines that a page leaves out.
var passing = regexp.MustCompile(`: (Pending|InProgress): |^Waiting for the manager to stop: |^\.\.\.$`)

var random, age = regexp.MustCompile(`(-(?:start|stop|restart|migrate|evict))-[a-z0-9]{5}\b`), regexp.MustCompile(`\b([0-9]+[smh])+\b`)

// lasting is what of a line is the same in every run.
func lasting(line string) string {
	return strings.Join(strings.Fields(age.ReplaceAllString(random.ReplaceAllString(line, "$1-xxxxx"), "0s")), " ")
}

// Walk runs what a page has its readers do, in its order.
type Walk struct {
	// Folder is where commands run. A block whose first line is a comment with the name of a file is written there.
	Folder string
	// Environment is added to that of the test.
	Environment []string
	// Here are pairs of what the page writes and what that is in the test: names of servers, and of programs.
	Here []string
	// Before is called before each command, and reports whether the command is left out.
	Before func(command string) (skip bool)
}

// file is the first line of a block that is a file.
var file = regexp.MustCompile(`^# ([\w./-]+\.(?:yaml|rego))\n`)

// Run walks the page, and compares what each command prints with what the page shows below it.
func (w Walk) Run(t *testing.T, p Page) {
	t.Helper()
	here, back := strings.NewReplacer(w.Here...), strings.NewReplacer(reversed(w.Here)...)
	for _, b := range p.Blocks {
		if name := file.FindStringSubmatch(b.Text); name != nil {
			path := filepath.Join(w.Folder, filepath.FromSlash(name[1]))
			if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(here.Replace(b.Text)), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for _, s := range b.Shown() {
			if w.Before != nil && w.Before(s.Command) {
				continue
			}
			command := exec.CommandContext(t.Context(), "sh", "-c", here.Replace(s.Command))
			command.Dir, command.Env = w.Folder, append(os.Environ(), w.Environment...)
			got, _ := command.CombinedOutput() // some commands are to fail
			t.Logf("%s: $ %s\n%s", b.Where, s.Command, got)
			s.IsIn(t, "$ "+s.Command+"\n"+back.Replace(string(got)))
			if t.Failed() {
				t.FailNow() // what follows builds on it
			}
		}
	}
}

// reversed swaps the members of pairs.
func reversed(pairs []string) (all []string) {
	for i := 0; i < len(pairs); i += 2 {
		all = append(all, pairs[i+1], pairs[i])
	}
	return all
}
