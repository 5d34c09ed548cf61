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

// DiskKey is the prefix of the extraConfig keys for attached VirtualDisks; the UID of the VirtualDisk follows.
// Together with the devices these marks tell which disks are attached: a mark without its device means nothing.
const DiskKey = "sallyport.disk."

// maxMarks limits the reported disks, like the schema of the status; maxMark limits the length of a mark.
const (
	maxMarks = 64
	maxMark  = 2048
)

// mark is the record of an attached VirtualDisk, written in the same reconfiguration as the device.
type mark struct {
	disk kubetypes.UID
	name string // of the VirtualDisk
	uuid string // of its file; vCenter keeps it when it moves or renames the file
	// datastore is the reference of the datastore where the file was when it was attached, to which it must be moved
	// back.
	datastore string
	// away is the path of the file, and bytes its size, if the disk was detached elsewhere than where it belongs. It
	// still counts as attached.
	bytes int64
	away  string
}

// parseMark returns false for a text that Sallyport did not write.
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

// write returns the change that writes the mark, erase the one that removes it.
func (m mark) write() []types.BaseOptionValue {
	return []types.BaseOptionValue{&types.OptionValue{Key: m.key(), Value: m.String()}}
}

func (m mark) erase() []types.BaseOptionValue {
	return []types.BaseOptionValue{&types.OptionValue{Key: m.key(), Value: ""}}
}

// marksOf returns the marks of a machine, sorted by name.
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

func markOf(all []mark, disk kubetypes.UID) (m mark, is bool) {
	i := slices.IndexFunc(all, func(m mark) bool { return m.disk == disk })
	if i < 0 {
		return m, false
	}
	return all[i], true
}

// device returns the device of a VirtualDisk, identified by the UUID of its file, or by the file's name.
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

// fileOf reports whether a device is the file of that VirtualDisk by its name, or is based on it.
func fileOf(d *types.VirtualDisk, disk kubetypes.UID) bool {
	return slices.ContainsFunc(files(d), func(file string) bool { return path.Base(file) == fileName(disk) })
}

// fileName returns the name of a VirtualDisk's file, which is unique.
func fileName(disk kubetypes.UID) string { return string(disk) + ".vmdk" }

// maxChain limits the files of a disk: its own and one per snapshot.
const maxChain = 256

// files returns the files of a device, current one first, then the parents below its snapshots.
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

// uuidOf returns the UUID of a device's file, "" if vCenter does not report it.
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

// diskUUID returns a UUID without blanks and hyphens, in which parts of vCenter differ.
func diskUUID(text string) string {
	return strings.ToLower(strings.NewReplacer(" ", "", "-", "").Replace(text))
}

// attached returns the attached VirtualDisks. It includes disks whose file must still be moved back, so that they do
// not count as free.
func (s *sighting) attached() (disks []v1alpha1.AttachedDisk) {
	for _, m := range s.marks {
		if m.away != "" || m.device(s.devices) != nil {
			disks = append(disks, v1alpha1.AttachedDisk{Name: m.name, UID: m.disk})
		}
	}
	return disks
}
