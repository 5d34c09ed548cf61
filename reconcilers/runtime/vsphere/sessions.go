// Package vsphere has the session of each vCenter, and gives machines, disks and templates their runtime on it, as far as tenants let them.
// The work is done in the packages below, which call one way: disk and template, machine, inventory, session.
package vsphere

import (
	"context"
	"net/url"
	"strings"
	"sync"
	"time"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/templates"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/disk"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/machine"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/session"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/template"
)

// startPatience is how long machines wait for their vCenter to be connected, from the first request on.
const startPatience = 5 * time.Second

// logoutPatience limits a logout, of which a vCenter that is slow needs more than when the process ends, when closePatience limits it.
const logoutPatience, closePatience = time.Minute, 5 * time.Second

// Sessions manages a session for each vCenter, by the name of its VSphereServer: the VSphereServer reconciler opens
// them, machines use them. It is safe for concurrent use.
type Sessions struct {
	tenancy   tenancy
	templates template.Tenants
	notify    func(context.Context, runtime.Change)

	mu      sync.Mutex
	all     map[string]*vcenter
	changed chan struct{} // closed when another vCenter is connected
	begun   time.Time     // when the first machine asked for its runtime
	closing sync.WaitGroup
	living  context.Context // ends with Close
	die     context.CancelFunc
}

// NewSessions returns Sessions without any session. The tenants decide whether a machine, disk or template may be
// where it is; without tenants for disks or templates none may. notify receives changes, and may block until its
// context ends; each session has one watch for all its machines.
func NewSessions(tenants Tenants, disks DiskTenants, templates template.Tenants, notify func(context.Context, runtime.Change)) *Sessions {
	s := &Sessions{tenancy: tenancy{tenants, disks}, templates: templates, notify: notify}
	s.living, s.die = context.WithCancel(context.Background())
	return s
}

// Connection is the address, trust and login of a vCenter. Equal ones share a session.
type Connection struct {
	// URL, CABundle and Thumbprint are as in [Config].
	URL        string
	CABundle   string
	Thumbprint string
	// Username and Password are the login.
	Username string
	Password runtime.Secret
	// InstanceUUID is as in [session.Config].
	InstanceUUID string
}

type vcenter struct {
	connection Connection
	server     *session.Server
	runtime    *disk.Runtime
	unwatch    context.CancelFunc
	unwatched  chan struct{} // closed when the watch has ended
}

// serves reports whether the session is one for that connection. One that was opened without ID knows it since its first login.
func (v *vcenter) serves(connection Connection) bool {
	if connection.InstanceUUID != "" && !strings.EqualFold(connection.InstanceUUID, v.server.InstanceUUID()) {
		return false
	}
	connection.InstanceUUID = v.connection.InstanceUUID
	return connection == v.connection
}

// Connect ensures a session with that connection, replacing any other, and returns vCenter's version and ID.
func (s *Sessions) Connect(ctx context.Context, name string, connection Connection) (session.About, error) {
	present, err := s.reach(name, connection)
	if err != nil {
		return session.About{}, err
	}
	return present.server.About(ctx)
}

// reach returns the session of that connection, a new one if the current one has another connection.
func (s *Sessions) reach(name string, connection Connection) (*vcenter, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	present := s.all[name]
	if present != nil && present.serves(connection) {
		return present, nil
	}
	server, err := session.NewServer(session.Config{
		Name: name, URL: connection.URL, CABundle: []byte(connection.CABundle), Thumbprint: connection.Thumbprint, InstanceUUID: connection.InstanceUUID,
		Credentials: func(context.Context) (*url.Userinfo, error) {
			return url.UserPassword(connection.Username, string(connection.Password)), nil
		},
	})
	if err != nil {
		return nil, err
	}
	s.leave(present)
	if s.all == nil {
		s.all = map[string]*vcenter{}
	}
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
	next := &vcenter{connection: connection, server: server, runtime: disk.New(server), unwatched: make(chan struct{})}
	watching, unwatch := context.WithCancel(s.living)
	next.unwatch = unwatch
	s.closing.Go(func() {
		defer close(next.unwatched)
		s.watch(watching, name, next.runtime)
	})
	s.all[name] = next
	return next, nil
}

// firstWatch and lastWatch bound the wait before a failed watch is restarted. Changes in between are reported late.
const firstWatch, lastWatch = time.Second, 30 * time.Second

