package testrun

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/race"
)

// long is more than a test run takes on any machine.
const long = 2 * time.Minute

func (p Process) carryOut(ctx context.Context, t *testing.T, run *Run, within time.Duration) (*Finding, error) {
	t.Helper()
	name := run.trim()
	text, err := json.Marshal(run)
	if err != nil {
		t.Fatal(err)
	}
	return p.run(ctx, text, name, within)
}

func TestChildFindsTheSame(t *testing.T) {
	loud := library("loud", `say(x) := upper(x)`, 0)
	for name, run := range map[string]Run{
		"in order": {Candidate: toy("a")},
		"broken":   {Candidate: toy("a", "x := ")},
		"failing":  {Candidate: tested(toy("a"), "test_x if print(\"<&>\")\n\ntest_y if { print(\"<&> é\"); false }")},
		"breaking": {World: world(loud, importing("a", "loud.say")), Deleted: "loud"},
		"missing":  {Candidate: importing("a", "loud.say")},
	} {
		here := run.Run(t.Context(), long, nil)
		there, err := process(t, Subcommand).carryOut(t.Context(), t, &run, long)
		if err != nil {
			t.Fatal(err)
		}
		here.Took, there.Took = "", ""
		if diff := cmp.Diff(here, there); diff != "" {
			t.Errorf("%s: in this process (-) and in a child (+):\n%s", name, diff)
		}
	}
}

// greedy makes a list of very many lists, each of its own, and never looks at them.
const greedy = `_l := [1, 2, 3, 4, 5, 6, 7, 8]

test_small if count(_l) == 8

test_greedy if count([[a, b, c, d, e, f, g, h] | some a in _l; some b in _l; some c in _l; some d in _l; some e in _l; some f in _l; some g in _l; some h in _l]) == 0`

// limited are limits that are there on Linux only.
func limited(t *testing.T) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("the system is asked for limits on Linux only")
	}
}

func TestChildIsEndedAtItsLimits(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector needs more memory than a test run may use; make test runs it without the detector")
	}
	limited(t)
	for name, tc := range map[string]struct {
		candidate *v1alpha1.RegoPolicy
		within    time.Duration
		want      string
	}{
		"a test that never ends": {tested(toy("a"), "test_x if true\n\n"+endlessTest), 3 * time.Second,
			"LimitExceeded a: its test run did not finish within 3s; last step: running test toy.a_test.test_endless (a/a_test.rego:7)"},
		"valid_parameters that never end": {toy("a", strings.Replace(endlessTest, "test_endless", "valid_parameters", 1)), 3 * time.Second,
			"LimitExceeded a: its test run did not finish within 3s; last step: compiling"},
		"a text with an error at each place, each with a copy of its line": {toy("a", "x := "+strings.Repeat(`$"{`, 40<<10)), long,
			"LimitExceeded a: its test run needs more than 256 MiB of memory; last step: compiling"},
		"a test that wants all memory": {tested(toy("a"), greedy), long,
			"LimitExceeded a: its test run needs more than 256 MiB of memory; last step: running test toy.a_test.test_greedy (a/a_test.rego:7)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			f, err := process(t, Subcommand).carryOut(t.Context(), t, &Run{Candidate: tc.candidate}, tc.within)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, told(f)); diff != "" {
				t.Errorf("found (-want +got):\n%s", diff)
			}
			t.Logf("%v of %v", time.Since(began).Round(time.Millisecond), tc.within)
		})
	}
}

// A child that nobody ends is ended by the system, when it has had its time of the processor.
func TestChildIsEndedByTheSystem(t *testing.T) {
	limited(t)
	text, err := json.Marshal(&Run{Candidate: tested(toy("a"), endlessTest)})
	if err != nil {
		t.Fatal(err)
	}
	p := process(t, Subcommand)
	p.Command = []string{"/bin/sh", "-c", fmt.Sprintf(`exec %s %s --memory="$((256<<20))" --within=500ms`, p.Command[0], Subcommand)}
	f, err := p.run(t.Context(), text, "a", long)
	if err != nil {
		t.Fatal(err)
	}
	want := "LimitExceeded a: its test run used all of its CPU time; last step: running test toy.a_test.test_endless (a/a_test.rego:5)"
	if diff := cmp.Diff(want, told(f)); diff != "" {
		t.Errorf("found (-want +got):\n%s", diff)
	}
}

