package template

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/templates"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/inventory"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/session"
)

// sighting is an item of a VSphereTemplate as read from vCenter.
type sighting struct {
	vm   mo.VirtualMachine
	mark inventory.TemplateMark
	busy bool
}

// Look returns the content of the folder. If an object disappears during the read, it reads again.
func (s *Store) Look(ctx context.Context, d templates.Domain) (view templates.View, err error) {
	err = inTime(ctx, func(ctx context.Context) (err error) {
		if view, err = s.readFolder(ctx, d); runtime.IsNotFound(err) {
			view, err = s.readFolder(ctx, d)
		}
		return s.incomplete(d, err)
	})
	return view, err
}

func (s *Store) readFolder(ctx context.Context, d templates.Domain) (templates.View, error) {
	folder, err := s.Folder(ctx, sectionOf(d), d.Domain.Folder)
	if err != nil {
		return templates.View{}, err
	}
	children, err := s.children(ctx, folder)
	if err != nil {
		return templates.View{}, err
	}
	return s.view(ctx, d, folder, children)
}

// incomplete converts the error of a read during which an object of the folder was removed.
func (s *Store) incomplete(d templates.Domain, err error) error {
	if runtime.IsNotFound(err) {
		return runtime.NewUnavailable(err, "vCenter %s did not show all of the folder %s", s.Config.Name, d.Domain.Folder)
	}
	return err
}

// children reads the objects in a folder, and the marks of machines.
func (s *Store) children(ctx context.Context, folder types.ManagedObjectReference) (all []any, err error) {
	err = s.Retrieve(ctx, types.PropertyFilterSpec{
		ObjectSet: []types.ObjectSpec{{Obj: folder, Skip: new(true), SelectSet: []types.BaseSelectionSpec{
			&types.TraversalSpec{Type: "Folder", Path: "childEntity"},
		}}},
		PropSet: []types.PropertySpec{
			{Type: "VirtualMachine", PathSet: []string{"name", "config.annotation", "config.extraConfig", "config.instanceUuid"}},
			{Type: "VirtualApp", PathSet: []string{"name"}},
			{Type: "Folder", PathSet: []string{"name"}},
		},
	}, func(object any) { all = append(all, object) })
	return all, err
}

func (s *Store) view(ctx context.Context, d templates.Domain, folder types.ManagedObjectReference, children []any) (templates.View, error) {
	view := templates.View{Others: map[string]bool{}, Earlier: map[string]templates.EarlierItem{}}
	var refs []types.ManagedObjectReference
	names := map[types.ManagedObjectReference]string{}
	for _, child := range children {
		entity := inventory.EntityOf(child)
		vm, is := child.(mo.VirtualMachine)
		if is && vm.Config == nil && mayBeOurs(vm.Name, d) {
			return view, runtime.NewUnavailable(nil, "vCenter %s does not show the configuration of %s in the folder %s, which may be the template",
				s.Config.Name, session.Shown(vm.Name), d.Domain.Folder)
		}
		mark, marked := inventory.TemplateMarkOf(&vm)
		if is && marked && mark.Of(d) {
			refs = append(refs, vm.Self)
			names[vm.Self] = vm.Name
			continue
		}
		if owner := mark.Earlier(d, &vm); is && marked && owner != "" {
			view.Earlier[entity.Name] = templates.EarlierItem{Owner: owner, InstanceUUID: vm.Config.InstanceUuid}
		}
		view.Others[entity.Name] = true
	}
	ours, err := s.examine(ctx, d, folder, refs)
	if err != nil {
		return view, err
	}
	for _, of := range ours {
		view.Items = append(view.Items, of.item())
		delete(names, of.vm.Self)
	}
	for _, name := range names { // changed in the meantime, and no longer ours
		view.Others[name] = true
	}
	slices.SortFunc(view.Items, func(a, b templates.Item) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.MoRef, b.MoRef))
	})
	return view, nil
}

// mayBeOurs reports whether a machine of which only the name is readable may belong to the VSphereTemplate, by its
// name.
func mayBeOurs(name string, d templates.Domain) bool {
	name = strings.ToLower(name)
	return strings.HasPrefix(name, strings.ToLower(d.Spec.Name)) || strings.HasPrefix(name, "sallyport-")
}

