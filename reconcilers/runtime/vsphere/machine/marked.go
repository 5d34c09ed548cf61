package machine

import (
	"context"
	"sync"
	"time"

	"github.com/vmware/govmomi/fault"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
	kubetypes "k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/inventory"
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

// Inventory returns the hosts of the vCenter, and the places that one of the tenants allows. Machines are read only
// in folders that may contain a template.
func (r *Runtime) Inventory(ctx context.Context, tenants []v1alpha1.VSphereTenant) (found Inventory, err error) {
	err = r.Call(ctx, func(c *vim25.Client) error {
		all, err := inventory.Entities(ctx, c)
		if err != nil {
			return err
		}
		allowed := inventory.Together(tenants)
		found = Inventory{Hosts: all.Hosts(), Places: all.Places(allowed)}
		if err := all.Templates(ctx, c, allowed.Templates, &found.Places.Templates); err != nil {
			return err
		}
		found.Marked, err = r.shared.machines.read(ctx, c, &all, allowed.Folders)
		return err
	})
	return found, err
}

// MarkedMachine is a machine with the mark of a VirtualMachine.
type MarkedMachine struct {
	// Path is its inventory path.
	Path string
	// Owner is the UID in its mark, and Name the namespace and name, such as team-a/web-1. Both are unverified text.
	Owner kubetypes.UID
	Name  string
}

// remarked is the interval at which the marks are read again: two properties of each machine in the folders of the
// tenants.
const remarked = 10 * time.Minute

// markedMachines caches the last result.
type markedMachines struct {
	mu  sync.Mutex
	at  time.Time
	all []MarkedMachine
}

func (m *markedMachines) read(ctx context.Context, c *vim25.Client, i *inventory.Tree, allowed []v1alpha1.InventoryPath) ([]MarkedMachine, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.at.IsZero() && time.Since(m.at) < remarked {
		return m.all, nil
	}
	folders := i.Folders(func(path string) bool { return inventory.Covered(path, allowed) })
	if len(folders) == 0 {
		return nil, nil
	}
	found, err := session.Properties(ctx, c, types.PropertyFilterSpec{
		ObjectSet: folders,
		PropSet:   []types.PropertySpec{{Type: "VirtualMachine", PathSet: append([]string{"parent"}, ofMarked...)}},
	})
	if fault.Is(err, &types.ManagedObjectNotFound{}) { // a folder was removed in the meantime
		return m.all, nil
	}
	if err != nil {
		return nil, err
	}
	m.all = nil
	for _, object := range found {
		vm, is := object.(mo.VirtualMachine)
		if !is || vm.Config == nil || vm.Config.Template {
			continue
		}
		keys := ExtraConfigOf(&vm)
		if path, known := i.Path(vm.ManagedEntity); known && keys[OwnerKey] != "" {
			m.all = append(m.all, MarkedMachine{Path: path, Owner: kubetypes.UID(keys[OwnerKey]), Name: keys[NameKey]})
		}
	}
	m.at = time.Now()
	return m.all, nil
}
