package vsphere

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/vcsim"
)

// bytesArchive is an archive in memory.
type bytesArchive []byte

func (a bytesArchive) Open() (io.ReadSeekCloser, error) {
	return struct {
		io.ReadSeeker
		io.Closer
	}{bytes.NewReader(a), io.NopCloser(nil)}, nil
}

// Whatever is called an OVA is refused for what it is, or has the files that its descriptor names.
func FuzzOVA(f *testing.F) {
	f.Add(vcsim.OVA())
	for _, text := range []string{"", "<Envelope/>", vcsim.Descriptor(), vcsim.Descriptor("a", "b"), strings.Repeat("<a>", 1000)} {
		f.Add(vcsim.Archive(vcsim.File{Name: "image.ovf", Content: text}, vcsim.File{Name: "disk.vmdk", Content: "disk"}))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		o, err := readOVA(bytesArchive(content))
		if err != nil {
			if !runtime.IsInvalidSpec(err) || !strings.HasPrefix(runtime.Message(err), "spec.source: ") {
				t.Errorf("got error %v", err)
			}
			return
		}
		for name := range o.sizes {
			err := o.read(name, func(content io.Reader, size int64) error {
				if n, err := io.Copy(io.Discard, content); err != nil || n != size {
					t.Errorf("%d bytes of %d, error %v", n, size, err)
				}
				return nil
			})
			if err != nil {
				t.Errorf("reading %q: %v", name, err)
			}
		}
	})
}
