package ova

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

func TestFetch(t *testing.T) {
	data := content("abcdefg", 300_000)
	w := serving(t, data)
	var told []int32
	file, err := w.Fetch(t.Context(), w.source(), nil, func(percent int32) { told = append(told, percent) })
	w.Must(err)
	w.reads(file, data)
	if len(told) == 0 || told[len(told)-1] != 100 || !slices.IsSorted(told) {
		t.Errorf("progress: %v", told)
	}
	w.has(w.source(), data)
	if diff := cmp.Diff([]string{""}, w.asked()); diff != "" {
		t.Errorf("it was not downloaded once (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{digest(data) + ".ova"}, w.folder()); diff != "" {
		t.Errorf("in the folder (-want +got):\n%s", diff)
	}
	w.Must(file.Close())
	if _, err := file.Open(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("opening it after it was closed: %v", err)
	}
}

func TestReadersAreApart(t *testing.T) {
	data := content("abcdefg", 1000)
	w := serving(t, data)
	file := w.has(w.source(), data)
	first, err := file.Open()
	w.Must(err)
	_, err = first.Seek(-7, io.SeekEnd)
	w.Must(err)
	w.reads(file, data)
	if rest, err := io.ReadAll(first); err != nil || len(rest) != 7 {
		t.Errorf("read %q, %v", rest, err)
	}
}

// Another process finds what was verified, and does not download it again.
func TestFoundAgain(t *testing.T) {
	data := content("abcdefg", 1000)
	w := serving(t, data)
	w.Must(w.has(w.source(), data).Close())
	w.server.Close()
	w.Cache = &Cache{Dir: w.Dir, MaxBytes: w.MaxBytes, Now: w.Now}
	w.has(w.source(), data)
}

func TestWrongChecksum(t *testing.T) {
	w := serving(t, content("abcdefg", 1000))
	source := w.source()
	source.SHA256 = digest([]byte("another"))
	w.refuses(source, runtime.IsInvalidSpec, "spec.source.sha256", digest(w.data), source.SHA256, "/a.ova")
	if names := w.folder(); len(names) > 0 {
		t.Errorf("left in the folder: %v", names)
	}
}

func TestRefusedSources(t *testing.T) {
	w := serving(t, content("abcdefg", 1000))
	for name, tc := range map[string]struct {
		change func(*v1alpha1.VSphereTemplateSource)
		word   string
	}{
		"another scheme":        {func(s *v1alpha1.VSphereTemplateSource) { s.URL = "http" + s.URL[5:] }, "spec.source.url"},
		"no URL":                {func(s *v1alpha1.VSphereTemplateSource) { s.URL = "https://a b/?token=secret" }, "spec.source.url"},
		"no host":               {func(s *v1alpha1.VSphereTemplateSource) { s.URL = "https://:443/?token=secret" }, "spec.source.url"},
		"a password":            {func(s *v1alpha1.VSphereTemplateSource) { s.URL = "https://a:secret@" + s.URL[8:] }, "spec.source.url"},
		"a checksum too short":  {func(s *v1alpha1.VSphereTemplateSource) { s.SHA256 = s.SHA256[1:] }, "spec.source.sha256"},
		"a checksum with paths": {func(s *v1alpha1.VSphereTemplateSource) { s.SHA256 = "../../" + s.SHA256[6:] }, "spec.source.sha256"},
		"no certificate":        {func(s *v1alpha1.VSphereTemplateSource) { s.CABundle = "-----BEGIN CERTIFICATE-----" }, "spec.source.caBundle"},
	} {
		t.Run(name, func(t *testing.T) {
			source := w.source()
			tc.change(&source)
			w.refuses(source, runtime.IsInvalidSpec, tc.word)
		})
	}
	if asked := w.asked(); len(asked) > 0 {
		t.Errorf("the server was asked %d times", len(asked))
	}
}

// held has a server answer half, and the rest when it is let go on.
func (w *world) held() (goOn func()) {
	gate := make(chan struct{})
	w.answers(func(out http.ResponseWriter, request *http.Request) {
		out.Header().Set("Content-Length", strconv.Itoa(len(w.data)))
		_, _ = out.Write(w.data[:len(w.data)/2])
		out.(http.Flusher).Flush()
		select {
		case <-gate:
			_, _ = out.Write(w.data[len(w.data)/2:])
		case <-request.Context().Done():
		}
	})
	return func() { close(gate) }
}

func TestSharedDownload(t *testing.T) {
	data := content("abcdefg", 100_000)
	w := serving(t, data)
	goOn := w.held()
	all := []*fetching{w.begin(w.source()), w.begin(w.source()), w.begin(w.source())}
	w.waiting(w.source(), 3)
	all[0].cancel()
	<-all[0].done
	w.told(all[0].err, runtime.IsUnavailable)
	w.waiting(w.source(), 2)
	goOn()
	for _, f := range all[1:] {
		<-f.done
		w.Must(f.err)
		w.reads(f.file, data)
	}
	if asked := w.asked(); len(asked) != 1 {
		t.Errorf("%d downloads", len(asked))
	}
}

// Whoever comes while a download ends that everybody has left does not get its end, but goes on from there.
func TestLeftDownload(t *testing.T) {
	data := content("abcdefg", 100_000)
	w := serving(t, data)
	w.held()
	left := w.begin(w.source())
	w.Eventually("half of it is there", func() bool {
		info, err := os.Stat(w.path(w.part(w.source())))
		return err == nil && info.Size() == 50_000
	})
	left.cancel()
	<-left.done
	w.answers(w.serve)
	w.has(w.source(), data)
	if diff := cmp.Diff([]string{"", "bytes=50000-"}, w.asked()); diff != "" {
		t.Errorf("asked for (-want +got):\n%s", diff)
	}
}

// Who names the checksum of another's OVA and a server of their own neither ends the other's download nor has a part in it.
func TestDownloadsFromElsewhereAreApart(t *testing.T) {
	data := content("abcdefg", 100_000)
	w := serving(t, data)
	liar := w.listen(func(out http.ResponseWriter, _ *http.Request) { _, _ = out.Write(content("lies", len(data))) })
	lie := v1alpha1.VSphereTemplateSource{URL: liar.URL + "/a.ova", SHA256: digest(data), CABundle: authority(liar)}
	goOn := w.held()
	honest := w.begin(w.source())
	w.waiting(w.source(), 1)
	w.refuses(lie, runtime.IsInvalidSpec, "spec.source.sha256")
	goOn()
	<-honest.done
	w.Must(honest.err)
	w.reads(honest.file, data)
	w.has(lie, data) // What was verified is the same, wherever it came from.
}

// Two that end at once with the same content have one file.
func TestSameContentFromTwoPlaces(t *testing.T) {
	data := content("abcdefg", 100_000)
	w := serving(t, data)
	goOn := w.held()
	other := w.source()
	other.URL += "&other"
	first, second := w.begin(w.source()), w.begin(other)
	w.waiting(w.source(), 1)
	w.waiting(other, 1)
	goOn()
	for _, f := range []*fetching{first, second} {
		<-f.done
		w.Must(f.err)
		w.reads(f.file, data)
	}
	w.ended()
	if diff := cmp.Diff([]string{digest(data) + ".ova"}, w.folder()); diff != "" {
		t.Errorf("in the folder (-want +got):\n%s", diff)
	}
}

// The process before this one has not ended yet.
func TestAnotherProcessDownloads(t *testing.T) {
	data := content("abcdefg", 1000)
	w := serving(t, data)
	w.left(w.part(w.source()), data[:500], 1)
	theirs, err := openLocked(w.path(w.part(w.source())), os.O_RDWR, exclusively)
	w.Must(err)
	w.refuses(w.source(), runtime.IsUnavailable, "another replica")
	w.Must(theirs.Close())
	w.has(w.source(), data)
}

func TestFullVolume(t *testing.T) {
	for name, errno := range map[string]syscall.Errno{"full": syscall.ENOSPC, "the quota is used up": syscall.EDQUOT} {
		t.Run(name, func(t *testing.T) {
			data := content("abcdefg", 100_000)
			w := serving(t, data)
			unused, used := digest([]byte("unused"))+".ova", digest([]byte("used"))+".ova"
			w.left(unused, []byte("unused"), 1)
			w.left(used, []byte("used"), 2)
			open, err := w.open(fileName(digest([]byte("used"))))
			w.Must(err)
			defer func() { _ = open.Close() }()
			w.write = func(file *os.File, data []byte) (int, error) {
				if _, err := os.Stat(w.path(unused)); err != nil {
					return file.Write(data)
				}
				n, err := file.Write(data[:len(data)/2])
				return n, errors.Join(err, errno)
			}
			w.has(w.source(), data)
			if names := w.folder(); slices.Contains(names, unused) || !slices.Contains(names, used) {
				t.Errorf("in the folder: %v", names)
			}
		})
	}
}

func TestVolumeStaysFull(t *testing.T) {
	w := serving(t, content("abcdefg", 1000))
	w.write = func(*os.File, []byte) (int, error) { return 0, &os.PathError{Op: "write", Err: syscall.ENOSPC} }
	w.refuses(w.source(), runtime.IsUnavailable, "the volume with the cache of OVAs is full")
	w.ended()
	if names := w.folder(); len(names) > 0 {
		t.Errorf("left in the folder: %v", names)
	}
}

func TestNoFolder(t *testing.T) {
	w := serving(t, content("abcdefg", 1000))
	w.Must(os.WriteFile(w.Dir, nil, 0o600))
	w.refuses(w.source(), runtime.IsUnavailable, "the cache of OVAs cannot be read or written")
}

// What another process is about to remove is not handed out.
func TestAnotherProcessRemoves(t *testing.T) {
	data := content("abcdefg", 1000)
	w := serving(t, data)
	w.left(digest(data)+".ova", data, 1)
	theirs, err := openLocked(w.path(digest(data)+".ova"), os.O_RDWR, exclusively)
	w.Must(err)
	w.refuses(w.source(), runtime.IsUnavailable, "is removing the OVA")
	w.Must(os.Remove(theirs.Name()))
	w.Must(theirs.Close())
	w.has(w.source(), data)
}

// Whoever does not wait any longer leaves everything as somebody else can go on with it.
func TestNobodyWaits(t *testing.T) {
	data := content("abcdefg", 1000)
	w := serving(t, data)
	w.left(w.part(w.source()), data[:600], 1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := w.Fetch(ctx, w.source(), nil, nil)
	w.told(err, runtime.IsUnavailable)
	w.ended()
	w.has(w.source(), data)
}
