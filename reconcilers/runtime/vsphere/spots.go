package vsphere

import (
	"context"
	"slices"

	"github.com/vmware/govmomi/fault"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
	kubetypes "k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// disksFolder is the folder of a datastore for the files of VirtualDisks, each named by its UID, which is the owner
// mark: a file there was created for that VirtualDisk, and a second one cannot be created.
const disksFolder = "sallyport"

// datastoreField is the field of a disk's spec for its datastore.
const datastoreField = "spec.runtime.vsphere.datastore"

// spot is a datastore with disks.
type spot struct {
	datastore mo.Datastore
	center    types.ManagedObjectReference // its datacenter
}

// folder returns the folder of the disks, home the path of a disk's file.
func (at *spot) folder() string { return at.path(disksFolder) }

func (at *spot) home(disk kubetypes.UID) string { return at.path(disksFolder + "/" + fileName(disk)) }

func (at *spot) path(path string) string {
	return (&object.DatastorePath{Datastore: at.datastore.Summary.Name, Path: path}).String()
}

// vsan reports whether top-level folders of the datastore are objects that only the DatastoreNamespaceManager
// creates. They can be used in paths like others; vCenter then reports files in them by the UUID of the folder.
func (at *spot) vsan() bool {
	top := at.datastore.Capability.TopLevelDirectoryCreateSupported
	return slices.Contains(
		[]string{string(types.HostFileSystemVolumeFileSystemTypeVsan), string(types.HostFileSystemVolumeFileSystemTypeVVOL)}, at.datastore.Summary.Type) ||
		top != nil && !*top
}

func (at *spot) dc(c *vim25.Client) *object.Datacenter { return object.NewDatacenter(c, at.center) }

// spotOf finds the datastore of a disk. A missing datastore is an InvalidSpec error: it does not mean that the disk
// is gone.
func (r *Runtime) spotOf(ctx context.Context, d runtime.Disk) (*spot, error) {
	if d.UID == "" {
		return nil, runtime.NewInvalidState(nil, "VirtualDisk %s has no UID", d)
	}
	if d.Spec == nil || d.Spec.Runtime.VSphere == nil {
		return nil, runtime.NewNotSupported(nil, "VirtualDisk %s is not one of a vCenter", d)
	}
	path := d.Spec.Runtime.VSphere.Datastore
	ref, err := r.named(ctx, path, "Datastore")
	switch {
	case err != nil:
		return nil, err
	case ref == nil:
		return nil, runtime.NewInvalidSpec(nil, "%s: vCenter %s has no datastore at %s, or does not show it",
			datastoreField, r.server.Config.Name, path)
	case d.Home != "" && ref.Value != d.Home:
		return nil, runtime.NewInvalidState(nil, "%s: vCenter %s now has another datastore at %s (%s) than the one that the disk was created on (%s): "+
			"rename the datastores back", datastoreField, r.server.Config.Name, path, ref.Value, d.Home)
	}
	return r.spotAt(ctx, *ref, path)
}

func (r *Runtime) spotAt(ctx context.Context, ref types.ManagedObjectReference, name v1alpha1.InventoryPath) (*spot, error) {
	at := &spot{}
	err := r.retrieve(ctx, types.PropertyFilterSpec{
		ObjectSet: []types.ObjectSpec{{Obj: ref, SelectSet: upwards()}},
		PropSet: []types.PropertySpec{
			{Type: "Datastore", PathSet: []string{"browser", "capability", "summary"}}, {Type: "Datacenter", PathSet: []string{"name"}},
		},
	}, func(object any) {
		switch object := object.(type) {
		case mo.Datastore:
			at.datastore = object
		case mo.Datacenter:
			at.center = object.Self
		}
	})
	server := r.server.Config.Name
	switch {
	case runtime.IsNotFound(err), err == nil && (at.center.Value == "" || at.datastore.Summary.Name == ""):
		return nil, runtime.NewUnavailable(err, "vCenter %s does not show all of the datastore %s", server, name)
	case err != nil:
		return nil, err
	case !at.datastore.Summary.Accessible:
		return nil, runtime.NewUnavailable(nil, "vCenter %s shows the datastore %s as not accessible", server, name)
	}
	return at, nil
}

// fileAt finds the file of a disk where it belongs, nil if there is none.
func (r *Runtime) fileAt(ctx context.Context, at *spot, disk kubetypes.UID) (*types.VmDiskFileInfo, error) {
	files, err := r.search(ctx, at, &types.HostDatastoreBrowserSearchSpec{
		MatchPattern: []string{fileName(disk)},
		Query:        []types.BaseFileQuery{&types.VmDiskFileQuery{Details: &types.VmDiskFileQueryFlags{CapacityKb: true}}},
		Details:      &types.FileQueryFlags{FileType: true},
	})
	for _, file := range files {
		if file, is := file.(*types.VmDiskFileInfo); is && file.Path == fileName(disk) {
			return file, nil
		}
	}
	return nil, err
}

// search lists files in the folder of the disks; none if it does not exist yet.
func (r *Runtime) search(ctx context.Context, at *spot, spec *types.HostDatastoreBrowserSearchSpec) ([]types.BaseFileInfo, error) {
	info, err := r.carryOut(ctx, func(c *vim25.Client) (*object.Task, error) {
		begun, err := methods.SearchDatastore_Task(ctx, c, &types.SearchDatastore_Task{This: at.datastore.Browser, DatastorePath: at.folder(), SearchSpec: spec})
		if err != nil {
			return nil, err
		}
		return object.NewTask(c, begun.Returnval), nil
	})
	if err != nil {
		if fault.Is(err, &types.FileNotFound{}) {
			err = nil
		}
		return nil, err
	}
	results, _ := info.Result.(types.HostDatastoreBrowserSearchResults)
	return results.File, nil
}

// makeFolder creates the folder of the disks, unless it exists.
func (r *Runtime) makeFolder(ctx context.Context, at *spot) error {
	err := r.server.Call(ctx, func(c *vim25.Client) error {
		if at.vsan() {
			_, err := object.NewDatastoreNamespaceManager(c).
				CreateDirectory(ctx, object.NewDatastore(c, at.datastore.Self), disksFolder, "")
			return err
		}
		return object.NewFileManager(c).MakeDirectory(ctx, at.folder(), at.dc(c), true)
	})
	if fault.Is(err, &types.FileAlreadyExists{}) {
		return nil
	}
	return err
}

// uuidAt returns the UUID of a disk's file where it belongs.
func (r *Runtime) uuidAt(ctx context.Context, at *spot, disk kubetypes.UID) (string, error) {
	return r.uuidOfFile(ctx, at, at.home(disk))
}

func (r *Runtime) uuidOfFile(ctx context.Context, at *spot, file string) (uuid string, err error) {
	err = r.server.Call(ctx, func(c *vim25.Client) (err error) {
		uuid, err = object.NewVirtualDiskManager(c).QueryVirtualDiskUuid(ctx, file, at.dc(c))
		return err
	})
	return diskUUID(uuid), err
}
