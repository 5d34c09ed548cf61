package vsphere

import (
	"context"
	"maps"
	"slices"

	"github.com/vmware/govmomi/vim25/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/templates"
)

// TemplateTenants decide where in a vCenter a namespace may have templates. They evaluate a VSphereTemplate with its
// namespace, name, UID, the actual places of its one failure domain, and its tags; empty fields are not used. A
// Permission error is the denial, any other error means that they could not be evaluated.
type TemplateTenants func(context.Context, *v1alpha1.VSphereTemplate) error

// templateTenancy asks the tenants before an import into a failure domain, or a change or removal there.
type templateTenancy struct{ admit TemplateTenants }

// may asks about places, and about the tags if they are used.
func (t templateTenancy) may(ctx context.Context, d templates.Domain, places v1alpha1.VSphereFailureDomain, tags bool) error {
	if t.admit == nil {
		return runtime.NewPermission(nil, "the policies cannot be asked whether the template may be in the folder")
	}
	of := &v1alpha1.VSphereTemplate{Spec: *d.Spec}
	of.Namespace, of.Name, of.UID = d.Namespace, d.Object, d.Owner
	places.Name = d.Domain.Name
	if !tags {
		of.Spec.Tags = nil
	}
	of.Spec.FailureDomains = []v1alpha1.VSphereFailureDomain{places}
	return t.admit(ctx, of)
}

// mayTag asks about the tags only.
func (t templateTenancy) mayTag(ctx context.Context, d templates.Domain) error {
	return t.may(ctx, d, v1alpha1.VSphereFailureDomain{}, true)
}

// mayChange asks about the folder only: renaming or removing an item affects nothing else.
func (s *templateStore) mayChange(ctx context.Context, d templates.Domain, folder types.ManagedObjectReference) error {
	var places v1alpha1.VSphereFailureDomain
	return s.may(ctx, d, &places, map[*v1alpha1.InventoryPath]types.ManagedObjectReference{&places.Folder: folder}, false)
}

// mayImport asks about everything that an import uses.
func (s *templateStore) mayImport(ctx context.Context, d templates.Domain, at *templatePlaces) error {
	var places v1alpha1.VSphereFailureDomain
	return s.may(ctx, d, &places, map[*v1alpha1.InventoryPath]types.ManagedObjectReference{
		&places.Folder: at.folder, &places.ResourcePool: at.named, &places.Datastore: at.datastore.Self, &places.Network: at.network,
	}, true)
}

// may asks about the actual places, which may differ from the spec after a rename or move.
func (s *templateStore) may(
	ctx context.Context, d templates.Domain, places *v1alpha1.VSphereFailureDomain, refs map[*v1alpha1.InventoryPath]types.ManagedObjectReference,
	tags bool,
) error {
	seen, err := s.ancestry(ctx, slices.Collect(maps.Values(refs)))
	if err != nil {
		return s.notAll(d, err)
	}
	for path, ref := range refs {
		is, known := seen.path(seen.named[ref])
		if !known || len(is) > maxPath {
			return runtime.NewUnavailable(nil, "vCenter %s does not show the full path of %s %s, which is needed to check spec.tenants",
				s.server.Config.Name, ref.Type, ref.Value)
		}
		*path = v1alpha1.InventoryPath(is)
	}
	return s.tenancy.may(ctx, d, *places, tags)
}
