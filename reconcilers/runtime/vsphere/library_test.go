package vsphere_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/templates"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere"
	"sallyport.dev/sallyport/reconcilers/template/ova"
	"sallyport.dev/sallyport/test/support/double/vcsim"
	"sallyport.dev/sallyport/test/support/race"
)

// libraries is a world whose vCenter has the content library golden.
type libraries struct {
	*world
	golden *vcsim.Library
}

func newLibraries(t *testing.T) *libraries {
	t.Helper()
	w := newWorld(t)
	config := w.config()
	config.Wrap, config.WrapREST = w.faults.Wrap, w.faults.WrapREST
	w.server = w.connect(config)
	golden, err := w.AddLibrary(t.Context(), "golden")
	w.Must(err)
	return &libraries{world: w, golden: golden}
}

func hexOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// taken is a machine as it is after an OVA was taken apart.
func taken() (manifest string, files []vcsim.File) {
	files = []vcsim.File{entry("image.ovf", strings.ReplaceAll(descriptor("nat"), "disk.vmdk", "disk.VMDK")), entry("disk.VMDK", content)}
	for _, f := range files {
		manifest += fmt.Sprintf("SHA256(%s)= %s\n", f.Name, hexOf(f.Content))
	}
	return manifest, append(files, entry("image.mf", manifest))
}

// add uploads an item.
func (w *libraries) add(name, kind string, files ...vcsim.File) (folder string) {
	w.Helper()
	folder, err := w.golden.Add(w.Context(), name, kind, files...)
	w.Must(err)
	return folder
}

func (w *libraries) item(library, name string) templates.LibraryItem {
	return vsphere.LibraryItemOf(w.server, v1alpha1.VSphereLibraryItem{Library: library, Name: name}, time.Hour)
}

// open begins to download an item.
func (w *libraries) open(library, name, sum string) (*ova.Stream, error) {
	of := &v1alpha1.VSphereLibraryItem{Library: library, Name: name}
	return (&ova.Downloader{}).Open(w.Context(), v1alpha1.VSphereTemplateSource{LibraryItem: of, SHA256: sum}, w.item(library, name))
}

// fetch downloads an item, and leaves no download open.
func (w *libraries) fetch(library, name, sum string) error {
	w.Helper()
	archive, err := w.open(library, name, sum)
	if err != nil {
		return err
	}
	defer func() { w.Must(archive.Close()) }()
	_, err = io.Copy(io.Discard, archive)
	return err
}

// closed fails the test if a download is open.
func (w *libraries) closed() {
	w.Helper()
	open, err := w.OpenDownloads(w.Context())
	w.Must(err)
	if open != 0 {
		w.Errorf("%d downloads are open", open)
	}
}

// Items of both kinds become templates.
func TestLibraryItems(t *testing.T) {
	w := newLibraries(t)
	w.AddFolder(folder)
	manifest, files := taken()
	var parts []vcsim.File
	for _, f := range files {
		parts = append(parts, entry(f.Name, f.Content))
	}
	whole := string(vcsim.Archive(parts...))
	w.add("whole", "file", entry("ubuntu", whole))
	w.add("Whole", "file", entry("ubuntu", "another"))
	w.add("apart", "ovf", entry("ubuntu.ova", whole))
	in := templatesOf(w.world)
	for name, sum := range map[string]string{"whole": hexOf(whole), "apart": hexOf(manifest)} {
		file, err := w.open("golden", name, sum)
		w.Must(err)
		what := release(name)
		what.Archive = file
		_, err = in.store.Import(t.Context(), in.d, what, func(int32) {})
		w.Must(err)
		w.Must(file.Close())
	}
	if got := len(in.look().Items); got != 2 {
		t.Errorf("%d items", got)
	}
	w.closed()
}

// What is not one item that can be downloaded is named by its field.
func TestLibraryItemsThatAreNone(t *testing.T) {
	w := newLibraries(t)
	for _, name := range []string{"twice", "twice", "Golden"} {
		_, err := w.AddLibrary(t.Context(), name)
		w.Must(err)
	}
	_, files := taken()
	w.add("machine", "vm-template", files...)
	for _, c := range []struct{ library, name, want string }{
		{"none", "ubuntu", `library: vCenter lab has no content library "none", or does not show it`},
		{"gOLDEN", "ubuntu", `library: vCenter lab has no content library "gOLDEN", or does not show it`},
		{"twice", "ubuntu", `library: vCenter lab has 2 of content library "twice": rename all but one`},
		{"golden", "none", `name: vCenter lab has no item "none" in content library "golden", or does not show it`},
		{"golden", "machine", `name: the item "machine" is a VM template, which cannot be downloaded: clone it into the library as an OVF template`},
	} {
		err := w.fetch(c.library, c.name, hexOf(""))
		if !runtime.IsInvalidSpec(err) || runtime.Message(err) != "spec.source.libraryItem."+c.want {
			t.Errorf("got error %v", err)
		}
	}
	w.closed()
}

