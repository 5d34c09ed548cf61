package vsphere

import (
	"context"
	"path"
	"slices"
	"strings"

	"github.com/vmware/govmomi/fault"
	"github.com/vmware/govmomi/view"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/session"
)

// Inventory is the inventory of a vCenter, in any order.
type Inventory struct {
	// Hosts are its ESXi hosts.
	Hosts []v1alpha1.VSphereHost
	// Places are the places for machines.
	Places v1alpha1.VSphereInventory
	// Marked are machines with the mark of a VirtualMachine, in the folders that one of the tenants allows. They are
	// at most ten minutes old.
	Marked []MarkedMachine
}

// maxPath is the maximum length of a path in a spec.
const maxPath = 512

// The types of resource pools and networks in a clone.
var (
	poolTypes    = []string{"ResourcePool", "ClusterComputeResource", "ComputeResource"}
	networkTypes = []string{"Network", "DistributedVirtualPortgroup", "OpaqueNetwork"}
)

// Inventory returns the hosts of the vCenter, and the places that one of the tenants allows. Machines are read only
// in folders that may contain a template.
func (r *Runtime) Inventory(ctx context.Context, tenants []v1alpha1.VSphereTenant) (found Inventory, err error) {
	err = r.server.Call(ctx, func(c *vim25.Client) error {
		all, err := entities(ctx, c)
		if err != nil {
			return err
		}
		allowed := together(tenants)
		found = Inventory{Hosts: all.hosts(), Places: all.places(allowed)}
		if err := all.templates(ctx, c, allowed.Templates, &found.Places.Templates); err != nil {
			return err
		}
		found.Marked, err = r.shared.machines.read(ctx, c, &all, allowed.Folders)
		return err
	})
	return found, err
}

// entities reads everything that is part of an inventory path or listed, except machines.
func entities(ctx context.Context, c *vim25.Client) (inventory, error) {
	var properties []types.PropertySpec
	var kinds []string
	for kind, more := range map[string][]string{
		"Datacenter": nil, "Folder": {"childType"}, "ComputeResource": nil, "ResourcePool": nil, "Datastore": nil, "Network": nil,
		"HostSystem": {"runtime.connectionState", "runtime.inMaintenanceMode"},
	} {
		kinds = append(kinds, kind)
		properties = append(properties, types.PropertySpec{Type: kind, PathSet: append(more, "name", "parent")})
	}
	all, err := view.NewManager(c).CreateContainerView(ctx, c.ServiceContent.RootFolder, kinds, true)
	if err != nil {
		return inventory{}, err
	}
	defer session.Tidy(ctx, all.Destroy)
	found, err := retrieve(ctx, c, types.PropertyFilterSpec{
		ObjectSet: []types.ObjectSpec{{Obj: all.Reference(), Skip: new(true), SelectSet: []types.BaseSelectionSpec{
			&types.TraversalSpec{Type: "ContainerView", Path: "view"},
		}}},
		PropSet: properties,
	})
	i := inventory{root: c.ServiceContent.RootFolder, named: map[types.ManagedObjectReference]mo.ManagedEntity{}, objects: found}
	for _, object := range found {
		entity := entityOf(object)
		i.named[entity.Self] = entity
	}
	return i, err
}

// entityOf returns the common part of an inventory object. The name of a network is elsewhere.
func entityOf(object any) (entity mo.ManagedEntity) {
	if is, ok := object.(mo.IsManagedEntity); ok {
		entity = is.GetManagedEntity()
	}
	switch network := object.(type) {
	case mo.Network:
		entity.Name = network.Name
	case mo.DistributedVirtualPortgroup:
		entity.Name = network.Name
	case mo.OpaqueNetwork:
		entity.Name = network.Name
	}
	return entity
}

type inventory struct {
	root    types.ManagedObjectReference
	named   map[types.ManagedObjectReference]mo.ManagedEntity
	objects []any
}

func (i *inventory) hosts() (hosts []v1alpha1.VSphereHost) {
	for _, object := range i.objects {
		h, is := object.(mo.HostSystem)
		if !is {
			continue
		}
		host := v1alpha1.VSphereHost{
			Name: h.Name, Cluster: h.Name, Connected: h.Runtime.ConnectionState == types.HostSystemConnectionStateConnected,
			InMaintenance: h.Runtime.InMaintenanceMode,
		}
		if h.Parent != nil && i.named[*h.Parent].Name != "" {
			host.Cluster = i.named[*h.Parent].Name
		}
		hosts = append(hosts, host)
	}
	return hosts
}

