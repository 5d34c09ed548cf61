package collisions

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/test/depth"
	"sallyport.dev/sallyport/test/double/fake"
	"sallyport.dev/sallyport/test/env"
	"sallyport.dev/sallyport/test/env/install"
	"sallyport.dev/sallyport/test/sim"
)

// The manager is a process of its own, with the webhooks and the policies that ship; its machines are in a world of this one.
var cluster *Cluster

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) (code int) {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "sallyport-collisions-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	logs, err := os.Create(filepath.Join(dir, "manager.log"))
	var plane *env.ControlPlane
	var end func() error
	if err == nil {
		defer logs.Close()
		plane, end, err = start(ctx, dir, logs)
	}
	code = 1
	if err == nil {
		code = m.Run()
		err = end()
	}
	if plane != nil {
		err = errors.Join(err, plane.Stop())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if code != 0 {
		text, _ := os.ReadFile(logs.Name())
		fmt.Fprintf(os.Stderr, "the manager's log:\n%s", text)
	}
	return code
}

func start(ctx context.Context, dir string, logs *os.File) (plane *env.ControlPlane, end func() error, err error) {
	binary, err := install.Build(ctx, dir, "sallyport.dev/sallyport/test/sim/manager")
	if err != nil {
		return nil, nil, err
	}
	if plane, err = env.Start(ctx, env.Options{}); err != nil {
		return plane, nil, err
	}
	world := fake.New()
	world.SetAuto(true)
	server, err := sim.Serve(world)
	if err != nil {
		return plane, nil, err
	}
	sallyport, err := install.Start(ctx, plane, install.Options{
		Binary: binary, Flags: []string{"--decision-records", "off", "--poll-interval", "200ms"}, Env: server.Environment("manager"), Logs: logs,
		// All machines are on one node, and many collide there at a time.
		Values: []string{"policies.placement-migration.parameters.maxPerNode=0"},
	})
	if err != nil {
		return plane, nil, errors.Join(err, server.Close())
	}
	end = func() error { return errors.Join(sallyport.Remove(), server.Close()) }
	if cluster, err = simulated(ctx, plane.Config, world, server); err != nil {
		return plane, nil, errors.Join(err, end())
	}
	return plane, end, nil
}

func simulated(ctx context.Context, config *rest.Config, world *fake.World, server *sim.Server) (*Cluster, error) {
	c, err := install.Client(config)
	if err != nil {
		return nil, err
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "collisions"}}
	away := &absences{}
	server.Intercept(away.intercept)
	return &Cluster{
		Client: c, Namespace: namespace.Name,
		New: func(*testing.T, string) v1alpha1.VirtualMachineSpec {
			return v1alpha1.VirtualMachineSpec{Runtime: v1alpha1.VirtualMachineRuntime{Pod: &v1alpha1.PodRuntime{}}}
		},
		Hypervisor: func(vm *v1alpha1.VirtualMachine) Hypervisor {
			uid := vm.UID
			return Hypervisor{
				Hold:           func(kind runtime.TaskKind) func() { return world.Hold(uid, kind) },
				IgnoreShutdown: func() { world.SetGuest(uid, fake.Guest{Ignores: true}) },
				HeedShutdown: func() {
					world.SetGuest(uid, fake.Guest{Steps: 1})
					world.GuestActs(uid)
				},
				Suspend:      func() { world.Pause(uid) },
				GoOff:        func() { world.GuestPowersOff(uid) },
				IgnoreCancel: func() { world.SetCancels(uid, fake.Cancels{Ignored: true}) },
				Away:         func() func() { return away.begin(uid) },
				Power: func() v1alpha1.PowerState {
					in, _ := world.Instance(uid)
					return in.Power
				},
				Node: func() string {
					in, _ := world.Instance(uid)
					return in.NodeName
				},
			}
		},
	}, c.Create(ctx, namespace)
}

// absences are the machines for which the hypervisor does not answer.
type absences struct{ machines sync.Map }

func (a *absences) begin(machine any) (end func()) {
	a.machines.Store(machine, true)
	return func() { a.machines.Delete(machine) }
}

func (a *absences) intercept(_ sim.Moment, call sim.Call) bool {
	_, away := a.machines.Load(call.Machine.UID)
	return !away
}

func TestPairs(t *testing.T) {
	depth.Only(t)
	Pairs(t, cluster)
}

func TestScenarios(t *testing.T) {
	depth.Only(t)
	Scenarios(t, cluster)
}
