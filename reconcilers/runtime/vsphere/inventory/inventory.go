package inventory

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

// MaxPath is the maximum length of a path in a spec.
const MaxPath = 512

// The types of resource pools and networks in a clone.
var (
	poolTypes    = []string{"ResourcePool", "ClusterComputeResource", "ComputeResource"}
	networkTypes = []string{"Network", "DistributedVirtualPortgroup", "OpaqueNetwork"}
)

// Entities reads everything that is part of an inventory path or listed, except machines.
func Entities(ctx context.Context, c *vim25.Client) (Tree, error) {
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
		return Tree{}, err
	}
	defer session.Tidy(ctx, all.Destroy)
	found, err := session.Properties(ctx, c, types.PropertyFilterSpec{
		ObjectSet: []types.ObjectSpec{{Obj: all.Reference(), Skip: new(true), SelectSet: []types.BaseSelectionSpec{
			&types.TraversalSpec{Type: "ContainerView", Path: "view"},
		}}},
		PropSet: properties,
	})
	i := Tree{root: c.ServiceContent.RootFolder, Named: map[types.ManagedObjectReference]mo.ManagedEntity{}, objects: found}
	for _, object := range found {
		entity := EntityOf(object)
		i.Named[entity.Self] = entity
	}
	return i, err
}

// EntityOf returns the common part of an inventory object. The name of a network is elsewhere.
func EntityOf(object any) (entity mo.ManagedEntity) {
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

// Tree is what was read of the inventory: objects with their names and parents.
type Tree struct {
	root    types.ManagedObjectReference
	Named   map[types.ManagedObjectReference]mo.ManagedEntity
	objects []any
}

// Hosts returns the hosts, each with its cluster. A standalone host is its own cluster.
func (i *Tree) Hosts() (hosts []v1alpha1.VSphereHost) {
	for _, object := range i.objects {
		h, is := object.(mo.HostSystem)
		if !is {
			continue
		}
		host := v1alpha1.VSphereHost{
			Name: h.Name, Cluster: h.Name, Connected: h.Runtime.ConnectionState == types.HostSystemConnectionStateConnected,
			InMaintenance: h.Runtime.InMaintenanceMode,
		}
		if h.Parent != nil && i.Named[*h.Parent].Name != "" {
			host.Cluster = i.Named[*h.Parent].Name
		}
		hosts = append(hosts, host)
	}
	return hosts
}

// Path returns the inventory path of an object, and false if vCenter does not show all of it. It may be longer than a
// spec can name.
func (i *Tree) Path(entity mo.ManagedEntity) (path string, known bool) {
	for len(path) <= MaxPath {
		if entity.Name == "" || entity.Parent == nil {
			return "", false
		}
		path = "/" + entity.Name + path
		if *entity.Parent == i.root {
			break
		}
		if entity, known = i.Named[*entity.Parent]; !known {
			return "", false
		}
	}
	return path, true
}

// Places returns the places without the templates.
func (i *Tree) Places(allowed v1alpha1.VSphereTenant) (places v1alpha1.VSphereInventory) {
	for _, list := range []*v1alpha1.VSpherePlaces{
		&places.Templates, &places.Folders, &places.ResourcePools, &places.Datastores, &places.Networks,
	} {
		list.Complete = true
	}
	for _, object := range i.objects {
		entity := EntityOf(object)
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
func (i *Tree) add(entity mo.ManagedEntity, allowed []v1alpha1.InventoryPath, places *v1alpha1.VSpherePlaces) {
	switch path, known := i.Path(entity); {
	case !known:
		places.Complete = false
	case len(path) <= MaxPath && Covered(path, allowed):
		places.Paths = append(places.Paths, path)
	}
}

// Templates reads the machines of the folders that may contain an allowed template. A machine without a readable
// configuration may be one.
func (i *Tree) Templates(
	ctx context.Context, c *vim25.Client, allowed []v1alpha1.InventoryPath, places *v1alpha1.VSpherePlaces,
) error {
	folders := i.Folders(func(path string) bool { return mayHave(path, allowed) })
	if len(folders) == 0 {
		return nil
	}
	machines, err := session.Properties(ctx, c, types.PropertyFilterSpec{
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

// Together returns the places of all tenants.
func Together(tenants []v1alpha1.VSphereTenant) (all v1alpha1.VSphereTenant) {
	for _, t := range tenants {
		all.Templates = append(all.Templates, t.Templates...)
		all.Folders = append(all.Folders, t.Folders...)
		all.ResourcePools = append(all.ResourcePools, t.ResourcePools...)
		all.Datastores = append(all.Datastores, t.Datastores...)
		all.Networks = append(all.Networks, t.Networks...)
	}
	return all
}

// Covered reports whether a path is at or below one of the places. Policy servers-tenancy decides whether case
// matters: the list must contain everything that it allows.
func Covered(path string, allowed []v1alpha1.InventoryPath) bool {
	path = strings.ToLower(path) + "/"
	return slices.ContainsFunc(allowed, func(place v1alpha1.InventoryPath) bool {
		return strings.HasPrefix(path, strings.ToLower(string(place))+"/")
	})
}

// mayHave reports whether an object in a folder may be at or below one of the places.
func mayHave(folder string, allowed []v1alpha1.InventoryPath) bool {
	return Covered(folder, allowed) || slices.ContainsFunc(allowed, func(place v1alpha1.InventoryPath) bool {
		return strings.EqualFold(folder, path.Dir(string(place)))
	})
}
