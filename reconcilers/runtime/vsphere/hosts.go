package vsphere

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"sallyport.dev/sallyport/reconcilers/runtime"
)

type needs struct {
	datastores, networks []types.ManagedObjectReference
	memory               int64 // in bytes; 0 leaves it to vCenter
	tags                 selection
	tagged               []types.ManagedObjectReference // the hosts that have the tags
}

// String describes the requirements for a host of a cluster in messages.
func (n needs) String() string {
	text := "is connected, not in maintenance mode, and has the machine's datastores and networks"
	if len(n.datastores) == 0 {
		text = "is connected, not in maintenance mode, and has the machine's networks"
	}
	if n.memory > 0 {
		text += ", and room for its memory"
	}
	if len(n.tags) > 0 {
		text = "has " + n.tags.String() + ", " + text
	}
	return text
}

// hostsOf returns the hosts of a cluster, or a standalone host.
func (r *Runtime) hostsOf(ctx context.Context, compute types.ManagedObjectReference) (hosts []mo.HostSystem, err error) {
	err = r.retrieve(ctx, types.PropertyFilterSpec{
		ObjectSet: []types.ObjectSpec{{Obj: compute, Skip: new(true), SelectSet: []types.BaseSelectionSpec{
			&types.TraversalSpec{Type: "ComputeResource", Path: "host"},
		}}},
		PropSet: []types.PropertySpec{{Type: "HostSystem", PathSet: []string{
			"name", "datastore", "network", "runtime.connectionState", "runtime.inMaintenanceMode",
			"summary.hardware.memorySize", "summary.quickStats.overallMemoryUsage",
		}}},
	}, only(func(host mo.HostSystem) { hosts = append(hosts, host) }))
	return hosts, err
}

// lacks returns which requirement a host does not meet, or "".
func (n needs) lacks(host mo.HostSystem) string {
	missing := func(of, all []types.ManagedObjectReference) bool {
		return slices.ContainsFunc(of, func(ref types.ManagedObjectReference) bool { return !slices.Contains(all, ref) })
	}
	switch {
	case host.Runtime.ConnectionState != types.HostSystemConnectionStateConnected, host.Runtime.InMaintenanceMode:
		return "is not connected or in maintenance mode"
	case len(n.tags) > 0 && !slices.Contains(n.tagged, host.Self):
		return "does not have " + n.tags.String()
	case missing(n.datastores, host.Datastore):
		return "does not have all datastores of the machine"
	case missing(n.networks, host.Network):
		return "does not have all networks of the machine"
	case n.memory > 0 && n.memory > free(host):
		return "has no room for the machine's memory"
	}
	return ""
}

// free returns the unused memory of a host in bytes.
func free(host mo.HostSystem) int64 {
	if host.Summary.Hardware == nil {
		return 0
	}
	return host.Summary.Hardware.MemorySize - int64(host.Summary.QuickStats.OverallMemoryUsage)*mebibyte
}

func (n needs) met(hosts []mo.HostSystem) []mo.HostSystem {
	return slices.DeleteFunc(slices.Clone(hosts), func(host mo.HostSystem) bool { return n.lacks(host) != "" })
}

// best returns the suitable host with the least memory in use, nil if there is none.
func (n needs) best(hosts []mo.HostSystem) *mo.HostSystem {
	if hosts = n.met(hosts); len(hosts) == 0 {
		return nil
	}
	return leastUsed(hosts)
}

func leastUsed(hosts []mo.HostSystem) *mo.HostSystem {
	least := slices.MinFunc(hosts, func(a, b mo.HostSystem) int {
		return cmp.Or(cmp.Compare(a.Summary.QuickStats.OverallMemoryUsage, b.Summary.QuickStats.OverallMemoryUsage),
			cmp.Compare(a.Name, b.Name))
	})
	return &least
}

// named returns the host of that name, or why the machine cannot run there.
func named(hosts []mo.HostSystem, name string, needs needs) (host *mo.HostSystem, lacks string) {
	i := slices.IndexFunc(hosts, func(host mo.HostSystem) bool { return host.Name == name })
	if i < 0 {
		return nil, fmt.Sprintf("the machine's cluster has no host %s", name)
	}
	if lacks := needs.lacks(hosts[i]); lacks != "" {
		return nil, fmt.Sprintf("the host %s %s", name, lacks)
	}
	return &hosts[i], ""
}

