package vsphere

import (
	"context"
	"fmt"
	"net/url"
	"sync"
	"time"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// startPatience is how long, from when machines are first looked at, they wait for their vCenter to be reached.
const startPatience = 5 * time.Second

// logoutPatience is how long a vCenter has for a logout.
const logoutPatience = 5 * time.Second

// Sessions keeps a session with each vCenter, by the name of its VSphereServer: who reconciles VSphereServers makes them, machines are
// run on them. It is safe for concurrent use.
type Sessions struct {
	tenancy   tenancy
	templates templateTenancy
	told      func(context.Context, runtime.Change)

	mu      sync.Mutex
	all     map[string]*vcenter
	changed chan struct{} // closed when another vCenter is reached
	begun   time.Time     // when the first machine asked for its runtime
	closing sync.WaitGroup
	living  context.Context // ends with Close
	die     context.CancelFunc
}

// NewSessions gives none yet. Whether a machine, a disk or a template may be where it is, the tenants say; without any for disks or for
// templates none may. What changes is told, in a call that may wait until its context ends; each session has one watch for all of its
// machines.
func NewSessions(tenants Tenants, disks DiskTenants, templates TemplateTenants, told func(context.Context, runtime.Change)) *Sessions {
	s := &Sessions{tenancy: tenancy{tenants, disks}, templates: templateTenancy{templates}, told: told}
	s.living, s.die = context.WithCancel(context.Background())
	return s
}

// Connection is how a vCenter is reached, and as whom. Two that are equal are one session.
type Connection struct {
	// URL, CABundle and Thumbprint are as in [Config].
	URL        string
	CABundle   string
	Thumbprint string
	// Username and Password are those of the login.
	Username string
	Password runtime.Secret
}

// vcenter is one vCenter, as it was told to be reached.
type vcenter struct {
	connection Connection
	server     *Server
	runtime    *Runtime
	unwatch    context.CancelFunc
	unwatched  chan struct{} // closed when the watch has ended
}

// Connect sees to it that there is a session that was made with that connection, in the place of any other, and asks the vCenter
// what it is.
func (s *Sessions) Connect(ctx context.Context, name string, connection Connection) (About, error) {
	present, err := s.reach(name, connection)
	if err != nil {
		return About{}, err
	}
	return present.server.About(ctx)
}

// reach gives the session of that connection, a new one in the place of one that was made otherwise.
func (s *Sessions) reach(name string, connection Connection) (*vcenter, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	present := s.all[name]
	if present != nil && present.connection == connection {
		return present, nil
	}
	server, err := NewServer(Config{
		Name: name, URL: connection.URL, CABundle: []byte(connection.CABundle), Thumbprint: connection.Thumbprint,
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
	next := &vcenter{connection: connection, server: server, runtime: New(server), unwatched: make(chan struct{})}
	watching, unwatch := context.WithCancel(s.living)
	next.unwatch = unwatch
	s.closing.Go(func() {
		defer close(next.unwatched)
		s.watch(watching, name, next.runtime)
	})
	s.all[name] = next
	return next, nil
}

// The bounds of the wait before changes are watched again, after that has failed. For so long a change may go unnoticed.
const firstWatch, lastWatch = time.Second, 30 * time.Second

// watch tells of the changes of a vCenter until ctx ends. While they cannot be watched any machine may have changed.
func (s *Sessions) watch(ctx context.Context, name string, rt *Runtime) {
	between := pauses(firstWatch, lastWatch)
	for ctx.Err() == nil {
		_ = rt.Watch(ctx, func(id string) { // who looks at a machine is told what is wrong
			between = pauses(firstWatch, lastWatch)
			s.told(ctx, runtime.Change{Server: name, InstanceID: id})
		})
		if ctx.Err() != nil {
			return
		}
		s.told(ctx, runtime.Change{Server: name})
		_ = pause(ctx, between)
	}
}

// Inventory returns the hosts and places of a connected vCenter; of places only those that a tenant allows.
func (s *Sessions) Inventory(ctx context.Context, name string, tenants []v1alpha1.VSphereTenant) (Inventory, error) {
	s.mu.Lock()
	present := s.all[name]
	s.mu.Unlock()
	if present == nil {
		return Inventory{}, notConnected(name)
	}
	return present.server.Inventory(ctx, tenants)
}

func notConnected(name string) error {
	return runtime.NewUnavailable(nil, "%s", notConnectedText(name))
}

// notConnectedText says that a VSphereServer is gone, or another than it was.
func notConnectedText(name string) string {
	return fmt.Sprintf("VSphereServer %s does not exist, or is not connected yet: see its condition Ready", name)
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
	s.closing.Go(func() { s.told(s.living, runtime.Change{Server: name}) })
}

// leave logs out, without waiting for it. Calls that are under way end.
func (s *Sessions) leave(present *vcenter) {
	if present == nil {
		return
	}
	present.unwatch()
	s.closing.Go(func() {
		<-present.unwatched
		ctx, cancel := context.WithTimeout(context.Background(), logoutPatience)
		defer cancel()
		_ = present.server.Close(ctx) // a session that cannot be ended ends by itself when it has been idle
	})
}

// Close logs out everywhere, and waits for that.
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

// Runtime returns the runtime of a machine: that of its vCenter, as far as the tenants let the machine be there.
func (s *Sessions) Runtime(ctx context.Context, vm *v1alpha1.VirtualMachine) (*runtime.Client, error) {
	rt, err := s.runtime(ctx, vm)
	if err != nil {
		return nil, err
	}
	return runtime.NewClient(rt, s.tenancy.of(vm, rt.Path), s.tenancy.ofDisks), nil
}

// runtime gives that of its vCenter, which has the tenants judge what it makes.
func (s *Sessions) runtime(ctx context.Context, vm *v1alpha1.VirtualMachine) (*Runtime, error) {
	name := vm.Spec.Runtime.VSphere.ServerRef.Name
	present := s.await(ctx, name)
	if present == nil {
		return nil, notConnected(name)
	}
	return &Runtime{server: present.server, judge: s.tenancy.making(vm)}, nil
}

// DiskRuntime returns the runtime of a disk: that of its vCenter, as far as the tenants let the disk be there. It is not one for machines.
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

// await gives the session with a vCenter that is reached. A process that has just begun to lead reaches them at the same time as it
// looks at the machines: without waiting a moment it would show all of them as out of reach.
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
