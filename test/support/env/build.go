package env

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"sallyport.dev/sallyport/test/support/env/lookup"
)

// builder fills one folder of the cache.
type builder struct {
	graph
	dir  string
	logf func(format string, args ...any)
	// every so often the time that something has taken so far is told.
	every time.Duration
	// build compiles programs in the module at src into the folder out, by the names that go build gives them. A field for
	// the sake of tests.
	build func(ctx context.Context, src string, wanted []program, out string) error
}

// newBuilder returns the builder of the folder that belongs to a module graph.
func newBuilder(g graph, logf func(string, ...any)) (*builder, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, fmt.Errorf("no cache folder for binaries (set HOME or XDG_CACHE_HOME): %w", err)
	}
	return &builder{
		graph: g, dir: filepath.Join(cache, "sallyport", "control-plane", g.key()), logf: logf, every: 15 * time.Second, build: g.goBuild,
	}, nil
}

func (b *builder) say(format string, args ...any) {
	if b.logf != nil {
		b.logf(format, args...)
	}
}

// ensure builds what is missing, under a lock between processes.
func (b *builder) ensure(ctx context.Context, wanted []program) error {
	isCached := func(p program) bool { return b.cached(p) != "" }
	if !slices.ContainsFunc(wanted, func(p program) bool { return !isCached(p) }) {
		return nil // The usual case takes no lock and writes nothing.
	}
	src := filepath.Join(b.dir, "src")
	if err := os.MkdirAll(src, 0o755); err != nil {
		return explained(fmt.Errorf("folder for binaries: %w", err))
	}
	unlock, err := b.lock(ctx, filepath.Join(b.dir, "lock"))
	if err != nil {
		return err
	}
	defer unlock()

	// Asked again: the other process may have done it all.
	missing := slices.DeleteFunc(slices.Clone(wanted), isCached)
	if len(missing) == 0 {
		return nil
	}
	for name, content := range map[string]string{"go.mod": b.mod, "go.sum": b.sum, "main.go": b.main} {
		if content == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(src, name), []byte(content), 0o644); err != nil {
			return explained(fmt.Errorf("module of the programs: %w", err))
		}
	}
	return b.into(ctx, src, missing)
}

// into builds programs beside their places and moves them there, so that a killed build leaves nothing that looks finished.
func (b *builder) into(ctx context.Context, src string, missing []program) error {
	var names []string
	seconds := 0
	for _, p := range missing {
		names = append(names, p.name+" "+b.version(p.module))
		seconds += p.seconds
	}
	what := "building " + strings.Join(names, ", ")
	usual := (time.Duration(seconds) * time.Second).Round(time.Minute)
	b.say("%s, once: usually up to %d min on two cores", what, max(1, int(usual.Minutes())))
	started := time.Now()
	// Always the same name: what an earlier build left there is removed under the lock.
	partial := filepath.Join(b.dir, ".partial")
	if err := errors.Join(os.RemoveAll(partial), os.Mkdir(partial, 0o755)); err != nil {
		return explained(fmt.Errorf("%s: %w", what, err))
	}
	defer func() { _ = os.RemoveAll(partial) }()
	err := b.telling("still building", func() error { return b.build(ctx, src, missing, partial) })
	for _, p := range missing {
		if err == nil {
			err = os.Rename(filepath.Join(partial, p.binary()), b.path(p))
		}
	}
	if err != nil {
		return explained(fmt.Errorf("%s: %w", what, err))
	}
	b.say("built %s in %s", strings.Join(names, ", "), time.Since(started).Round(time.Second))
	return nil
}

// telling runs do, and says from time to time for how long.
func (b *builder) telling(what string, do func() error) error {
	started := time.Now()
	ended, told := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(told)
		ticker := time.NewTicker(b.every)
		defer ticker.Stop()
		for {
			select {
			case <-ended:
				return
			case <-ticker.C:
				b.say("%s: %s so far", what, time.Since(started).Round(time.Second))
			}
		}
	}()
	defer func() { close(ended); <-told }()
	return do()
}

