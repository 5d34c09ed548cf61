package vsphere

import (
	"time"

	"sallyport.dev/sallyport/reconcilers/runtime/templates"
)

// TemplatesOf gives the templates of a runtime's vCenter, which is told so often how much of an import is done.
func TemplatesOf(r *Runtime, tenants TemplateTenants, reportPeriod time.Duration) templates.Store {
	return &templateStore{Runtime: r, tenancy: templateTenancy{tenants}, reportPeriod: reportPeriod}
}
