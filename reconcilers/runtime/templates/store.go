// Package templates says what a vCenter has to do with templates: what the reconciler of VSphereTemplates asks of it, and what it answers.
package templates

import (
	"context"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// Store is the vCenter folder with the templates of one failure domain. It never changes or removes objects that do
// not belong to the given VSphereTemplate.
//
// A change passes the item as read. If the item has changed since, nothing is done and the error is InvalidState of
// package runtime: read again. Other errors are those of package runtime; after one of them it is
// unknown whether the change was made, unless the error says that it was rejected.
type Store interface {
	// Look returns the content of the folder.
	Look(ctx context.Context, d Domain) (View, error)
	// Import creates a machine from the archive under the import's name, with the mark from the start, and returns it
	// with stage Imported once the whole archive was read without an error. It takes long, reports its progress in
	// percent, and ends with ctx. A failed import leaves at most an item that is not Imported.
	Import(ctx context.Context, d Domain, what Import, progress func(percent int32)) (Item, error)
	// Finish sets firmware and tags of an imported item, and then makes it a template. It skips what is done already.
	Finish(ctx context.Context, d Domain, item Item) (Item, error)
	// Rename renames the item in the folder. If another object has the name, the error is that of [NewTaken].
	Rename(ctx context.Context, d Domain, item Item, name string) (Item, error)
	// Replace renames old to as, and item to old's name. Between the two changes no item has the name; both items are
	// checked before the first one. If the second is rejected, the first is not undone; the next read shows it.
	Replace(ctx context.Context, d Domain, old Item, as string, item Item) error
	// Destroy removes the item with its files. An item that is being cloned stays, with an error of
	// [runtime.InvalidState]. A missing item is not an error.
	Destroy(ctx context.Context, d Domain, item Item) error
}

// Domain is a failure domain of a VSphereTemplate.
type Domain struct {
	// Owner is the VSphereTemplate's UID, Former those of earlier ones whose items it took over.
	Owner  types.UID
	Former []string
	// Namespace and Object are its namespace and name, shown in vCenter.
	Namespace, Object string
	// Spec is its spec, and Domain the failure domain.
	Spec   *v1alpha1.VSphereTemplateSpec
	Domain *v1alpha1.VSphereFailureDomain
}

// Import describes a template to import.
type Import struct {
	// Name is its name until it takes the template's name.
	Name         string
	InstanceUUID string
	// Mark identifies the version.
	Mark Mark
	// DiskType is the layout of its disks.
	DiskType v1alpha1.VSphereDiskType
	// Archive is the OVA. The import must not complete before all of it was read.
	Archive Archive
}

// Archive is an OVA being downloaded. Read returns io.EOF only if all of the content matches the spec, and otherwise
// an error of package runtime: content read before is unverified. Close ends the download and unblocks Read.
type Archive interface {
	io.ReadCloser
	// Size returns the size in bytes as its source reports it, which may be wrong, or less than zero if unknown.
	Size() int64
}

// Mark identifies the version of a template. It is stored with the item where copies of the item do not inherit it.
type Mark struct {
	Release string
	// Digest is a hash of its content's description.
	Digest string
	// Made is when its import began, in whole milliseconds.
	Made time.Time
}

// Item is a machine or template in the folder that belongs to the VSphereTemplate: it has its mark and is not a copy.
type Item struct {
	Mark
	// MoRef and InstanceUUID identify it in vCenter.
	MoRef, InstanceUUID string
	// Name is its name in the folder.
	Name  string
	Stage Stage
	// Busy is set while it is being cloned or changed.
	Busy bool
	// DiskType is the layout of its disks.
	DiskType v1alpha1.VSphereDiskType
	// Bytes is the space that it uses.
	Bytes int64
	// Version changes with each change of the item.
	Version string
}

// Stage is the stage of an item.
type Stage int

const (
	// Partial is an import that is running or was aborted.
	Partial Stage = iota
	// Imported has all content but is unfinished.
	Imported
	// Whole is a complete template.
	Whole
)

// View is the content of the folder.
type View struct {
	// Items are those of the VSphereTemplate, in the order of their names.
	Items []Item
	// Others are the names of other objects in the folder.
	Others map[string]bool
	// Earlier are those of them marked for a VSphereTemplate of the same namespace and name with another UID, by
	// name.
	Earlier map[string]EarlierItem
}

// EarlierItem is a machine or template that is marked for another VSphereTemplate of the same namespace and name.
type EarlierItem struct {
	Owner        types.UID
	InstanceUUID string
}
