package vsphere

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/vmware/govmomi/fault"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/types"
	kubetypes "k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/reconcilers/runtime"
)

// The file of a disk is named after the UID of its VirtualDisk, which does not tell the VirtualDisk's name. So an
// empty folder beside it does: its name is a hash of namespace and name, and the UID. It is created before the file
// and removed before it; without a file it means nothing.

// anyID makes locate search all machines for a disk without a known ID.
const anyID = "-"

// nameOf returns the prefix of the folder names for VirtualDisks of that namespace and name.
func nameOf(d runtime.Disk) string {
	sum := sha256.Sum256([]byte(d.String()))
	return hex.EncodeToString(sum[:8]) + "."
}

// tag returns the folder for a disk.
func (at *spot) tag(d runtime.Disk) string {
	return at.path(disksFolder + "/" + nameOf(d) + string(d.UID))
}

func (r *Runtime) makeTag(ctx context.Context, at *spot, d runtime.Disk) error {
	err := r.server.Call(ctx, func(c *vim25.Client) error {
		return object.NewFileManager(c).MakeDirectory(ctx, at.tag(d), at.dc(c), false)
	})
	if fault.Is(err, &types.FileAlreadyExists{}) {
		return nil
	}
	return r.notGone(err)
}

func (r *Runtime) removeTag(ctx context.Context, at *spot, d runtime.Disk) error {
	_, err := r.carryOut(ctx, func(c *vim25.Client) (*object.Task, error) {
		return object.NewFileManager(c).DeleteDatastoreFile(ctx, at.tag(d), at.dc(c))
	})
	if fault.Is(err, &types.FileNotFound{}) {
		return nil
	}
	return r.notGone(err)
}

// namesakes returns the UIDs of other VirtualDisks of that name with disks on the datastore.
func (r *Runtime) namesakes(ctx context.Context, at *spot, d runtime.Disk) (uids []kubetypes.UID, err error) {
	files, err := r.search(ctx, at, &types.HostDatastoreBrowserSearchSpec{
		MatchPattern: []string{nameOf(d) + "*"}, Query: []types.BaseFileQuery{&types.FolderFileQuery{}},
	})
	for _, file := range files {
		if uid, is := strings.CutPrefix(file.GetFileInfo().Path, nameOf(d)); is && uid != string(d.UID) {
			uids = append(uids, kubetypes.UID(uid))
		}
	}
	return uids, r.notGone(err)
}

// succeedDisk checks for the disk of an earlier VirtualDisk of d's name: it is an OwnedByAnother error, or is taken
// over if d says so, which it reports, with the ID of one that a machine has.
func (r *Runtime) succeedDisk(ctx context.Context, d runtime.Disk, at *spot) (id string, did bool, err error) {
	if d.Earlier == runtime.MakeAnew {
		return "", false, nil
	}
	uids, err := r.namesakes(ctx, at, d)
	if err != nil {
		return "", false, err
	}
	var earlier []*located
	var of []runtime.Disk
	for _, uid := range uids {
		other := runtime.Disk{NamespacedName: d.NamespacedName, UID: uid, ID: anyID, Spec: d.Spec}
		l, err := r.locate(ctx, other)
		if err != nil {
			return "", false, err
		}
		if l.exists() {
			earlier, of = append(earlier, l), append(of, other)
		}
	}
	switch {
	case len(earlier) == 0:
		return "", false, nil
	case d.Earlier != runtime.TakeOver:
		return "", false, runtime.NewHeldBack("svd", d.NamespacedName, "file %s", at.home(of[0].UID))
	case len(earlier) > 1:
		return "", false, runtime.NewOwnedByAnother(nil, "%d disks belong to an earlier VirtualDisk %s, such as %s and %s: delete the files of all but the one to take over",
			len(earlier), d, at.home(of[0].UID), at.home(of[1].UID))
	}
	id, err = r.takeOverDisk(ctx, d, of[0], earlier[0])
	return id, true, err
}

// takeOverDisk renames a disk for another VirtualDisk: its file, or the mark of the machine that has it. In the
// latter case the ID identifies the file, which keeps the former name.
func (r *Runtime) takeOverDisk(ctx context.Context, d, former runtime.Disk, l *located) (id string, err error) {
	if err := r.makeTag(ctx, l.spot, d); err != nil {
		return "", err
	}
	if len(l.holders) == 0 {
		_, err := r.carryOut(ctx, func(c *vim25.Client) (*object.Task, error) {
			return object.NewVirtualDiskManager(c).MoveVirtualDisk(ctx, l.home(former.UID), l.dc(c), l.home(d.UID), l.dc(c), false)
		})
		return "", r.notGone(err)
	}
	h := l.holders[0]
	ours, taken := markOf(marksOf(h.vm.Config.ExtraConfig), d.UID)
	switch {
	case len(l.holders) > 1, h.disk == nil, !h.marked && !taken:
		return "", h.inUse("taken over")
	case taken && ours.away == "": // by an earlier call
		return uuidOf(h.disk), nil
	}
	of := h.mark
	of.disk = d.UID
	return uuidOf(h.disk), r.notGone(r.reconfigure(ctx, &sighting{vm: h.vm}, types.VirtualMachineConfigSpec{ExtraConfig: append(h.mark.erase(), of.write()...)}))
}
