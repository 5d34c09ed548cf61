package vsphere

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"unicode"

	"github.com/vmware/govmomi/fault"
	"github.com/vmware/govmomi/ovf"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/templates"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/session"
)

// templatePlaces are the inventory objects for an import.
type templatePlaces struct {
	folder types.ManagedObjectReference
	pooled
	datastore mo.Datastore
	network   types.ManagedObjectReference
	host      types.ManagedObjectReference
}

// places finds all of them, and asks the tenants whether they may be used. The first missing or unsuitable one is an
// InvalidSpec error that names its field.
func (s *templateStore) places(ctx context.Context, d templates.Domain) (*templatePlaces, error) {
	at, in := &templatePlaces{}, sectionOf(d)
	var err error
	if at.folder, err = s.folder(ctx, in, d.Domain.Folder); err != nil {
		return nil, err
	}
	if err := s.datastore(ctx, in, d.Domain.Datastore, &at.datastore); err != nil {
		return nil, err
	}
	if at.pooled, err = s.pool(ctx, in, d.Domain.ResourcePool); err != nil {
		return nil, err
	}
	if at.network, err = s.network(ctx, in, "network", d.Domain.Network, at.compute); err != nil {
		return nil, err
	}
	if err := s.mayImport(ctx, d, at); err != nil {
		return nil, err
	}
	hosts, err := s.hostsOf(ctx, at.compute)
	if err != nil {
		return nil, err
	}
	needs := needs{datastores: []types.ManagedObjectReference{at.datastore.Self}, networks: []types.ManagedObjectReference{at.network}}
	host := needs.best(hosts)
	if host == nil {
		return nil, in.invalid("resourcePool", "no host is connected, not in maintenance mode, and has the datastore and the network of the template")
	}
	at.host = host.Self
	return at, nil
}

// Import creates a machine from the archive while it arrives. The lease completes only after the whole archive was
// verified; otherwise it is aborted, and vCenter removes the machine. If that fails, the mark of the machine says
// that the import is incomplete.
func (s *templateStore) Import(ctx context.Context, d templates.Domain, what templates.Import, progress func(percent int32)) (templates.Item, error) {
	archive, err := readOVA(what.Archive)
	if err != nil {
		return templates.Item{}, err
	}
	mark := templateMark{owner: d.Owner, domain: d.Domain.Name, Mark: what.Mark, uuid: cmp.Or(what.InstanceUUID, string(uuid.NewUUID())), stage: markImporting}
	if _, is := parseTemplateMark(mark.String()); !is { // a mark that cannot be parsed would have no owner
		return templates.Item{}, runtime.NewInvalidState(nil, "the mark %s cannot be kept", shown(mark.String()))
	}
	var at *templatePlaces
	err = inTime(ctx, func(ctx context.Context) (err error) { at, err = s.places(ctx, d); return err })
	if err != nil {
		return templates.Item{}, s.notAll(d, err)
	}
	var made *importing
	err = inTime(ctx, func(ctx context.Context) (err error) {
		made, err = s.prepare(ctx, d, what, mark, archive, at)
		return err
	})
	if err != nil {
		return templates.Item{}, s.notAll(d, err)
	}
	ref, err := made.carryOut(ctx, progress)
	if fault.Is(err, &types.DuplicateName{}) {
		return templates.Item{}, templates.NewTaken(err, what.Name)
	}
	if err != nil {
		return templates.Item{}, err
	}
	return s.imported(ctx, d, ref, what, mark)
}

// imported records that a machine has all of its content.
func (s *templateStore) imported(
	ctx context.Context, d templates.Domain, ref types.ManagedObjectReference, what templates.Import, mark templateMark,
) (item templates.Item, err error) {
	item = templates.Item{MoRef: ref.Value, Name: what.Name}
	err = inTime(ctx, func(ctx context.Context) error {
		of, err := s.find(ctx, d, item)
		if err != nil {
			return err
		}
		if !strings.EqualFold(of.mark.uuid, mark.uuid) {
			return changed(nil, item)
		}
		of, err = s.recordStage(ctx, d, item, of, markImported)
		if err == nil {
			item = of.item()
		}
		return err
	})
	return item, gone(err, item)
}

func (s *templateStore) recordStage(ctx context.Context, d templates.Domain, item templates.Item, of *templateSighting, stage string) (*templateSighting, error) {
	mark := of.mark
	mark.stage = stage
	return s.change(ctx, d, item, of, types.VirtualMachineConfigSpec{ExtraConfig: []types.BaseOptionValue{mark.option()}})
}

