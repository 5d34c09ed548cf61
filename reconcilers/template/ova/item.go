package ova

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/templates"
)

// Limits for an item of a content library.
const (
	maxItemFiles = 64
	maxFileName  = 255
	maxManifest  = 1 << 20
)

func parseItem(source v1alpha1.VSphereTemplateSource, item templates.LibraryItem) (*origin, error) {
	if item == nil {
		return nil, runtime.NewInvalidSpec(nil, "spec.source.libraryItem: no content library can be reached")
	}
	return &origin{
		field:  "spec.source.libraryItem",
		shown:  fmt.Sprintf("item %q of content library %q", source.LibraryItem.Name, source.LibraryItem.Library),
		digest: source.SHA256, item: item,
	}, nil
}

type collection struct {
	templates.Download
	from *origin
	pace *pace
}

// collect connects the stream to an item: to its single file, or to an archive of its files.
func (s *Stream) collect(ctx context.Context, pace *pace) error {
	opened, err := s.from.item.Open(ctx)
	if err != nil {
		if ctx.Err() != nil {
			err = s.from.canceled(ctx)
		}
		return err
	}
	all, cancel := &collection{opened, s.from, pace}, s.closes
	s.closes = func() {
		cancel()
		opened.Close()
	}
	files, err := all.files()
	if err != nil {
		return err
	}
	for _, f := range files {
		s.size += min(f.Size, math.MaxInt64/maxItemFiles) // avoids an overflow
	}
	pack := func(w io.Writer) error { return all.pack(ctx, w, files) }
	if len(files) == 1 {
		pack = func(w io.Writer) error { return all.copy(ctx, files[0], w) }
		s.hash = sha256.New()
		s.wrong = func(sum string) error { return all.wrong(fmt.Sprintf("the file %q", files[0].Name), sum) }
	}
	body, w := io.Pipe()
	var packing sync.WaitGroup
	packing.Go(func() { _ = w.CloseWithError(pack(w)) })
	s.body = body
	s.closes = func() {
		cancel()
		_ = body.Close()
		packing.Wait()
		opened.Close()
	}
	return nil
}

// invalid returns the error of an item that cannot be imported.
func (a *collection) invalid(format string, args ...any) error {
	return runtime.NewInvalidSpec(nil, "%s: %s %s", a.from.field, a.from.shown, fmt.Sprintf(format, args...))
}

// wrong returns the error for content with another SHA-256 than the source's.
func (a *collection) wrong(what, has string) error {
	return runtime.NewInvalidSpec(nil, "spec.source.sha256: %s of %s has the SHA-256 %s, not %s", what, a.from.shown, has, a.from.digest)
}

// files returns the files of the item in archive order.
func (a *collection) files() ([]templates.LibraryFile, error) {
	files := slices.Clone(a.Files())
	switch {
	case len(files) == 0:
		return nil, a.invalid("has no files")
	case len(files) > maxItemFiles:
		return nil, a.invalid("has more than %d files", maxItemFiles)
	}
	slices.SortFunc(files, func(x, y templates.LibraryFile) int {
		return cmp.Or(rank(x.Name)-rank(y.Name), strings.Compare(x.Name, y.Name))
	})
	for i, f := range files {
		switch {
		case f.Name == "" || len(f.Name) > maxFileName || path.Base(f.Name) != f.Name:
			return nil, a.invalid("has a file whose name is empty, too long, or a path")
		case i > 0 && f.Name == files[i-1].Name:
			return nil, a.invalid("has two files %q", f.Name)
		case f.Size < 0:
			return nil, runtime.NewUnavailable(nil, "%s: vCenter does not report the size of %q of %s", a.from.field, f.Name, a.from.shown)
		}
	}
	return files, nil
}

// rank returns the position of a file in an archive: descriptor, manifest, others.
func rank(name string) int {
	switch strings.ToLower(path.Ext(name)) {
	case ".ovf":
		return theDescriptor
	case ".mf":
		return theManifest
	}
	return theRest
}

const (
	theDescriptor = iota
	theManifest
	theRest
)

// isPackage reports whether the files form an OVA: one descriptor, one manifest, and others.
func isPackage(files []templates.LibraryFile) bool {
	for i, f := range files {
		if rank(f.Name) != min(i, theRest) {
			return false
		}
	}
	return len(files) > theManifest
}

