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
	"testing"

	"sallyport.dev/sallyport/test/double/fake"
	"sallyport.dev/sallyport/test/env"
	"sallyport.dev/sallyport/test/env/install"
	"sallyport.dev/sallyport/test/sim"
)

// Site is an installed release, which the tests of a package share.
type Site struct {
	Plane     *env.ControlPlane
	Sallyport *install.Sallyport
	// Options are those of the manager.
	Options install.Options
	// World has the machines and disks.
	World *fake.World
	// Audit is the audit log of the API server.
	Audit string
	// Records are the decision records of the manager, and Logs is what it logs.
	Records, Logs install.Log
	// Installing is the number of decisions that were recorded before all policies of the release were in use.
	Installing int

	dir       string // with programs and kubectl's cache
	simulator *sim.Server
	running   string // the program that is the manager
}

// Main is the body of a TestMain. It starts the site on a control plane with these options, runs the tests, and calls after, if that is not
// nil, when the manager has ended.
func (s *Site) Main(m *testing.M, o env.Options, after func(context.Context) error) (code int) {
	ctx := context.Background()
	err := s.start(ctx, o)
	if err == nil {
		code = m.Run()
	} else {
		err = fmt.Errorf("%w\n%s", err, install.Tail(s.Logs.String(), 20))
	}
	err = errors.Join(err, s.stop())
	if err == nil && after != nil {
		err = after(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func (s *Site) start(ctx context.Context, o env.Options) (err error) {
	if s.dir, err = os.MkdirTemp("", "sallyport-site-"); err != nil {
		return err
	}
	s.World = fake.New()
	s.World.SetAuto(true)
	if s.simulator, err = sim.Serve(s.World); err != nil {
		return err
	}
	s.Options = install.Options{
		Env:     s.simulator.Environment("manager"),
		Records: &s.Records, Logs: &s.Logs,
		Flags: []string{"--poll-interval", "200ms"},
	}
	if s.Options.Binary, err = install.Build(ctx, s.dir, "sallyport.dev/sallyport/test/sim/manager"); err != nil {
		return err
	}
	s.Audit = filepath.Join(s.dir, "audit.log")
	o.AuditLog = s.Audit
	if s.Plane, err = env.Start(ctx, o); err != nil {
		return err
	}
	if s.Sallyport, err = install.Start(ctx, s.Plane, s.Options); err != nil {
		return err
	}
	s.running = s.Options.Binary
	s.Installing = strings.Count(s.Records.String(), "\n")
	return nil
}

func (s *Site) stop() error {
	var errs []error
	if s.Sallyport != nil {
		errs = append(errs, s.Sallyport.Remove())
	}
	if s.simulator != nil {
		errs = append(errs, s.simulator.Close())
	}
	if s.Plane != nil {
		errs = append(errs, s.Plane.Stop())
	}
	return errors.Join(append(errs, os.RemoveAll(s.dir))...)
}
