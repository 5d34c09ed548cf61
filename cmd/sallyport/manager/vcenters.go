package manager

import (
	"context"
	"errors"
	"net/url"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere"
	"sallyport.dev/sallyport/reconcilers/vsphereserver"
	"sallyport.dev/sallyport/webhooks"
)

// startPatience is how long, from when machines are first looked at, they wait for their vCenter to be reached.
const startPatience = 5 * time.Second

// logoutPatience is how long a vCenter has for a logout.
const logoutPatience = 5 * time.Second

// vcenters keeps the connections to vCenters: the reconciler of VSphereServers makes them, machines are run on them.
type vcenters struct {
	// admits asks the policies whether a machine may be where it is.
	admits func(context.Context, *v1alpha1.VirtualMachine) (webhooks.Ruling, error)
	// cached reads VSphereServers.
	cached client.Reader
	// now is the clock.
	now func() time.Time
	// admitted is by the UID of a VirtualMachine what it was admitted in, and when.
	admitted sync.Map

	mu      sync.Mutex
	all     map[string]*vcenter
	changed chan struct{} // closed when another vCenter is reached
	begun   time.Time     // when the first machine asked for its runtime
	closing sync.WaitGroup
}

// admittedFor is how long a machine is looked at without asking the policies again. An edited policy, the labels of a namespace and
// where in the inventory a machine is change what they say, and nothing tells of it.
const admittedFor = 10 * time.Minute

// admission is what a machine was admitted in: a VSphereServer of that name that is made anew is another one.
type admission struct {
	machine, server int64 // generations
	of              types.UID
	at              time.Time
}

// goesFor tells whether an admission still holds for what is now.
func (a admission) goesFor(now admission) bool {
	since := now.at.Sub(a.at)
	a.at = now.at
	return a == now && since < admittedFor
}

// vcenter is one of them, as it was told to be reached.
type vcenter struct {
	connection vsphereserver.Connection
	server     *vsphere.Server
	runtime    *vsphere.Runtime
}

// Connect sees to it that there is a session, and asks the vCenter what it is.
func (v *vcenters) Connect(ctx context.Context, name string, connection vsphereserver.Connection) (vsphereserver.About, error) {
	vc, err := v.reach(name, connection)
	if err != nil {
		return vsphereserver.About{}, err
	}
	about, err := vc.server.About(ctx)
	return vsphereserver.About(about), err
}

// reach gives the vCenter with that connection, a new one in the place of one that was reached otherwise.
func (v *vcenters) reach(name string, connection vsphereserver.Connection) (*vcenter, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	present := v.all[name]
	if present != nil && present.connection == connection {
		return present, nil
	}
	server, err := vsphere.NewServer(vsphere.Config{
		Name: name, URL: connection.URL, CABundle: []byte(connection.CABundle), Thumbprint: connection.Thumbprint,
		Credentials: func(context.Context) (*url.Userinfo, error) {
			return url.UserPassword(connection.Username, string(connection.Password)), nil
		},
	})
	if err != nil {
		return nil, err
	}
	v.leave(present)
	if v.all == nil {
		v.all = map[string]*vcenter{}
	}
	if v.changed != nil {
		close(v.changed)
		v.changed = nil
	}
	v.all[name] = &vcenter{connection: connection, server: server, runtime: vsphere.New(server)}
	return v.all[name], nil
}

// Hosts gives the hosts of a vCenter.
func (v *vcenters) Hosts(ctx context.Context, name string) ([]v1alpha1.VSphereHost, error) {
	vc := v.get(name)
	if vc == nil {
		return nil, notConnected(name)
	}
	found, err := vc.server.Hosts(ctx)
	hosts := make([]v1alpha1.VSphereHost, 0, len(found))
	for _, h := range found {
		hosts = append(hosts, v1alpha1.VSphereHost(h))
	}
	return hosts, err
}

func notConnected(name string) error {
	return runtime.NewUnavailable(nil, "VSphereServer %s does not exist, or is not connected yet: its condition Ready says why", name)
}

// Forget ends the session with a vCenter.
func (v *vcenters) Forget(name string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.leave(v.all[name])
	delete(v.all, name)
}

// leave logs out, without waiting for it. Calls that are under way end.
func (v *vcenters) leave(vc *vcenter) {
	if vc == nil {
		return
	}
	v.closing.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), logoutPatience)
		defer cancel()
		_ = vc.server.Close(ctx) // a session that cannot be ended ends by itself when it has been idle
	})
}

