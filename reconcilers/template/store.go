package template

import (
	"context"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// Store is the folder of a vCenter with the templates of one failure domain. It never changes or removes objects that do not belong to the
// given VSphereTemplate.
//
// A change names the item as it was read. If the item has changed since, nothing is done and the error is InvalidState of package runtime:
// read again. Other errors are those of package runtime, and [Taken]; after one of them it is unknown whether the change was made, unless
// the error says that it was refused.
type Store interface {
	// Look shows what is in the folder.
	Look(ctx context.Context, d Domain) (View, error)
	// Import makes a machine of what is in the archive, called so and bearing the mark from its first moment on, and gives it, Imported, once
	// the whole archive was read without an error. It takes long, tells how much of it is done in percent, and ends with ctx. What an import that fails leaves behind is an item that is
	// not Imported, if anything.
	Import(ctx context.Context, d Domain, what Import, progress func(percent int32)) (Item, error)
	// Finish gives what was imported its firmware and its tags, and makes it a template, last. What is done already is not done again.
	Finish(ctx context.Context, d Domain, item Item) (Item, error)
	// Rename gives the item another name in the folder. A name that something else has is the error of
	// [NewTaken].
	Rename(ctx context.Context, d Domain, item Item, name string) (Item, error)
	// Replace has an item give its name to another one, and be called as from then on. Between the two changes nothing has the name: both
	// items are looked at before the first one. If the second is refused, the first stays as it is, for the next look to see.
	Replace(ctx context.Context, d Domain, old Item, as string, item Item) error
	// Destroy removes the item with its files. One from which something is being made is left, with an error of [runtime.InvalidState].
	// One that is gone is no error.
	Destroy(ctx context.Context, d Domain, item Item) error
}

// Domain is a failure domain of a VSphereTemplate, as its spec says.
type Domain struct {
	// Owner is the VSphereTemplate's UID, and Former those of earlier ones of its name whose items it took over.
	Owner  types.UID
	Former []string
	// Namespace and Object are its namespace and name, which people in vCenter read.
	Namespace, Object string
	// Spec is its spec, and Domain the failure domain.
	Spec   *v1alpha1.VSphereTemplateSpec
	Domain *v1alpha1.VSphereFailureDomain
}

// Import describes a template to import.
type Import struct {
	// Name is what it is called until it takes the template's name.
	Name string
	// InstanceUUID is the instance UUID that it gets.
	InstanceUUID string
	// Mark says what it is.
	Mark Mark
	// DiskType is how its disks are laid out.
	DiskType v1alpha1.VSphereDiskType
	// Archive is the OVA. The import must not complete before all of it was read.
	Archive Archive
}

// Archive is an OVA that is being downloaded. Reading it returns io.EOF only if all of the content is what the spec asks for, and otherwise an
// error of package runtime: what was read before is not verified. Close ends the download, and a Read that waits.
type Archive interface {
	io.ReadCloser
	// Size is how many bytes it has as its source says, which may be wrong, or less than zero if that does not say.
	Size() int64
}

// Mark says which version of a template an item is. It stays with the item, in a place that a copy of the item does not inherit.
type Mark struct {
	// Release is the release.
	Release string
	// Digest tells what it is made of, by a hash.
	Digest string
	// Made is when its import began, in whole milliseconds.
	Made time.Time
}

// Item is a machine or a template in the folder that is the VSphereTemplate's: it bears its mark, and is no copy of what does.
type Item struct {
	Mark
	// MoRef and InstanceUUID are what vCenter calls it.
	MoRef, InstanceUUID string
	// Name is what it is called in the folder.
	Name string
	// Stage is how far it has come.
	Stage Stage
	// Busy tells that something is being made from it, or done to it.
	Busy bool
	// DiskType is how its disks are laid out.
	DiskType v1alpha1.VSphereDiskType
	// Bytes is how much of its datastore it takes.
	Bytes int64
	// Version is the item's own version, which each of its changes changes.
	Version string
}

// Stage is how far an item has come.
type Stage int

const (
	// Partial is an import that is running or was aborted.
	Partial Stage = iota
	// Imported has all of its content, and is not finished.
	Imported
	// Whole is a template with everything that its spec asks for.
	Whole
)

// View is what is in the folder.
type View struct {
	// Items are those of the VSphereTemplate, in the order of their names.
	Items []Item
	// Others are the names that something else has in the folder.
	Others map[string]bool
	// Earlier are the owners of those of them that are marked for a VSphereTemplate of the same namespace and name with another UID.
	Earlier map[string]EarlierItem
}

// EarlierItem is a machine or template that is marked for another VSphereTemplate of the same namespace and name.
type EarlierItem struct {
	Owner        types.UID
	InstanceUUID string
}
