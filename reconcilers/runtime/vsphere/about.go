package vsphere

import (
	"context"
	"errors"

	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/view"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"sallyport.dev/sallyport/reconcilers/runtime"
)

// About is what a vCenter says of itself.
type About struct {
	// Version is such as 8.0.3.
	Version string
	// InstanceUUID tells it from every other vCenter.
	InstanceUUID string
}

// Host is an ESXi host of a vCenter.
type Host struct {
	// Name is its name in the inventory, and Cluster that of its cluster, or of itself if it stands alone.
	Name, Cluster string
	// Connected says that vCenter has it, InMaintenance that no machine is to run there.
	Connected, InMaintenance bool
}

// About logs in, if nobody is, and asks the vCenter what it is.
func (s *Server) About(ctx context.Context) (about About, err error) {
	err = s.call(ctx, func(c *vim25.Client) error {
		// Asked each time, since it is also how one sees that it still answers.
		var content mo.ServiceInstance
		err := property.DefaultCollector(c).RetrieveOne(ctx, vim25.ServiceInstance, []string{"content.about"}, &content)
		about = About{Version: content.Content.About.Version, InstanceUUID: content.Content.About.InstanceUuid}
		return err
	})
	return about, err
}

// Hosts gives the hosts of the vCenter, in any order.
func (s *Server) Hosts(ctx context.Context) (hosts []Host, err error) {
	err = s.call(ctx, func(c *vim25.Client) error {
		all, err := view.NewManager(c).CreateContainerView(ctx, c.ServiceContent.RootFolder, []string{"HostSystem", "ComputeResource"}, true)
		if err != nil {
			return err
		}
		defer tidy(ctx, all.Destroy)
		var systems []mo.HostSystem
		var clusters []mo.ComputeResource
		err = errors.Join(
			all.Retrieve(ctx, []string{"HostSystem"}, []string{"name", "parent", "runtime.connectionState", "runtime.inMaintenanceMode"}, &systems),
			all.Retrieve(ctx, []string{"ComputeResource"}, []string{"name"}, &clusters),
		)
		hosts = hostsOf(systems, clusters)
		return err
	})
	return hosts, err
}

func hostsOf(systems []mo.HostSystem, clusters []mo.ComputeResource) []Host {
	names := map[types.ManagedObjectReference]string{}
	for _, c := range clusters {
		names[c.Self] = c.Name
	}
	hosts := make([]Host, 0, len(systems))
	for _, h := range systems {
		host := Host{
			Name: h.Name, Cluster: h.Name, Connected: h.Runtime.ConnectionState == types.HostSystemConnectionStateConnected,
			InMaintenance: h.Runtime.InMaintenanceMode,
		}
		if h.Parent != nil && names[*h.Parent] != "" {
			host.Cluster = names[*h.Parent]
		}
		hosts = append(hosts, host)
	}
	return hosts
}

// Path gives where in the inventory the machine is now, such as /DC0/vm/web/web-1, whoever it belongs to. Where its spec leads
// to nothing is a NotFound error.
func (r *Runtime) Path(ctx context.Context, m runtime.Machine) (path string, err error) {
	s, _, err := r.find(ctx, m)
	if err != nil {
		return "", err
	}
	if s == nil {
		return "", absent(r.server.config.Name, m)
	}
	err = r.server.call(ctx, func(c *vim25.Client) error {
		path, err = find.InventoryPath(ctx, c, s.vm.Self)
		return err
	})
	return path, err
}
