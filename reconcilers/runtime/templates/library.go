package templates

import (
	"context"
	"io"
)

// LibraryItem is an item of a content library. It is downloaded and imported like an OVA. vCenter could deploy an item of type ovf itself,
// but a deployment takes neither a checksum nor a version: the item may change after it was verified. And vCenter need not report a SHA-256
// of a file; what it reports is what the client that uploaded the file may have given.
type LibraryItem interface {
	// Open starts a download and waits until its files can be read. The context is that of the whole download.
	Open(ctx context.Context) (Download, error)
}

// Download is an item being downloaded. It must be closed.
type Download interface {
	// Files returns the files of the item.
	Files() []LibraryFile
	// Read returns the content of a file as vCenter sends it, unverified.
	Read(ctx context.Context, name string) (io.ReadCloser, error)
	// Close ends the download.
	Close()
}

// LibraryFile is a file of an item.
type LibraryFile struct {
	// Name is its name, which may be any text.
	Name string
	// Size is its size in bytes as vCenter reports it.
	Size int64
}
