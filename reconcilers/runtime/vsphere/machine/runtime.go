// Package machine runs machines in a vCenter. It adopts existing machines, marks them as a VirtualMachine's, and
// releases them unchanged; and it clones machines from templates, and destroys them.
//
// State that must survive a lost reply or this process is kept in the machine's extraConfig, and written under
// vCenter's optimistic lock, the changeVersion.
package machine

import (
	"context"
	"errors"
	"slices"

	"github.com/vmware/govmomi/fault"
	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"
	"golang.org/x/sync/singleflight"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/inventory"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/session"
)

// Runtime runs the machines of one vCenter. It keeps no state but what it has read recently.
type Runtime struct {
	*inventory.Center
	placeCheck PlaceCheck
	shared     *shared // with the other runtimes of the session
}

// shared is what a session has read of the marks of all machines.
type shared struct {
	lookups  singleflight.Group // by folder
	machines markedMachines
}

// New returns the runtime for machines of that vCenter, without tenancy. The caller knows which vCenter a machine is
// in.
func New(server *session.Server) *Runtime {
	return &Runtime{Center: &inventory.Center{Server: server}, placeCheck: allowAnywhere, shared: &shared{}}
}

// Restricted returns a runtime that asks check before it creates a machine.
func (r *Runtime) Restricted(check PlaceCheck) *Runtime {
	restricted := *r
	restricted.placeCheck = check
	return &restricted
}

// Observe observes the machine.
func (r *Runtime) Observe(ctx context.Context, m runtime.Machine) (runtime.Observation, error) {
	if cloneOf(m) != nil {
		s, attempts, err := r.findMade(ctx, m)
		if err != nil || s == nil {
			return runtime.Observation{InFlight: attempts.running(), LastFailure: attempts.lastFailure()}, err
		}
		return s.observation(m), nil
	}
	s, mine, err := r.find(ctx, m)
	if err != nil || s == nil {
		return runtime.Observation{}, err
	}
	seen := s.observation(m)
	if !mine && s.owner() == "" {
		return seen.BeforeAdoption(), nil
	}
	if !mine { // an earlier VirtualMachine's, to be taken over
		seen = runtime.Observation{InFlight: seen.InFlight, LastFailure: seen.LastFailure}
	}
	return seen, nil
}

func (s *sighting) observation(m runtime.Machine) runtime.Observation {
	seen := runtime.Observation{
		Exists: true, Adopted: !s.made(m), InstanceID: s.vm.Config.InstanceUuid,
		Differences: s.differences(m), Disks: s.attached(),
		Power: s.power(), Incarnation: s.incarnation(), NodeName: s.host, LastFailure: s.lastFailure(),
		Guest: s.guest(), Question: s.question(), Unusable: s.unusable(),
	}
	if s.made(m) {
		seen.Template = madeFrom(s.extraConfig[MadeFromKey])
	}
	for _, info := range s.inFlight() {
		seen.InFlight = append(seen.InFlight,
			runtime.Task{ID: info.Task.Value, Kind: kindOf(info), Ours: s.ours(info), By: s.by(info), Progress: percent(info)})
	}
	return seen
}

// unusable returns a message if the machine was marked as a template. vCenter then accepts only changes of its name
// and notes.
func (s *sighting) unusable() string {
	if !s.vm.Config.Template {
		return ""
	}
	return "the machine is marked as a template in vCenter, so that it can be neither started nor changed: convert it to a virtual machine " +
		"there (in the vSphere Client, or with govc vm.markasvm)"
}

// Decide calls begin, which reads the machine and starts what is due. If vCenter rejects that because the machine has
// changed meanwhile, for example because its guest has shut down, it calls begin once more.
func Decide(begin func() error) error {
	err := begin()
	var answer types.BaseMethodFault
	if _, refused := fault.As(err, &answer); refused && runtime.IsInvalidState(err) {
		return begin()
	}
	return err
}

// Ensure adopts the machine that the spec names, or starts to clone one.
func (r *Runtime) Ensure(ctx context.Context, m runtime.Machine) (instanceID string, err error) {
	get := r.adopt
	if cloneOf(m) != nil {
		get = r.clone
	}
	err = Decide(func() (err error) {
		instanceID, err = get(ctx, m)
		return err
	})
	return instanceID, err
}

