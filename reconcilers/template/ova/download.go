package ova

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"sallyport.dev/sallyport/reconcilers/runtime"
)

const (
	// patience is how long a server may take to answer, and a download may stand still, if nothing else is said.
	patience = time.Minute
	// slowest is how many bytes have to come within that time: less is as good as nothing.
	slowest = 64 << 10
	// unknown is the progress of a download whose size is not known.
	unknown = -1
)

// errStandsStill is why a download is given up that goes on no more.
var errStandsStill = errors.New("standing still")

// errStale means that the server has nothing that goes on from where a part ends.
var errStale = errors.New("the part does not fit what the server has")

// download is one that is under way.
type download struct {
	from   *origin
	cancel context.CancelFunc
	done   chan struct{}

	// These are guarded by Cache.mu; file and err are written before done is closed.
	waiting int
	file    *File
	err     error

	mu      sync.Mutex
	percent int32
	changed chan struct{} // closed when percent changes
}

// wait tells of the progress until the download has ended, or ctx has.
func (d *download) wait(ctx context.Context, progress func(percent int32)) error {
	told := int32(unknown)
	for {
		percent, changed := d.progress()
		if progress != nil && percent != told && percent != unknown {
			progress(percent)
			told = percent
		}
		select {
		case <-changed:
		case <-d.done:
			return d.err
		case <-ctx.Done():
			return d.from.ended(ctx)
		}
	}
}

func (d *download) progress() (percent int32, changed chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.percent, d.changed
}

// tell says how much there is of how much. A total below zero is not known.
func (d *download) tell(size, total int64) {
	percent := int32(unknown)
	if total > 0 {
		percent = int32(min(100, float64(size)/float64(total)*100))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if percent != d.percent {
		d.percent = percent
		close(d.changed)
		d.changed = make(chan struct{})
	}
}

// download goes on with the part that is there, or begins one, and gives the file that it becomes. What was resumed and has the wrong
// checksum is downloaded once more from the beginning: the server may have had something else then, and what was written just before a
// crash may never have reached the disk.
func (c *Cache) download(ctx context.Context, d *download) (*File, error) {
	p, err := c.openPart(d.from)
	if err != nil {
		return nil, err
	}
	defer p.close()
	if d.from.item != nil {
		return c.collect(ctx, d, p)
	}
	if err := p.load(ctx); err != nil {
		return nil, err
	}
	if p.sum() == d.from.digest { // the process ended between the last byte and the name
		return p.keep()
	}
	err = c.get(ctx, d, p)
	if errors.Is(err, errStale) || err == nil && p.resumed && p.sum() != d.from.digest {
		if err := p.restart(); err != nil {
			return nil, err
		}
		err = c.get(ctx, d, p)
	}
	if err != nil {
		return nil, err
	}
	if sum := p.sum(); sum != d.from.digest {
		p.discard()
		return nil, runtime.NewInvalidSpec(nil, "spec.source.sha256: the OVA at %s has the SHA-256 %s, not %s", d.from.shown, sum, d.from.digest)
	}
	return p.keep()
}

// get asks for what is missing of the part, and writes it there.
func (c *Cache) get(ctx context.Context, d *download, p *part) error {
	ctx, seen, stop := c.watch(ctx)
	defer stop()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, d.from.url, nil)
	if err != nil {
		return d.from.unreadable()
	}
	request.Header.Set("User-Agent", "sallyport")
	request.Header.Set("Accept-Encoding", "identity")
	if p.size > 0 {
		request.Header.Set("Range", fmt.Sprintf("bytes=%d-", p.size))
	}
	response, err := c.client(d.from).Do(request)
	if err != nil {
		return d.from.trouble(ctx, err)
	}
	defer func() { _ = response.Body.Close() }()
	total, err := p.fit(response)
	if err != nil {
		return err
	}
	if total > 0 {
		if err := p.claim(total, total); err != nil {
			return err
		}
	}
	_, err = io.Copy(p, counting{response.Body, func(n int) {
		seen.Add(int64(n))
		d.tell(p.size, total)
	}})
	if failed, ok := errors.AsType[*runtime.Error](err); ok { // of the part, not of the server
		return failed
	}
	if err == nil {
		// A server that is hung up on may still end its answer as if that were all.
		err = ctx.Err()
	}
	if err == nil && total >= 0 && p.size != total {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return d.from.trouble(ctx, err)
	}
	d.tell(p.size, total)
	return nil
}

// fit readies the part for what the server answered, and gives the size of the whole OVA, or less than nothing if that is not known.
func (p *part) fit(response *http.Response) (total int64, err error) {
	switch {
	case response.StatusCode == http.StatusOK:
		return response.ContentLength, p.restart()
	case p.size > 0 && response.StatusCode == http.StatusRequestedRangeNotSatisfiable:
		return 0, errStale
	case p.size > 0 && response.StatusCode == http.StatusPartialContent:
		var first, last int64
		n, err := fmt.Sscanf(response.Header.Get("Content-Range"), "bytes %d-%d/%d", &first, &last, &total)
		if err != nil || n != 3 || first != p.size || last < first || total <= last {
			return 0, errStale
		}
		return total, nil
	}
	return 0, p.from.refusedWith(response.StatusCode)
}

// watch ends the context when hardly anything was seen for as long as the patience lasts. That bounds the way to the first byte, too.
func (c *Cache) watch(ctx context.Context) (watched context.Context, seen *atomic.Int64, stop func()) {
	watched, cancel := context.WithCancelCause(ctx)
	seen = &atomic.Int64{}
	every := c.patience()
	go func() {
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for {
			select {
			case <-watched.Done():
				return
			case <-ticker.C:
				if seen.Swap(0) < slowest {
					cancel(errStandsStill)
					return
				}
			}
		}
	}()
	return watched, seen, func() { cancel(context.Canceled) }
}

func (c *Cache) patience() time.Duration {
	if c.Patience > 0 {
		return c.Patience
	}
	return patience
}

// counting tells how much was read.
type counting struct {
	io.Reader
	tell func(n int)
}

func (r counting) Read(buffer []byte) (int, error) {
	n, err := r.Reader.Read(buffer)
	r.tell(n)
	return n, err
}
