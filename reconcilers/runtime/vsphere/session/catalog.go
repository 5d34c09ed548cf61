package session

import (
	"context"
	"sync"

	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
	"github.com/vmware/govmomi/vslm"
	"github.com/vmware/govmomi/vslm/methods"
	vslmtypes "github.com/vmware/govmomi/vslm/types"
)

// catalog is the client of the global catalog of First Class Disks, which shares the session.
type catalog struct {
	mu      sync.Mutex
	client  soap.RoundTripper // nil until the first request
	manager types.ManagedObjectReference
}

// Catalog makes one request to the global catalog of First Class Disks, which has those of all datastores, unless vCenter is hung. The
// reference is that of its manager.
func (s *Server) Catalog(ctx context.Context, request func(c soap.RoundTripper, manager types.ManagedObjectReference) error) error {
	return s.unlessHung(ctx, func(c *connection) error {
		client, manager, err := s.catalogOf(ctx, c)
		if err != nil {
			return err
		}
		return request(client, manager)
	})
}

// catalogOf returns the client of a connection. vslm.NewClient would send its requests past [Config.Wrap].
func (s *Server) catalogOf(ctx context.Context, c *connection) (soap.RoundTripper, types.ManagedObjectReference, error) {
	c.catalog.mu.Lock()
	defer c.catalog.mu.Unlock()
	if c.catalog.client != nil {
		return c.catalog.client, c.catalog.manager, nil
	}
	service := c.NewServiceClient(vslm.Path, vslm.Namespace)
	service.Cookie, service.CheckRedirect = c.SessionCookie, c.CheckRedirect
	var client soap.RoundTripper = service
	if s.Config.Wrap != nil {
		client = s.Config.Wrap(client)
	}
	client = listening{client, &s.hang}
	content, err := methods.RetrieveContent(ctx, client, &vslmtypes.RetrieveContent{This: vslm.ServiceInstance})
	if err != nil {
		return nil, types.ManagedObjectReference{}, err
	}
	c.catalog.client, c.catalog.manager = client, content.Returnval.VStorageObjectManager
	return c.catalog.client, c.catalog.manager, nil
}
