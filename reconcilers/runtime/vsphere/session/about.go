package session

import (
	"context"

	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/mo"
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
	err = s.Ask(ctx, func(c *vim25.Client) error {
		// Not cached: this call also checks that vCenter answers.
		var content mo.ServiceInstance
		err := property.DefaultCollector(c).RetrieveOne(ctx, vim25.ServiceInstance, []string{"content.about"}, &content)
		about = About{Version: content.Content.About.Version, InstanceUUID: content.Content.About.InstanceUuid}
		return err
	})
	return about, err
}
