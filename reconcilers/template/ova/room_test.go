package ova

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"sallyport.dev/sallyport/reconcilers/runtime"
)

// What was used longest ago makes room first: not what is open, and nothing that is not the cache's.
func TestRoom(t *testing.T) {
	data := content("abcdefg", 1000)
	w := serving(t, data)
	w.MaxBytes = 2500
	name := func(of string) string { return digest([]byte(of)) + ".ova" }
	oldPart := digest([]byte("old")) + ".0123456789abcdef.part"
	w.left(name("open"), content("open", 500), 5)
	w.left("others.ova", content("others", 5000), 5)
	w.left(oldPart, content("old", 500), 4)
	w.left(name("oldest"), content("oldest", 500), 3)
	w.left(name("younger"), content("younger", 500), 2)
	w.left(name("youngest"), content("youngest", 500), 1)
	open, err := w.open(fileName(digest([]byte("open"))))
	w.Must(err)
	defer func() { _ = open.Close() }()
	again, err := w.open(fileName(digest([]byte("oldest")))) // It is not the oldest any more.
	w.Must(err)
	w.Must(again.Close())
	w.left(name("open"), content("open", 500), 5) // nor is it spared because it was opened just now

	w.has(w.source(), data)
	want := []string{"others.ova", name("open"), name("oldest"), name("youngest"), digest(data) + ".ova"}
	slices.Sort(want)
	if got := w.folder(); !slices.Equal(got, want) {
		t.Errorf("in the folder:\n%s\nand not\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestNoRoom(t *testing.T) {
	data := content("abcdefg", 1000)
	w := serving(t, data)
	w.MaxBytes = 1500
	w.left(digest([]byte("open"))+".ova", content("open", 600), 1)
	open, err := w.open(fileName(digest([]byte("open"))))
	w.Must(err)
	w.refuses(w.source(), runtime.IsUnavailable, "the cache of OVAs is full for now")
	w.Must(open.Close())
	w.has(w.source(), data)
}

// A download that is under way has the room that it is going to need.
func TestRoomIsClaimed(t *testing.T) {
	data := content("abcdefg", 1000)
	w := serving(t, data)
	w.MaxBytes = 1500
	goOn := w.held()
	first := w.begin(w.source())
	w.Eventually("it has claimed its room", func() bool {
		w.files.Lock()
		defer w.files.Unlock()
		return w.claims[w.part(w.source())] == 1000
	})
	other := content("other", 600)
	server := w.listen(func(out http.ResponseWriter, _ *http.Request) { _, _ = out.Write(other) })
	source := w.source()
	source.URL, source.SHA256, source.CABundle = server.URL, digest(other), authority(server)
	w.refuses(source, runtime.IsUnavailable, "the cache of OVAs is full for now")
	goOn()
	<-first.done
	w.Must(first.err)
	w.Must(first.file.Close())
	w.ended()
	w.has(source, other)
}

func TestTooLarge(t *testing.T) {
	for name, answer := range map[string]func(w *world) http.HandlerFunc{
		"said before": func(w *world) http.HandlerFunc { return w.serve },
		"seen only when it comes": func(w *world) http.HandlerFunc {
			return func(out http.ResponseWriter, request *http.Request) {
				for request.Context().Err() == nil {
					if _, err := out.Write(w.data); err != nil {
						return
					}
					out.(http.Flusher).Flush()
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := serving(t, content("abcdefg", 100_000))
			w.MaxBytes = 99_999
			w.answers(answer(w))
			w.refuses(w.source(), runtime.IsInvalidSpec, "spec.source.url", "larger than", "99999 bytes")
			w.ended()
			if names := w.folder(); len(names) > 0 {
				t.Errorf("left in the folder: %v", names)
			}
		})
	}
}

// The size of an answer need not be known.
func TestUnknownLength(t *testing.T) {
	data := content("abcdefg", 100_000)
	w := serving(t, data)
	w.MaxBytes = 100_000
	w.answers(func(out http.ResponseWriter, _ *http.Request) {
		for chunk := range slices.Chunk(data, 30_000) {
			_, _ = out.Write(chunk)
			out.(http.Flusher).Flush()
		}
	})
	file, err := w.Fetch(t.Context(), w.source(), nil, func(percent int32) { t.Errorf("progress %d of an unknown size", percent) })
	w.Must(err)
	w.reads(file, data)
	w.Must(file.Close())
}

// However small they are, there is a bound on how many files there are.
func TestManyFiles(t *testing.T) {
	data := content("abcdefg", 1000)
	w := serving(t, data)
	for i := range maxFiles + 10 {
		w.left(digest(fmt.Append(nil, i))+".0123456789abcdef.part", []byte("x"), i)
	}
	w.has(w.source(), data)
	if got := len(w.folder()); got != maxFiles {
		t.Errorf("%d files", got)
	}
}