// hostFor returns the host on which to create a machine: the one in the spec, or nil for DRS to choose. If DRS is
// off, or tags are required, which DRS ignores, it chooses one.
func (r *Runtime) hostFor(
	ctx context.Context, m runtime.Machine, compute types.ManagedObjectReference, needs needs,
) (*types.ManagedObjectReference, error) {
	chosen, err := r.choosesHosts(ctx, compute)
	if err != nil || m.Spec.NodeName == "" && chosen && len(m.Spec.NodeSelector) == 0 {
		return nil, err
	}
	hosts, err := r.hostsFor(ctx, m, compute, needs)
	if err != nil {
		return nil, err
	}
	return &leastUsed(hosts).Self, nil
}

// hostsFor returns the hosts on which a machine can be created, at least one: the one in the spec, or those that meet
// the requirements.
func (r *Runtime) hostsFor(
	ctx context.Context, m runtime.Machine, compute types.ManagedObjectReference, needs needs,
) (hosts []mo.HostSystem, err error) {
	if hosts, err = r.hostsOf(ctx, compute); err != nil {
		return nil, err
	}
	needs.tags = selected(m.Spec.NodeSelector)
	if needs.tagged, err = r.tagged(ctx, hosts, needs.tags); err != nil {
		return nil, err
	}
	if m.Spec.NodeName != "" {
		host, lacks := named(hosts, m.Spec.NodeName, needs)
		if lacks != "" {
			return nil, runtime.NewInvalidSpec(nil, "spec.nodeName: %s", lacks)
		}
		return []mo.HostSystem{*host}, nil
	}
	hosts = needs.met(hosts)
	switch {
	case len(hosts) == 0 && len(needs.tags) > 0:
		return nil, runtime.NewInvalidSpec(nil, "spec.nodeSelector: no host of the cluster %s", needs)
	case len(hosts) == 0:
		return nil, invalid("resourcePool", "no host of the cluster %s", needs)
	}
	return hosts, nil
}

// hostToStart returns the host to power on, or nil for the current one, which is only left if it lacks tags.
func (r *Runtime) hostToStart(ctx context.Context, s *sighting, m runtime.Machine) (*types.ManagedObjectReference, error) {
	wanted := selected(m.Spec.NodeSelector)
	if len(wanted) == 0 || s.vm.Runtime.Host == nil {
		return nil, nil
	}
	hosts, needs, err := r.around(ctx, s, wanted)
	if err != nil || slices.Contains(needs.tagged, *s.vm.Runtime.Host) {
		return nil, err
	}
	host := needs.best(hosts)
	if host == nil {
		return nil, runtime.NewInvalidSpec(nil, "spec.nodeSelector: no host of the machine's cluster %s", needs)
	}
	return &host.Self, nil
}

// around returns the hosts of the machine's cluster, and its requirements.
func (r *Runtime) around(ctx context.Context, s *sighting, wanted selection) (hosts []mo.HostSystem, n needs, err error) {
	if s.vm.Runtime.Host == nil {
		return nil, n, runtime.NewInvalidState(nil, "the machine is not on a host, so it cannot be moved")
	}
	var vm mo.VirtualMachine
	if err := r.read(ctx, s.vm.Self, &vm, "datastore", "network", "summary.config.memorySizeMB"); err != nil {
		return nil, n, err
	}
	var from mo.HostSystem
	if err := r.read(ctx, *s.vm.Runtime.Host, &from, "parent"); err != nil {
		return nil, n, err
	}
	if hosts, err = r.hostsOf(ctx, *from.Parent); err != nil {
		return nil, n, err
	}
	n = needs{datastores: vm.Datastore, networks: vm.Network, memory: int64(vm.Summary.Config.MemorySizeMB) * mebibyte, tags: wanted}
	n.tagged, err = r.tagged(ctx, hosts, wanted)
	return hosts, n, err
}

func (r *Runtime) choosesHosts(ctx context.Context, compute types.ManagedObjectReference) (bool, error) {
	if compute.Type != "ClusterComputeResource" {
		return false, nil
	}
	var cluster mo.ClusterComputeResource
	if err := r.read(ctx, compute, &cluster, "configurationEx"); err != nil {
		return false, err
	}
	config, is := cluster.ConfigurationEx.(*types.ClusterConfigInfoEx)
	return is && config.DrsConfig.Enabled != nil && *config.DrsConfig.Enabled, nil
}
