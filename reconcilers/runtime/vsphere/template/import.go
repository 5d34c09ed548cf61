package template

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
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/inventory"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/session"
)

// placement is where an import is to be made.
type placement struct {
	folder types.ManagedObjectReference
	inventory.Pooled
	datastore mo.Datastore
	network   types.ManagedObjectReference
	host      types.ManagedObjectReference
}

// places finds all of them, and asks the tenants whether they may be used. The first missing or unsuitable one is an
// InvalidSpec error that names its field.
func (s *Store) places(ctx context.Context, d templates.Domain) (*placement, error) {
	at, in := &placement{}, sectionOf(d)
	var err error
	if at.folder, err = s.Folder(ctx, in, d.Domain.Folder); err != nil {
		return nil, err
	}
	if err := s.Datastore(ctx, in, d.Domain.Datastore, &at.datastore); err != nil {
		return nil, err
	}
	if at.Pooled, err = s.Pool(ctx, in, d.Domain.ResourcePool); err != nil {
		return nil, err
	}
	if at.network, err = s.Network(ctx, in, "network", d.Domain.Network, at.Compute); err != nil {
		return nil, err
	}
	if err := s.mayImport(ctx, d, at); err != nil {
		return nil, err
	}
	hosts, err := s.HostsOf(ctx, at.Compute)
	if err != nil {
		return nil, err
	}
	needs := inventory.Needs{Datastores: []types.ManagedObjectReference{at.datastore.Self}, Networks: []types.ManagedObjectReference{at.network}}
	host := needs.Best(hosts)
	if host == nil {
		return nil, in.Invalid("resourcePool", "no host is connected, not in maintenance mode, and has the datastore and the network of the template")
	}
	at.host = host.Self
	return at, nil
}

