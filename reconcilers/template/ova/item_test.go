package ova

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/templates"
)

// item is one of a content library, which is at hand.
type item struct {
	files map[string]string
	sizes map[string]int64                                     // as they are told, if not as they are
	more  []templates.LibraryFile                              // that are told, too
	opens func() error                                         // nil opens
	reads func(ctx context.Context, name string) io.ReadCloser // nil gives the file

	mu     sync.Mutex
	opened int
	open   int
	read   []string
}

func (i *item) Open(context.Context) (templates.Download, error) {
	if i.opens != nil {
		if err := i.opens(); err != nil {
			return nil, err
		}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.opened++
	i.open++
	return i, nil
}

func (i *item) Files() []templates.LibraryFile {
	all := i.more
	for name, text := range i.files {
		size, is := i.sizes[name]
		if !is {
			size = int64(len(text))
		}
		all = append(all, templates.LibraryFile{Name: name, Size: size})
	}
	return all
}

func (i *item) Read(ctx context.Context, name string) (io.ReadCloser, error) {
	i.mu.Lock()
	i.read = append(i.read, name)
	i.mu.Unlock()
	if i.reads != nil {
		if body := i.reads(ctx, name); body != nil {
			return body, nil
		}
	}
	return io.NopCloser(strings.NewReader(i.files[name])), nil
}

func (i *item) Close() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.open--
}

// pack is an item with a machine that was taken apart, and a manifest with that algorithm.
func pack(algorithm string) *item {
	i := &item{files: map[string]string{
		"u.ovf": "<Envelope/>", "u-2.vmdk": strings.Repeat("b", 70_000), "u-1.vmdk": strings.Repeat("a", 512), "u.cert": "whatever",
	}}
	i.sums(algorithm)
	return i
}

// sums writes the manifest.
func (i *item) sums(algorithm string) {
	var text strings.Builder
	for name, content := range i.files {
		if name != "u.cert" && name != "u.mf" {
			fmt.Fprintf(&text, "%s(%s)= %s\r\n", algorithm, name, digest([]byte(content)))
		}
	}
	i.files["u.mf"] = text.String()
}

// itemSource is a source that names an item, whose OVA or manifest is this.
func itemSource(of string) v1alpha1.VSphereTemplateSource {
	return v1alpha1.VSphereTemplateSource{
		LibraryItem: &v1alpha1.VSphereLibraryItem{Library: "golden", Name: "ubuntu"}, SHA256: digest([]byte(of)),
	}
}

// refusesItem downloads an item, and wants an error with these words, and the download ended.
func (w *world) refusesItem(source v1alpha1.VSphereTemplateSource, from *item, is func(error) bool, words ...string) {
	w.Helper()
	_, err := w.fetch(source, from)
	w.told(err, is, words...)
	if from.open != 0 {
		w.Errorf("%d downloads are open", from.open)
	}
}

func (w *world) fetchItem(source v1alpha1.VSphereTemplateSource, from *item) []byte {
	w.Helper()
	got, err := w.fetch(source, from)
	w.Must(err)
	if from.open != 0 {
		w.Errorf("%d downloads are open", from.open)
	}
	return got
}

// An item with one file is that file, by its SHA-256 and whatever it is called.
func TestItemOfOneFile(t *testing.T) {
	w := serving(t, nil)
	of := &item{files: map[string]string{"image": "all of it"}}
	if got := w.fetchItem(itemSource("all of it"), of); string(got) != "all of it" {
		t.Errorf("got %q", got)
	}
}

func TestItemOfOneWrongFile(t *testing.T) {
	w := serving(t, nil)
	of := &item{files: map[string]string{"image": "all of it"}}
	w.refusesItem(itemSource("another"), of, runtime.IsInvalidSpec,
		"spec.source.sha256", `the file "image" of item "ubuntu" of content library "golden"`, digest([]byte("another")), digest([]byte("all of it")))
}

