package template

import (
	"context"
	"maps"
	"slices"

	"github.com/vmware/govmomi/vim25/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/templates"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/inventory"
)

// Tenants decide where in a vCenter a namespace may have templates. They evaluate a VSphereTemplate with its
// namespace, name, UID, the actual places of its one failure domain, and its tags; empty fields are not used. A
// Permission error is the denial, any other error means that they could not be evaluated.
type Tenants func(context.Context, *v1alpha1.VSphereTemplate) error

// tenancy asks the tenants before an import into a failure domain, or a change or removal there.
type tenancy struct{ admit Tenants }

// may asks about places, and about the tags if they are used.
func (t tenancy) may(ctx context.Context, d templates.Domain, places v1alpha1.VSphereFailureDomain, tags bool) error {
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
func (t tenancy) mayTag(ctx context.Context, d templates.Domain) error {
	return t.may(ctx, d, v1alpha1.VSphereFailureDomain{}, true)
}

// mayChange asks about the folder only: renaming or removing an item affects nothing else.
func (s *Store) mayChange(ctx context.Context, d templates.Domain, folder types.ManagedObjectReference) error {
	var places v1alpha1.VSphereFailureDomain
	return s.may(ctx, d, &places, map[*v1alpha1.InventoryPath]types.ManagedObjectReference{&places.Folder: folder}, false)
}

// mayImport asks about everything that an import uses.
func (s *Store) mayImport(ctx context.Context, d templates.Domain, at *placement) error {
	var places v1alpha1.VSphereFailureDomain
	return s.may(ctx, d, &places, map[*v1alpha1.InventoryPath]types.ManagedObjectReference{
		&places.Folder: at.folder, &places.ResourcePool: at.Named, &places.Datastore: at.datastore.Self, &places.Network: at.network,
	}, true)
}

// may asks about the actual places, which may differ from the spec after a rename or move.
func (s *Store) may(
	ctx context.Context, d templates.Domain, places *v1alpha1.VSphereFailureDomain, refs map[*v1alpha1.InventoryPath]types.ManagedObjectReference,
	tags bool,
) error {
	seen, err := s.Ancestry(ctx, slices.Collect(maps.Values(refs)))
	if err != nil {
		return s.incomplete(d, err)
	}
	for path, ref := range refs {
		is, known := seen.Path(seen.Named[ref])
		if !known || len(is) > inventory.MaxPath {
			return runtime.NewUnavailable(nil, "vCenter %s does not show the full path of %s %s, which is needed to check spec.tenants",
				s.Config.Name, ref.Type, ref.Value)
		}
		*path = v1alpha1.InventoryPath(is)
	}
	return s.tenancy.may(ctx, d, *places, tags)
}