// Import creates a machine from the archive while it arrives. The lease completes only after the whole archive was
// verified; otherwise it is aborted, and vCenter removes the machine. If that fails, the mark of the machine says
// that the import is incomplete.
func (s *Store) Import(ctx context.Context, d templates.Domain, what templates.Import, progress func(percent int32)) (templates.Item, error) {
	archive, err := readOVA(what.Archive)
	if err != nil {
		return templates.Item{}, err
	}
	mark := inventory.TemplateMark{Owner: d.Owner, Domain: d.Domain.Name, Mark: what.Mark, Uuid: cmp.Or(what.InstanceUUID, string(uuid.NewUUID())), Stage: inventory.MarkImporting}
	if _, is := inventory.ParseTemplateMark(mark.String()); !is { // a mark that cannot be parsed would have no owner
		return templates.Item{}, runtime.NewInvalidState(nil, "the mark %s cannot be kept", session.Shown(mark.String()))
	}
	var at *placement
	err = inTime(ctx, func(ctx context.Context) (err error) { at, err = s.places(ctx, d); return err })
	if err != nil {
		return templates.Item{}, s.incomplete(d, err)
	}
	var made *importing
	err = inTime(ctx, func(ctx context.Context) (err error) {
		made, err = s.prepare(ctx, d, what, mark, archive, at)
		return err
	})
	if err != nil {
		return templates.Item{}, s.incomplete(d, err)
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
func (s *Store) imported(
	ctx context.Context, d templates.Domain, ref types.ManagedObjectReference, what templates.Import, mark inventory.TemplateMark,
) (item templates.Item, err error) {
	item = templates.Item{MoRef: ref.Value, Name: what.Name}
	err = inTime(ctx, func(ctx context.Context) error {
		of, err := s.find(ctx, d, item)
		if err != nil {
			return err
		}
		if !strings.EqualFold(of.mark.Uuid, mark.Uuid) {
			return changed(nil, item)
		}
		of, err = s.recordStage(ctx, d, item, of, inventory.MarkImported)
		if err == nil {
			item = of.item()
		}
		return err
	})
	return item, gone(err, item)
}

func (s *Store) recordStage(ctx context.Context, d templates.Domain, item templates.Item, of *sighting, stage string) (*sighting, error) {
	mark := of.mark
	mark.Stage = stage
	return s.change(ctx, d, item, of, types.VirtualMachineConfigSpec{ExtraConfig: []types.BaseOptionValue{mark.Option()}})
}

// provisioning are vCenter's names of disk layouts.
var provisioning = map[v1alpha1.VSphereDiskType]types.OvfCreateImportSpecParamsDiskProvisioningType{
	"":                                   types.OvfCreateImportSpecParamsDiskProvisioningTypeThin,
	v1alpha1.VSphereDiskThin:             types.OvfCreateImportSpecParamsDiskProvisioningTypeThin,
	v1alpha1.VSphereDiskThick:            types.OvfCreateImportSpecParamsDiskProvisioningTypeThick,
	v1alpha1.VSphereDiskEagerZeroedThick: types.OvfCreateImportSpecParamsDiskProvisioningTypeEagerZeroedThick,
}

// prepare lets vCenter convert the descriptor into an import spec, and adds the mark.
func (s *Store) prepare(
	ctx context.Context, d templates.Domain, what templates.Import, mark inventory.TemplateMark, archive *ova, at *placement,
) (*importing, error) {
	var result *types.OvfCreateImportSpecResult
	err := s.Call(ctx, func(c *vim25.Client) (err error) {
		result, err = ovf.NewManager(c).CreateImportSpec(ctx, archive.descriptor, at.Pool, at.datastore.Self, &types.OvfCreateImportSpecParams{
			EntityName:       what.Name,
			HostSystem:       &at.host,
			DiskProvisioning: string(provisioning[what.DiskType]),
			NetworkMapping:   []types.OvfNetworkMapping{{Name: archive.network, Network: at.network}},
		})
		return err
	})
	var refused types.BaseOvfFault
	if _, is := fault.As(err, &refused); is || fault.Is(err, &types.InvalidArgument{}) {
		return nil, notOVA(err, "vCenter %s cannot read the descriptor of the OVA", s.Config.Name)
	}
	if err != nil {
		return nil, err
	}
	if len(result.Error) > 0 {
		return nil, notOVA(nil, "vCenter %s cannot import the OVA: %s", s.Config.Name, saidOf(result.Error[0]))
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
func label(config *types.VirtualMachineConfigSpec, d templates.Domain, what templates.Import, mark inventory.TemplateMark) {
	config.Name, config.InstanceUuid = what.Name, mark.Uuid
	config.ExtraConfig = slices.DeleteFunc(config.ExtraConfig, func(o types.BaseOptionValue) bool {
		return strings.HasPrefix(strings.ToLower(o.GetOptionValue().Key), inventory.OurKeys)
	})
	config.ExtraConfig = append(config.ExtraConfig, mark.Option())
	config.Annotation = inventory.AnnotationOf(d, what.Mark.Release) + "Made by Sallyport: do not rename, move or change it."
}

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
	var r inventory.Space
	for _, change := range i.spec.ConfigSpec.DeviceChange {
		disk, is := change.GetVirtualDeviceConfigSpec().Device.(*types.VirtualDisk)
		if !is {
			continue
		}
		r.All += inventory.Capacity(disk)
		if !inventory.Thin(disk) {
			r.Thick += inventory.Capacity(disk)
		}
	}
	// Both sizes are unverified: the data sent is checked against the datastore as well.
	if i.total = i.archive.archive.Size(); i.total < 0 {
		i.total = 0
		for _, file := range i.files {
			i.total += max(file.Size, 0)
		}
	}
	r.Thick = max(r.Thick, i.total)
	return i.roomFor(r)
}

// roomFor returns an error if the datastore does not have enough space.
func (i *importing) roomFor(r inventory.Space) error {
	if lacks := r.Lacks(i.at.datastore.Summary); lacks != "" {
		return sectionOf(i.domain).Invalid("datastore", "%s %s", i.domain.Domain.Datastore, lacks)
	}
	return nil
}
