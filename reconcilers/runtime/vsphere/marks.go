package vsphere

import (
	"cmp"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/types"
	kubetypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// DiskKey begins the keys in a machine's extraConfig by which a VirtualDisk that is attached to it is known: the UID of the VirtualDisk
// follows. What is there tells Observe which disks are attached, together with the devices: a mark without its device says nothing.
const DiskKey = "sallyport.disk."

// maxMarks is how many disks are told of, as many as the status of a VirtualMachine has room for, and maxMark how long a mark can be.
const (
	maxMarks = 64
	maxMark  = 2048
)

// mark is what is noted of a VirtualDisk that is attached to a machine, in the same change of the configuration.
type mark struct {
	disk kubetypes.UID
	name string // of the VirtualDisk
	uuid string // of its file, which vCenter keeps when it moves or renames that
	// datastore is where the file was when it was attached, by vCenter's own reference: there it goes back to.
	datastore string
	// away is where the file is, of so many bytes, if the disk was taken off the machine elsewhere than where it belongs. It still counts
	// as attached.
	bytes int64
	away  string
}

// parseMark gives nothing for what is no mark, or was not written by Sallyport.
func parseMark(key, text string) (m mark, is bool) {
	uid, is := strings.CutPrefix(key, DiskKey)
	fields := strings.SplitN(text, " ", 5)
	if !is || uid == "" || len(uid) > 64 || len(text) > maxMark || len(fields) < 3 || len(validation.IsDNS1123Subdomain(fields[0])) > 0 {
		return m, false
	}
	m = mark{disk: kubetypes.UID(uid), name: fields[0], uuid: fields[1], datastore: fields[2]}
	if len(fields) == 5 {
		m.bytes, _ = strconv.ParseInt(fields[3], 10, 64)
		m.away = fields[4]
	}
	return m, true
}

func (m mark) key() string { return DiskKey + string(m.disk) }

func (m mark) String() string {
	text := m.name + " " + m.uuid + " " + m.datastore
	if m.away != "" {
		text += " " + strconv.FormatInt(m.bytes, 10) + " " + m.away
	}
	return text
}

// write is the change that leaves the mark, and erase the one that takes it away.
func (m mark) write() []types.BaseOptionValue {
	return []types.BaseOptionValue{&types.OptionValue{Key: m.key(), Value: m.String()}}
}

func (m mark) erase() []types.BaseOptionValue {
	return []types.BaseOptionValue{&types.OptionValue{Key: m.key(), Value: ""}}
}

// marksOf gives the marks of a machine, in the order of their names.
func marksOf(extraConfig []types.BaseOptionValue) (all []mark) {
	for _, option := range extraConfig {
		value := option.GetOptionValue()
		if text, ok := value.Value.(string); ok && len(all) < maxMarks {
			if m, is := parseMark(value.Key, text); is {
				all = append(all, m)
			}
		}
	}
	slices.SortFunc(all, func(a, b mark) int { return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.disk, b.disk)) })
	return all
}

// markOf gives the mark of a VirtualDisk.
func markOf(all []mark, disk kubetypes.UID) (m mark, is bool) {
	i := slices.IndexFunc(all, func(m mark) bool { return m.disk == disk })
	if i < 0 {
		return m, false
	}
	return all[i], true
}

// device gives the device of a VirtualDisk, whose file is known by its UUID, or by its name as long as nobody has renamed it.
func device(all object.VirtualDeviceList, disk kubetypes.UID, uuid string) *types.VirtualDisk {
	for _, d := range all {
		if d, is := d.(*types.VirtualDisk); is && (fileOf(d, disk) || uuid != "" && uuidOf(d) == uuid) {
			return d
		}
	}
	return nil
}

func (m mark) device(all object.VirtualDeviceList) *types.VirtualDisk {
	return device(all, m.disk, m.uuid)
}

// fileOf reports whether a device is the file of that VirtualDisk, by its name, or rests on it.
func fileOf(d *types.VirtualDisk, disk kubetypes.UID) bool {
	return slices.ContainsFunc(files(d), func(file string) bool { return path.Base(file) == fileName(disk) })
}

// fileName is what the file of a VirtualDisk is called. Nothing else is called so.
func fileName(disk kubetypes.UID) string { return string(disk) + ".vmdk" }

// maxChain is how many files a disk can have: one of its own, and one for each snapshot.
const maxChain = 256

// files gives the files that a device consists of: the one that is written to comes first, what is under it after a snapshot follows.
func files(d *types.VirtualDisk) (all []string) {
	for backing := d.Backing; backing != nil && len(all) < maxChain; backing = parentOf(backing) {
		file, is := backing.(types.BaseVirtualDeviceFileBackingInfo)
		if !is {
			break
		}
		all = append(all, file.GetVirtualDeviceFileBackingInfo().FileName)
	}
	return all
}

func parentOf(backing types.BaseVirtualDeviceBackingInfo) types.BaseVirtualDeviceBackingInfo {
	switch b := backing.(type) {
	case *types.VirtualDiskFlatVer2BackingInfo:
		if b.Parent != nil {
			return b.Parent
		}
	case *types.VirtualDiskSeSparseBackingInfo:
		if b.Parent != nil {
			return b.Parent
		}
	case *types.VirtualDiskSparseVer2BackingInfo:
		if b.Parent != nil {
			return b.Parent
		}
	}
	return nil
}

// uuidOf gives the UUID of the file of a device, and nothing where vCenter does not say.
func uuidOf(d *types.VirtualDisk) string {
	switch b := d.Backing.(type) {
	case *types.VirtualDiskFlatVer2BackingInfo:
		return diskUUID(b.Uuid)
	case *types.VirtualDiskSeSparseBackingInfo:
		return diskUUID(b.Uuid)
	case *types.VirtualDiskSparseVer2BackingInfo:
		return diskUUID(b.Uuid)
	}
	return ""
}

// diskUUID is a UUID without the blanks and hyphens that one part of vCenter sets otherwise than another.
func diskUUID(text string) string {
	return strings.ToLower(strings.NewReplacer(" ", "", "-", "").Replace(text))
}

// attached gives the VirtualDisks that are attached. One whose file is still to go back to where it belongs is among them, so that it is
// not taken for free before.
func (s *sighting) attached() (disks []v1alpha1.AttachedDisk) {
	for _, m := range s.marks {
		if m.away != "" || m.device(s.devices) != nil {
			disks = append(disks, v1alpha1.AttachedDisk{Name: m.name, UID: m.disk})
		}
	}
	return disks
}