// goBuild runs go build in the module at src.
func (g graph) goBuild(ctx context.Context, src string, wanted []program, out string) error {
	goTool, err := exec.LookPath("go")
	if err != nil {
		return fmt.Errorf("no go command in PATH; install Go %s or later (https://go.dev/dl), or name a folder with ready-made "+
			"programs in %s: %w", g.goVersion(), lookup.AssetsVariable, err)
	}
	output := newTail(nil)
	args := append(append([]string{"build"}, g.flags()...), "-o", out+string(filepath.Separator))
	environ := buildEnv(os.Environ(), goFlags(ctx, goTool))
	run := func(ctx context.Context, args ...string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, goTool, args...)
		cmd.Dir, cmd.Env = src, environ
		return cmd
	}
	for _, p := range wanted {
		pkg, err := p.mainPackage(ctx, src, run)
		if err != nil {
			return err
		}
		args = append(args, pkg)
	}
	cmd := run(ctx, args...)
	cmd.Stdout, cmd.Stderr = output, output
	// An interrupted go build removes its work directory, a killed one leaves some gigabytes in the temporary folder.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = 20 * time.Second

	err = runUntilParentDies(cmd)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	default:
		return &buildError{err: err, output: output, goVersion: g.goVersion()}
	}
}

// buildError is a failed go build.
type buildError struct {
	err       error
	output    *tail
	goVersion string
}

// Error says what to do, if the output shows what is wrong, and else what the output was.
func (e *buildError) Error() string {
	for line := range strings.Lines(e.output.String()) {
		line = strings.TrimSpace(line)
		has := func(parts ...string) bool {
			return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(line, part) })
		}
		switch {
		case has(syscall.ENOSPC.Error()):
			return fmt.Sprintf("%s (%s)", noRoom, line)
		case has("requires go >=", "toolchain not available", "download go1."):
			return fmt.Sprintf("install Go %s or later (https://go.dev/dl) and run this again (%s)", e.goVersion, line)
		case has("module lookup disabled", `: Get "http`, "reading http", "unrecognized import path"):
			return fmt.Sprintf("no Go module proxy can be reached: set GOPROXY to one that can, or name a folder with ready-made "+
				"programs in %s, and run this again (%s)", lookup.AssetsVariable, line)
		}
	}
	return fmt.Sprintf("%v; needed are Go %s or later in PATH and a module proxy that can be reached (GOPROXY), or ready-made programs "+
		"in %s\n%s", e.err, e.goVersion, lookup.AssetsVariable, e.output.last(tailLines))
}

// Unwrap returns how go build ended.
func (e *buildError) Unwrap() error { return e.err }

// noRoom is about the disk.
const noRoom = "no space left on the disk: a build needs 6 GB in the folders that `go env GOCACHE GOMODCACHE` prints, in TMPDIR and in the " +
	"user's cache folder; make room and run this again, it goes on where it was"

// explained adds to an error of the file system what to do.
func explained(err error) error {
	if errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("%s: %w", noRoom, err)
	}
	return err
}

// goFlags returns the user's GOFLAGS, also those of `go env -w`.
func goFlags(ctx context.Context, goTool string) string {
	out, err := exec.CommandContext(ctx, goTool, "env", "GOFLAGS").Output()
	if err != nil {
		return "" // The build itself will say what is wrong.
	}
	return strings.TrimSpace(string(out))
}

// buildEnv makes the build independent of what the caller is building just now: its module, its workspace, its target.
// Proxies, caches and the like stay as the user set them.
func buildEnv(environ []string, flags string) []string {
	foreign := []string{"-mod", "-modfile", "-tags", "-race", "-msan", "-asan", "-cover", "-coverpkg", "-covermode", "-overlay"}
	// Never empty: an empty GOFLAGS in the environment would bring back the one of `go env -w`.
	kept := []string{"-mod=readonly"}
	for _, flag := range strings.Fields(flags) {
		name, _, _ := strings.Cut("-"+strings.TrimLeft(flag, "-"), "=")
		if !slices.Contains(foreign, name) {
			kept = append(kept, flag)
		}
	}
	// The compiler has more memory than time. What the user says about it comes later, and wins.
	environ = append([]string{"GOGC=400"}, environ...)
	return append(environ,
		"GOFLAGS="+strings.Join(kept, " "), "GOWORK=off", "GO111MODULE=on", "CGO_ENABLED=0",
		"GOOS="+runtime.GOOS, "GOARCH="+runtime.GOARCH)
}

// runUntilParentDies runs cmd, and has it killed when this process ends before it.
func runUntilParentDies(cmd *exec.Cmd) error {
	// The kernel takes the thread that started a process for its parent, so that thread has to live as long.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = dieWithParent(cmd.SysProcAttr)
	return cmd.Run()
}

// lock takes an exclusive lock between processes and returns the function that gives it back.
func (b *builder) lock(ctx context.Context, path string) (unlock func(), err error) {
	err = b.telling("still waiting for the other process", func() error {
		unlock, err = lookup.Lock(ctx, path, func() { b.say("another process is building into %s, waiting for it", b.dir) })
		return err
	})
	return unlock, err
}
