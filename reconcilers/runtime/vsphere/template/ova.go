package template

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/vmware/govmomi/ovf"

	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/templates"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/session"
)

// Limits of an OVA. It is a tar archive with a descriptor, a manifest, a certificate, and the files of disks and
// images.
const (
	maxDescriptor = 4 << 20
	maxOVAFiles   = 64
	maxOVAName    = 255
)

// ova is an OVA being read. Its first file is the descriptor, as the OVF specification requires.
type ova struct {
	archive    templates.Archive
	files      *tar.Reader
	descriptor string
	network    string           // name of its single network in the descriptor
	names      []string         // files in the descriptor
	sizes      map[string]int64 // sizes of the files read so far
}

// notOVA returns the error of an archive that cannot be imported.
func notOVA(cause error, format string, args ...any) error {
	return runtime.NewInvalidSpec(cause, "spec.source: %s", fmt.Sprintf(format, args...))
}

func readOVA(archive templates.Archive) (*ova, error) {
	o := &ova{archive: archive, files: tar.NewReader(archive), sizes: map[string]int64{}}
	name, size, err := o.next()
	switch {
	case errors.Is(err, io.EOF):
		return nil, notOVA(nil, "the OVA has no descriptor (a file that ends in .ovf)")
	case err != nil:
		return nil, err
	case !isDescriptor(name):
		return nil, notOVA(nil, "the first file of the OVA is %s, but must be the descriptor (a file that ends in .ovf): create the OVA with ovftool",
			session.Shown(name))
	case size > maxDescriptor:
		return nil, notOVA(nil, "the descriptor %s is larger than %d MiB", session.Shown(name), maxDescriptor>>20)
	}
	text, err := io.ReadAll(o.files)
	if err != nil {
		return nil, unreadable(err)
	}
	o.descriptor = string(text)
	return o, o.understand()
}

func isDescriptor(name string) bool { return strings.EqualFold(path.Ext(name), ".ovf") }

// next advances to the next file of the archive, which files reads. After the last one it returns io.EOF, if the
// whole archive was verified.
func (o *ova) next() (name string, size int64, err error) {
	header, err := o.files.Next()
	for err == nil && header.Typeflag != tar.TypeReg {
		header, err = o.files.Next()
	}
	if errors.Is(err, io.EOF) {
		if _, err := io.Copy(io.Discard, o.archive); err != nil { // data after the end of the archive
			return "", 0, unreadable(err)
		}
		return "", 0, io.EOF
	}
	if err != nil {
		return "", 0, unreadable(err)
	}
	name = strings.TrimPrefix(header.Name, "./")
	_, twice := o.sizes[name]
	switch {
	case name == "" || len(name) > maxOVAName:
		return "", 0, notOVA(nil, "the OVA has a file name of %d characters, but at most %d are supported", len(name), maxOVAName)
	case twice:
		return "", 0, notOVA(nil, "the OVA has two files %s", session.Shown(name))
	case len(o.sizes) == maxOVAFiles:
		return "", 0, notOVA(nil, "the OVA has more than %d files", maxOVAFiles)
	case o.descriptor != "" && isDescriptor(name):
		return "", 0, notOVA(nil, "the OVA has a second descriptor, %s", session.Shown(name))
	}
	o.sizes[name] = header.Size
	return name, header.Size, nil
}

// complete returns an error if the archive, read to its end, lacks files of the descriptor.
func (o *ova) complete() error {
	for _, name := range o.names {
		if _, is := o.sizes[name]; !is {
			return notOVA(nil, "the descriptor names the file %s, which the OVA does not have", session.Shown(name))
		}
	}
	return nil
}

// unreadable returns the error of an invalid archive, and other errors unchanged.
func unreadable(err error) error {
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return notOVA(err, "the OVA ends too early")
	case errors.Is(err, tar.ErrHeader):
		return notOVA(err, "it is not an OVA (a tar archive), or it is damaged")
	}
	return err
}

// understand parses the parts of the descriptor that vCenter is not asked about.
func (o *ova) understand() error {
	envelope, err := ovf.Unmarshal(strings.NewReader(o.descriptor))
	if err != nil {
		return notOVA(err, "the descriptor of the OVA is not XML, or not an OVF envelope")
	}
	switch {
	case envelope.VirtualSystemCollection != nil:
		return notOVA(nil, "the OVA has a collection of machines, but a template is one machine")
	case envelope.VirtualSystem == nil || len(envelope.VirtualSystem.VirtualHardware) == 0:
		return notOVA(nil, "the OVA does not describe a machine with its hardware")
	case envelope.Network == nil || len(envelope.Network.Networks) != 1:
		count := 0
		if envelope.Network != nil {
			count = len(envelope.Network.Networks)
		}
		return notOVA(nil, "the OVA has %d networks, but a template has only the network of its failure domain", count)
	}
	o.network = envelope.Network.Networks[0].Name
	for _, file := range envelope.References {
		compressed := file.Compression != nil && *file.Compression != "" && *file.Compression != "identity"
		if compressed || file.ChunkSize != nil {
			return notOVA(nil, "the file %s is compressed or in chunks, which cannot be imported", session.Shown(file.Href))
		}
		o.names = append(o.names, file.Href)
	}
	return nil
}
