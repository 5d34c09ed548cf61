package vsphere

import (
	"cmp"
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

// choose gives the host to move to, of those that share the machine's storage and resource pool: its cluster.
func (r *Runtime) choose(ctx context.Context, s *sighting, target runtime.Target) (mo.HostSystem, error) {
	if s.vm.Runtime.Host == nil {
		return mo.HostSystem{}, runtime.NewInvalidState(nil, "the machine is on no host from which it could be moved")
	}
	var hosts []mo.HostSystem
	err := r.retrieve(ctx, types.PropertyFilterSpec{
		ObjectSet: []types.ObjectSpec{{Obj: *s.vm.Runtime.Host, Skip: new(true), SelectSet: []types.BaseSelectionSpec{
			&types.TraversalSpec{Type: "HostSystem", Path: "parent", Skip: new(true), SelectSet: []types.BaseSelectionSpec{
				&types.TraversalSpec{Type: "ComputeResource", Path: "host"},
			}},
		}}},
		PropSet: []types.PropertySpec{{Type: "HostSystem", PathSet: []string{
			"name", "runtime.connectionState", "runtime.inMaintenanceMode", "summary.quickStats.overallMemoryUsage",
		}}},
	}, func(object any) {
		if host, ok := object.(mo.HostSystem); ok {
			hosts = append(hosts, host)
		}
	})
	if err != nil {
		return mo.HostSystem{}, err
	}
	wanted := func(host mo.HostSystem) bool { return meets(host.Name, target) }
	if target.NodeName != "" && !slices.ContainsFunc(hosts, wanted) {
		return mo.HostSystem{}, runtime.NewInvalidState(nil, "the machine's cluster has no host %s", target.NodeName)
	}
	hosts = slices.DeleteFunc(hosts, func(host mo.HostSystem) bool {
		return !wanted(host) || host.Runtime.InMaintenanceMode ||
			host.Runtime.ConnectionState != types.HostSystemConnectionStateConnected
	})
	switch {
	case len(hosts) > 0:
		return slices.MinFunc(hosts, func(a, b mo.HostSystem) int {
			return cmp.Or(cmp.Compare(a.Summary.QuickStats.OverallMemoryUsage, b.Summary.QuickStats.OverallMemoryUsage),
				cmp.Compare(a.Name, b.Name))
		}), nil
	case target.NodeName != "":
		return mo.HostSystem{}, runtime.NewInvalidState(nil,
			"the host %s is not connected or in maintenance mode", target.NodeName)
	default:
		return mo.HostSystem{}, runtime.NewInvalidState(nil,
			"no other host of the machine's cluster is connected and not in maintenance mode")
	}
}
