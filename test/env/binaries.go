package env

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// assetsVariable names a folder with ready-made binaries, as controller-runtime's envtest has it.
const assetsVariable = "KUBEBUILDER_ASSETS"

// Assets are the paths of a control plane's programs.
type Assets struct {
	Etcd              string
	APIServer         string
	ControllerManager string
	Kubectl           string
}

func (a *Assets) set(name, path string) {
	switch name {
	case Etcd:
		a.Etcd = path
	case APIServer:
		a.APIServer = path
	case ControllerManager:
		a.ControllerManager = path
	case Kubectl:
		a.Kubectl = path
	}
}

// Binaries returns the programs of a control plane and builds those that are missing.
//
// What lies in the folder KUBEBUILDER_ASSETS, if that is set, is taken as it is, whatever its version. The rest comes
// from a folder below os.UserCacheDir() that belongs to the Kubernetes version and the build list; building all of it
// takes some minutes, once. Several processes may ask at the same time: one builds, the others wait for it. Progress
// goes to logf, which may be nil and hears nothing when nothing is to be done.
func Binaries(ctx context.Context, logf func(format string, args ...any)) (Assets, error) {
	return binaries(ctx, logf, programs)
}

func binaries(ctx context.Context, logf func(string, ...any), wanted []program) (Assets, error) {
	var assets Assets
	wanted = slices.Clone(wanted)
	if given := os.Getenv(assetsVariable); given != "" {
		// Absolute, since the components do not run in this working directory's terms.
		dir, err := filepath.Abs(given)
		if err != nil {
			return Assets{}, fmt.Errorf("%s: %w", assetsVariable, err)
		}
		wanted = slices.DeleteFunc(wanted, func(p program) bool {
			path := filepath.Join(dir, p.name)
			if !isFile(path) {
				return false
			}
			assets.set(p.name, path)
			return true
		})
	}
	if len(wanted) == 0 {
		return assets, nil
	}
	b, err := newBuilder(controlPlane(), logf)
	if err != nil {
		return Assets{}, err
	}
	if err := b.ensure(ctx, wanted); err != nil {
		return Assets{}, err
	}
	for _, p := range wanted {
		assets.set(p.name, filepath.Join(b.dir, p.name))
	}
	return assets, nil
}

// builder fills one folder of the cache.
type builder struct {
	wrapper
	dir  string
	logf func(format string, args ...any)
	// build compiles a program in the wrapper module at src into the file out. A field for the sake of tests.
	build func(ctx context.Context, src string, p program, out string) error
}

// newBuilder gives the builder of the folder that belongs to a wrapper module.
func newBuilder(w wrapper, logf func(string, ...any)) (*builder, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, fmt.Errorf("no cache folder for binaries (set HOME or XDG_CACHE_HOME): %w", err)
	}
	return &builder{wrapper: w, dir: filepath.Join(cache, "sallyport", w.folder, w.key()), logf: logf, build: w.goBuild}, nil
}

func (b *builder) say(format string, args ...any) {
	if b.logf != nil {
		b.logf(format, args...)
	}
}

func (b *builder) missing(wanted []program) []program {
	return slices.DeleteFunc(slices.Clone(wanted), func(p program) bool { return isFile(filepath.Join(b.dir, p.name)) })
}

// ensure builds what is missing, under a lock between processes.
func (b *builder) ensure(ctx context.Context, wanted []program) error {
	if len(b.missing(wanted)) == 0 {
		return nil // The usual case takes no lock and writes nothing.
	}
	src := filepath.Join(b.dir, "src")
	if err := os.MkdirAll(src, 0o755); err != nil {
		return fmt.Errorf("folder for binaries: %w", err)
	}
	unlock, err := lock(ctx, filepath.Join(b.dir, "lock"), func() {
		b.say("another process is building into %s, waiting for it", b.dir)
	})
	if err != nil {
		return err
	}
	defer unlock()

	// Asked again: the other process may have done it all.
	missing := b.missing(wanted)
	for name, content := range map[string]string{"go.mod": b.mod, "go.sum": b.sum} {
		if err := os.WriteFile(filepath.Join(src, name), []byte(content), 0o644); err != nil {
			return fmt.Errorf("wrapper module: %w", err)
		}
	}
	for _, p := range missing {
		if err := b.one(ctx, src, p); err != nil {
			return err
		}
	}
	return nil
}

// one builds a program beside its place and moves it there, so that a killed build leaves nothing that looks finished.
func (b *builder) one(ctx context.Context, src string, p program) error {
	version := requiredVersion(b.mod, p.module)
	b.say("building %s %s, once, about %s", p.name, version, plural(p.minutes, "minute"))
	started := time.Now()
	// Always the same name: what an earlier build left there is overwritten under the lock.
	partial := filepath.Join(b.dir, "."+p.name+".partial")
	defer func() { _ = os.Remove(partial) }()
	if err := b.build(ctx, src, p, partial); err != nil {
		return fmt.Errorf("building %s %s: %w", p.name, version, err)
	}
	if err := os.Rename(partial, filepath.Join(b.dir, p.name)); err != nil {
		return fmt.Errorf("building %s %s: %w", p.name, version, err)
	}
	b.say("built %s in %s", p.name, time.Since(started).Round(time.Second))
	return nil
}

// goBuild runs go build in the wrapper module.
func (w wrapper) goBuild(ctx context.Context, src string, p program, out string) error {
	goTool, err := exec.LookPath("go")
	if err != nil {
		return fmt.Errorf("the Go toolchain is needed in PATH%s: %w", w.instead, err)
	}
	output := newTail(nil)
	args := append(append([]string{"build"}, w.flags...), "-o", out, p.pkg)
	cmd := exec.CommandContext(ctx, goTool, args...)
	cmd.Dir = src
	cmd.Env = buildEnv(os.Environ(), goFlags(ctx, goTool))
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
		return fmt.Errorf("%w; needed are Go %s or later in PATH and a module proxy that can be reached (GOPROXY)%s\n%s",
			err, goVersion(w.mod), w.instead, output.last(tailLines))
	}
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
	return append(slices.Clone(environ),
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

// goVersion returns the Go version that a go.mod asks for.
func goVersion(mod string) string {
	for line := range strings.Lines(mod) {
		if version, ok := strings.CutPrefix(line, "go "); ok {
			return strings.TrimSpace(version)
		}
	}
	return ""
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// lock takes an exclusive lock between processes on a file and returns the function that gives it back. The kernel gives
// it back too when the process dies, so a lock never goes stale. onWait is called once if somebody else holds it.
func lock(ctx context.Context, path string, onWait func()) (func(), error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("build lock: %w", err)
	}
	for waited := false; ; {
		err := tryLock(file)
		if err == nil {
			return func() { _ = file.Close() }, nil
		}
		if !errors.Is(err, errLocked) {
			_ = file.Close()
			return nil, &fs.PathError{Op: "lock", Path: path, Err: err}
		}
		if !waited {
			waited = true
			onWait()
		}
		// Asked again and again, since a blocking flock could not be ended by ctx.
		select {
		case <-ctx.Done():
			_ = file.Close()
			return nil, fmt.Errorf("waiting for the build lock %s: %w", path, context.Cause(ctx))
		case <-time.After(100 * time.Millisecond):
		}
	}
}
