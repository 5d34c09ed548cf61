package vsphere

import (
	"cmp"
	"context"
	"slices"

	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// maxChecked limits the datastores for which the tenants are evaluated per machine. Usually the first is allowed,
// since the tenants have restricted the choice. They may deny one whose quota is used up, for example.
const maxChecked = 16

type store struct {
	mo.Datastore
	path v1alpha1.InventoryPath
}

// chooseDatastore chooses a datastore at or below the paths for a machine that leaves the choice to its storage
// policy: the one with the most free space that the tenants allow together with the rest of real, the clone with its
// actual places.
func (r *Runtime) chooseDatastore(
	ctx context.Context, m runtime.Machine, p *parts, real *v1alpha1.VSphereClone, paths []v1alpha1.InventoryPath,
) error {
	hosts, err := r.hostsFor(ctx, m, p.compute, needs{networks: p.connected})
	if err != nil {
		return err
	}
	stores, err := r.storesOf(ctx, hosts)
	if err != nil {
		return err
	}
	stores = slices.DeleteFunc(stores, func(s store) bool { return !covered(string(s.path), paths) })
	if stores, err = r.fitting(ctx, cloneOf(m), p, stores); err != nil {
		return err
	}
	slices.SortFunc(stores, func(a, b store) int {
		return cmp.Or(cmp.Compare(b.Summary.FreeSpace, a.Summary.FreeSpace), cmp.Compare(a.path, b.path))
	})
	for _, s := range stores[:min(len(stores), maxChecked)] {
		real.Datastore = s.path
		if _, err = r.placeCheck(ctx, real); !runtime.IsPermission(err) {
			p.datastore = &s.Datastore
			return err
		}
	}
	return err
}

// fitting returns the datastores with room for the disks that satisfy the storage policy, at least one.
func (r *Runtime) fitting(ctx context.Context, clone *v1alpha1.VSphereClone, p *parts, stores []store) ([]store, error) {
	if len(stores) == 0 {
		return nil, invalid("storagePolicy", "no host that the machine can run on has a datastore that the namespace may use")
	}
	takes := p.room(clone)
	stores = slices.DeleteFunc(stores, func(s store) bool {
		return !s.Summary.Accessible || inMaintenance(s.Summary) || takes.lacks(s.Summary) != ""
	})
	if len(stores) == 0 {
		return nil, invalid("storagePolicy", "no datastore that the namespace may use has room for the disks, is accessible and is not in maintenance mode")
	}
	refs := make([]types.ManagedObjectReference, 0, len(stores))
	for _, s := range stores {
		refs = append(refs, s.Self)
	}
	satisfying, err := r.satisfying(ctx, clone, p, refs)
	if err != nil {
		return nil, err
	}
	stores = slices.DeleteFunc(stores, func(s store) bool { return !slices.Contains(satisfying, s.Self) })
	if len(stores) == 0 {
		return nil, invalid("storagePolicy", "no datastore that the namespace may use and that has room for the disks satisfies the storage policy %q",
			clone.StoragePolicy)
	}
	return stores, nil
}

// storesOf returns the datastores of the hosts. One whose path vCenter does not show cannot be evaluated and is left
// out.
func (r *Runtime) storesOf(ctx context.Context, hosts []mo.HostSystem) (stores []store, err error) {
	var refs []types.ManagedObjectReference
	for _, host := range hosts {
		for _, ref := range host.Datastore {
			if !slices.Contains(refs, ref) {
				refs = append(refs, ref)
			}
		}
	}
	if len(refs) == 0 {
		return nil, nil
	}
	seen, err := r.ancestry(ctx, refs)
	for _, object := range seen.objects {
		datastore, is := object.(mo.Datastore)
		if path, known := seen.shown(entityOf(object).Self); is && known {
			stores = append(stores, store{datastore, v1alpha1.InventoryPath(path)})
		}
	}
	return stores, err
}
