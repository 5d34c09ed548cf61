package vsphere

import (
	"context"
	"time"

	"github.com/vmware/govmomi/vapi/rest"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/template"
)

// TemplatesOf gives the templates of a runtime's vCenter, which is told so often how much of an import is done.
func TemplatesOf(r *Runtime, tenants TemplateTenants, reportPeriod time.Duration) template.Store {
	return &templateStore{Runtime: r, tenancy: templateTenancy{tenants}, reportPeriod: reportPeriod}
}

// LibraryItemOf gives an item of a content library, of whose download vCenter is told so often that it goes on.
func LibraryItemOf(s *Server, of v1alpha1.VSphereLibraryItem, every time.Duration) template.LibraryItem {
	return &libraryItem{s, of, every}
}

// HangsAtOnce has a vCenter count as hung after any request without an answer, and no request tried for an hour.
func HangsAtOnce(s *Server) { s.hang.after, s.hang.first = 0, time.Hour }

// AskREST makes an empty use of the REST API.
func AskREST(ctx context.Context, s *Server) error {
	return s.rest(ctx, "a test", func(*rest.Client) error { return nil })
}
