package env

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
)

// shared is the control plane of a test binary.
var shared struct {
	sync.Mutex
	armed   bool // Main runs, so there is somebody to stop it
	opts    Options
	started bool
	plane   *ControlPlane
	err     error
}

// Main is the body of a TestMain for packages that use Shared: it runs the tests, stops the control plane if one was
// started, and exits.
//
//	func TestMain(m *testing.M) { env.Main(m, env.Options{ControllerManager: true}) }
func Main(m *testing.M, opts Options) { os.Exit(runShared(m.Run, opts)) }

func runShared(run func() int, opts Options) int {
	shared.Lock()
	shared.armed, shared.opts = true, opts
	shared.Unlock()
	code := run()

	shared.Lock()
	defer shared.Unlock()
	if shared.plane != nil {
		if err := shared.plane.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "stopping the control plane:", err)
			code = max(code, 1)
		}
	}
	shared.armed, shared.started, shared.plane, shared.err = false, false, nil, nil
	return code
}

// Shared returns the control plane that the tests of a package have in common, and starts it for the first one that asks,
// so that a run of only unit tests needs none. Tests keep out of each other's way by namespaces of their own. The package needs
// a TestMain that calls Main.
func Shared(t testing.TB) *ControlPlane {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if !shared.armed {
		t.Fatal("env.Shared needs a TestMain that calls env.Main")
	}
	if !shared.started {
		shared.started = true
		// Not the context of the test: the control plane outlives it.
		shared.plane, shared.err = Start(context.Background(), shared.opts)
	}
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.plane
}
