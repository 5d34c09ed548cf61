package machine

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
	kubetypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/commands"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/session"
)

// sighting is a machine as read from vCenter.
type sighting struct {
	vm          mo.VirtualMachine
	user        string            // our user as vCenter names it
	host        string            // name of its host
	extraConfig map[string]string // values of our keys
	tasks       []types.TaskInfo  // recent tasks, oldest first

	// Only read for a machine that may have VirtualDisks.
	disks []attachment // those that it has
	boot  []types.BaseVirtualMachineBootOptionsBootableDevice
}

func (s *sighting) owner() kubetypes.UID { return kubetypes.UID(s.extraConfig[OwnerKey]) }

var powers = map[types.VirtualMachinePowerState]v1alpha1.PowerState{
	types.VirtualMachinePowerStatePoweredOn:  v1alpha1.PowerRunning,
	types.VirtualMachinePowerStatePoweredOff: v1alpha1.PowerStopped,
	types.VirtualMachinePowerStateSuspended:  v1alpha1.PowerPaused,
}

func (s *sighting) power() v1alpha1.PowerState { return powers[s.vm.Runtime.PowerState] }

// incarnation returns the current incarnation.
func (s *sighting) incarnation() string {
	boot, count := s.vm.Summary.Runtime.BootTime, parsePowerOns(s.extraConfig[PowerOnsKey])
	moved := parseMove(s.extraConfig[MoveKey])
	if boot == nil && s.power() != v1alpha1.PowerStopped && moved.at.After(count.at) {
		// vCenter has forgotten the time of the power-on when the machine was moved.
		return moved.incarnation
	}
	return count.incarnation(boot)
}

// place is where a machine may be: how to search for it, the place's name in messages, and whether the spec names it,
// so that a machine there may be adopted.
type place struct {
	name      string
	find      func(ctx context.Context, c *vim25.Client) (*types.ManagedObjectReference, error)
	adoptable bool
}

// places returns where the machine may be, most certain first. An instance UUID finds it wherever it was moved and
// whatever its name is, and distinguishes it from a copy with the same mark.
func places(m runtime.Machine) ([]place, error) {
	if m.UID == "" {
		return nil, runtime.NewInvalidState(nil, "VirtualMachine %s has no UID", m)
	}
	if m.Spec == nil || m.Spec.Runtime.VSphere == nil {
		return nil, runtime.NewNotSupported(nil, "VirtualMachine %s is not one of a vCenter", m)
	}
	spec := m.Spec.Runtime.VSphere
	named := byUUID(string(m.UID)) // the instance UUID of a created machine
	switch {
	case spec.Clone != nil:
	case spec.InventoryPath != "":
		named = byPath(spec.InventoryPath)
	default:
		named = byUUID(spec.InstanceUUID)
	}
	named.adoptable = spec.Clone == nil
	if m.InstanceID == "" || named.name == byUUID(m.InstanceID).name {
		return []place{named}, nil
	}
	return []place{byUUID(m.InstanceID), named}, nil
}

// The helpers of package object panic at a path to an object of a type that they do not know.

func byUUID(uuid string) place {
	uuid = strings.ToLower(uuid)
	return place{name: "with the instance UUID " + uuid,
		find: func(ctx context.Context, c *vim25.Client) (*types.ManagedObjectReference, error) {
			return session.FindByUUID(ctx, c, uuid, true)
		}}
}

func byPath(path string) place {
	return place{name: "at " + path,
		find: func(ctx context.Context, c *vim25.Client) (*types.ManagedObjectReference, error) {
			return session.FindByPath(ctx, c, path)
		}}
}

// find searches for the machine. If no machine has its mark, find returns the one that the spec names, if that has no
// mark, or nil; mine is then false.
func (r *Runtime) find(ctx context.Context, m runtime.Machine) (s *sighting, mine bool, err error) {
	all, err := places(m)
	if err != nil {
		return nil, false, err
	}
	var unmarked *sighting
	var foreign error
	for _, p := range all {
		s, err := r.readAt(ctx, p, m.Disks)
		switch {
		case err != nil:
			return nil, false, err
		case s == nil:
		case s.owner() == m.UID && p.adoptable && m.InstanceID != "" && !strings.EqualFold(m.InstanceID, s.vm.Config.InstanceUuid):
			foreign = s.copied(p, m) // the adopted machine is no longer there
		case s.owner() == m.UID:
			return s, true, nil
		case s.owner() == "":
			// The ID alone gives no right to the machine. A machine at the place of one that was observed before is
			// that machine without its mark, or another one that the spec did not request.
			if p.adoptable && (m.InstanceID == "" || strings.EqualFold(m.InstanceID, s.vm.Config.InstanceUuid)) {
				unmarked = s
			}
		case p.adoptable && m.InstanceID == "" && m.Earlier == runtime.TakeOver && ofName(&s.vm, m):
			unmarked = s
		case foreign == nil:
			foreign = s.ofAnother(p, m)
		}
	}
	if foreign != nil {
		return nil, false, foreign
	}
	return unmarked, false, nil
}

