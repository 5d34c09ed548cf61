// Package template imports templates of machines into a vCenter, and replaces and destroys them.
package template

import (
	"context"
	"strings"
	"time"

	"github.com/vmware/govmomi/fault"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/types"

	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/templates"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/inventory"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/session"
)

// Store is the store of one vCenter's templates. It keeps no state: owner and stage of an item are written on
// the item, under vCenter's changeVersion until it is a template. vCenter allows only changes of the name and
// annotation of a template, also under that version, so that of two concurrent renames one fails.
type Store struct {
	*inventory.Center
	tenancy tenancy
	// ReportPeriod is the interval of progress reports.
	ReportPeriod time.Duration
}

var _ templates.Store = (*Store)(nil)

// New returns the store of that vCenter, restricted by the tenants.
func New(server *session.Server, tenants Tenants) *Store {
	return &Store{Center: &inventory.Center{Server: server}, tenancy: tenancy{tenants}, ReportPeriod: leaseReportPeriod}
}

func sectionOf(d templates.Domain) inventory.Section {
	return inventory.Section("spec.failureDomains[" + d.Domain.Name + "].")
}

// inTime makes related calls within the timeout of one runtime call.
func inTime(ctx context.Context, calls func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, runtime.DefaultCallTimeout)
	defer cancel()
	return calls(ctx)
}

// find reads an item in the folder, if the tenants allow to change it there.
func (s *Store) find(ctx context.Context, d templates.Domain, item templates.Item) (*sighting, error) {
	folder, err := s.Folder(ctx, sectionOf(d), d.Domain.Folder)
	if err != nil {
		return nil, s.incomplete(d, err)
	}
	if err := s.mayChange(ctx, d, folder); err != nil {
		return nil, err
	}
	return s.findIn(ctx, d, folder, item)
}

// findIn reads an item in that folder. A missing item is a NotFound error, and one that does not belong to the
// VSphereTemplate InvalidState.
func (s *Store) findIn(
	ctx context.Context, d templates.Domain, folder types.ManagedObjectReference, item templates.Item,
) (*sighting, error) {
	ref := types.ManagedObjectReference{Type: "VirtualMachine", Value: item.MoRef}
	ours, err := s.examine(ctx, d, folder, []types.ManagedObjectReference{ref})
	switch {
	case err != nil:
		return nil, err
	case len(ours) == 0:
		return nil, runtime.NewInvalidState(nil, "%s in the folder %s no longer belongs to VSphereTemplate %s", session.Shown(item.Name), d.Domain.Folder, d.Object)
	}
	return &ours[0], nil
}

// unchanged is find for an item that must be unchanged since it was read.
func (s *Store) unchanged(ctx context.Context, d templates.Domain, item templates.Item) (*sighting, error) {
	of, err := s.find(ctx, d, item)
	switch {
	case err != nil:
		return nil, err
	case of.vm.Config.ChangeVersion != item.Version || !strings.EqualFold(of.vm.Config.InstanceUuid, item.InstanceUUID) || of.vm.Name != item.Name:
		return nil, changed(nil, item)
	}
	return of, nil
}

// changed returns the error for an item that has changed since it was read.
func changed(cause error, item templates.Item) error {
	return runtime.NewInvalidState(cause, "%s was changed concurrently", session.Shown(item.Name))
}

func gone(err error, item templates.Item) error {
	if runtime.IsNotFound(err) {
		return runtime.NewInvalidState(err, "%s is gone", session.Shown(item.Name))
	}
	return err
}

// Rename renames an item that is unchanged since it was read.
func (s *Store) Rename(ctx context.Context, d templates.Domain, item templates.Item, name string) (renamed templates.Item, err error) {
	err = inTime(ctx, func(ctx context.Context) error {
		of, err := s.unchanged(ctx, d, item)
		if err == nil && item.Name != name {
			of, err = s.change(ctx, d, item, of, types.VirtualMachineConfigSpec{Name: name})
		}
		if err == nil {
			renamed = of.item()
		}
		return err
	})
	return renamed, notRenamed(err, item, name)
}