// provisioning are vCenter's names of disk layouts.
var provisioning = map[v1alpha1.VSphereDiskType]types.OvfCreateImportSpecParamsDiskProvisioningType{
	"":                                   types.OvfCreateImportSpecParamsDiskProvisioningTypeThin,
	v1alpha1.VSphereDiskThin:             types.OvfCreateImportSpecParamsDiskProvisioningTypeThin,
	v1alpha1.VSphereDiskThick:            types.OvfCreateImportSpecParamsDiskProvisioningTypeThick,
	v1alpha1.VSphereDiskEagerZeroedThick: types.OvfCreateImportSpecParamsDiskProvisioningTypeEagerZeroedThick,
}

// prepare lets vCenter convert the descriptor into an import spec, and adds the mark.
func (s *templateStore) prepare(
	ctx context.Context, d templates.Domain, what templates.Import, mark templateMark, archive *ova, at *templatePlaces,
) (*importing, error) {
	var result *types.OvfCreateImportSpecResult
	err := s.server.Call(ctx, func(c *vim25.Client) (err error) {
		result, err = ovf.NewManager(c).CreateImportSpec(ctx, archive.descriptor, at.pool, at.datastore.Self, &types.OvfCreateImportSpecParams{
			EntityName:       what.Name,
			HostSystem:       &at.host,
			DiskProvisioning: string(provisioning[what.DiskType]),
			NetworkMapping:   []types.OvfNetworkMapping{{Name: archive.network, Network: at.network}},
		})
		return err
	})
	var refused types.BaseOvfFault
	if _, is := fault.As(err, &refused); is || fault.Is(err, &types.InvalidArgument{}) {
		return nil, notOVA(err, "vCenter %s cannot read the descriptor of the OVA", s.server.Config.Name)
	}
	if err != nil {
		return nil, err
	}
	if len(result.Error) > 0 {
		return nil, notOVA(nil, "vCenter %s cannot import the OVA: %s", s.server.Config.Name, saidOf(result.Error[0]))
	}
	spec, is := result.ImportSpec.(*types.VirtualMachineImportSpec)
	if !is {
		return nil, notOVA(nil, "the OVA is not one machine")
	}
	label(&spec.ConfigSpec, d, what, mark)
	made := &importing{store: s, archive: archive, spec: spec, files: result.FileItem, at: at, domain: d}
	return made, made.fits()
}

// label adds the owner mark to the import spec and strips our keys from the OVF, which may contain any.
func label(config *types.VirtualMachineConfigSpec, d templates.Domain, what templates.Import, mark templateMark) {
	config.Name, config.InstanceUuid = what.Name, mark.uuid
	config.ExtraConfig = slices.DeleteFunc(config.ExtraConfig, func(o types.BaseOptionValue) bool {
		return strings.HasPrefix(strings.ToLower(o.GetOptionValue().Key), ourKeys)
	})
	config.ExtraConfig = append(config.ExtraConfig, mark.option())
	config.Annotation = annotationOf(d, what.Mark.Release) + "Made by Sallyport: do not rename, move or change it."
}

// ourKeys is the prefix of our keys in extraConfig.
const ourKeys = "sallyport."

// maxSaid limits vCenter's text in messages.
const maxSaid = 256

// saidOf returns vCenter's message of a fault, if it may be shown, and otherwise the fault's name.
func saidOf(f types.LocalizedMethodFault) string {
	text := strings.TrimSpace(f.LocalizedMessage)
	odd := strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) })
	if text == "" || odd || len(text) > maxSaid || strings.Contains(text, "://") {
		return session.KindOfFault(f.Fault)
	}
	return text
}

// fits reports whether the datastore has enough space.
func (i *importing) fits() error {
	var r room
	for _, change := range i.spec.ConfigSpec.DeviceChange {
		disk, is := change.GetVirtualDeviceConfigSpec().Device.(*types.VirtualDisk)
		if !is {
			continue
		}
		r.all += capacity(disk)
		if !thin(disk) {
			r.thick += capacity(disk)
		}
	}
	// Both sizes are unverified: the data sent is checked against the datastore as well.
	if i.total = i.archive.archive.Size(); i.total < 0 {
		i.total = 0
		for _, file := range i.files {
			i.total += max(file.Size, 0)
		}
	}
	r.thick = max(r.thick, i.total)
	return i.roomFor(r)
}

// roomFor returns an error if the datastore does not have enough space.
func (i *importing) roomFor(r room) error {
	if lacks := r.lacks(i.at.datastore.Summary); lacks != "" {
		return sectionOf(i.domain).invalid("datastore", "%s %s", i.domain.Domain.Datastore, lacks)
	}
	return nil
}
