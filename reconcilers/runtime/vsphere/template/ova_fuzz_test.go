package template

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/test/support/double/vcsim"
)

// bytesArchive is an archive in memory.
type bytesArchive struct{ *bytes.Reader }

func (bytesArchive) Close() error { return nil }

// Whatever is called an OVA is refused for what it is, or has the files that its descriptor names.
func FuzzOVA(f *testing.F) {
	f.Add(vcsim.OVA())
	for _, text := range []string{"", "<Envelope/>", vcsim.Descriptor(), vcsim.Descriptor("a", "b"), strings.Repeat("<a>", 1000)} {
		f.Add(vcsim.Archive(vcsim.File{Name: "image.ovf", Content: text}, vcsim.File{Name: "disk.vmdk", Content: "disk"}))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		refused := func(err error) bool {
			if err != nil && (!runtime.IsInvalidSpec(err) || !strings.HasPrefix(runtime.Message(err), "spec.source: ")) {
				t.Errorf("got error %v", err)
			}
			return err != nil
		}
		archive := bytesArchive{bytes.NewReader(content)}
		o, err := readOVA(archive)
		if refused(err) {
			return
		}
		for {
			_, size, err := o.next()
			if errors.Is(err, io.EOF) {
				break
			}
			if refused(err) {
				return
			}
			n, err := io.Copy(io.Discard, o.files)
			if refused(unreadable(err)) {
				return
			}
			if n != size {
				t.Errorf("%d bytes of %d", n, size)
			}
		}
		if refused(o.complete()); archive.Len() != 0 {
			t.Errorf("%d bytes were not read", archive.Len())
		}
	})
}
