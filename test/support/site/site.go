// Package site is Sallyport as its users meet it: a control plane on which the chart is installed, a manager that is a process of its own,
// kubectl, and machines in a simulated world. Walks are scripts of what users type and read.
package site

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/charts"
	"sallyport.dev/sallyport/test/support/double/fake"
	"sallyport.dev/sallyport/test/support/env"
	"sallyport.dev/sallyport/test/support/env/install"
	"sallyport.dev/sallyport/test/support/sim"
)

// program is the shipped one.
const program = "sallyport.dev/sallyport/cmd/sallyport"

// Site is an installed release: one that all tests of a package share (Main), or that of one test (Start).
type Site struct {
	Plane     *env.ControlPlane
	Sallyport *install.Sallyport
	// Client is that of an administrator.
	Client client.WithWatch
	// Options are those of the release and its manager.
	Options install.Options
	// World has the machines and disks of a site with Simulated.
	World *fake.World
	// Kubelet runs the pods of a site with Pods.
	Kubelet *install.Kubelet
	// Audit is the audit log of the API server.
	Audit string
	// Dir is a folder with programs, among them the plugin of kubectl unless machines are simulated, and kubectl's cache.
	Dir string
	// Records are the decision records of the manager, and Logs is what it logs.
	Records, Logs install.Log
	// Installing is the number of decisions that were recorded before all policies of the release were in use.
	Installing int

	running string       // the program that is the manager
	up      func() error // starts a site of Main
	closers []func() error
}

// Options say how a site differs from a release with the defaults of the chart.
type Options struct {
	// Plane are those of the control plane. It has the definitions of the chart from its start, unless they name others.
	Plane env.Options
	// Values are the chart's, as for helm's --set, and Flags those of the manager.
	Values, Flags []string
	// Simulated has machines and disks in a simulated world.
	Simulated bool
	// Pods has the pods of the Deployment run by a controller manager and a Kubelet, in place of one manager.
	Pods bool
	// Prepare is called before anything is installed. It may change the options of the site and add what is undone at the end (Defer).
	Prepare func(context.Context, *Site) error
	// Ready is called when the release is installed, and After when the manager has ended.
	Ready, After func(context.Context) error
}

// Defer adds a function that is called at the end, before those that were added earlier.
func (s *Site) Defer(end func() error) { s.closers = append(s.closers, end) }

// Main is the body of a TestMain: it runs the tests, has the site started by the first of them that calls Up, and returns the exit code.
func (s *Site) Main(m *testing.M, o Options) (code int) {
	ctx := context.Background()
	started := false
	s.up = sync.OnceValue(func() error {
		err := s.start(ctx, o)
		if err == nil && o.Ready != nil {
			err = o.Ready(ctx)
		}
		started = err == nil
		return err
	})
	code = m.Run()
	err := s.stop()
	if err == nil && started && o.After != nil {
		err = o.After(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if code != 0 {
		fmt.Fprintf(os.Stderr, "the end of what the manager logged:\n%s", install.Tail(s.Logs.String(), 100))
	}
	return code
}

// Up starts the site that the tests of a package share, unless another test has. Every test that uses it calls this first.
func (s *Site) Up(t testing.TB) {
	t.Helper()
	if err := s.up(); err != nil {
		t.Fatalf("starting the site of the package: %v", err)
	}
}

// Start starts a site for a test.
func Start(t *testing.T, o Options) *Site {
	t.Helper()
	s := &Site{}
	t.Cleanup(func() {
		if err := s.stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("the end of what the managers logged:\n%s", install.Tail(s.Logs.String(), 100))
		}
	})
	if err := s.start(context.WithoutCancel(t.Context()), o); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *Site) start(ctx context.Context, o Options) (err error) {
	ctrl.SetLogger(logr.Discard())
	if s.Dir, err = os.MkdirTemp("", "sallyport-site-"); err != nil {
		return err
	}
	s.Defer(func() error { return os.RemoveAll(s.Dir) })
	values := append([]string{"decisionRecords.all=true"}, o.Values...) // which tests replay
	s.Options = install.Options{Records: &s.Records, Logs: &s.Logs, Values: values, Flags: o.Flags}
	pkg := program
	if o.Simulated {
		pkg = "sallyport.dev/sallyport/test/support/sim/manager"
		if err := s.simulate(); err != nil {
			return err
		}
	}
	if s.Options.Binary, err = install.Build(ctx, s.Dir, pkg); err != nil {
		return err
	}
	if !o.Simulated {
		if err := install.Plugin(s.Dir, s.Options.Binary); err != nil {
			return err
		}
	}
	s.Audit = filepath.Join(s.Dir, "audit.log")
	o.Plane.AuditLog = s.Audit
	if o.Plane.CRDs == nil {
		if o.Plane.CRDs, err = charts.CRDs(); err != nil {
			return err
		}
	}
	if o.Pods {
		o.Plane.ControllerManager, o.Plane.ControllerManagerFlags = true, install.ControllerManagerFlags()
	}
	if s.Plane, err = env.Start(ctx, o.Plane); err != nil {
		return err
	}
	s.Defer(s.Plane.Stop)
	if s.Client, err = install.Client(s.Plane.Config); err != nil {
		return err
	}
	if o.Prepare != nil {
		if err := o.Prepare(ctx, s); err != nil {
			return err
		}
	}
	if o.Pods {
		return s.runPods(ctx)
	}
	if s.Sallyport, err = install.Start(ctx, s.Plane, s.Options); err != nil {
		return err
	}
	s.Defer(s.Sallyport.Remove)
	s.running = s.Options.Binary
	s.Installing = strings.Count(s.Records.String(), "\n")
	return nil
}

// simulate serves a runtime in memory, which carries out each request at once.
func (s *Site) simulate() error {
	s.World = fake.New()
	s.World.SetAuto(true)
	simulator, err := sim.Serve(s.World)
	if err != nil {
		return err
	}
	s.Defer(simulator.Close)
	s.Options.Env = simulator.Environment("manager")
	return nil
}

// runPods installs the chart and runs the pods of its Deployment.
func (s *Site) runPods(ctx context.Context) (err error) {
	if s.Sallyport, err = install.Prepare(ctx, s.Plane, s.Options.Values...); err != nil {
		return err
	}
	s.Defer(s.Sallyport.Remove)
	if s.Kubelet, err = s.Sallyport.NewKubelet(ctx, s.Options); err != nil {
		return err
	}
	s.Defer(s.Kubelet.Close)
	return nil
}

func (s *Site) stop() error {
	var errs []error
	for i := len(s.closers) - 1; i >= 0; i-- {
		errs = append(errs, s.closers[i]())
	}
	return errors.Join(errs...)
}

// SoonFollowed are flags by which a manager that was started again, or a replica whose leader was killed, leads soon. No decisions are
// recorded.
func SoonFollowed() []string {
	return []string{
		"--decision-records", "off",
		"--lease-duration", "3s", "--renew-deadline", "2s", "--runtime-call-timeout", "1s", "--retry-period", "300ms",
	}
}
