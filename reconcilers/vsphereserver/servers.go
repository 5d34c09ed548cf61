package vsphereserver

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// Servers manages the connections to vCenters by the names of their VSphereServers. Errors are those of package
// runtime where one fits: Unavailable if vCenter does not answer, Permission if it denies access. The error of an
// untrusted certificate wraps that of crypto/tls or crypto/x509. No error contains a secret.
type Servers interface {
	// Connect ensures a session that was opened with exactly this connection, and returns vCenter's version and ID. A
	// session with another connection is closed. A Permission error means that the login failed.
	Connect(ctx context.Context, name string, connection Connection) (About, error)
	// Inventory returns the inventory of a connected vCenter, in any order and length. Places are limited to those
	// that the tenants allow. A Permission error names the missing privilege.
	Inventory(ctx context.Context, name string, tenants []v1alpha1.VSphereTenant) (Inventory, error)
	// Forget closes the session, if any, and drops the credentials.
	Forget(name string)
}

// Connection is the address, trust and login of a vCenter. Exactly one of CABundle and Thumbprint is set.
type Connection struct {
	// URL is its address, without a user.
	URL string
	// CABundle contains certificates of authorities in PEM.
	CABundle string
	// Thumbprint is the SHA-256 of its certificate, in hex with colons.
	Thumbprint string
	// Username is the user to log in as.
	Username string
	// Password is the user's.
	Password runtime.Secret
	// InstanceUUID is the ID of the vCenter; empty accepts any.
	InstanceUUID string
}

// About identifies a vCenter.
type About struct {
	// Version is the version, such as 8.0.3.
	Version string
	// InstanceUUID is the vCenter's unique ID.
	InstanceUUID string
}

// Inventory is the inventory of a vCenter.
type Inventory struct {
	// Hosts are its ESXi hosts.
	Hosts []v1alpha1.VSphereHost
	// Places are the places for machines.
	Places v1alpha1.VSphereInventory
	// Marked are machines with the mark of a VirtualMachine.
	Marked []Marked
}

// Marked is a machine with the mark of a VirtualMachine.
type Marked struct {
	// Path is its inventory path.
	Path string
	// Owner is the UID in its mark, and Name the namespace and name, such as team-a/web-1.
	Owner types.UID
	Name  string
}