// path returns the inventory path of an object, and false if vCenter does not show all of it. It may be longer than a
// spec can name.
func (i *inventory) path(entity mo.ManagedEntity) (path string, known bool) {
	for len(path) <= maxPath {
		if entity.Name == "" || entity.Parent == nil {
			return "", false
		}
		path = "/" + entity.Name + path
		if *entity.Parent == i.root {
			break
		}
		if entity, known = i.named[*entity.Parent]; !known {
			return "", false
		}
	}
	return path, true
}

// places returns the places without the templates.
func (i *inventory) places(allowed v1alpha1.VSphereTenant) (places v1alpha1.VSphereInventory) {
	for _, list := range []*v1alpha1.VSpherePlaces{
		&places.Templates, &places.Folders, &places.ResourcePools, &places.Datastores, &places.Networks,
	} {
		list.Complete = true
	}
	for _, object := range i.objects {
		entity := entityOf(object)
		switch kind := entity.Self.Type; {
		case takesMachines(object):
			i.add(entity, allowed.Folders, &places.Folders)
		case slices.Contains(poolTypes, kind):
			i.add(entity, allowed.ResourcePools, &places.ResourcePools)
		case kind == "Datastore":
			i.add(entity, allowed.Datastores, &places.Datastores)
		case slices.Contains(networkTypes, kind):
			i.add(entity, allowed.Networks, &places.Networks)
		}
	}
	return places
}

func takesMachines(object any) bool {
	folder, is := object.(mo.Folder)
	return is && slices.Contains(folder.ChildType, "VirtualMachine")
}

// add lists an object that is allowed.
func (i *inventory) add(entity mo.ManagedEntity, allowed []v1alpha1.InventoryPath, places *v1alpha1.VSpherePlaces) {
	switch path, known := i.path(entity); {
	case !known:
		places.Complete = false
	case len(path) <= maxPath && covered(path, allowed):
		places.Paths = append(places.Paths, path)
	}
}

// templates reads the machines of the folders that may contain an allowed template. A machine without a readable
// configuration may be one.
func (i *inventory) templates(
	ctx context.Context, c *vim25.Client, allowed []v1alpha1.InventoryPath, places *v1alpha1.VSpherePlaces,
) error {
	folders := i.folders(func(path string) bool { return mayHave(path, allowed) })
	if len(folders) == 0 {
		return nil
	}
	machines, err := retrieve(ctx, c, types.PropertyFilterSpec{
		ObjectSet: folders,
		PropSet:   []types.PropertySpec{{Type: "VirtualMachine", PathSet: []string{"name", "parent", "config.template"}}},
	})
	if fault.Is(err, &types.ManagedObjectNotFound{}) { // a folder was removed in the meantime
		places.Complete = false
		return nil
	}
	for _, object := range machines {
		switch vm, is := object.(mo.VirtualMachine); {
		case !is:
		case vm.Config == nil:
			places.Complete = false
		case vm.Config.Template:
			i.add(vm.ManagedEntity, allowed, places)
		}
	}
	return err
}

func together(tenants []v1alpha1.VSphereTenant) (all v1alpha1.VSphereTenant) {
	for _, t := range tenants {
		all.Templates = append(all.Templates, t.Templates...)
		all.Folders = append(all.Folders, t.Folders...)
		all.ResourcePools = append(all.ResourcePools, t.ResourcePools...)
		all.Datastores = append(all.Datastores, t.Datastores...)
		all.Networks = append(all.Networks, t.Networks...)
	}
	return all
}

// covered reports whether a path is at or below one of the places. Policy servers-tenancy decides whether case
// matters: the list must contain everything that it allows.
func covered(path string, allowed []v1alpha1.InventoryPath) bool {
	path = strings.ToLower(path) + "/"
	return slices.ContainsFunc(allowed, func(place v1alpha1.InventoryPath) bool {
		return strings.HasPrefix(path, strings.ToLower(string(place))+"/")
	})
}

// mayHave reports whether an object in a folder may be at or below one of the places.
func mayHave(folder string, allowed []v1alpha1.InventoryPath) bool {
	return covered(folder, allowed) || slices.ContainsFunc(allowed, func(place v1alpha1.InventoryPath) bool {
		return strings.EqualFold(folder, path.Dir(string(place)))
	})
}
