package inventory

import (
	"context"
	"slices"

	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// Store is a datastore with its inventory path.
type Store struct {
	mo.Datastore
	Path v1alpha1.InventoryPath
}

// StoresOf returns the datastores of the hosts. One whose path vCenter does not show cannot be evaluated and is left
// out.
func (r *Center) StoresOf(ctx context.Context, hosts []mo.HostSystem) (stores []Store, err error) {
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
	seen, err := r.Ancestry(ctx, refs)
	for _, object := range seen.objects {
		datastore, is := object.(mo.Datastore)
		if path, known := seen.Shown(EntityOf(object).Self); is && known {
			stores = append(stores, Store{datastore, v1alpha1.InventoryPath(path)})
		}
	}
	return stores, err
}
