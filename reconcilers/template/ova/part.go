package ova

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"
	"os"

	"sallyport.dev/sallyport/reconcilers/runtime"
)

// stride is how much room is claimed at once for a download whose size is not known.
const stride = 64 << 20

// part is a download as far as it has come. It is locked as long as it is open.
type part struct {
	cache   *Cache
	from    *origin
	file    *os.File
	hash    hash.Hash // of what was written
	size    int64     // how much was written
	claimed int64     // how large it may become without asking for more room
	resumed bool      // whether it begins with what an earlier download wrote
}

// openPart opens the part of a download, and makes it if there is none.
func (c *Cache) openPart(from *origin) (*part, error) {
	c.files.Lock()
	defer c.files.Unlock()
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, broken(err)
	}
	file, err := openLocked(c.path(from.part), os.O_RDWR|os.O_CREATE, exclusively)
	if isLocked(err) {
		return nil, runtime.NewUnavailable(nil, "another replica is still downloading %s", from.shown)
	}
	if err != nil {
		return nil, broken(err)
	}
	return &part{cache: c, from: from, file: file, hash: sha256.New()}, nil
}

// load reads what is there, for the checksum, and goes to its end.
func (p *part) load(ctx context.Context) error {
	size, err := io.Copy(p.hash, ending{p.file, ctx})
	if ctx.Err() != nil {
		return p.from.ended(ctx)
	}
	if err != nil {
		return broken(err)
	}
	p.size, p.resumed = size, size > 0
	return nil
}

// restart throws away what is there.
func (p *part) restart() error {
	p.hash.Reset()
	p.size, p.resumed = 0, false
	if _, err := p.file.Seek(0, io.SeekStart); err != nil {
		return broken(err)
	}
	if err := p.file.Truncate(0); err != nil {
		return broken(err)
	}
	return nil
}

// Write goes on with it. If the volume is full, everything in the cache that nobody uses makes room first.
func (p *part) Write(data []byte) (int, error) {
	if needed := p.size + int64(len(data)); needed > p.claimed {
		if err := p.claim(needed, needed+stride); err != nil {
			return 0, err
		}
	}
	write := p.cache.write
	if write == nil {
		write = (*os.File).Write
	}
	n, err := write(p.file, data)
	if isFull(err) && p.cache.removeUnused() {
		var more int
		more, err = write(p.file, data[n:])
		n += more
	}
	p.hash.Write(data[:n])
	p.size += int64(n)
	if err != nil {
		return n, broken(err)
	}
	return n, nil
}

// claim asks for room for so many bytes in all, better for more.
func (p *part) claim(least, most int64) error {
	if least > p.cache.MaxBytes {
		p.discard() // It never becomes a file.
		return runtime.NewInvalidSpec(nil, "%s: the OVA at %s is larger than the cache of OVAs, which has room for %d bytes",
			p.from.field, p.from.shown, p.cache.MaxBytes)
	}
	claimed, err := p.cache.claim(p.from.part, least, most)
	if err != nil {
		return err
	}
	p.claimed = claimed
	return nil
}

// sum is the checksum of what was written.
func (p *part) sum() string { return hex.EncodeToString(p.hash.Sum(nil)) }

// discard removes it.
func (p *part) discard() { p.size = 0 }

// close lets go of it. What is there stays, for the next attempt, if there is anything.
func (p *part) close() {
	p.cache.files.Lock()
	defer p.cache.files.Unlock()
	delete(p.cache.claims, p.from.part)
	if p.file == nil {
		return
	}
	if p.size == 0 {
		_ = os.Remove(p.file.Name())
	}
	_ = p.file.Close()
}

// keep makes it a file of the cache. The name of such a file vouches for its content, also to the next process: it is only given to what
// was verified and is on the disk as it was verified. If a crash takes the name away, the part is there, and is verified again.
func (p *part) keep() (*File, error) {
	if err := p.file.Sync(); err != nil {
		// What the system failed to write it may count as written from now on.
		p.discard()
		return nil, broken(err)
	}
	c := p.cache
	c.files.Lock()
	defer c.files.Unlock()
	if file, err := c.openFile(p.from.file); file != nil || err != nil { // from another URL
		p.discard()
		return file, err
	}
	if err := os.Rename(p.file.Name(), c.path(p.from.file)); err != nil {
		return nil, broken(err)
	}
	file := &File{p.file, p.size}
	p.file = nil
	if err := lock(file.held, shared); err != nil {
		_ = file.Close()
		return nil, broken(err)
	}
	return file, nil
}

// ending is a reader that ends with its context.
type ending struct {
	io.Reader
	ctx context.Context
}

func (r ending) Read(buffer []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(buffer)
}
