package lookup

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

// maxBytes is more than any release has.
const maxBytes = 1 << 30

// mayDownload downloads a program if DOWNLOAD and the network allow it, and returns its path; "" says that it has to be built.
func (f *Finder) mayDownload(ctx context.Context, program string) (string, error) {
	choice := os.Getenv(DownloadVariable)
	switch choice {
	case "0":
		return "", nil
	case "", "1":
	default:
		return "", fmt.Errorf("%s=%s: set it to 0 to download nothing, to 1 to build nothing, or not at all", DownloadVariable, choice)
	}
	var path string
	var err error
	if choice != "1" {
		err = f.reach(ctx, program)
	}
	if err == nil {
		path, err = f.download(ctx, program)
	}
	if err == nil {
		return path, nil
	}
	err = fmt.Errorf("downloading %s %s: %w", program, f.version(program), err)
	switch {
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case errors.Is(err, syscall.ENOSPC):
		return "", fmt.Errorf("%w: free some space there, or set XDG_CACHE_HOME to a folder on another disk", err)
	case choice == "1":
		return "", fmt.Errorf("%w (%s=1 builds nothing; without it, the program is built)", err, DownloadVariable)
	}
	f.say("%v; building it instead", err)
	return "", nil
}

// reach asks the site of a program once whether it can be reached, so that a machine without a network loses no time.
func (f *Finder) reach(ctx context.Context, program string) error {
	from, err := mirrored(f.release(program, runtime.GOARCH).url)
	if err != nil {
		return err
	}
	answer, asked := f.reached[from.Host]
	if !asked {
		answer = f.head(ctx, from)
		f.reached[from.Host] = answer
	}
	return answer
}

func (f *Finder) head(ctx context.Context, from *url.URL) error {
	ctx, cancel := context.WithTimeoutCause(ctx, f.limits.reach, fmt.Errorf("%s does not answer within %s", from.Host, f.limits.reach))
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodHead, from.String(), nil)
	if err != nil {
		return err
	}
	response, err := f.client.Do(request)
	if of := (*url.Error)(nil); errors.As(err, &of) { // all programs of the site share the answer, so no file of one is named
		err = fmt.Errorf("%s cannot be reached: %w", from.Host, of.Err)
	}
	if err != nil {
		return because(ctx, err)
	}
	return response.Body.Close()
}

// because returns why a request was cancelled, or the error itself.
func because(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// download fetches a release, compares its checksum, and puts the program into its place. What another process downloads
// at the same time is waited for and taken; what a killed one has left is overwritten.
func (f *Finder) download(ctx context.Context, program string) (string, error) {
	path := f.downloaded(program)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	unlock, err := Lock(ctx, filepath.Join(filepath.Dir(path), "lock"), func() {
		f.say("%s: another process downloads into %s, waiting for it", program, filepath.Dir(path))
	})
	if err != nil {
		return "", err
	}
	defer unlock()
	if IsFile(path) {
		return path, nil
	}
	started := time.Now()
	r := f.release(program, runtime.GOARCH)
	want, err := f.checksum(ctx, r)
	if err != nil {
		return "", err
	}
	partial := filepath.Join(filepath.Dir(path), "."+program+".partial")
	defer func() { _ = os.Remove(partial) }()
	if err := f.verified(ctx, r, want, program, partial); err != nil {
		return "", err
	}
	ready := partial
	if r.member != "" {
		ready = partial + ".member"
		defer func() { _ = os.Remove(ready) }()
		if err := extract(partial, r.member, ready); err != nil {
			return "", err
		}
	}
	if err := os.Rename(ready, path); err != nil {
		return "", err
	}
	f.say("%s: downloaded in %s", program, time.Since(started).Round(time.Second))
	return path, nil
}

// verified fetches a release into a file, and returns an error if it does not have the SHA-256 that it should have.
func (f *Finder) verified(ctx context.Context, r release, want, program, file string) error {
	from, err := mirrored(r.url)
	if err != nil {
		return err
	}
	f.say("%s: downloading %s", program, from.Redacted())
	hash := sha256.New()
	err = write(file, func(to io.Writer) error {
		return f.fetch(ctx, from, io.MultiWriter(to, hash), maxBytes, program)
	})
	if err != nil {
		return err
	}
	if got := hex.EncodeToString(hash.Sum(nil)); got != want {
		return fmt.Errorf("%s has the SHA-256 %s, not %s: a proxy may have answered in its place", from.Redacted(), got, want)
	}
	return nil
}

// write writes an executable file; when it returns, the content is on the disk.
func write(path string, content func(io.Writer) error) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	err = content(file)
	if err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}

// extract writes one member of a .tar.gz to a file.
func extract(archive, member, file string) error {
	from, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	unzipped, err := gzip.NewReader(from)
	if err != nil {
		return fmt.Errorf("reading %s: %w", archive, err)
	}
	for members := tar.NewReader(unzipped); ; {
		header, err := members.Next()
		if err != nil {
			return fmt.Errorf("looking for %s in %s: %w", member, archive, err)
		}
		if header.Name == member && header.Typeflag == tar.TypeReg {
			return write(file, func(to io.Writer) error {
				_, err := io.Copy(to, members)
				return err
			})
		}
	}
}

// fetch copies what a URL has, at most limit bytes. If it is a program, its progress is reported.
func (f *Finder) fetch(ctx context.Context, from *url.URL, to io.Writer, limit int64, program string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stalled := time.AfterFunc(f.limits.stall, func() {
		cancel(fmt.Errorf("%s sends nothing for %s", from.Host, f.limits.stall))
	})
	defer stalled.Stop()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, from.String(), nil)
	if err != nil {
		return err
	}
	response, err := f.client.Do(request)
	if err != nil {
		return because(ctx, err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", from.Redacted(), response.Status)
	}
	arrived, reported := int64(0), time.Now()
	body := readerFunc(func(p []byte) (int, error) {
		n, err := response.Body.Read(p)
		stalled.Reset(f.limits.stall)
		arrived += int64(n)
		if program != "" && time.Since(reported) >= f.limits.report {
			reported = time.Now()
			f.say("%s: %d of %d MB downloaded", program, arrived>>20, response.ContentLength>>20)
		}
		return n, err
	})
	if _, err := io.Copy(to, io.LimitReader(body, limit)); err != nil {
		return fmt.Errorf("%s: %w", from.Redacted(), because(ctx, err))
	}
	return nil
}

type readerFunc func([]byte) (int, error)

// Read calls the function.
func (r readerFunc) Read(p []byte) (int, error) { return r(p) }

// newClient returns a client that takes files as they are, and is not led away from TLS.
func newClient(proxy func(*http.Request) (*url.URL, error)) *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.Proxy = proxy
	transport.DisableCompression = true
	return &http.Client{
		Transport: transport,
		CheckRedirect: func(request *http.Request, via []*http.Request) error {
			if !secure(request.URL) {
				return errors.New("it redirects to a URL that is not https")
			}
			if len(via) >= 10 {
				return errors.New("it redirects ten times")
			}
			return nil
		},
	}
}

// secure reports whether what a URL has cannot be replaced on its way.
func secure(u *url.URL) bool {
	return u.Scheme == "https" || u.Hostname() == "localhost" || net.ParseIP(u.Hostname()).IsLoopback()
}