// An item that was taken apart becomes an archive again, the descriptor first, by the SHA-256 of its manifest.
func TestItemThatWasTakenApart(t *testing.T) {
	for _, algorithm := range []string{"SHA256", "sha-256"} {
		w := serving(t, nil)
		of := pack(algorithm)
		got := w.fetchItem(itemSource(of.files["u.mf"]), of)
		var names []string
		for archive := tar.NewReader(bytes.NewReader(got)); ; {
			header, err := archive.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			w.Must(err)
			content, err := io.ReadAll(archive)
			w.Must(err)
			if string(content) != of.files[header.Name] {
				t.Errorf("%s has %d bytes", header.Name, len(content))
			}
			names = append(names, header.Name)
		}
		if diff := cmp.Diff([]string{"u.ovf", "u.mf", "u-1.vmdk", "u-2.vmdk"}, names); diff != "" {
			t.Errorf("in the archive (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"u.mf", "u.ovf", "u-1.vmdk", "u-2.vmdk"}, of.read); diff != "" {
			t.Errorf("downloaded (-want +got):\n%s", diff)
		}
	}
}

// Nothing of an item is kept that is not what the manifest says, nor of a manifest that is not the one of the source.
func TestItemsThatAreRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*item)
		is     func(error) bool
		words  []string
	}{
		"no files":          {func(i *item) { i.files = nil }, runtime.IsInvalidSpec, []string{"has no files"}},
		"no descriptor":     {func(i *item) { delete(i.files, "u.ovf") }, runtime.IsInvalidSpec, []string{"must have either one OVA file, or one .ovf descriptor"}},
		"no manifest":       {func(i *item) { delete(i.files, "u.mf") }, runtime.IsInvalidSpec, []string{"one .mf manifest: export it"}},
		"two descriptors":   {func(i *item) { i.files["v.ovf"] = "" }, runtime.IsInvalidSpec, []string{"one .ovf descriptor"}},
		"two manifests":     {func(i *item) { i.files["v.MF"] = "" }, runtime.IsInvalidSpec, []string{"one .mf manifest"}},
		"another manifest":  {func(i *item) { i.files["u.mf"] += "\n" }, runtime.IsInvalidSpec, []string{"spec.source.sha256: the manifest \"u.mf\" of item"}},
		"a damaged disk":    {func(i *item) { i.files["u-1.vmdk"] = strings.Repeat("c", 512) }, runtime.IsInvalidSpec, []string{"is damaged: \"u-1.vmdk\" has the SHA-256"}},
		"another file":      {func(i *item) { i.files["u-3.vmdk"] = "c" }, runtime.IsInvalidSpec, []string{`"u.mf" has no SHA-256 of "u-3.vmdk". Export it with`}},
		"a path":            {func(i *item) { i.files["../u-3.vmdk"] = "c" }, runtime.IsInvalidSpec, []string{"or a path"}},
		"a long name":       {func(i *item) { i.files[strings.Repeat("u", 256)] = "c" }, runtime.IsInvalidSpec, []string{"too long"}},
		"a name twice":      {func(i *item) { i.more = []templates.LibraryFile{{Name: "u-1.vmdk"}} }, runtime.IsInvalidSpec, []string{`has two files "u-1.vmdk"`}},
		"many files":        {func(i *item) { i.more = make([]templates.LibraryFile, 60) }, runtime.IsInvalidSpec, []string{"more than 64 files"}},
		"no size":           {func(i *item) { i.sizes = map[string]int64{"u.ovf": -1} }, runtime.IsUnavailable, []string{"does not report the size of \"u.ovf\""}},
		"a huge file":       {func(i *item) { i.sizes = map[string]int64{"u-1.vmdk": 1 << 62, "u-2.vmdk": 1 << 62} }, runtime.IsUnavailable, []string{"another size than vCenter reports"}},
		"a huge manifest":   {func(i *item) { i.sizes = map[string]int64{"u.mf": 2 << 20} }, runtime.IsInvalidSpec, []string{"larger than 1 MiB"}},
		"a file that grew":  {func(i *item) { i.sizes = map[string]int64{"u-2.vmdk": 69_999} }, runtime.IsUnavailable, []string{"another size than vCenter reports"}},
		"one that shrank":   {func(i *item) { i.sizes = map[string]int64{"u-1.vmdk": 513} }, runtime.IsUnavailable, []string{"another size than vCenter reports"}},
		"a shrunk manifest": {func(i *item) { i.sizes = map[string]int64{"u.mf": 9999} }, runtime.IsUnavailable, []string{"another size than vCenter reports"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := serving(t, nil)
			of := pack("SHA256")
			source := itemSource(of.files["u.mf"])
			tc.change(of)
			w.refusesItem(source, of, tc.is, append(tc.words, `item "ubuntu" of content library "golden"`)...)
		})
	}
}

func TestItemsWithOtherChecksums(t *testing.T) {
	w := serving(t, nil)
	of := pack("SHA1")
	w.refusesItem(itemSource(of.files["u.mf"]), of, runtime.IsInvalidSpec,
		`has no SHA-256 of "u.ovf", only SHA1. Export it with `+"`ovftool --shaAlgorithm=SHA256`"+`, and upload it to the library again`)
	if diff := cmp.Diff([]string{"u.mf"}, of.read); diff != "" {
		t.Errorf("downloaded (-want +got):\n%s", diff)
	}
}

// What vCenter says stays as it is, and what the network does is told without addresses.
func TestItemsThatBreakOff(t *testing.T) {
	broken := errors.New("https://vc/data/ticket-secret: reset")
	for name, tc := range map[string]struct {
		change func(*item)
		words  []string
	}{
		"it is not opened": {
			func(i *item) {
				i.opens = func() error { return runtime.NewUnavailable(nil, "vCenter lab did not answer") }
			},
			[]string{"vCenter lab did not answer"},
		},
		"it breaks off": {
			func(i *item) {
				i.reads = func(context.Context, string) io.ReadCloser {
					return io.NopCloser(io.MultiReader(strings.NewReader("x"), failing{broken}))
				}
			},
			[]string{"spec.source.libraryItem: downloading item", "the response of the server is invalid"},
		},
		"it stands still": {
			func(i *item) {
				i.reads = func(ctx context.Context, name string) io.ReadCloser {
					if name == "u.mf" {
						return nil
					}
					return io.NopCloser(still{ctx})
				}
			},
			[]string{"spec.source.libraryItem: the download from the server of item", "stalled"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := serving(t, nil)
			w.Patience = 20 * time.Millisecond
			of := pack("SHA256")
			source := itemSource(of.files["u.mf"])
			tc.change(of)
			w.refusesItem(source, of, runtime.IsUnavailable, tc.words...)
		})
	}
}

type failing struct{ error }

func (f failing) Read([]byte) (int, error) { return 0, f.error }

// still gives nothing until its context ends.
type still struct{ ctx context.Context }

func (s still) Read([]byte) (int, error) {
	<-s.ctx.Done()
	return 0, s.ctx.Err()
}

func TestItemOfNoLibrary(t *testing.T) {
	w := serving(t, nil)
	_, err := w.fetch(itemSource("x"), nil)
	w.told(err, runtime.IsInvalidSpec, "spec.source.libraryItem: no content library can be reached")
}
