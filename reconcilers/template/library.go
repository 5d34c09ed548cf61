package template

import (
	"context"
	"io"
)

// LibraryItem is an item of a content library. It is downloaded and imported like an OVA. vCenter could deploy an item of type ovf itself,
// but a deployment takes neither a checksum nor a version: the item may change after it was verified. And vCenter need not report a SHA-256
// of a file; what it reports is what the client that uploaded the file may have given.
type LibraryItem interface {
	// Open begins a download of it, and waits until its files can be read. The context is that of the whole download.
	Open(ctx context.Context) (Download, error)
}

// Download is an item that is being downloaded. It must be closed.
type Download interface {
	// Files are those of the item.
	Files() []LibraryFile
	// Read gives the content of a file. What it has in it is as vCenter says, and not verified.
	Read(ctx context.Context, name string) (io.ReadCloser, error)
	// Close ends the download.
	Close()
}

// LibraryFile is a file of an item.
type LibraryFile struct {
	// Name is its name, which may be anything.
	Name string
	// Size is how large vCenter says that it is, in bytes.
	Size int64
}
