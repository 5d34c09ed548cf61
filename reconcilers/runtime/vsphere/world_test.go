package vsphere_test

import (
	"context"
	"net/url"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/vcsim"
	"sallyport.dev/sallyport/test/step"
)

// world is a vCenter and a client of it.
type world struct {
	step.T
	*vcsim.VCenter
	faults  *vcsim.Faults
	server  *vsphere.Server
	runtime *vsphere.Runtime
}

func start(t *testing.T) *vcsim.VCenter {
	t.Helper()
	v, err := vcsim.Start(vcsim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.Close)
	return v
}

// newWorld gives a vCenter of its own.
func newWorld(t *testing.T) *world {
	t.Helper()
	return worldOf(t, start(t))
}

// worldOf gives a new client of that vCenter.
func worldOf(t *testing.T, v *vcsim.VCenter) *world {
	t.Helper()
	w := &world{T: step.T{T: t}, VCenter: v, faults: &vcsim.Faults{}}
	config := w.config()
	config.Wrap = w.faults.Wrap
	w.server = w.connect(config)
	w.runtime = vsphere.New(w.server)
	return w
}

// config is how the vCenter is reached.
func (w *world) config() vsphere.Config {
	return vsphere.Config{
		Name:        "lab",
		URL:         w.URL(),
		CABundle:    w.CABundle(),
		Credentials: func(context.Context) (*url.Userinfo, error) { return w.User(), nil },
	}
}

func (w *world) connect(config vsphere.Config) *vsphere.Server {
	w.Helper()
	server, err := vsphere.NewServer(config)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := server.Close(ctx); err != nil {
			w.Errorf("closing: %v", err)
		}
	})
	return server
}

// machine gives a machine that can be adopted, by its path.
func (w *world) machine(name string) runtime.Machine {
	w.Helper()
	path, err := w.AddMachine(name)
	if err != nil {
		w.Fatal(err)
	}
	return machineAt(name, path)
}

func machineAt(name, path string) runtime.Machine {
	return runtime.Machine{
		NamespacedName: types.NamespacedName{Namespace: "ns", Name: name},
		UID:            types.UID("uid-" + name),
		Spec: &v1alpha1.VirtualMachineSpec{Runtime: v1alpha1.VirtualMachineRuntime{VSphere: &v1alpha1.VSphereRuntime{
			ServerRef: v1alpha1.VSphereServerReference{Name: "lab"}, InventoryPath: path,
		}}},
	}
}

func path(m runtime.Machine) string { return m.Spec.Runtime.VSphere.InventoryPath }

// adopted gives a machine that is adopted.
func (w *world) adopted(name string) runtime.Machine {
	w.Helper()
	m := w.machine(name)
	id, err := w.runtime.Ensure(w.Context(), m)
	w.Must(err)
	m.InstanceID = id
	return m
}

// observe looks until nothing is in flight.
func (w *world) observe(m runtime.Machine) runtime.Observation {
	w.Helper()
	for range 1000 {
		seen, err := w.runtime.Observe(w.Context(), m)
		w.Must(err)
		if seen.Quiet() {
			return seen
		}
		time.Sleep(time.Millisecond)
	}
	w.Fatal("the machine does not come to rest")
	return runtime.Observation{}
}

// on powers the machine on and waits until it is.
func (w *world) on(m runtime.Machine) runtime.Observation {
	w.Helper()
	w.Must(w.runtime.PowerOn(w.Context(), m))
	seen := w.observe(m)
	if seen.Power != v1alpha1.PowerRunning {
		w.Fatalf("the machine is not on: %+v", seen)
	}
	return seen
}
