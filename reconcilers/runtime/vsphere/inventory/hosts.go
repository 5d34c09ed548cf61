package inventory

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/session"
)

// Needs are what a machine needs of a host.
type Needs struct {
	Datastores, Networks []types.ManagedObjectReference
	Memory               int64 // in bytes; 0 leaves it to vCenter
	Tags                 Selection
	Tagged               []types.ManagedObjectReference // the hosts that have the tags
}

// String describes the requirements for a host of a cluster in messages.
func (n Needs) String() string {
	text := "is connected, not in maintenance mode, and has the machine's datastores and networks"
	if len(n.Datastores) == 0 {
		text = "is connected, not in maintenance mode, and has the machine's networks"
	}
	if n.Memory > 0 {
		text += ", and room for its memory"
	}
	if len(n.Tags) > 0 {
		text = "has " + n.Tags.String() + ", " + text
	}
	return text
}

// HostsOf returns the hosts of a cluster, or a standalone host.
func (r *Center) HostsOf(ctx context.Context, compute types.ManagedObjectReference) (hosts []mo.HostSystem, err error) {
	err = r.Retrieve(ctx, types.PropertyFilterSpec{
		ObjectSet: []types.ObjectSpec{{Obj: compute, Skip: new(true), SelectSet: []types.BaseSelectionSpec{
			&types.TraversalSpec{Type: "ComputeResource", Path: "host"},
		}}},
		PropSet: []types.PropertySpec{{Type: "HostSystem", PathSet: []string{
			"name", "datastore", "network", "runtime.connectionState", "runtime.inMaintenanceMode",
			"summary.hardware.memorySize", "summary.quickStats.overallMemoryUsage",
		}}},
	}, session.Only(func(host mo.HostSystem) { hosts = append(hosts, host) }))
	return hosts, err
}

// lacks returns which requirement a host does not meet, or "".
func (n Needs) lacks(host mo.HostSystem) string {
	missing := func(of, all []types.ManagedObjectReference) bool {
		return slices.ContainsFunc(of, func(ref types.ManagedObjectReference) bool { return !slices.Contains(all, ref) })
	}
	switch {
	case host.Runtime.ConnectionState != types.HostSystemConnectionStateConnected, host.Runtime.InMaintenanceMode:
		return "is not connected or in maintenance mode"
	case len(n.Tags) > 0 && !slices.Contains(n.Tagged, host.Self):
		return "does not have " + n.Tags.String()
	case missing(n.Datastores, host.Datastore):
		return "does not have all datastores of the machine"
	case missing(n.Networks, host.Network):
		return "does not have all networks of the machine"
	case n.Memory > 0 && n.Memory > free(host):
		return "has no room for the machine's memory"
	}
	return ""
}

// free returns the unused memory of a host in bytes.
func free(host mo.HostSystem) int64 {
	if host.Summary.Hardware == nil {
		return 0
	}
	return host.Summary.Hardware.MemorySize - int64(host.Summary.QuickStats.OverallMemoryUsage)*Mebibyte
}

func (n Needs) met(hosts []mo.HostSystem) []mo.HostSystem {
	return slices.DeleteFunc(slices.Clone(hosts), func(host mo.HostSystem) bool { return n.lacks(host) != "" })
}

// Best returns the suitable host with the least memory in use, nil if there is none.
func (n Needs) Best(hosts []mo.HostSystem) *mo.HostSystem {
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

// HostNamed returns the host of that name, or why the machine cannot run there.
func HostNamed(hosts []mo.HostSystem, name string, needs Needs) (host *mo.HostSystem, lacks string) {
	i := slices.IndexFunc(hosts, func(host mo.HostSystem) bool { return host.Name == name })
	if i < 0 {
		return nil, fmt.Sprintf("the machine's cluster has no host %s", name)
	}
	if lacks := needs.lacks(hosts[i]); lacks != "" {
		return nil, fmt.Sprintf("the host %s %s", name, lacks)
	}
	return &hosts[i], ""
}

// HostFor returns the host on which to create a machine: the one in the spec, or nil for DRS to choose. If DRS is
// off, or tags are required, which DRS ignores, it chooses one.
func (r *Center) HostFor(
	ctx context.Context, m runtime.Machine, compute types.ManagedObjectReference, needs Needs,
) (*types.ManagedObjectReference, error) {
	chosen, err := r.choosesHosts(ctx, compute)
	if err != nil || m.Spec.NodeName == "" && chosen && len(m.Spec.NodeSelector) == 0 {
		return nil, err
	}
	hosts, err := r.HostsFor(ctx, m, compute, needs)
	if err != nil {
		return nil, err
	}
	return &leastUsed(hosts).Self, nil
}

// HostsFor returns the hosts on which a machine can be created, at least one: the one in the spec, or those that meet
// the requirements.
func (r *Center) HostsFor(
	ctx context.Context, m runtime.Machine, compute types.ManagedObjectReference, needs Needs,
) (hosts []mo.HostSystem, err error) {
	if hosts, err = r.HostsOf(ctx, compute); err != nil {
		return nil, err
	}
	needs.Tags = Selected(m.Spec.NodeSelector)
	if needs.Tagged, err = r.Tagged(ctx, hosts, needs.Tags); err != nil {
		return nil, err
	}
	if m.Spec.NodeName != "" {
		host, lacks := HostNamed(hosts, m.Spec.NodeName, needs)
		if lacks != "" {
			return nil, runtime.NewInvalidSpec(nil, "spec.nodeName: %s", lacks)
		}
		return []mo.HostSystem{*host}, nil
	}
	hosts = needs.met(hosts)
	switch {
	case len(hosts) == 0 && len(needs.Tags) > 0:
		return nil, runtime.NewInvalidSpec(nil, "spec.nodeSelector: no host of the cluster %s", needs)
	case len(hosts) == 0:
		return nil, Invalid("resourcePool", "no host of the cluster %s", needs)
	}
	return hosts, nil
}

func (r *Center) choosesHosts(ctx context.Context, compute types.ManagedObjectReference) (bool, error) {
	if compute.Type != "ClusterComputeResource" {
		return false, nil
	}
	var cluster mo.ClusterComputeResource
	if err := r.Read(ctx, compute, &cluster, "configurationEx"); err != nil {
		return false, err
	}
	config, is := cluster.ConfigurationEx.(*types.ClusterConfigInfoEx)
	return is && config.DrsConfig.Enabled != nil && *config.DrsConfig.Enabled, nil
}
