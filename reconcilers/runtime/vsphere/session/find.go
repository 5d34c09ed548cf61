package session

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// MaxBy limits the length of vCenter's user names in messages.
const MaxBy = 128

// Named returns the object at an inventory path, nil if there is none of the types.
func (s *Server) Named(ctx context.Context, path v1alpha1.InventoryPath, kinds ...string) (ref *types.ManagedObjectReference, err error) {
	err = s.Call(ctx, func(c *vim25.Client) (err error) {
		ref, err = FindByPath(ctx, c, string(path))
		return err
	})
	if err != nil || ref == nil || !slices.Contains(kinds, ref.Type) {
		return nil, err
	}
	return ref, nil
}

// Shown returns a name of another client's object for messages.
func Shown(name string) string {
	if len(name) > MaxBy {
		name = strings.ToValidUTF8(name[:MaxBy], "")
	}
	return strconv.Quote(name)
}

// FindByUUID searches for the machine with an instance UUID, or with a BIOS UUID.
func FindByUUID(ctx context.Context, c *vim25.Client, uuid string, instance bool) (*types.ManagedObjectReference, error) {
	found, err := methods.FindByUuid(ctx, c, &types.FindByUuid{
		This: *c.ServiceContent.SearchIndex, Uuid: strings.ToLower(uuid), VmSearch: true, InstanceUuid: &instance,
	})
	if err != nil {
		return nil, err
	}
	return found.Returnval, nil
}

// asWritten normalizes escapes of a path to vCenter's notation. Paths are compared as text, and vCenter accepts both
// notations in a name.
var asWritten = strings.NewReplacer("%2F", "%2f", "%5C", "%5c")

// FindByPath searches for the object at an inventory path.
func FindByPath(ctx context.Context, c *vim25.Client, path string) (*types.ManagedObjectReference, error) {
	for _, path := range slices.Compact([]string{path, asWritten.Replace(path)}) {
		found, err := methods.FindByInventoryPath(ctx, c, &types.FindByInventoryPath{
			This: *c.ServiceContent.SearchIndex, InventoryPath: strings.Trim(path, "/"),
		})
		if err != nil {
			return nil, err
		}
		if found.Returnval != nil {
			return found.Returnval, nil
		}
	}
	return nil, nil
}
