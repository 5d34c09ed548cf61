// Package failover has two managers, real processes behind one Service, and kills the one that leads.
package failover

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"strconv"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/test/support/double/fake"
	"sallyport.dev/sallyport/test/support/env"
	"sallyport.dev/sallyport/test/support/env/install"
	"sallyport.dev/sallyport/test/support/sim"
)

// lease is short, so that a killed leader is soon followed. All else of it goes with that.
const lease = 3 * time.Second

var leaseFlags = []string{
	"--lease-duration", lease.String(), "--renew-deadline", "2s", "--runtime-call-timeout", "1s", "--retry-period", "300ms",
}

// patience is how long a test waits for what has to come.
const patience = time.Minute

// stack is what all tests of this package share.
var stack struct {
	plane    *env.ControlPlane
	client   client.WithWatch
	world    *fake.World
	sim      *sim.Server
	pair     *pair
	balancer *install.Balancer
	logs     install.Log
}

func TestMain(m *testing.M) {
	flag.Parse()
	if testing.Short() { // all tests are left to make test-all, and nothing has to be started for them
		os.Exit(m.Run())
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "sallyport-failover-")
	if err == nil {
		defer os.RemoveAll(dir)
		err = start(context.Background(), dir)
	}
	code := 1
	if err == nil {
		code = m.Run()
	}
	if err := errors.Join(err, stop()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if code != 0 {
		fmt.Fprintln(os.Stderr, stack.logs.String())
	}
	return code
}

func start(ctx context.Context, dir string) error {
	binary, err := install.Build(ctx, dir, "sallyport.dev/sallyport/test/support/sim/manager")
	if err != nil {
		return err
	}
	if stack.plane, err = env.Start(ctx, env.Options{}); err != nil {
		return err
	}
	if stack.client, err = install.Client(stack.plane.Config); err != nil {
		return err
	}
	stack.world = fake.New()
	stack.world.SetAuto(true)
	if stack.sim, err = sim.Serve(stack.world); err != nil {
		return err
	}
	sallyport, err := install.Prepare(ctx, stack.plane)
	if err != nil {
		return err
	}
	options := install.Options{Binary: binary, Flags: append([]string{"--decision-records", "off"}, leaseFlags...), Logs: &stack.logs}
	stack.pair = newPair(sallyport, options)
	if err := stack.pair.revive(); err != nil {
		return err
	}
	if err := stack.pair.awaitReady(ctx); err != nil {
		return err
	}
	if err := balance(); err != nil {
		return err
	}
	return sallyport.AwaitJudgement(ctx)
}

// balance has the Service lead to all replicas.
func balance() (err error) {
	if stack.balancer != nil {
		err = stack.balancer.Close()
	}
	if err == nil {
		stack.balancer, err = install.NewBalancer(net.JoinHostPort(stack.pair.sallyport.Address, strconv.Itoa(install.Port)), stack.pair.backends()...)
	}
	return err
}

// stop ends what was started.
func stop() (err error) {
	if stack.balancer != nil {
		err = stack.balancer.Close()
	}
	if stack.pair != nil {
		err = errors.Join(err, stack.pair.close())
	}
	if stack.sim != nil {
		err = errors.Join(err, stack.sim.Close())
	}
	if stack.plane != nil {
		err = errors.Join(err, stack.plane.Stop())
	}
	return err
}
