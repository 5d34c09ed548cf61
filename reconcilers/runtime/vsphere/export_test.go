package vsphere

import (
	"time"

	"sallyport.dev/sallyport/reconcilers/template"
)

// TemplatesOf gives the templates of a runtime's vCenter, which is told so often how much of an import is done.
func TemplatesOf(r *Runtime, tenants TemplateTenants, told time.Duration) template.Store {
	return &templateStore{Runtime: r, tenancy: templateTenancy{tenants}, told: told}
}
