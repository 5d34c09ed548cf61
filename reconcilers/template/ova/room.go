package ova

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"sallyport.dev/sallyport/reconcilers/runtime"
)

// maxFiles is how many files a cache has at most, however small they are.
const maxFiles = 256

// ours are the names of a cache's files: <digest>.ova is a verified one, <digest>.<origin>.part a download of it. The digest is the OVA's,
// or, of an item of a content library, one of the item and its SHA-256.
var ours = regexp.MustCompile(`^[0-9a-f]{64}\.(ova|[0-9a-f]{16}\.part)$`)

func fileName(digest string) string { return digest + ".ova" }

func (c *Cache) path(name string) string { return filepath.Join(c.Dir, name) }

// open gives a verified file, or nothing.
func (c *Cache) open(name string) (*File, error) {
	c.files.Lock()
	defer c.files.Unlock()
	return c.openFile(name)
}

// openFile is open for who holds c.files.
func (c *Cache) openFile(name string) (*File, error) {
	path := c.path(name)
	held, err := openLocked(path, os.O_RDONLY, shared)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if isLocked(err) {
		return nil, runtime.NewUnavailable(nil, "another replica is removing the OVA from the cache")
	}
	if err != nil {
		return nil, broken(err)
	}
	info, err := held.Stat()
	if err != nil {
		_ = held.Close()
		return nil, broken(err)
	}
	now := c.Now()
	_ = os.Chtimes(path, now, now) // Without it the file only makes room earlier than it should.
	return &File{held, info.Size()}, nil
}

// openLocked opens a file and locks it. That it still is the one of that name has to be seen afterwards: who removes a file, or gives it
// another name, has locked it too.
func openLocked(path string, flags int, how lockMode) (*os.File, error) {
	for {
		file, err := os.OpenFile(path, flags, 0o600)
		if err != nil {
			return nil, err
		}
		if err := lock(file, how); err != nil {
			_ = file.Close()
			return nil, err
		}
		there, err := os.Stat(path)
		if err == nil {
			var locked os.FileInfo
			if locked, err = file.Stat(); err == nil && os.SameFile(there, locked) {
				return file, nil
			}
		}
		_ = file.Close()
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
}

// entry is a file of the cache.
type entry struct {
	name string
	size int64
	used time.Time
}

// entries are the files of the cache, those first that were used longest ago.
func (c *Cache) entries() (entries []entry, err error) {
	all, err := os.ReadDir(c.Dir)
	if err != nil {
		return nil, err
	}
	for _, one := range all {
		info, err := one.Info()
		if err != nil || !info.Mode().IsRegular() || !ours.MatchString(one.Name()) {
			continue // It is not the cache's, or has just gone.
		}
		entries = append(entries, entry{one.Name(), max(info.Size(), c.claims[one.Name()]), info.ModTime()})
	}
	slices.SortFunc(entries, func(a, b entry) int { return a.used.Compare(b.used) })
	return entries, nil
}

// claim sees to it that there is room for a part of at least that size, and gives how large it may become: as large as is wished, if
// nothing more has to be removed for that.
func (c *Cache) claim(name string, least, most int64) (int64, error) {
	c.files.Lock()
	defer c.files.Unlock()
	entries, err := c.entries()
	if err != nil {
		return 0, broken(err)
	}
	entries = slices.DeleteFunc(entries, func(e entry) bool { return e.name == name })
	var others int64
	for _, e := range entries {
		others += e.size
	}
	count := len(entries)
	for _, e := range entries {
		if others+least <= c.MaxBytes && count < maxFiles {
			break
		}
		if c.remove(e.name) {
			others -= e.size
			count--
		}
	}
	if others+least > c.MaxBytes {
		return 0, runtime.NewUnavailable(nil, "the cache of OVAs is full for now: its contents are being imported or downloaded")
	}
	if c.claims == nil {
		c.claims = map[string]int64{}
	}
	c.claims[name] = min(most, c.MaxBytes-others)
	return c.claims[name], nil
}

// removeUnused removes every file that nobody has open, and reports whether there was one.
func (c *Cache) removeUnused() (removed bool) {
	c.files.Lock()
	defer c.files.Unlock()
	entries, err := c.entries()
	if err != nil {
		return false
	}
	for _, e := range entries {
		if c.remove(e.name) {
			removed = true
		}
	}
	return removed
}

// remove removes a file that nobody has open.
func (c *Cache) remove(name string) bool {
	file, err := openLocked(c.path(name), os.O_RDWR, exclusively)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	defer func() { _ = file.Close() }()
	return os.Remove(file.Name()) == nil
}
