package machine

import (
	"context"
	"slices"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/inventory"
)

// Migrate moves the machine to another host of its cluster. Its disks are not moved.
func (r *Runtime) Migrate(ctx context.Context, m runtime.Machine, target runtime.Target) error {
	return Decide(func() error { return r.migrate(ctx, m, target) })
}

func (r *Runtime) migrate(ctx context.Context, m runtime.Machine, target runtime.Target) error {
	s, err := r.existing(ctx, m)
	if err != nil {
		return err
	}
	if target.NodeName == "" && target.Leave == "" {
		target.Leave = s.host
	}
	joined, err := s.busy(runtime.TaskRelocate)
	if err != nil {
		return err
	}
	wanted, goes := inventory.Selected(m.Spec.NodeSelector, target.NodeSelector), s.host
	if joined {
		goes = s.destination()
	}
	switch there, err := r.there(ctx, s, goes, target, wanted); {
	case err != nil:
		return err
	case there:
		return nil
	case joined:
		return runtime.NewInvalidState(nil, "another move is in flight for the machine")
	}
	host, err := r.choose(ctx, s, target, wanted)
	if err != nil {
		return err
	}
	now, err := r.Now(ctx)
	if err != nil {
		return err
	}
	note := move{at: now, incarnation: s.incarnation(), host: host.Name}
	if err := r.write(ctx, s, map[string]string{MoveKey: note.String()}); err != nil {
		return err
	}
	return r.begin(ctx, s, func(vm *object.VirtualMachine) (*object.Task, error) {
		return vm.Relocate(ctx, types.VirtualMachineRelocateSpec{Host: &host.Self, Pool: s.vm.ResourcePool}, priority(target))
	})
}

// priority returns the priority of a move: with high priority vCenter reserves the CPU that the move needs to
// converge.
func priority(target runtime.Target) types.VirtualMachineMovePriority {
	if target.Force {
		return types.VirtualMachineMovePriorityHighPriority
	}
	return types.VirtualMachineMovePriorityDefaultPriority
}

// meets reports whether a host matches the target, apart from tags.
func meets(host string, target runtime.Target) bool {
	if target.NodeName != "" {
		return host == target.NodeName
	}
	return host != target.Leave
}

// there reports whether a machine already is on, or moves to, a suitable host. It reads tags only if they matter.
func (r *Runtime) there(ctx context.Context, s *sighting, goes string, target runtime.Target, wanted inventory.Selection) (bool, error) {
	if goes == "" || !meets(goes, target) || len(wanted) == 0 {
		return goes != "" && meets(goes, target), nil
	}
	hosts, needs, err := r.around(ctx, s, wanted)
	return slices.ContainsFunc(hosts, func(host mo.HostSystem) bool {
		return host.Name == goes && slices.Contains(needs.Tagged, host.Self)
	}), err
}

// destination returns the target host of the relocation in flight, "" if unknown, as for one that another client
// started.
func (s *sighting) destination() string {
	for _, info := range s.inFlight() {
		if kindOf(info) == runtime.TaskRelocate && s.ours(info) {
			return parseMove(s.extraConfig[MoveKey]).host
		}
	}
	return ""
}

func (r *Runtime) choose(ctx context.Context, s *sighting, target runtime.Target, wanted inventory.Selection) (mo.HostSystem, error) {
	hosts, needs, err := r.around(ctx, s, wanted)
	if err != nil {
		return mo.HostSystem{}, err
	}
	if target.NodeName != "" {
		needs.Memory = 0 // for a named host, vCenter checks the memory
		host, lacks := inventory.HostNamed(hosts, target.NodeName, needs)
		if lacks != "" {
			return mo.HostSystem{}, runtime.NewInvalidState(nil, "%s", lacks)
		}
		return *host, nil
	}
	hosts = slices.DeleteFunc(hosts, func(host mo.HostSystem) bool { return !meets(host.Name, target) })
	host := needs.Best(hosts)
	if host == nil {
		return mo.HostSystem{}, runtime.NewInvalidState(nil, "no other host of the machine's cluster %s", needs)
	}
	return *host, nil
}