// An item that is changed after it was prepared is not kept.
func TestLibraryItemThatChanges(t *testing.T) {
	manifest, files := taken()
	for name, c := range map[string]struct {
		file, content string
		is            func(error) bool
	}{
		"longer":    {"disk.VMDK", content + "x", runtime.IsUnavailable},
		"shorter":   {"disk.VMDK", content[1:], runtime.IsUnavailable},
		"other":     {"disk.VMDK", "X" + content[1:], runtime.IsInvalidSpec},
		"manifest":  {"image.mf", strings.Replace(manifest, "image", "Image", 1), runtime.IsInvalidSpec},
		"not there": {"image.ovf", "", runtime.IsUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			w := newLibraries(t)
			folder := w.add("ubuntu", "ovf", files...)
			w.faults.Before(func() {
				at := filepath.Join(folder, c.file)
				if w.Must(os.Remove(at)); c.content != "" {
					w.Must(os.WriteFile(at, []byte(c.content), 0o600))
				}
			}, "GET data/image.mf")
			err := w.fetch("golden", "ubuntu", hexOf(manifest))
			if !c.is(err) {
				t.Errorf("got error %v", err)
			}
			if left := w.faults.Clear(); left != 0 {
				t.Errorf("the item was not changed: %v", w.faults.Called())
			}
			w.closed()
		})
	}
}

// Whatever becomes of one request, nothing unverified is kept, no download stays open but one that nobody knows of, and the next attempt
// succeeds. Errors do not have the ID of the download, with which everybody can download.
func TestLibraryTrouble(t *testing.T) {
	race.Skip(t)
	manifest, files := taken()
	w := newLibraries(t)
	w.add("ubuntu", "ovf", files...)
	again := func() error { return w.fetch("golden", "ubuntu", hexOf(manifest)) }
	w.Must(again())
	w.faults.Called()
	w.Must(again())
	called, lost := w.faults.Called(), 0
	create := slices.Index(called, "POST content/library/item/download-session")
	if create < 0 || !slices.Contains(called, "GET data/disk.VMDK") {
		t.Fatalf("the requests are %v", called)
	}
	for n, of := range called {
		for what, befall := range map[string]func(...string){
			"failed":          func(m ...string) { w.faults.Fail(errors.New("the network is down"), m...) },
			"its reply lost":  w.faults.LoseReply,
			"not found":       func(m ...string) { w.faults.Answer(http.StatusNotFound, m...) },
			"unavailable":     func(m ...string) { w.faults.Answer(http.StatusServiceUnavailable, m...) },
			"forbidden":       func(m ...string) { w.faults.Answer(http.StatusForbidden, m...) },
			"session ended":   func(m ...string) { w.faults.Answer(http.StatusUnauthorized, m...) },
			"vCenter restart": func(m ...string) { w.faults.Before(w.ExpireSessions, m...) },
		} {
			for range n { // all before it are as they should be
				w.faults.Before(func() {})
			}
			befall()
			if n == create && what == "its reply lost" {
				lost++
			}
			name := fmt.Sprintf("request %d, %s, %s", n, of, what)
			err := again()
			if w.faults.Clear() != 0 {
				t.Errorf("%s: it was not made", name)
			}
			switch {
			case err == nil:
			case strings.HasSuffix(what, "ended") && !strings.Contains(of, "data/"), what == "vCenter restart":
				t.Errorf("%s: got error %v", name, err)
			case runtime.Message(err) == "" || strings.Contains(err.Error(), "session/") || strings.Contains(err.Error(), "/data/"):
				t.Errorf("%s: the error tells too much, or too little: %v", name, err)
			}
			w.Must(again())
		}
	}
	open, err := w.OpenDownloads(t.Context())
	w.Must(err)
	if open != lost {
		t.Errorf("%d downloads are open, and of %d the replies were lost", open, lost)
	}
}

// vCenter is told that a download goes on as long as it does.
func TestLibraryDownloadIsKept(t *testing.T) {
	_, files := taken()
	w := newLibraries(t)
	w.add("ubuntu", "ovf", files...)
	told := make(chan struct{})
	w.faults.Before(func() { close(told) }, "POST content/library/item/download-session")
	w.faults.Called()
	of := vsphere.LibraryItemOf(w.server, v1alpha1.VSphereLibraryItem{Library: "golden", Name: "ubuntu"}, time.Millisecond)
	d, err := of.Open(t.Context())
	w.Must(err)
	<-told
	d.Close()
	w.closed()
}
