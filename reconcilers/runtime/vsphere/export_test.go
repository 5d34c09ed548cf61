package vsphere

import (
	"time"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime/templates"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/session"
)

// TemplatesOf gives the templates of a runtime's vCenter, which is told so often how much of an import is done.
func TemplatesOf(r *Runtime, tenants TemplateTenants, reportPeriod time.Duration) templates.Store {
	return &templateStore{Runtime: r, tenancy: templateTenancy{tenants}, reportPeriod: reportPeriod}
}

// LibraryItemOf gives an item of a content library, of whose download vCenter is told so often that it goes on.
func LibraryItemOf(s *session.Server, of v1alpha1.VSphereLibraryItem, every time.Duration) templates.LibraryItem {
	return &libraryItem{s, of, every}
}