// copied returns the error for a machine with the mark of m that is not the adopted one: copies inherit the mark.
func (s *sighting) copied(p place, m runtime.Machine) error {
	return runtime.NewOwnedByAnother(nil, "spec.runtime.vsphere: the machine %s has the instance UUID %s, not %s (status.instanceID): it is a copy of the "+
		"machine that was adopted. Put that one back, or, to adopt the copy, delete VirtualMachine %s and create it again, and remove %s from the copy's "+
		"extraConfig", p.name, s.vm.Config.InstanceUuid, m.InstanceID, m.Name, OwnerKey)
}

// ofAnother returns the error for a machine with another owner's mark. The owner is only named if it is in m's
// namespace.
func (s *sighting) ofAnother(p place, m runtime.Machine) error {
	whose, wayOut := "another VirtualMachine", ""
	switch namespace, name, _ := strings.Cut(s.extraConfig[NameKey], "/"); {
	case namespace != m.Namespace || len(validation.IsDNS1123Subdomain(name)) > 0:
	case name == m.Name:
		whose = "another VirtualMachine of this name, an earlier one or one in another cluster"
		wayOut = ", or take it over: " + commands.Line("kubectl", "sallyport", "take-over", "svm", m.Name, "-n", m.Namespace)
	default:
		whose = "VirtualMachine " + name + " of this namespace"
		wayOut = ", or delete VirtualMachine " + name + ", which leaves the machine as it is"
	}
	return runtime.NewOwnedByAnother(nil, "spec.runtime.vsphere: the machine %s belongs to %s, or is a copy of a machine that does. Name "+
		"another machine%s. If it is a copy, or its VirtualMachine no longer exists, remove %s from its extraConfig in vCenter "+
		"(docs/vsphere.md, What Sallyport leaves on a machine)", p.name, whose, wayOut, OwnerKey)
}

// readAt reads the machine at a place with the disks that it may have, nil if there is none.
func (r *Runtime) readAt(ctx context.Context, p place, disks []runtime.Disk) (*sighting, error) {
	var ref *types.ManagedObjectReference
	err := r.Call(ctx, func(c *vim25.Client) (err error) {
		ref, err = p.find(ctx, c)
		return err
	})
	if err != nil || ref == nil || ref.Type != "VirtualMachine" {
		return nil, err
	}
	s, err := r.readMachine(ctx, *ref, disks)
	if runtime.IsNotFound(err) {
		return nil, nil // it was removed in the meantime
	}
	return s, err
}

// remedies are the remedies for a machine to which vCenter has no connection.
var remedies = map[types.VirtualMachineConnectionState]string{
	types.VirtualMachineConnectionStateDisconnected: "reconnect its host",
	types.VirtualMachineConnectionStateInaccessible: "give its host access to the files of the machine again",
	types.VirtualMachineConnectionStateInvalid:      "repair or restore its configuration file",
	types.VirtualMachineConnectionStateOrphaned:     "register it on its host again, or remove it from the inventory",
}

// readMachine reads the machine's tasks and then the machine, in two requests: vCenter also reads objects one after another
// within a request, in unknown order. Which of the disks it has is read last: the task of a disk that was attached in between was in flight.
func (r *Runtime) readMachine(ctx context.Context, ref types.ManagedObjectReference, disks []runtime.Disk) (*sighting, error) {
	s := &sighting{}
	err := r.Retrieve(ctx, types.PropertyFilterSpec{
		ObjectSet: []types.ObjectSpec{{Obj: ref, Skip: new(true), SelectSet: []types.BaseSelectionSpec{
			&types.TraversalSpec{Type: "VirtualMachine", Path: "recentTask"},
		}}},
		PropSet: []types.PropertySpec{{Type: "Task", PathSet: []string{"info"}}},
	}, session.Only(func(task mo.Task) { s.tasks = append(s.tasks, task.Info) }))
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(s.tasks, func(a, b types.TaskInfo) int { return a.QueueTime.Compare(b.QueueTime) })
	err = r.Retrieve(ctx, types.PropertyFilterSpec{
		ObjectSet: []types.ObjectSpec{{Obj: ref, SelectSet: []types.BaseSelectionSpec{
			&types.TraversalSpec{Type: "VirtualMachine", Path: "runtime.host"},
		}}},
		PropSet: []types.PropertySpec{{Type: "VirtualMachine", PathSet: append([]string{
			"config.changeVersion", "config.extraConfig", "config.instanceUuid", "config.template",
			"config.hardware.numCPU", "config.hardware.numCoresPerSocket", "config.hardware.memoryMB", "config.cpuHotAddEnabled",
			"config.memoryHotAddEnabled", "config.hotPlugMemoryIncrementSize", "config.hotPlugMemoryLimit",
			"resourcePool", "runtime.connectionState", "runtime.host", "runtime.powerState", "summary.runtime.bootTime",
		}, ofGuest...)}, {Type: "HostSystem", PathSet: []string{"name"}}},
	}, func(object any) {
		switch object := object.(type) {
		case mo.VirtualMachine:
			s.vm = object
		case mo.HostSystem:
			s.host = object.Name
		}
	})
	if err != nil {
		return nil, err
	}
	if s.vm.Self.Value == "" {
		return nil, runtime.NewNotFound(nil, "vCenter %s no longer has the machine", r.Config.Name)
	}
	if state := s.vm.Runtime.ConnectionState; state != types.VirtualMachineConnectionStateConnected {
		return nil, runtime.NewDisconnected("vCenter %s shows the machine as %s, with its last known state: %s",
			r.Config.Name, state, remedies[state])
	}
	if s.vm.Config == nil {
		return nil, runtime.NewUnavailable(nil, "vCenter %s does not show the machine's configuration", r.Config.Name)
	}
	s.extraConfig, s.user = ExtraConfigOf(&s.vm), r.User()
	return s, r.readDisks(ctx, s, disks)
}