func (r *Runtime) adopt(ctx context.Context, m runtime.Machine) (instanceID string, err error) {
	s, mine, err := r.settled(ctx, m)
	switch {
	case err != nil:
		return "", err
	case s == nil:
		return "", r.absent(ctx, m)
	case mine:
		return s.vm.Config.InstanceUuid, nil
	case s.vm.Config.Template:
		return "", runtime.NewInvalidSpec(nil, "spec.runtime.vsphere: %s, or name another machine", s.unusable())
	}
	if err := r.write(ctx, s, map[string]string{OwnerKey: string(m.UID), NameKey: m.String()}); err != nil {
		return "", err
	}
	// The lock has excluded concurrent adoptions; this is confirmed by a read, once in a machine's life.
	seen, err := r.readMachine(ctx, s.vm.Self, nil)
	if err != nil {
		return "", runtime.NewUnavailable(err, "vCenter %s did not show the machine after it was adopted", r.Config.Name)
	}
	if seen.owner() != m.UID {
		return "", runtime.NewOwnedByAnother(nil, "the machine was adopted by another VirtualMachine at the same time")
	}
	return seen.vm.Config.InstanceUuid, nil
}

// PowerOn powers the machine on. The power-on is counted before it is requested.
func (r *Runtime) PowerOn(ctx context.Context, m runtime.Machine) error {
	return Decide(func() error { return r.powerOn(ctx, m) })
}

func (r *Runtime) powerOn(ctx context.Context, m runtime.Machine) error {
	s, err := r.existing(ctx, m)
	if err != nil {
		return err
	}
	if s.power() == v1alpha1.PowerRunning && !s.has(runtime.TaskPowerOff) {
		return nil
	}
	if joined, err := s.busy(runtime.TaskPowerOn); err != nil || joined {
		return err
	}
	var host *types.ManagedObjectReference
	if s.power() == v1alpha1.PowerStopped {
		if host, err = r.hostToStart(ctx, s, m); err != nil {
			return err
		}
		now, err := r.Now(ctx)
		if err != nil {
			return err
		}
		next := powerOns{count: parsePowerOns(s.extraConfig[PowerOnsKey]).count + 1, at: now}
		if err := r.prepare(ctx, s, m, next); err != nil {
			return err
		}
	}
	return r.Call(ctx, func(c *vim25.Client) error {
		_, err := methods.PowerOnVM_Task(ctx, c, &types.PowerOnVM_Task{This: s.vm.Self, Host: host})
		return err
	})
}

// prepare counts a power-on and applies the size of the spec, in one reconfiguration. vCenter accepts any count, so a
// rejection of the content is due to the size.
func (r *Runtime) prepare(ctx context.Context, s *sighting, m runtime.Machine, next powerOns) error {
	spec := s.noting(map[string]string{PowerOnsKey: next.String()})
	differ := s.differences(m)
	fields := fieldsOf(differ, false)
	resize(&spec, m, s.vm.Config.Hardware.NumCoresPerSocket, fields...)
	if slices.Contains(fields, bootField) {
		s.bootFirst(&spec, m)
	}
	err := r.Reconfigure(ctx, &s.vm, spec)
	if cause, is := errors.AsType[*runtime.Error](err); is && len(differ) > 0 && RejectsSize(err) {
		return runtime.NewInvalidSpec(err, "%s: %s", differ[0].Field, cause.Message)
	}
	return err
}

// RejectsSize reports whether vCenter rejected a configuration for its content, and not for its timing.
func RejectsSize(err error) bool {
	var answer types.BaseMethodFault
	if _, refused := fault.As(err, &answer); !refused || !runtime.IsInvalidState(err) {
		return false
	}
	switch answer.(type) {
	case *types.ConcurrentAccess, *types.TaskInProgress, *types.InvalidPowerState:
		return false
	}
	return true
}

// PowerOff requests a guest shutdown, or cuts the power.
func (r *Runtime) PowerOff(ctx context.Context, m runtime.Machine, mode runtime.Mode) error {
	return Decide(func() error { return r.powerOff(ctx, m, mode) })
}

