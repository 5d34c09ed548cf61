package vsphereserver

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// Servers keeps the connections to vCenters, by the names of their VSphereServers. Its errors are those of package runtime
// where there is one that fits: Unavailable for a vCenter that does not answer, Permission for one that refuses. An error for
// a certificate that is not trusted wraps the one of package crypto/tls or crypto/x509 that says so. No error holds a secret.
type Servers interface {
	// Connect sees to it that there is a session with the vCenter, made with that very connection, and asks it what it is. A
	// session that was made with another connection is ended. A Permission error says that the login was refused.
	Connect(ctx context.Context, name string, connection Connection) (About, error)
	// Inventory gives what a vCenter has that Connect has connected, each list in any order and of any length. Places are only those
	// that one of the tenants allows. A Permission error names what is lacking.
	Inventory(ctx context.Context, name string, tenants []v1alpha1.VSphereTenant) (Inventory, error)
	// Forget ends the session with the vCenter, if there is one, and keeps nothing of its credentials.
	Forget(name string)
}

// Connection is how a vCenter is reached. Exactly one of CABundle and Thumbprint is set.
type Connection struct {
	// URL is where it is, without a user.
	URL string
	// CABundle are certificates of authorities in PEM.
	CABundle string
	// Thumbprint is the SHA-256 of its certificate, in hex with colons.
	Thumbprint string
	// Username is the user to log in as.
	Username string
	// Password is the user's.
	Password runtime.Secret
}

// About is what a vCenter says of itself.
type About struct {
	// Version is such as 8.0.3.
	Version string
	// InstanceUUID tells it from every other vCenter.
	InstanceUUID string
}

// Inventory is what a vCenter has.
type Inventory struct {
	// Hosts are its ESXi hosts.
	Hosts []v1alpha1.VSphereHost
	// Places are what machines can be made from and placed in.
	Places v1alpha1.VSphereInventory
	// Marked are machines that bear the mark of a VirtualMachine.
	Marked []Marked
}

// Marked is a machine that bears the mark of a VirtualMachine.
type Marked struct {
	// Path is its inventory path.
	Path string
	// Owner is the UID in its mark, and Name the namespace and name, such as team-a/web-1.
	Owner types.UID
	Name  string
}
