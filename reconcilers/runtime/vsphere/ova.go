package vsphere

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/vmware/govmomi/ovf"

	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/template"
)

// What an OVA may have at most. It is a tar archive of a descriptor, a manifest, a certificate, and the files of disks and images.
const (
	maxDescriptor = 4 << 20
	maxOVAFiles   = 64
	maxOVAName    = 255
)

// ova is what is in an OVA.
type ova struct {
	archive    template.Archive
	descriptor string
	network    string           // The name that the descriptor gives its one network.
	sizes      map[string]int64 // Of its files, by name.
}

// notOVA is the error for what cannot be imported because of what it is.
func notOVA(cause error, format string, args ...any) error {
	return runtime.NewInvalidSpec(cause, "spec.source: %s", fmt.Sprintf(format, args...))
}

// readOVA reads the descriptor of an OVA, and which files it has.
func readOVA(archive template.Archive) (*ova, error) {
	o := &ova{archive: archive, sizes: map[string]int64{}}
	var descriptor string
	err := o.each(func(name string, size int64, content io.Reader) (done bool, err error) {
		if _, twice := o.sizes[name]; twice {
			return false, notOVA(nil, "the OVA has two files %s", shown(name))
		}
		if len(o.sizes) == maxOVAFiles {
			return false, notOVA(nil, "the OVA has more than %d files", maxOVAFiles)
		}
		o.sizes[name] = size
		if !strings.EqualFold(path.Ext(name), ".ovf") {
			return false, nil
		}
		switch {
		case descriptor != "":
			return false, notOVA(nil, "the OVA has two descriptors, %s and %s", shown(descriptor), shown(name))
		case size > maxDescriptor:
			return false, notOVA(nil, "the descriptor %s is larger than %d MiB", shown(name), maxDescriptor>>20)
		}
		descriptor = name
		text, err := io.ReadAll(content)
		o.descriptor = string(text)
		return false, unreadable(err)
	})
	switch {
	case err != nil:
		return nil, err
	case descriptor == "":
		return nil, notOVA(nil, "the OVA has no descriptor (a file that ends in .ovf)")
	}
	return o, o.understand()
}

// each goes through the files of the archive, until that is done.
func (o *ova) each(file func(name string, size int64, content io.Reader) (done bool, err error)) error {
	content, err := o.archive.Open()
	if err != nil {
		return fmt.Errorf("opening the archive: %w", err)
	}
	defer func() { _ = content.Close() }()
	for files := tar.NewReader(content); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return unreadable(err)
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		name := strings.TrimPrefix(header.Name, "./")
		if name == "" || len(name) > maxOVAName {
			return notOVA(nil, "the OVA has a file name of %d characters, but at most %d are supported", len(name), maxOVAName)
		}
		if done, err := file(name, header.Size, files); done || err != nil {
			return err
		}
	}
}

// unreadable is the error for an archive that is not what it should be, and any other as it is.
func unreadable(err error) error {
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return notOVA(err, "the OVA ends too early")
	case errors.Is(err, tar.ErrHeader):
		return notOVA(err, "it is not an OVA (a tar archive), or it is damaged")
	}
	return err
}

// understand reads what the descriptor says that vCenter is not asked about.
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
			return notOVA(nil, "the file %s is compressed or in chunks, which cannot be imported", shown(file.Href))
		}
		if _, is := o.sizes[file.Href]; !is {
			return notOVA(nil, "the descriptor names the file %s, which the OVA does not have", shown(file.Href))
		}
	}
	return nil
}

// read hands a file of the OVA over. What has been read is verified to be all of it.
func (o *ova) read(file string, use func(content io.Reader, size int64) error) error {
	var found bool
	err := o.each(func(name string, size int64, content io.Reader) (done bool, err error) {
		if name != file {
			return false, nil
		}
		found = true
		return true, use(content, size)
	})
	if err == nil && !found {
		return notOVA(nil, "vCenter asks for the file %s, which the OVA does not have", shown(file))
	}
	return err
}
