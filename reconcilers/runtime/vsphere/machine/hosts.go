package machine

import (
	"context"
	"slices"

	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/inventory"
)

// hostToStart returns the host to power on, or nil for the current one, which is only left if it lacks tags.
func (r *Runtime) hostToStart(ctx context.Context, s *sighting, m runtime.Machine) (*types.ManagedObjectReference, error) {
	wanted := inventory.Selected(m.Spec.NodeSelector)
	if len(wanted) == 0 || s.vm.Runtime.Host == nil {
		return nil, nil
	}
	hosts, needs, err := r.around(ctx, s, wanted)
	if err != nil || slices.Contains(needs.Tagged, *s.vm.Runtime.Host) {
		return nil, err
	}
	host := needs.Best(hosts)
	if host == nil {
		return nil, runtime.NewInvalidSpec(nil, "spec.nodeSelector: no host of the machine's cluster %s", needs)
	}
	return &host.Self, nil
}

// around returns the hosts of the machine's cluster, and its requirements.
func (r *Runtime) around(ctx context.Context, s *sighting, wanted inventory.Selection) (hosts []mo.HostSystem, n inventory.Needs, err error) {
	if s.vm.Runtime.Host == nil {
		return nil, n, runtime.NewInvalidState(nil, "the machine is not on a host, so it cannot be moved")
	}
	var vm mo.VirtualMachine
	if err := r.Read(ctx, s.vm.Self, &vm, "datastore", "network", "summary.config.memorySizeMB"); err != nil {
		return nil, n, err
	}
	var from mo.HostSystem
	if err := r.Read(ctx, *s.vm.Runtime.Host, &from, "parent"); err != nil {
		return nil, n, err
	}
	if hosts, err = r.HostsOf(ctx, *from.Parent); err != nil {
		return nil, n, err
	}
	n = inventory.Needs{Datastores: vm.Datastore, Networks: vm.Network, Memory: int64(vm.Summary.Config.MemorySizeMB) * inventory.Mebibyte, Tags: wanted}
	n.Tagged, err = r.Tagged(ctx, hosts, wanted)
	return hosts, n, err
}