// watch reports the changes of a vCenter until ctx ends. While they cannot be watched, any machine may have changed.
func (s *Sessions) watch(ctx context.Context, name string, rt *disk.Runtime) {
	between := session.Pauses(firstWatch, lastWatch)
	for ctx.Err() == nil {
		_ = rt.Watch(ctx, func(id string) { // the error shows when a machine is observed
			between = session.Pauses(firstWatch, lastWatch)
			s.notify(ctx, runtime.Change{Server: name, InstanceID: id})
		})
		if ctx.Err() != nil {
			return
		}
		s.notify(ctx, runtime.Change{Server: name})
		_ = session.Pause(ctx, between)
	}
}

// Inventory returns the hosts and places of a connected vCenter; of places only those that a tenant allows.
func (s *Sessions) Inventory(ctx context.Context, name string, tenants []v1alpha1.VSphereTenant) (machine.Inventory, error) {
	s.mu.Lock()
	present := s.all[name]
	s.mu.Unlock()
	if present == nil {
		return machine.Inventory{}, notConnected(name)
	}
	return present.runtime.Inventory(ctx, tenants)
}

func notConnected(name string) error {
	return runtime.NewUnavailable(nil, "%s", session.NotConnectedText(name))
}

// Forget ends the session with a vCenter. Its machines are then unreachable and no longer watched, which is reported as a
// change.
func (s *Sessions) Forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[name] == nil {
		return
	}
	s.leave(s.all[name])
	delete(s.all, name)
	s.closing.Go(func() { s.notify(s.living, runtime.Change{Server: name}) })
}

// leave logs out in the background. Calls in progress end.
func (s *Sessions) leave(present *vcenter) {
	if present == nil {
		return
	}
	present.unwatch()
	s.closing.Go(func() {
		<-present.unwatched
		ctx, cancel := context.WithTimeout(context.Background(), logoutPatience)
		defer cancel()
		defer context.AfterFunc(s.living, func() { time.AfterFunc(closePatience, cancel) })()
		_ = present.server.Close(ctx) // a session that cannot be ended expires when idle
	})
}

// Close logs out everywhere and waits.
func (s *Sessions) Close() {
	s.die()
	s.mu.Lock()
	for _, present := range s.all {
		s.leave(present)
	}
	s.all = nil
	s.mu.Unlock()
	s.closing.Wait()
}

// Runtime returns the runtime of a machine, restricted by the tenants.
func (s *Sessions) Runtime(ctx context.Context, vm *v1alpha1.VirtualMachine) (*runtime.Client, error) {
	rt, err := s.runtime(ctx, vm)
	if err != nil {
		return nil, err
	}
	return runtime.NewClient(rt, s.tenancy.of(vm, rt.Path), s.tenancy.ofDisks), nil
}

// runtime returns the runtime of a machine's vCenter, which asks the tenants before it creates anything.
func (s *Sessions) runtime(ctx context.Context, vm *v1alpha1.VirtualMachine) (*disk.Runtime, error) {
	name := vm.Spec.Runtime.VSphere.ServerRef.Name
	present := s.await(ctx, name)
	if present == nil {
		return nil, notConnected(name)
	}
	return present.runtime.Restricted(s.tenancy.placeCheck(vm)), nil
}

// DiskRuntime returns the runtime of a disk, restricted by the tenants. It is not usable for machines.
func (s *Sessions) DiskRuntime(ctx context.Context, disk *v1alpha1.VirtualDisk) (*runtime.Client, error) {
	spec := disk.Spec.Runtime.VSphere
	if spec == nil {
		return nil, runtime.NewNotSupported(nil, "VirtualDisk %s is not one of a vCenter", disk.Name)
	}
	present := s.await(ctx, spec.ServerRef.Name)
	if present == nil {
		return nil, notConnected(spec.ServerRef.Name)
	}
	return runtime.NewClient(present.runtime, s.tenancy.ofDisks), nil
}

// TemplateStore returns the store of a VSphereTemplate, restricted by the tenants.
func (s *Sessions) TemplateStore(ctx context.Context, of *v1alpha1.VSphereTemplate) (templates.Store, error) {
	present := s.await(ctx, of.Spec.ServerRef.Name)
	if present == nil {
		return nil, notConnected(of.Spec.ServerRef.Name)
	}
	return template.New(present.server, s.templates), nil
}

// await returns the session of a vCenter. A new leader connects to vCenters while it observes the machines: without a
// short wait all of them would be reported as unreachable.
func (s *Sessions) await(ctx context.Context, name string) *vcenter {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	for {
		s.mu.Lock()
		if s.begun.IsZero() {
			s.begun = time.Now()
		}
		if s.changed == nil {
			s.changed = make(chan struct{})
		}
		present, changed, late := s.all[name], s.changed, time.Since(s.begun) > startPatience
		s.mu.Unlock()
		if present != nil || late || ctx.Err() != nil {
			return present
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}
