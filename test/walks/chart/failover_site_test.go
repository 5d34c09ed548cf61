package chart

import (
	"context"
	"errors"
	"net"
	"strconv"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/test/support/double/fake"
	"sallyport.dev/sallyport/test/support/env"
	"sallyport.dev/sallyport/test/support/env/install"
	"sallyport.dev/sallyport/test/support/sim"
	testsite "sallyport.dev/sallyport/test/support/site"
)

// lease is --lease-duration of site.SoonFollowed.
const lease = 3 * time.Second

// patience is how long a test waits for what has to come.
const patience = time.Minute

// stack is what the parts of TestFailover share.
var stack struct {
	plane    *env.ControlPlane
	client   client.WithWatch
	world    *fake.World
	sim      *sim.Server
	pair     *pair
	balancer *install.Balancer
	logs     install.Log
}

// TestFailover has two managers, real processes behind one Service, and kills the one that leads. Their machines are simulated in a world that
// outlives them.
func TestFailover(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-all")
	}
	t.Parallel()
	t.Cleanup(func() {
		if err := endPair(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("the end of what the managers logged:\n%s", install.Tail(stack.logs.String(), 200))
		}
	})
	if err := startPair(context.WithoutCancel(t.Context()), t.TempDir()); err != nil {
		t.Fatal(err)
	}
	t.Run("etcd is restored", etcdIsRestored)
	t.Run("a killed leader is followed", aKilledLeaderIsFollowed)
	t.Run("a leader that ends cleanly hands over at once", aLeaderThatEndsCleanlyHandsOverAtOnce)
}

func startPair(ctx context.Context, dir string) error {
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
	options := install.Options{Binary: binary, Flags: testsite.SoonFollowed(), Logs: &stack.logs}
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

// endPair ends what was started.
func endPair() (err error) {
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
