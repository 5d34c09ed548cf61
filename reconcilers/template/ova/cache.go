// Package ova downloads OVAs into a bounded cache of files on a volume: from URLs, and from content libraries, whose items it puts together
// again if they were taken apart.
//
// A download is written to a part, which becomes a file of the cache once its SHA-256 is the one that was asked for, or that of its manifest
// and then those of its files are: nothing else is ever read. A part that is left behind, by a failure or a crash, is gone on with, or
// removed when its room is needed. Who has a file open, or writes a part, holds a lock (flock) on it, and only what nobody has locked is
// removed. That is so within a process and between two of them: the one that leads, and the one before it that has not ended yet.
package ova

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"os"
	"sync"
	"time"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/template"
)

// Cache is a folder with OVAs. It is safe for concurrent use, and must not be copied.
type Cache struct {
	// Dir is the folder, on a volume that knows locks. It is made if it is missing. What is in it and is not the cache's stays as it is.
	Dir string
	// MaxBytes is how large all files of the cache may be together. One that is larger is refused.
	MaxBytes int64
	// Forbidden are the addresses that nothing is downloaded from. LocalAddresses should be among them.
	Forbidden []netip.Prefix
	// Patience is how long a server may take to answer, and a download may stand still, for twice as long at most. Default: a minute.
	Patience time.Duration
	// Now tells the time: the files that were used longest ago make room first.
	Now func() time.Time

	mu        sync.Mutex
	downloads map[string]*download // under way, by the names of their parts

	files  sync.Mutex       // held while files are opened, removed or given another name
	claims map[string]int64 // how large the parts that are being written may become, by name

	write func(*os.File, []byte) (int, error) // replaced by tests
}

// File is an OVA in the cache. It stays there until it is closed.
type File struct {
	held *os.File
	size int64
}

// Size is how large the OVA is, in bytes.
func (f *File) Size() int64 { return f.size }

// Open gives its content from the beginning. It may be called several times, and each reader has a place of its own. The readers end
// with the File.
func (f *File) Open() (io.ReadSeekCloser, error) {
	if _, err := f.held.Stat(); err != nil {
		return nil, fmt.Errorf("opening a downloaded OVA: %w", err)
	}
	return reader{io.NewSectionReader(f.held, 0, f.size)}, nil
}

// Close lets go of the file: it stays in the cache until its room is needed.
func (f *File) Close() error { return f.held.Close() }

// reader shares its descriptor with the File, which closes it.
type reader struct{ *io.SectionReader }

func (reader) Close() error { return nil }

// Fetch returns the OVA of that source, and downloads it first if it is not there. Where the source names an item of a content library,
// that is handed in, and whoever does so has made sure that it may be used. It waits until ctx ends. Several that want the same from
// the same place share one download, which goes on as long as one of them waits. Progress is told in percent, where the size is known, and
// may be nil.
//
// An error is [runtime.IsInvalidSpec] if the source has to change first, and [runtime.IsUnavailable] if another attempt may succeed: it
// goes on where this one ended.
func (c *Cache) Fetch(ctx context.Context, source v1alpha1.VSphereTemplateSource, item template.LibraryItem, progress func(percent int32)) (*File, error) {
	from, err := parse(source, item)
	if err != nil {
		return nil, err
	}
	for {
		if file, err := c.open(from.file); file != nil || err != nil {
			return file, err
		}
		d, joined := c.join(ctx, from)
		if !joined {
			select {
			case <-d.done:
				continue
			case <-ctx.Done():
				return nil, from.ended(ctx)
			}
		}
		return c.await(ctx, d, progress)
	}
}

// await waits for a download that was joined, and leaves it.
func (c *Cache) await(ctx context.Context, d *download, progress func(percent int32)) (*File, error) {
	defer c.leave(d)
	if err := d.wait(ctx, progress); err != nil {
		return nil, err
	}
	// The download itself has the file open until everybody has left, so that it is there.
	file, err := c.open(d.from.file)
	if file == nil && err == nil {
		err = runtime.NewUnavailable(nil, "the OVA of %s was removed from the cache by something else", d.from.shown)
	}
	return file, err
}

// join gives the download that is under way, or begins one. One that everybody has left is not joined: it is ending.
func (c *Cache) join(ctx context.Context, from *origin) (d *download, joined bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if d := c.downloads[from.part]; d != nil {
		if d.waiting == 0 {
			return d, false
		}
		d.waiting++
		return d, true
	}
	if c.downloads == nil {
		c.downloads = map[string]*download{}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	d = &download{from: from, cancel: cancel, done: make(chan struct{}), waiting: 1, percent: unknown, changed: make(chan struct{})}
	c.downloads[from.part] = d
	go c.carryOut(ctx, d)
	return d, true
}

// leave ends the download if nobody else waits for it.
func (c *Cache) leave(d *download) {
	c.mu.Lock()
	defer c.mu.Unlock()
	d.waiting--
	if d.waiting > 0 {
		return
	}
	d.cancel()
	if d.file != nil {
		_ = d.file.Close()
	}
}

// carryOut downloads, and tells those that wait.
func (c *Cache) carryOut(ctx context.Context, d *download) {
	file, err := c.download(ctx, d)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.downloads, d.from.part)
	d.file, d.err = file, err
	if d.waiting == 0 && file != nil {
		_ = file.Close()
	}
	close(d.done)
}
