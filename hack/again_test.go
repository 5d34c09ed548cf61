package hack_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sallyport.dev/sallyport/test/depth"
)

func TestWhatFailsRunsOnceMore(t *testing.T) {
	depth.Only(t)
	if depth.Effect != "EFFECT: " {
		t.Error("again.sh and the made package know another mark")
	}
	for name, tc := range map[string]struct {
		tests string
		deep  string // those of them that are in depth, if not all
		flags string
		fails bool
		flaky string // what is said of it
		once  bool   // it does not run a second time
		ends  string // the end of what is printed
	}{
		"a test that fails once":           {tests: "Flaky|Passes", flaky: "FLAKY: ./made TestFlaky", ends: "ok made"},
		"a test that fails twice":          {tests: "Flaky|Fails", fails: true},
		"a lost effect":                    {tests: "Effect|Flaky", fails: true, once: true},
		"a test of make test":              {tests: "Flaky|Passes", deep: "^(TestPasses)$", fails: true, once: true},
		"a test of make test, in depth":    {tests: "Flaky|Passes", deep: "^(TestFlaky)$", flaky: "FLAKY: ./made TestFlaky", ends: "ok made"},
		"a panic, after which not all ran": {tests: "Panics|Fails", fails: true},
		"a panic":                          {tests: "Panics|Passes", flaky: "FLAKY: ./made TestPanics", ends: "ok made"},
		"a test that takes too long":       {tests: "Hangs", flags: "-timeout=1s", flaky: "FLAKY: ./made TestHangs", ends: "ok made"},
		"a data race":                      {tests: "Races", flags: "-race", fails: true, once: true},
		"a test of another package":        {tests: "Vanishes", fails: true},
		"a package that does not compile":  {tests: "Flaky", flags: "-tags=broken", fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.flags == "-race" && !races(t) {
				t.Skip("no C compiler for cgo")
			}
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS("testdata")); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module made\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			deep := ""
			if tc.deep != "" {
				deep = depth.Variable + "=" + tc.deep
			}
			line := strings.Join(strings.Fields("MADE=1 "+deep+" go test -count=1 "+tc.flags+" -run=^Test("+tc.tests+")$ ./made"), " ")
			if out, err := script(t, dir, line+"\nMADE=1 go test -count=1 -run=^TestPasses$ ./made\n", "each.sh"); err == nil {
				t.Fatalf("the first run does not fail:\n%s", out)
			}
			out, err := script(t, dir, "", "again.sh")
			if fails := err != nil; fails != tc.fails {
				t.Fatalf("fails: %v, want %v:\n%s", fails, tc.fails, out)
			}
			if ran := strings.Contains(out, "once more, alone: "); ran == tc.once {
				t.Errorf("runs once more: %v:\n%s", ran, out)
			}
			flaky := regexp.MustCompile("(?m)^FLAKY: .*").FindString(out)
			if diff := cmp.Diff(tc.flaky, flaky); diff != "" {
				t.Errorf("(-want +got):\n%s\n%s", diff, out)
			}
			lines := strings.Split(strings.TrimSpace(out), "\n")
			if last := strings.Join(strings.Fields(lines[len(lines)-1]), " "); !strings.HasPrefix(last, tc.ends) {
				t.Errorf("the last line is not the second output:\n%s", out)
			}
		})
	}
}

// Where nothing is known of a first run, such as when it could not begin, CI fails.
func TestNothingToRunOnceMore(t *testing.T) {
	depth.Only(t)
	if out, err := script(t, t.TempDir(), "", "again.sh"); err == nil {
		t.Errorf("it succeeds:\n%s", out)
	}
}

// script runs a script of this folder in another folder.
func script(t *testing.T, dir, input, name string) (out string, err error) {
	t.Helper()
	path, err := filepath.Abs(name)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), path, "deep")
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(input)
	var both bytes.Buffer
	cmd.Stdout, cmd.Stderr = &both, &both
	err = cmd.Run()
	return both.String(), err
}

// races reports whether the race detector can be used.
func races(t *testing.T) bool {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "env", "CGO_ENABLED", "CC").Output()
	if err != nil {
		t.Fatal(err)
	}
	is := strings.Fields(string(out))
	if len(is) < 2 || is[0] != "1" {
		return false
	}
	_, err = exec.LookPath(is[1])
	return err == nil
}
