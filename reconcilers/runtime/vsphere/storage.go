package vsphere

import (
	"context"
	"slices"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/pbm"
	pbmtypes "github.com/vmware/govmomi/pbm/types"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/types"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// storage finds the storage policy of a clone, which its datastore must satisfy.
func (r *Runtime) storage(ctx context.Context, clone *v1alpha1.VSphereClone, p *parts) error {
	if clone.StoragePolicy == "" {
		return nil
	}
	satisfying, err := r.satisfying(ctx, clone, p, []types.ManagedObjectReference{p.datastore.Self})
	if err == nil && len(satisfying) == 0 {
		err = invalid("storagePolicy", "the datastore %s does not satisfy the storage policy %q", clone.Datastore, clone.StoragePolicy)
	}
	return err
}

// satisfying finds the storage policy of a clone, and returns the datastores that satisfy it.
func (r *Runtime) satisfying(
	ctx context.Context, clone *v1alpha1.VSphereClone, p *parts, datastores []types.ManagedObjectReference,
) (satisfying []types.ManagedObjectReference, err error) {
	hubs := make([]pbmtypes.PbmPlacementHub, 0, len(datastores))
	for _, ref := range datastores {
		hubs = append(hubs, pbmtypes.PbmPlacementHub{HubType: ref.Type, HubId: ref.Value})
	}
	err = r.server.Call(ctx, func(c *vim25.Client) error {
		policies, err := pbm.NewClient(ctx, c)
		if err != nil {
			return err
		}
		if p.profile, err = profileNamed(ctx, policies, clone.StoragePolicy); err != nil || p.profile == "" {
			return err
		}
		result, err := policies.CheckRequirements(ctx, hubs, nil, []pbmtypes.BasePbmPlacementRequirement{
			&pbmtypes.PbmPlacementCapabilityProfileRequirement{ProfileId: pbmtypes.PbmProfileId{UniqueId: p.profile}},
		})
		compatible := result.CompatibleDatastores()
		for i, hub := range hubs {
			if slices.Contains(compatible, hub) {
				satisfying = append(satisfying, datastores[i])
			}
		}
		return err
	})
	if err == nil && p.profile == "" {
		err = invalid("storagePolicy", "vCenter %s has no storage policy %q, or does not show it", r.server.Config.Name, clone.StoragePolicy)
	}
	return satisfying, err
}

// profileNamed returns the ID of the storage policy of that name for machines, "" if there is none.
func profileNamed(ctx context.Context, policies *pbm.Client, name string) (string, error) {
	ids, err := policies.QueryProfile(ctx, pbmtypes.PbmProfileResourceType{ResourceType: string(pbmtypes.PbmProfileResourceTypeEnumSTORAGE)},
		string(pbmtypes.PbmProfileCategoryEnumREQUIREMENT))
	if err != nil || len(ids) == 0 {
		return "", err
	}
	profiles, err := policies.RetrieveContent(ctx, ids)
	for _, profile := range profiles {
		if p := profile.GetPbmProfile(); p.Name == name {
			return p.ProfileId.UniqueId, err
		}
	}
	return "", err
}

// location returns where all files of the machine are placed. The storage policy is set per disk and for the other
// files.
func (p *parts) location() types.VirtualMachineRelocateSpec {
	location := types.VirtualMachineRelocateSpec{Pool: &p.pool, Datastore: &p.datastore.Self, Host: p.host}
	if p.profile == "" {
		return location
	}
	profile := []types.BaseVirtualMachineProfileSpec{&types.VirtualMachineDefinedProfileSpec{ProfileId: p.profile}}
	location.Profile = profile
	for _, disk := range object.VirtualDeviceList(p.template.Config.Hardware.Device).SelectByType((*types.VirtualDisk)(nil)) {
		location.Disk = append(location.Disk, types.VirtualMachineRelocateSpecDiskLocator{
			DiskId: disk.GetVirtualDevice().Key, Datastore: p.datastore.Self, Profile: profile,
		})
	}
	return location
}
