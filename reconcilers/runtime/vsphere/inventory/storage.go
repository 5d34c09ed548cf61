package inventory

import (
	"context"
	"slices"

	"github.com/vmware/govmomi/pbm"
	pbmtypes "github.com/vmware/govmomi/pbm/types"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/types"
)

// Satisfying returns the ID of the storage policy of that name, and the datastores that satisfy it.
func (r *Center) Satisfying(
	ctx context.Context, in Section, policy string, datastores []types.ManagedObjectReference,
) (profile string, satisfying []types.ManagedObjectReference, err error) {
	hubs := make([]pbmtypes.PbmPlacementHub, 0, len(datastores))
	for _, ref := range datastores {
		hubs = append(hubs, pbmtypes.PbmPlacementHub{HubType: ref.Type, HubId: ref.Value})
	}
	err = r.Call(ctx, func(c *vim25.Client) error {
		policies, err := pbm.NewClient(ctx, c)
		if err != nil {
			return err
		}
		if profile, err = profileNamed(ctx, policies, policy); err != nil || profile == "" {
			return err
		}
		result, err := policies.CheckRequirements(ctx, hubs, nil, []pbmtypes.BasePbmPlacementRequirement{
			&pbmtypes.PbmPlacementCapabilityProfileRequirement{ProfileId: pbmtypes.PbmProfileId{UniqueId: profile}},
		})
		compatible := result.CompatibleDatastores()
		for i, hub := range hubs {
			if slices.Contains(compatible, hub) {
				satisfying = append(satisfying, datastores[i])
			}
		}
		return err
	})
	if err == nil && profile == "" {
		err = in.Invalid("storagePolicy", "vCenter %s has no storage policy %q, or does not show it", r.Config.Name, policy)
	}
	return profile, satisfying, err
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
