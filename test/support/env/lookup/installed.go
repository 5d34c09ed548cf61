package lookup

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/version"
)

// inStore returns the newest program of our minor version that setup-envtest has installed and that runs, "" if there is none.
func (f *Finder) inStore(ctx context.Context, program string) string {
	data := os.Getenv("XDG_DATA_HOME")
	if data == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return ""
		}
		data = filepath.Join(home, ".local", "share")
	}
	type installed struct {
		version *version.Version
		path    string
	}
	var fitting []installed
	platform := "-" + runtime.GOOS + "-" + runtime.GOARCH
	paths, _ := filepath.Glob(filepath.Join(data, "kubebuilder-envtest", "k8s", "*"+platform, program))
	for _, path := range paths {
		of, err := version.ParseGeneric(strings.TrimSuffix(filepath.Base(filepath.Dir(path)), platform))
		if err == nil && minorsApart(of, f.Kubernetes) == 0 {
			fitting = append(fitting, installed{version: of, path: path})
		}
	}
	slices.SortFunc(fitting, func(a, b installed) int {
		if a.version.LessThan(b.version) {
			return 1
		}
		return -1
	})
	for _, candidate := range fitting {
		// An interrupted setup-envtest leaves half a program.
		if _, err := f.ask(ctx, program, candidate.path); err != nil {
			f.say("%s: skipped %s: %v (to remove it, run `setup-envtest cleanup %s`)", program, candidate.path, err, candidate.version)
			continue
		}
		return candidate.path
	}
	return ""
}

// oldestHelm is the first Helm that has what the chart and its tests use.
var oldestHelm = version.MajorMinor(3, 14)

// inPath returns the path of the kubectl or helm in PATH, "" if there is none that fits.
func (f *Finder) inPath(ctx context.Context, program string) string {
	if !f.PATH || program != Kubectl && program != Helm {
		return ""
	}
	path, err := exec.LookPath(program)
	if err != nil {
		return ""
	}
	of, err := f.ask(ctx, program, path)
	switch {
	case err != nil:
	case program == Helm && of.LessThan(oldestHelm):
		err = fmt.Errorf("it is v%s, and v%s or later is needed", of, oldestHelm)
	case program == Kubectl && minorsApart(of, f.Kubernetes) > 1:
		err = fmt.Errorf("it is v%s, more than one minor version from Kubernetes %s", of, f.Kubernetes)
	}
	if err != nil {
		f.say("%s: skipped %s (PATH): %v", program, path, err)
		return ""
	}
	return path
}

// minorsApart returns how many minor versions are between two versions.
func minorsApart(a *version.Version, other string) uint {
	b, err := version.ParseGeneric(other)
	if err != nil || a.Major() != b.Major() {
		return 1000
	}
	return max(a.Minor(), b.Minor()) - min(a.Minor(), b.Minor())
}

// questions are how each program is asked for its version.
var questions = map[string]struct {
	args   []string
	answer *regexp.Regexp
}{
	Etcd:              {[]string{"--version"}, regexp.MustCompile(`etcd Version: (\S+)`)},
	APIServer:         {[]string{"--version"}, regexp.MustCompile(`Kubernetes v(\S+)`)},
	ControllerManager: {[]string{"--version"}, regexp.MustCompile(`Kubernetes v(\S+)`)},
	Kubectl:           {[]string{"version", "--client", "-o", "json"}, regexp.MustCompile(`"gitVersion":\s*"v([^"]+)"`)},
	Helm:              {[]string{"version", "--short"}, regexp.MustCompile(`^v(\S+)`)},
}

// ask runs a program to learn its version, and so whether it works.
func (f *Finder) ask(ctx context.Context, program, path string) (*version.Version, error) {
	ctx, cancel := context.WithTimeout(ctx, f.limits.version)
	defer cancel()
	question := questions[program]
	cmd := exec.CommandContext(ctx, path, question.args...)
	cmd.WaitDelay = time.Second // a child of the program may keep the pipe open
	out, err := cmd.Output()
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("`%s %s` did not end within %s", program, strings.Join(question.args, " "), f.limits.version)
	case err != nil:
		return nil, fmt.Errorf("it does not run: %w", err)
	}
	found := question.answer.FindSubmatch(out)
	if found == nil {
		return nil, fmt.Errorf("`%s %s` does not say a version", program, strings.Join(question.args, " "))
	}
	of, err := version.ParseGeneric(string(found[1]))
	if err != nil {
		return nil, fmt.Errorf("`%s %s`: %w", program, strings.Join(question.args, " "), err)
	}
	return of, nil
}