// examine reads machines and templates in a folder, and returns those of the failure domain. Their tasks are read
// first, so that no completed task shows in the item but not in the tasks.
func (s *Store) examine(
	ctx context.Context, d templates.Domain, folder types.ManagedObjectReference, refs []types.ManagedObjectReference,
) (ours []sighting, err error) {
	if len(refs) == 0 {
		return nil, nil
	}
	busy, err := s.busy(ctx, refs)
	if err != nil {
		return nil, err
	}
	objects := make([]types.ObjectSpec, 0, len(refs))
	for _, ref := range refs {
		objects = append(objects, types.ObjectSpec{Obj: ref})
	}
	err = s.Retrieve(ctx, types.PropertyFilterSpec{ObjectSet: objects, PropSet: []types.PropertySpec{{Type: "VirtualMachine", PathSet: []string{
		"name", "parent", "config.bootOptions", "config.changeVersion", "config.extraConfig", "config.files", "config.firmware", "config.hardware.device",
		"config.instanceUuid", "config.template", "snapshot", "summary.storage",
	}}}}, session.Only(func(vm mo.VirtualMachine) {
		mark, marked := inventory.TemplateMarkOf(&vm)
		if marked && mark.Of(d) && vm.Parent != nil && *vm.Parent == folder {
			ours = append(ours, sighting{vm: vm, mark: mark, busy: busy[vm.Self]})
		}
	}))
	return ours, err
}

// busy returns the machines and templates with a task in flight.
func (s *Store) busy(ctx context.Context, refs []types.ManagedObjectReference) (map[types.ManagedObjectReference]bool, error) {
	objects := make([]types.ObjectSpec, 0, len(refs))
	for _, ref := range refs {
		objects = append(objects, types.ObjectSpec{Obj: ref, SelectSet: []types.BaseSelectionSpec{
			&types.TraversalSpec{Type: "VirtualMachine", Path: "recentTask"},
		}})
	}
	inFlight, recent := map[types.ManagedObjectReference]bool{}, map[types.ManagedObjectReference][]types.ManagedObjectReference{}
	err := s.Retrieve(ctx, types.PropertyFilterSpec{ObjectSet: objects, PropSet: []types.PropertySpec{
		{Type: "VirtualMachine", PathSet: []string{"recentTask"}}, {Type: "Task", PathSet: []string{"info.state"}},
	}}, func(object any) {
		switch object := object.(type) {
		case mo.VirtualMachine:
			recent[object.Self] = object.RecentTask
		case mo.Task:
			inFlight[object.Self] = session.Running(object.Info)
		}
	})
	busy := map[types.ManagedObjectReference]bool{}
	for ref, tasks := range recent {
		busy[ref] = slices.ContainsFunc(tasks, func(t types.ManagedObjectReference) bool { return inFlight[t] })
	}
	return busy, err
}

func (of *sighting) item() templates.Item {
	item := templates.Item{
		Mark: of.mark.Mark, MoRef: of.vm.Self.Value, InstanceUUID: of.vm.Config.InstanceUuid, Name: of.vm.Name,
		Stage: of.stage(), Busy: of.busy, DiskType: diskTypeOf(of.vm.Config.Hardware.Device), Version: of.vm.Config.ChangeVersion,
	}
	if storage := of.vm.Summary.Storage; storage != nil {
		item.Bytes = storage.Committed
	}
	return item
}

// stage returns the stage of the item. An item that another client made a template before it was finished cannot be
// finished.
func (of *sighting) stage() templates.Stage {
	switch isTemplate := of.vm.Config.Template; {
	case isTemplate && of.mark.Stage == inventory.MarkFinished:
		return templates.Whole
	case !isTemplate && of.mark.Stage != inventory.MarkImporting:
		return templates.Imported
	}
	return templates.Partial
}

// diskTypeOf returns the layout of the first disk, which is the same for all disks of our imports.
func diskTypeOf(devices object.VirtualDeviceList) v1alpha1.VSphereDiskType {
	disks := devices.SelectByType((*types.VirtualDisk)(nil))
	if len(disks) == 0 {
		return ""
	}
	disk := disks[0].(*types.VirtualDisk)
	backing, is := disk.Backing.(*types.VirtualDiskFlatVer2BackingInfo)
	switch {
	case inventory.Thin(disk):
		return v1alpha1.VSphereDiskThin
	case is && backing.EagerlyScrub != nil && *backing.EagerlyScrub:
		return v1alpha1.VSphereDiskEagerZeroedThick
	}
	return v1alpha1.VSphereDiskThick
}