// readDisks reads the devices of a machine that may have VirtualDisks.
func (r *Runtime) readDisks(ctx context.Context, s *sighting, disks []runtime.Disk) error {
	if !slices.ContainsFunc(disks, func(d runtime.Disk) bool { return d.ID != "" }) {
		return nil
	}
	var vm mo.VirtualMachine
	if err := r.Read(ctx, s.vm.Self, &vm, "config.bootOptions", "config.hardware.device"); err != nil {
		return err
	}
	if vm.Config == nil {
		return runtime.NewUnavailable(nil, "vCenter %s does not show the machine's devices", r.Config.Name)
	}
	s.disks = attachmentsOf(vm.Config.Hardware.Device, disks)
	if boot := vm.Config.BootOptions; boot != nil {
		s.boot = boot.BootOrder
	}
	return nil
}

// settling is how long a call waits for a reconfiguration in flight.
const settling = time.Second

// settled is find for calls that change something. It waits a moment for a reconfiguration in flight, as after the
// lost reply to one of our own, so that such a call can be repeated.
func (r *Runtime) settled(ctx context.Context, m runtime.Machine) (s *sighting, mine bool, err error) {
	began, waits := time.Now(), session.Briefly()
	for {
		s, mine, err = r.find(ctx, m)
		if err != nil || s == nil || !slices.ContainsFunc(s.inFlight(), reconfigures) || time.Since(began) > settling {
			return s, mine, err
		}
		if err := session.Pause(ctx, waits); err != nil {
			return nil, false, r.Translate(ctx, err)
		}
	}
}

// existing is settled for calls that need the machine.
func (r *Runtime) existing(ctx context.Context, m runtime.Machine) (*sighting, error) {
	s, mine, err := r.settled(ctx, m)
	switch {
	case err != nil:
		return nil, err
	case mine:
		return s.usable()
	case s != nil:
		return nil, runtime.NewNotFound(nil, "the machine of VirtualMachine %s is not adopted", m)
	default:
		return nil, r.absent(ctx, m)
	}
}

// usable returns the machine, or an error if it cannot be changed.
func (s *sighting) usable() (*sighting, error) {
	if why := s.unusable(); why != "" {
		return nil, runtime.NewInvalidState(nil, "%s", why)
	}
	return s, nil
}

// absent returns the error for a machine that is not where its spec says. A BIOS UUID is not unique: the error only
// says whether a machine has it, because that may belong to another namespace.
func (r *Runtime) absent(ctx context.Context, m runtime.Machine) error {
	server, spec := r.Config.Name, m.Spec.Runtime.VSphere
	if spec.Clone != nil {
		return runtime.NewNotFound(nil, "vCenter %s has no machine that was created for VirtualMachine %s, or does not show it", server, m)
	}
	if spec.InventoryPath != "" {
		return runtime.NewNotFound(nil, "spec.runtime.vsphere.inventoryPath: vCenter %s has no machine at %s, or does not show it",
			server, spec.InventoryPath)
	}
	var ref *types.ManagedObjectReference
	if err := r.Call(ctx, func(c *vim25.Client) (err error) {
		ref, err = session.FindByUUID(ctx, c, spec.InstanceUUID, false)
		return err
	}); err == nil && ref != nil {
		return runtime.NewNotFound(nil, "spec.runtime.vsphere.instanceUUID: %s is the BIOS UUID of a machine in vCenter %s (uuid.bios), and no "+
			"instance UUID: use its instance UUID (vc.uuid, in govc vm.info -json: config.instanceUuid), or its inventory path", spec.InstanceUUID, server)
	}
	return runtime.NewNotFound(nil, "spec.runtime.vsphere.instanceUUID: vCenter %s has no machine with the instance UUID %s, or does not "+
		"show it", server, spec.InstanceUUID)
}
