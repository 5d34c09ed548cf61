package vsphere

import (
	"context"
	"slices"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"sallyport.dev/sallyport/reconcilers/runtime"
)

// Migrate moves the machine to another host of its cluster. Its disks stay where they are.
func (r *Runtime) Migrate(ctx context.Context, m runtime.Machine, target runtime.Target) error {
	return decide(func() error { return r.migrate(ctx, m, target) })
}

func (r *Runtime) migrate(ctx context.Context, m runtime.Machine, target runtime.Target) error {
	s, err := r.existing(ctx, m)
	if err != nil {
		return err
	}
	if len(target.NodeSelector) > 0 {
		return runtime.NewInvalidState(nil, "the hosts of a vCenter have no labels that a node selector could match")
	}
	if target.NodeName == "" && target.Leave == "" {
		target.Leave = s.host
	}
	joined, err := s.busy(runtime.TaskRelocate)
	if err != nil {
		return err
	}
	if joined {
		if goes := s.destination(); goes == "" || !meets(goes, target) {
			return runtime.NewInvalidState(nil, "another move is in flight for the machine")
		}
		return nil
	}
	if meets(s.host, target) {
		return nil
	}
	host, err := r.choose(ctx, s, target)
	if err != nil {
		return err
	}
	now, err := r.now(ctx)
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

// priority is how much of a host's processor a move may take: with high priority vCenter reserves what it needs to converge.
func priority(target runtime.Target) types.VirtualMachineMovePriority {
	if target.Force {
		return types.VirtualMachineMovePriorityHighPriority
	}
	return types.VirtualMachineMovePriorityDefaultPriority
}

// meets reports whether a machine on that host has no need to move.
func meets(host string, target runtime.Target) bool {
	if target.NodeName != "" {
		return host == target.NodeName
	}
	return host != target.Leave
}

// destination gives the host that the relocation in flight goes to, and nothing if it is not known, as of one that
// somebody else began.
func (s *sighting) destination() string {
	for _, info := range s.inFlight() {
		if kindOf(info) == runtime.TaskRelocate && s.ours(info) {
			return parseMove(s.keys[MoveKey]).host
		}
	}
	return ""
}

// choose gives the host to move to, of those that share the machine's resource pool: its cluster.
func (r *Runtime) choose(ctx context.Context, s *sighting, target runtime.Target) (mo.HostSystem, error) {
	if s.vm.Runtime.Host == nil {
		return mo.HostSystem{}, runtime.NewInvalidState(nil, "the machine is on no host from which it could be moved")
	}
	var vm mo.VirtualMachine
	if err := r.read(ctx, s.vm.Self, &vm, "datastore", "network", "summary.config.memorySizeMB"); err != nil {
		return mo.HostSystem{}, err
	}
	var from mo.HostSystem
	if err := r.read(ctx, *s.vm.Runtime.Host, &from, "parent"); err != nil {
		return mo.HostSystem{}, err
	}
	hosts, err := r.hostsOf(ctx, *from.Parent)
	if err != nil {
		return mo.HostSystem{}, err
	}
	needs := needs{datastores: vm.Datastore, networks: vm.Network}
	if target.NodeName != "" {
		host, lacks := named(hosts, target.NodeName, needs)
		if lacks != "" {
			return mo.HostSystem{}, runtime.NewInvalidState(nil, "%s", lacks)
		}
		return *host, nil
	}
	needs.memory = int64(vm.Summary.Config.MemorySizeMB) * mebibyte
	hosts = slices.DeleteFunc(hosts, func(host mo.HostSystem) bool { return !meets(host.Name, target) })
	host := needs.best(hosts)
	if host == nil {
		return mo.HostSystem{}, runtime.NewInvalidState(nil, "no other host of the machine's cluster is connected, not in maintenance mode, "+
			"and has the machine's datastores and networks, and room for its memory")
	}
	return *host, nil
}