// pack downloads the files of an item into one archive. The manifest must match the source's SHA-256, and every other
// file the manifest. The certificate is left out, because nothing verifies it.
func (a *collection) pack(ctx context.Context, to io.Writer, files []templates.LibraryFile) error {
	files = slices.DeleteFunc(files, func(f templates.LibraryFile) bool { return strings.EqualFold(path.Ext(f.Name), ".cert") })
	if !isPackage(files) {
		return a.invalid("must have either one OVA file, or one .ovf descriptor and one .mf manifest: " +
			"export it with a manifest, and upload it to the library again")
	}
	text, of, err := a.manifest(ctx, files[theManifest])
	if err != nil {
		return err
	}
	for i, f := range files {
		if i != theManifest && of[f.Name]["SHA256"] == "" {
			return a.invalid("cannot be verified: its manifest %q has no SHA-256 of %q%s. Export it with `ovftool --shaAlgorithm=SHA256`, and upload it "+
				"to the library again", files[theManifest].Name, f.Name, of[f.Name].others())
		}
	}
	archive := tar.NewWriter(to)
	for i, f := range files {
		err := a.unwritten(archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.Name, Size: f.Size, Mode: 0o644}))
		switch {
		case err != nil:
		case i == theManifest:
			_, err = archive.Write(text)
			err = a.unwritten(err)
		default:
			err = a.member(ctx, archive, f, of[f.Name]["SHA256"])
		}
		if err != nil {
			return err
		}
	}
	return a.unwritten(archive.Close())
}

// member downloads a file into the archive.
func (a *collection) member(ctx context.Context, archive io.Writer, file templates.LibraryFile, want string) error {
	hash := sha256.New()
	if err := a.copy(ctx, file, io.MultiWriter(archive, hash)); err != nil {
		return err
	}
	if has := hex.EncodeToString(hash.Sum(nil)); !strings.EqualFold(has, want) {
		return a.invalid("is damaged: %q has the SHA-256 %s, and the manifest says %s", file.Name, has, want)
	}
	return nil
}

// manifest downloads the manifest, and parses it if it matches the source.
func (a *collection) manifest(ctx context.Context, file templates.LibraryFile) (text []byte, of map[string]sums, err error) {
	if file.Size > maxManifest {
		return nil, nil, a.invalid("has the manifest %q, which is larger than %d MiB", file.Name, maxManifest>>20)
	}
	var read bytes.Buffer
	if err := a.copy(ctx, file, &read); err != nil {
		return nil, nil, err
	}
	if has := sum(read.Bytes()); has != a.from.digest {
		return nil, nil, a.wrong(fmt.Sprintf("the manifest %q", file.Name), has)
	}
	return read.Bytes(), readManifest(read.Bytes()), nil
}

// copy downloads one file, which must have the size that vCenter reports.
func (a *collection) copy(ctx context.Context, file templates.LibraryFile, to io.Writer) error {
	var body io.ReadCloser
	_, err := a.pace.wait(func() (n int, err error) {
		body, err = a.Read(ctx, file.Name)
		return 0, err
	})
	if err != nil {
		return a.from.readError(ctx, err)
	}
	defer func() { _ = body.Close() }()
	n, err := io.Copy(to, io.LimitReader(paced{body, a.pace}, file.Size+1))
	switch {
	case errors.Is(err, tar.ErrWriteTooLong), err == nil && n != file.Size:
		return runtime.NewUnavailable(nil, "%s: %q of %s has another size than vCenter reports: it may have changed in the meantime",
			a.from.field, file.Name, a.from.shown)
	case err != nil:
		return a.from.readError(ctx, err)
	}
	return nil
}

func (a *collection) unwritten(err error) error {
	if _, is := errors.AsType[*runtime.Error](err); is || err == nil {
		return err
	}
	return a.invalid("cannot be put into an archive: %v", err)
}

type sums map[string]string

// others lists the algorithms other than SHA-256, for messages.
func (s sums) others() string {
	if len(s) == 0 {
		return ""
	}
	return ", only " + strings.Join(slices.Sorted(maps.Keys(s)), ", ")
}

// entryOf matches a line of a manifest: SHA256(disk.vmdk)= 0123...
var entryOf = regexp.MustCompile(`(?m)^([A-Za-z0-9-]{1,16})\((.{1,255})\) ?= ?([0-9a-fA-F]{1,128})\r?$`)

func readManifest(text []byte) map[string]sums {
	all := map[string]sums{}
	for _, line := range entryOf.FindAllSubmatch(text, -1) {
		name := string(line[2])
		if all[name] == nil {
			all[name] = sums{}
		}
		all[name][strings.ReplaceAll(strings.ToUpper(string(line[1])), "-", "")] = string(line[3])
	}
	return all
}