// Deep nesting ends in the parser, or with the stack, but never with anybody else's process.
func TestChildTakesWhatNestsDeeply(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector needs more memory than a test run may use; make test runs it without the detector")
	}
	for _, open := range []string{"[", "{", "(", "not ", "x[", "f(", "every a in ["} {
		candidate := toy("a", "x := "+strings.Repeat(open, 250_000/len(open)))
		f, err := process(t, Subcommand).carryOut(t.Context(), t, &Run{Candidate: candidate}, long)
		if err != nil || len(f.Problems) == 0 {
			t.Errorf("%q: %+v, %v", open, f, err)
			continue
		}
		t.Logf("%q: %.200s", open, told(f))
	}
}

func TestChildThatDoesNotDoItsDuty(t *testing.T) {
	for act, want := range map[string]string{
		"garbage": `reading the output of the test run: "{\"finding\": {\"problems\": \"none\"}}": json: cannot unmarshal`,
		"flood":   "reading the output of the test run: more than 4194304 bytes",
		"line":    "reading the output of the test run: more than 4194304 bytes",
		"silent":  "the test run ended without a result",
		"half":    "the test run ended without a result",
		"crash":   "the test run failed: exit status 2: panic: no child of mine; last step: running test toy_test.test_x (x_test.rego:3)",
		"lie":     "the test run failed: exit status 3: ; last step: starting",
	} {
		t.Run(act, func(t *testing.T) {
			f, err := process(t, act).carryOut(t.Context(), t, &Run{Candidate: toy("a")}, long)
			if err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("got %+v, %v, want %s", f, err, want)
			}
		})
	}
	p := Process{Command: []string{filepath.Join(t.TempDir(), "nothing")}, Memory: 1}
	if f, err := p.carryOut(t.Context(), t, &Run{Candidate: toy("a")}, long); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a program that is not there: %+v, %v", f, err)
	}
	// What it is told may be more than it cares to read.
	big := toy("a", "# "+strings.Repeat("x", 1<<20))
	if f, err := process(t, "deaf").carryOut(t.Context(), t, &Run{Candidate: big}, long); err != nil || f.Took != "did not listen" {
		t.Errorf("deaf: %+v, %v", f, err)
	}
}

func TestChildRefusesToWorkWithoutLimits(t *testing.T) {
	for what, tc := range map[string]struct {
		limits Limits
		text   string
		want   string
	}{
		"no memory": {Limits{Within: 1}, "", "needs limits"},
		"no time":   {Limits{Memory: 1}, "", "needs limits"},
	} {
		if err := Serve(strings.NewReader(tc.text), os.Stderr, tc.limits); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for text, want := range map[string]string{"": "reading the test run: EOF", "{}": "either a candidate or the name", "{": "reading the test run"} {
		_, err := process(t, Subcommand).run(t.Context(), []byte(text), "a", long)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestChildKnowsNothingOfItsParent(t *testing.T) {
	limited(t)
	t.Setenv("SECRET", "of the parent")
	secret, err := os.Create(filepath.Join(t.TempDir(), "secret"))
	if err != nil {
		t.Fatal(err)
	}
	defer secret.Close()
	f, err := process(t, "told").carryOut(t.Context(), t, &Run{Candidate: toy("a")}, long)
	if err != nil {
		t.Fatal(err)
	}
	env, dir, files := f.Missing[0], f.Missing[1], f.Missing[2:]
	if env != "GOTRACEBACK=none" || dir != "/" || len(files) < 3 || slices.Contains(files, secret.Name()) {
		t.Errorf("it was told %q", f.Missing)
	}
}

// Whoever does not wait any more costs nothing any more.
func TestChildEndsWithItsRequest(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("the API server has hung up")
	time.AfterFunc(200*time.Millisecond, func() { cancel(gone) })
	f, err := process(t, "sleep").carryOut(ctx, t, &Run{Candidate: toy("a")}, long)
	if !errors.Is(err, gone) {
		t.Errorf("got %+v, %v", f, err)
	}
	if left := childrenOf(t); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
}

// childrenOf are the processes that this one has, and has not waited for.
func childrenOf(t *testing.T) []string {
	t.Helper()
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", syscall.Getpid()))
	var all []string
	for _, file := range tasks {
		text, _ := os.ReadFile(file)
		all = append(all, strings.Fields(string(text))...)
	}
	return all
}
