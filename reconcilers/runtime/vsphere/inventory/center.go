// Package inventory has what a vCenter has for machines: folders, resource pools, hosts, datastores, networks, tags and storage policies, and who
// may use which of them.
package inventory

import "sallyport.dev/sallyport/reconcilers/runtime/vsphere/session"

// Center is a vCenter as an inventory.
type Center struct{ *session.Server }