// close logs out everywhere.
func (v *vcenters) close() {
	v.mu.Lock()
	for _, vc := range v.all {
		v.leave(vc)
	}
	v.all = nil
	v.mu.Unlock()
	v.closing.Wait()
}

func (v *vcenters) get(name string) *vcenter {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.all[name]
}

// runtime gives the runtime of a machine: that of its vCenter, as far as the policies let the machine be there.
func (v *vcenters) runtime(vm *v1alpha1.VirtualMachine) (runtime.Runtime, error) {
	if vm.Spec.Runtime.VSphere == nil {
		return nil, runtime.NewNotSupported(nil, "this release runs no machines of kind %s yet", kindOf(vm))
	}
	name := vm.Spec.Runtime.VSphere.ServerRef.Name
	vc := v.await(name)
	if vc == nil {
		return nil, notConnected(name)
	}
	ask := func(ctx context.Context, m runtime.Machine) error { return v.mayUse(ctx, vm, vc, m) }
	return runtime.Guard(watched{vc.runtime, func(ctx context.Context, m runtime.Machine) error { return v.stillMay(ctx, vm, m, ask) }}, ask), nil
}

// watched asks before a look too.
type watched struct {
	*vsphere.Runtime
	ask func(context.Context, runtime.Machine) error
}

// Observe looks at the machine, if it may.
func (w watched) Observe(ctx context.Context, m runtime.Machine) (runtime.Observation, error) {
	if err := w.ask(ctx, m); err != nil {
		return runtime.Observation{}, err
	}
	return w.Runtime.Observe(ctx, m)
}

// stillMay asks about a machine that is only looked at when it or its VSphereServer has changed, and from time to time, so that a
// right that was taken away shows. A machine that somebody has, or that is let go, is always looked at, and so is one that could not be judged.
func (v *vcenters) stillMay(
	ctx context.Context, vm *v1alpha1.VirtualMachine, m runtime.Machine, ask func(context.Context, runtime.Machine) error,
) error {
	if !vm.DeletionTimestamp.IsZero() {
		v.admitted.Delete(vm.UID)
		return nil
	}
	server := &v1alpha1.VSphereServer{}
	err := v.cached.Get(ctx, client.ObjectKey{Name: vm.Spec.Runtime.VSphere.ServerRef.Name}, server)
	now := admission{machine: vm.Generation, server: server.Generation, of: server.UID, at: v.now()}
	before, known := v.admitted.Load(vm.UID)
	if client.IgnoreNotFound(err) != nil || vm.Busy() || known && before.(admission).goesFor(now) {
		return nil
	}
	switch err := ask(ctx, m); {
	case err == nil:
		v.admitted.Store(vm.UID, now)
	case runtime.IsPermission(err):
		return err
	}
	return nil
}

// await gives a vCenter that is reached. A process that has just begun to lead reaches them at the same time as it looks at the
// machines: without waiting a moment it would show all of them as out of reach.
func (v *vcenters) await(name string) *vcenter {
	patience := time.NewTimer(startPatience)
	defer patience.Stop()
	for {
		v.mu.Lock()
		if v.begun.IsZero() {
			v.begun = time.Now()
		}
		if v.changed == nil {
			v.changed = make(chan struct{})
		}
		vc, changed, late := v.all[name], v.changed, time.Since(v.begun) > startPatience
		v.mu.Unlock()
		if vc != nil || late {
			return vc
		}
		select {
		case <-changed:
		case <-patience.C:
		}
	}
}

// mayUse asks the policies about the machine where it really is, which its spec need not say and which may have changed since
// it was admitted, as may have what the VSphereServer allows.
func (v *vcenters) mayUse(ctx context.Context, vm *v1alpha1.VirtualMachine, vc *vcenter, m runtime.Machine) error {
	path, err := vc.runtime.Path(ctx, m)
	if runtime.IsNotFound(err) {
		return nil // which the call itself says better
	}
	if err != nil {
		return err
	}
	vm = vm.DeepCopy()
	vm.Spec.Runtime.VSphere.InventoryPath = path
	ruling, err := v.admits(ctx, vm)
	if err != nil {
		return runtime.NewUnavailable(errors.Unwrap(err), "the policies could not judge whether the machine may be where it is: %v", err)
	}
	if ruling.Denied {
		return runtime.NewPermission(nil, "%s", ruling.Message)
	}
	return nil
}
