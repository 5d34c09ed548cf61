package vsphere_test

import (
	"context"
	"net/url"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/disk"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/session"
	"sallyport.dev/sallyport/test/support/double/vcsim"
	"sallyport.dev/sallyport/test/support/step"
)

// world is a vCenter and a client of it.
type world struct {
	step.T
	*vcsim.VCenter
	faults  *vcsim.Faults
	server  *session.Server
	runtime *disk.Runtime
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
	w.runtime = disk.New(w.server)
	return w
}

// config is how the vCenter is reached.
func (w *world) config() session.Config {
	return session.Config{
		Name:        "lab",
		URL:         w.URL(),
		CABundle:    w.CABundle(),
		Credentials: func(context.Context) (*url.Userinfo, error) { return w.User(), nil },
	}
}

func (w *world) connect(config session.Config) *session.Server {
	w.Helper()
	server, err := session.NewServer(config)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), step.Patience)
		defer cancel()
		if err := server.Close(ctx); err != nil {
			w.Errorf("closing: %v", err)
		}
	})
	return server
}

// connected has the sessions know the vCenter.
func (w *world) connected(sessions *vsphere.Sessions) *vsphere.Sessions {
	w.Helper()
	w.Cleanup(sessions.Close)
	password, _ := w.User().Password()
	_, err := sessions.Connect(w.Context(), "lab", vsphere.Connection{
		URL: w.URL(), CABundle: string(w.CABundle()), Username: w.User().Username(), Password: runtime.Secret(password),
	})
	w.Must(err)
	return sessions
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

// path is where the machine is. One that is to be cloned has to be there by then.
func (w *world) path(m runtime.Machine) string {
	w.Helper()
	if cloneOf(m) == nil {
		return m.Spec.Runtime.VSphere.InventoryPath
	}
	for _, path := range w.Machines() {
		if w.State(path).InstanceUUID == string(m.UID) {
			return path
		}
	}
	w.Fatalf("%s was not made", m)
	return ""
}

func cloneOf(m runtime.Machine) *v1alpha1.VSphereClone { return m.Spec.Runtime.VSphere.Clone }

// cloned gives a machine that can be cloned, from a template of its own.
func (w *world) cloned(name string) runtime.Machine {
	w.Helper()
	template, err := w.AddTemplate("template-of-" + name)
	w.Must(err)
	return runtime.Machine{
		NamespacedName: types.NamespacedName{Namespace: "ns", Name: name},
		UID:            uuid.NewUUID(),
		Spec: &v1alpha1.VirtualMachineSpec{Runtime: v1alpha1.VirtualMachineRuntime{VSphere: &v1alpha1.VSphereRuntime{
			ServerRef: v1alpha1.VSphereServerReference{Name: "lab"},
			Clone: &v1alpha1.VSphereClone{
				Template:     v1alpha1.VSphereCloneSource{InventoryPath: v1alpha1.InventoryPath(template)},
				Folder:       "/DC0/vm",
				ResourcePool: "/DC0/host/DC0_C0/Resources",
				Datastore:    "/DC0/datastore/LocalDS_0",
				Networks:     []v1alpha1.InventoryPath{"/DC0/network/VM Network"},
			},
		}}},
	}
}

// diskOf gives a disk that can be made.
func diskOf(name string) runtime.Disk {
	return runtime.Disk{
		NamespacedName: types.NamespacedName{Namespace: "ns", Name: name},
		UID:            uuid.NewUUID(),
		Spec: &v1alpha1.VirtualDiskSpec{
			Size: resource.MustParse("64Mi"),
			Runtime: v1alpha1.VirtualDiskRuntime{VSphere: &v1alpha1.VSphereDisk{
				ServerRef: v1alpha1.VSphereServerReference{Name: "lab"}, Datastore: "/DC0/datastore/LocalDS_0",
			}},
		},
	}
}

// ensure has the machine made or adopted, and gives it with its ID.
func (w *world) ensure(m runtime.Machine) runtime.Machine {
	w.Helper()
	w.Eventually("the machine of "+m.String(), func() bool {
		id, err := w.runtime.Ensure(w.Context(), m)
		w.Must(err)
		m.InstanceID = id
		return id != ""
	})
	return m
}

// adopted gives a machine that is adopted.
func (w *world) adopted(name string) runtime.Machine {
	w.Helper()
	return w.ensure(w.machine(name))
}

// observe looks until nothing is in flight.
func (w *world) observe(m runtime.Machine) runtime.Observation {
	w.Helper()
	var seen runtime.Observation
	w.Eventually("the machine is at rest", func() bool {
		var err error
		seen, err = w.runtime.Observe(w.Context(), m)
		w.Must(err)
		return seen.Quiet()
	})
	return seen
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
