package machine

import (
	"cmp"
	"context"
	"slices"

	"github.com/vmware/govmomi/vim25/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/inventory"
)

// maxChecked limits the datastores for which the tenants are evaluated per machine. Usually the first is allowed,
// since the tenants have restricted the choice. They may deny one whose quota is used up, for example.
const maxChecked = 16

// chooseDatastore chooses a datastore at or below the paths for a machine that leaves the choice to its storage
// policy: the one with the most free space that the tenants allow together with the rest of real, the clone with its
// actual places.
func (r *Runtime) chooseDatastore(
	ctx context.Context, m runtime.Machine, p *placement, real *v1alpha1.VSphereClone, paths []v1alpha1.InventoryPath,
) error {
	hosts, err := r.HostsFor(ctx, m, p.Compute, inventory.Needs{Networks: p.connected})
	if err != nil {
		return err
	}
	stores, err := r.StoresOf(ctx, hosts)
	if err != nil {
		return err
	}
	stores = slices.DeleteFunc(stores, func(s inventory.Store) bool { return !inventory.Covered(string(s.Path), paths) })
	if stores, err = r.fitting(ctx, cloneOf(m), p, stores); err != nil {
		return err
	}
	slices.SortFunc(stores, func(a, b inventory.Store) int {
		return cmp.Or(cmp.Compare(b.Summary.FreeSpace, a.Summary.FreeSpace), cmp.Compare(a.Path, b.Path))
	})
	for _, s := range stores[:min(len(stores), maxChecked)] {
		real.Datastore = s.Path
		if _, err = r.placeCheck(ctx, real); !runtime.IsPermission(err) {
			p.datastore = &s.Datastore
			return err
		}
	}
	return err
}

// fitting returns the datastores with room for the disks that satisfy the storage policy, at least one.
func (r *Runtime) fitting(ctx context.Context, clone *v1alpha1.VSphereClone, p *placement, stores []inventory.Store) ([]inventory.Store, error) {
	if len(stores) == 0 {
		return nil, inventory.Invalid("storagePolicy", "no host that the machine can run on has a datastore that the namespace may use")
	}
	takes := p.room(clone)
	stores = slices.DeleteFunc(stores, func(s inventory.Store) bool {
		return !s.Summary.Accessible || inventory.InMaintenance(s.Summary) || takes.Lacks(s.Summary) != ""
	})
	if len(stores) == 0 {
		return nil, inventory.Invalid("storagePolicy", "no datastore that the namespace may use has room for the disks, is accessible and is not in maintenance mode")
	}
	refs := make([]types.ManagedObjectReference, 0, len(stores))
	for _, s := range stores {
		refs = append(refs, s.Self)
	}
	profile, satisfying, err := r.Satisfying(ctx, inventory.OfClone, clone.StoragePolicy, refs)
	if err != nil {
		return nil, err
	}
	p.profile = profile
	stores = slices.DeleteFunc(stores, func(s inventory.Store) bool { return !slices.Contains(satisfying, s.Self) })
	if len(stores) == 0 {
		return nil, inventory.Invalid("storagePolicy", "no datastore that the namespace may use and that has room for the disks satisfies the storage policy %q",
			clone.StoragePolicy)
	}
	return stores, nil
}
