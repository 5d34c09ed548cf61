package vcsim

import (
	"slices"

	"github.com/vmware/govmomi/pbm"
	pbmmethods "github.com/vmware/govmomi/pbm/methods"
	pbmsimulator "github.com/vmware/govmomi/pbm/simulator" // serves storage policies
	pbmtypes "github.com/vmware/govmomi/pbm/types"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// placementSolver says which datastores satisfy a storage policy: all that are asked about, but for those that were made unfit.
type placementSolver struct {
	*pbmsimulator.PlacementSolver
	center *VCenter
}

func (v *VCenter) wrapStoragePolicies() {
	policies := v.service.For(pbm.Path).Map
	for _, solver := range policies.AllReference("PbmPlacementSolver") {
		policies.Put(&placementSolver{solver.(*pbmsimulator.PlacementSolver), v})
	}
}

// PbmCheckRequirements looks at the datastores that are asked about.
func (s *placementSolver) PbmCheckRequirements(_ *simulator.Context, req *pbmtypes.PbmCheckRequirements) soap.HasFault {
	body := &pbmmethods.PbmCheckRequirementsBody{Res: &pbmtypes.PbmCheckRequirementsResponse{}}
	s.center.mu.Lock()
	defer s.center.mu.Unlock()
	for _, hub := range req.HubsToSearch {
		result := pbmtypes.PbmPlacementCompatibilityResult{Hub: hub}
		at := s.center.service.Map.Get(types.ManagedObjectReference{Type: hub.HubType, Value: hub.HubId}).(*simulator.Datastore)
		if slices.Contains(s.center.unfit, at.Name) {
			result.Error = []types.LocalizedMethodFault{{Fault: &pbmtypes.PbmIncompatibleVendorSpecificRuleSet{}}}
		}
		body.Res.Returnval = append(body.Res.Returnval, result)
	}
	return body
}

// SetUnfit says which datastores satisfy no storage policy from now on.
func (v *VCenter) SetUnfit(datastores ...string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.unfit = datastores
}

// ChangeDatastore changes what the vCenter says of a datastore.
func (v *VCenter) ChangeDatastore(name string, change func(*types.DatastoreSummary)) {
	datastore := v.datastore(name)
	ctx := v.context()
	ctx.WithLock(datastore, func() {
		summary := datastore.Summary
		change(&summary)
		ctx.Update(datastore, []types.PropertyChange{{Name: "summary", Val: summary}})
	})
}

// Unmount takes a datastore off a host.
func (v *VCenter) Unmount(host, datastore string) {
	h, ref, ctx := v.host(host), v.datastore(datastore).Self, v.context()
	ctx.WithLock(h, func() {
		left := slices.DeleteFunc(slices.Clone(h.Datastore), func(r types.ManagedObjectReference) bool { return r == ref })
		ctx.Update(h, []types.PropertyChange{{Name: "datastore", Val: left}})
	})
}

func (v *VCenter) datastore(name string) *simulator.Datastore {
	for _, datastore := range v.service.Map.All("Datastore") {
		if datastore.Entity().Name == name {
			return datastore.(*simulator.Datastore)
		}
	}
	panic("vcsim: there is no datastore " + name)
}