func notRenamed(err error, item templates.Item, name string) error {
	switch {
	case fault.Is(err, &types.DuplicateName{}):
		return templates.NewTaken(err, name)
	case fault.Is(err, &types.ConcurrentAccess{}):
		return changed(err, item)
	}
	return underImport(gone(err, item), item)
}

func underImport(err error, item templates.Item) error {
	if item.Stage == templates.Partial && (fault.Is(err, &types.InvalidState{}) || fault.Is(err, &types.TaskInProgress{})) {
		return runtime.NewInvalidState(err, "%s is still being imported: if the importing process has ended, vCenter aborts the import after some minutes",
			session.Shown(item.Name))
	}
	return err
}

// Replace moves an item's name to another one. Each of the two changes has a timeout of its own.
func (s *Store) Replace(ctx context.Context, d templates.Domain, old templates.Item, as string, item templates.Item) error {
	renames := []struct {
		item templates.Item
		to   string
		of   *sighting
	}{{old, as, nil}, {item, old.Name, nil}}
	for i := range renames {
		err := inTime(ctx, func(ctx context.Context) (err error) {
			renames[i].of, err = s.unchanged(ctx, d, renames[i].item)
			return err
		})
		if err != nil {
			return gone(err, renames[i].item)
		}
	}
	for _, r := range renames {
		err := inTime(ctx, func(ctx context.Context) error {
			return s.Reconfigure(ctx, &r.of.vm, types.VirtualMachineConfigSpec{Name: r.to})
		})
		if err != nil {
			return notRenamed(err, r.item, r.to)
		}
	}
	return nil
}

// change reconfigures an item that is unchanged since it was read, and reads it again.
func (s *Store) change(
	ctx context.Context, d templates.Domain, item templates.Item, of *sighting, spec types.VirtualMachineConfigSpec,
) (*sighting, error) {
	if err := s.Reconfigure(ctx, &of.vm, spec); err != nil {
		return nil, err
	}
	of, err := s.findIn(ctx, d, *of.vm.Parent, item)
	if err != nil {
		return nil, runtime.NewUnavailable(err, "vCenter %s did not show %s after it was changed", s.Config.Name, session.Shown(item.Name))
	}
	return of, nil
}

// Destroy destroys an item that is unchanged since it was read, unless it is in use, has snapshots, or has a disk of another.
func (s *Store) Destroy(ctx context.Context, d templates.Domain, item templates.Item) error {
	err := inTime(ctx, func(ctx context.Context) error {
		of, err := s.unchanged(ctx, d, item)
		if err != nil {
			return err
		}
		if err := of.destroyable(); err != nil {
			return err
		}
		_, err = s.CarryOut(ctx, func(c *vim25.Client) (*object.Task, error) {
			return object.NewVirtualMachine(c, of.vm.Self).Destroy(ctx)
		})
		return err
	})
	if runtime.IsNotFound(err) {
		return nil
	}
	return underImport(err, item)
}

// destroyable returns why an item must not be removed now. vCenter destroys every attached disk with it.
func (of *sighting) destroyable() error {
	if of.busy {
		return runtime.NewInvalidState(nil, "%s is in use: a task is in flight for it, such as the creation of a machine from it", session.Shown(of.vm.Name))
	}
	if of.vm.Snapshot != nil {
		return runtime.NewInvalidState(nil, "%s has snapshots, which linked clones may depend on: remove them", session.Shown(of.vm.Name))
	}
	for _, device := range object.VirtualDeviceList(of.vm.Config.Hardware.Device).SelectByType((*types.VirtualDisk)(nil)) {
		if disk := device.(*types.VirtualDisk); !inventory.OwnDisk(of.vm.Config.Files.VmPathName, disk) {
			return runtime.NewInvalidState(nil, "%s has a disk that is not in its own folder on the datastore: detach it in vCenter", session.Shown(of.vm.Name))
		}
	}
	return nil
}
