package vsphere

import (
	"context"

	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/mo"

	"sallyport.dev/sallyport/reconcilers/runtime"
)

// About identifies a vCenter.
type About struct {
	// Version is the version, such as 8.0.3.
	Version string
	// InstanceUUID is the vCenter's unique ID.
	InstanceUUID string
}

// About logs in, if there is no session, and reads the version and identity of the vCenter.
func (s *Server) About(ctx context.Context) (about About, err error) {
	err = s.ask(ctx, func(c *vim25.Client) error {
		// Not cached: this call also checks that vCenter answers.
		var content mo.ServiceInstance
		err := property.DefaultCollector(c).RetrieveOne(ctx, vim25.ServiceInstance, []string{"content.about"}, &content)
		about = About{Version: content.Content.About.Version, InstanceUUID: content.Content.About.InstanceUuid}
		return err
	})
	return about, err
}

// Path returns the current inventory path of the machine, such as /DC0/vm/web/web-1, of any owner. If there
// is no machine, it returns a NotFound error.
func (r *Runtime) Path(ctx context.Context, m runtime.Machine) (path string, err error) {
	s, _, err := r.find(ctx, m)
	if err != nil {
		return "", err
	}
	if s == nil {
		return "", r.absent(ctx, m)
	}
	err = r.server.call(ctx, func(c *vim25.Client) error {
		path, err = find.InventoryPath(ctx, c, s.vm.Self)
		return err
	})
	return path, err
}
