package machine

import (
	"context"
	"slices"
	"strings"

	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
	kubetypes "k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/commands"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/inventory"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/session"
)

// Listed is a machine in the list of a folder.
type Listed struct {
	// Path is its inventory path.
	Path string
	// InstanceUUID is its instance UUID; "" if it is unknown.
	InstanceUUID string
	// Owner is the UID in its mark, and OwnerName the namespace and name, such as team-a/web-1. Both are unverified text, and "" without a mark.
	Owner     kubetypes.UID
	OwnerName string
	// Obstacle is why it cannot or should not be adopted, or "": a template, or a machine of vCenter itself or of another product.
	Obstacle string
}

// Machines returns the machines in a folder and in the folders below it, by path. If tags are given, by category, it returns those that
// have all of them. The error is NotFound for a folder that the account cannot see and for a tag that does not exist.
func (r *Runtime) Machines(ctx context.Context, folder string, tags map[string]v1alpha1.LabelValue) (found []Listed, err error) {
	var objects []any
	var all inventory.Tree
	err = r.Call(ctx, func(c *vim25.Client) error {
		if all, err = inventory.Entities(ctx, c); err != nil {
			return err
		}
		within := all.Folders(func(path string) bool {
			return inventory.Covered(path, []v1alpha1.InventoryPath{v1alpha1.InventoryPath(folder)})
		})
		if len(within) == 0 {
			return runtime.NewNotFound(nil, "vCenter %s has no folder of machines %s that the account can see", r.Config.Name, folder)
		}
		objects, err = session.Properties(ctx, c, types.PropertyFilterSpec{
			ObjectSet: within,
			PropSet:   []types.PropertySpec{{Type: "VirtualMachine", PathSet: append([]string{"parent", "config.managedBy"}, ofMarked...)}},
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	attached, err := r.AttachedTo(ctx, inventory.Selected(tags))
	if err != nil {
		return nil, err
	}
	for _, object := range objects {
		vm, is := object.(mo.VirtualMachine)
		if !is || slices.ContainsFunc(attached, func(has map[types.ManagedObjectReference]bool) bool { return !has[vm.Self] }) {
			continue
		}
		if path, known := all.Path(vm.ManagedEntity); known {
			found = append(found, listed(path, &vm))
		}
	}
	slices.SortFunc(found, func(a, b Listed) int { return strings.Compare(a.Path, b.Path) })
	return found, nil
}

// UnmarkCommand returns the command that removes the mark of a machine whose VirtualMachine is gone.
func UnmarkCommand(path string) string {
	return commands.Line("govc", "vm.change", "-vm", path, "-e", OwnerKey+"=")
}

func listed(path string, vm *mo.VirtualMachine) Listed {
	m := Listed{Path: path}
	switch {
	case vm.Config == nil:
		m.Obstacle = "vCenter cannot read its configuration"
		return m
	case vm.Config.Template:
		m.Obstacle = "it is a template"
	case vm.Config.ManagedBy != nil && vm.Config.ManagedBy.ExtensionKey != "":
		m.Obstacle = "vCenter's extension " + vm.Config.ManagedBy.ExtensionKey + " manages it"
	}
	keys := ExtraConfigOf(vm)
	m.InstanceUUID, m.Owner, m.OwnerName = vm.Config.InstanceUuid, kubetypes.UID(keys[OwnerKey]), keys[NameKey]
	return m
}
