package vsphere_test

import (
	"bytes"
	"errors"
	"io"
	"sync"

	"sallyport.dev/sallyport/test/support/double/vcsim"
)

// entry is a file of an OVA.
func entry(name, content string) vcsim.File { return vcsim.File{Name: name, Content: content} }

// What an OVA is made of.
var (
	tarOf      = vcsim.Archive
	descriptor = vcsim.Descriptor
	content    = vcsim.Disk
)

// image is an OVA that can be imported.
func image() archive {
	return archive{content: vcsim.OVA()}
}

// archive is an OVA in memory.
type archive struct {
	content []byte
	before  func() // Run before more than the descriptor is read, or nil.
	fails   error  // What reading the disk ends with, or nil.
	wrong   error  // What reading all of it ends with, or nil.
	unsized bool   // Nobody says how large it is.
	stalls  bool   // Reading the disk waits until the archive is closed.
}

// open gives the archive from its beginning.
func (a archive) open() *opened {
	return &opened{reader: bytes.NewReader(a.content), archive: a, closed: make(chan struct{})}
}

// opened is an archive that is being read.
type opened struct {
	archive
	reader *bytes.Reader
	ran    bool
	closed chan struct{}
	once   sync.Once
}

func (o *opened) Size() int64 {
	if o.unsized {
		return -1
	}
	return o.reader.Size()
}

func (o *opened) Read(p []byte) (int, error) {
	n, err := o.reader.Read(p)
	if errors.Is(err, io.EOF) && o.wrong != nil {
		err = o.wrong
	}
	if !bytes.Contains(p[:n], []byte("streamOptimized")) {
		return n, err
	}
	if o.before != nil && !o.ran {
		o.ran = true
		o.before()
	}
	if o.stalls {
		<-o.closed
		return 0, io.ErrClosedPipe
	}
	if o.fails != nil {
		return 0, o.fails
	}
	return n, err
}

func (o *opened) Close() error {
	o.once.Do(func() { close(o.closed) })
	return nil
}