func (r *Runtime) powerOff(ctx context.Context, m runtime.Machine, mode runtime.Mode) error {
	s, err := r.existing(ctx, m)
	if err != nil {
		return err
	}
	if s.power() == v1alpha1.PowerStopped && !s.has(runtime.TaskPowerOn) {
		return nil
	}
	if joined, err := s.busy(runtime.TaskPowerOff); err != nil || joined {
		return err
	}
	if mode == runtime.Forced {
		return r.begin(ctx, s, func(vm *object.VirtualMachine) (*object.Task, error) { return vm.PowerOff(ctx) })
	}
	if s.power() == v1alpha1.PowerPaused {
		return runtime.NewInvalidState(nil, "the machine is paused, so its guest cannot be asked to shut down: start it first, or use --force")
	}
	return r.Call(ctx, func(c *vim25.Client) error {
		return object.NewVirtualMachine(c, s.vm.Self).ShutdownGuest(ctx)
	})
}

func (r *Runtime) begin(ctx context.Context, s *sighting, task func(*object.VirtualMachine) (*object.Task, error)) error {
	return r.Call(ctx, func(c *vim25.Client) error {
		_, err := task(object.NewVirtualMachine(c, s.vm.Self))
		return err
	})
}

// Cancel asks vCenter to cancel that task, if it is a power-on or a relocation of ours.
func (r *Runtime) Cancel(ctx context.Context, m runtime.Machine, task string) error {
	s, mine, err := r.find(ctx, m)
	if err != nil || !mine {
		return err
	}
	for _, info := range s.inFlight() {
		if info.Task.Value != task || !s.ours(info) || !info.Cancelable || info.Cancelled {
			continue
		}
		return r.Call(ctx, func(c *vim25.Client) error {
			err := object.NewTask(c, info.Task).Cancel(ctx)
			if ended(err) {
				return nil
			}
			return err
		})
	}
	return nil
}

// ended reports whether a task could not be canceled because it has ended, or cannot be stopped.
func ended(err error) bool {
	return fault.Is(err, &types.InvalidState{}) || fault.Is(err, &types.NotSupported{}) ||
		fault.Is(err, &types.ManagedObjectNotFound{})
}

// Delete destroys a machine that was created; from an adopted one it removes the mark and leaves it unchanged.
func (r *Runtime) Delete(ctx context.Context, m runtime.Machine) error {
	return Decide(func() error { return r.remove(ctx, m) })
}

func (r *Runtime) remove(ctx context.Context, m runtime.Machine) error {
	s, err := r.removable(ctx, m)
	if err != nil || s == nil {
		return err
	}
	if joined, err := s.busy(runtime.TaskDelete); err != nil || joined {
		return err
	}
	if s.made(m) {
		return r.destroy(ctx, s)
	}
	return r.write(ctx, s, map[string]string{OwnerKey: "", NameKey: ""})
}

// removable returns the machine if it is ours, nil if there is none. A machine being created must be waited for.
func (r *Runtime) removable(ctx context.Context, m runtime.Machine) (*sighting, error) {
	s, mine, err := r.settled(ctx, m)
	switch {
	case err != nil:
		return nil, err
	case mine:
		return s.usable()
	case cloneOf(m) == nil:
		return nil, nil
	}
	s, attempts, err := r.findMade(ctx, m)
	switch {
	case len(attempts.running()) > 0:
		return nil, runtime.NewInvalidState(nil, "the machine is being created")
	case s == nil || err != nil:
		return nil, err
	}
	return s.usable()
}

// Path returns the current inventory path of the machine, such as /DC0/vm/web/web-1, of any owner. If there
// is no machine, it returns a NotFound error.
func (r *Runtime) Path(ctx context.Context, m runtime.Machine) (path string, err error) {
	s, _, err := r.find(ctx, m)
	if err != nil {
		return "", err
	}
	if s == nil {
		return "", r.absent(ctx, m)
	}
	err = r.Call(ctx, func(c *vim25.Client) error {
		path, err = find.InventoryPath(ctx, c, s.vm.Self)
		return err
	})
	return path, err
}
