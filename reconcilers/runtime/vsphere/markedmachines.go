package vsphere

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
)

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

func (m *markedMachines) read(ctx context.Context, c *vim25.Client, i *inventory, allowed []v1alpha1.InventoryPath) ([]MarkedMachine, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.at.IsZero() && time.Since(m.at) < remarked {
		return m.all, nil
	}
	folders := i.folders(func(path string) bool { return covered(path, allowed) })
	if len(folders) == 0 {
		return nil, nil
	}
	found, err := retrieve(ctx, c, types.PropertyFilterSpec{
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
		keys := remembered(&vm)
		if path, known := i.path(vm.ManagedEntity); known && keys[OwnerKey] != "" {
			m.all = append(m.all, MarkedMachine{Path: path, Owner: kubetypes.UID(keys[OwnerKey]), Name: keys[NameKey]})
		}
	}
	m.at = time.Now()
	return m.all, nil
}

// folders selects the contents of the machine folders whose paths are wanted.
func (i *inventory) folders(wanted func(path string) bool) (all []types.ObjectSpec) {
	for _, object := range i.objects {
		folder, is := object.(mo.Folder)
		if !is || !takesMachines(folder) {
			continue
		}
		if path, known := i.path(folder.ManagedEntity); known && wanted(path) {
			all = append(all, types.ObjectSpec{Obj: folder.Self, Skip: new(true), SelectSet: []types.BaseSelectionSpec{
				&types.TraversalSpec{Type: "Folder", Path: "childEntity"},
			}})
		}
	}
	return all
}
