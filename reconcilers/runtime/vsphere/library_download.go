package vsphere

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/vmware/govmomi/vapi/library"
	"github.com/vmware/govmomi/vapi/rest"
	"github.com/vmware/govmomi/vim25"

	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/templates"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/session"
)

const (
	// preparePatience limits the time vCenter takes to prepare an item, which it may have to download first.
	preparePatience = 30 * time.Minute
	// keepDownload is the interval of the keep-alive. vCenter ends a session after five minutes without one.
	keepDownload = time.Minute
)

// libraryDownload is a download session of vCenter. The session ID grants access to the files; it must not appear in
// errors.
type libraryDownload struct {
	*libraryItem
	id    string
	files []templates.LibraryFile
	from  map[string]*url.URL // by file name; the URLs contain the session ID

	stop    context.CancelFunc
	keeping sync.WaitGroup
}

// Open finds the item and makes vCenter prepare its files. If the reply to the creation of the session is lost, or
// this process ends, vCenter ends the session after five minutes.
func (i *libraryItem) Open(ctx context.Context) (templates.Download, error) {
	item, err := i.find(ctx)
	if err != nil {
		return nil, err
	}
	d := &libraryDownload{libraryItem: i, from: map[string]*url.URL{}}
	err = d.ask(ctx, func(ctx context.Context, m *library.Manager) (err error) {
		d.id, err = m.CreateLibraryItemDownloadSession(ctx, library.Session{LibraryItemID: item})
		return err
	})
	if err != nil {
		return nil, err
	}
	ctx, d.stop = context.WithCancel(ctx)
	d.keeping.Go(func() { d.keepAlive(ctx) })
	if err := d.prepare(ctx, item); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// ask is that of the item, without the causes of errors, whose URLs contain the session ID.
func (d *libraryDownload) ask(ctx context.Context, requests func(context.Context, *library.Manager) error) error {
	err := d.libraryItem.ask(ctx, func(ctx context.Context, m *library.Manager) error { return prepared(requests(ctx, m)) })
	if of, is := errors.AsType[*runtime.Error](err); is {
		return &runtime.Error{Kind: of.Kind, Message: of.Message}
	}
	return err
}

// prepare makes vCenter prepare all files, and learns their sizes.
func (d *libraryDownload) prepare(ctx context.Context, item string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, preparePatience,
		runtime.NewUnavailable(nil, "vCenter %s has not prepared the item of the content library for %s", d.server.Config.Name, preparePatience))
	defer cancel()
	var files []library.DownloadFile
	err := d.ask(ctx, func(ctx context.Context, m *library.Manager) (err error) {
		files, err = m.ListLibraryItemDownloadSessionFile(ctx, d.id)
		return err
	})
	if err != nil {
		return err
	}
	if len(files) > maxFound {
		return ofItem.invalid("name", "the item %s has more than %d files", shown(d.of.Name), maxFound)
	}
	for _, f := range files {
		if err := d.ask(ctx, func(ctx context.Context, m *library.Manager) error {
			_, err := m.PrepareLibraryItemDownloadSessionFile(ctx, d.id, f.Name)
			return err
		}); err != nil {
			return err
		}
	}
	for _, f := range files {
		if err := d.locate(ctx, f.Name); err != nil {
			return err
		}
	}
	return d.measure(ctx, item)
}

// locate waits until a file can be downloaded.
func (d *libraryDownload) locate(ctx context.Context, name string) error {
	for waits := session.Pauses(50*time.Millisecond, 5*time.Second); ; {
		var file *library.DownloadFile
		err := d.ask(ctx, func(ctx context.Context, m *library.Manager) (err error) {
			file, err = m.GetLibraryItemDownloadSessionFile(ctx, d.id, name)
			if _, said := errors.AsType[*rest.LocalizableMessage](err); said {
				return runtime.NewUnavailable(nil, "vCenter %s cannot prepare %s of the content library", d.server.Config.Name, shown(name))
			}
			return err
		})
		switch {
		case err != nil:
			return err
		case file.Status == "PREPARED" && file.DownloadEndpoint != nil:
			d.from[name], err = d.endpoint(ctx, file.DownloadEndpoint.URI)
			return err
		}
		if err := session.Pause(ctx, waits); err != nil {
			return d.server.Translate(ctx, err)
		}
	}
}

func (d *libraryDownload) endpoint(ctx context.Context, text string) (from *url.URL, err error) {
	err = inTime(ctx, func(ctx context.Context) error {
		return d.server.Call(ctx, func(c *vim25.Client) (err error) {
			from, err = c.ParseURL(text)
			return withoutURL(err)
		})
	})
	if err != nil || from.Scheme != "https" || from.Host == "" {
		return nil, runtime.NewUnavailable(nil, "vCenter %s wants files of content libraries downloaded without TLS, or from an invalid URL", d.server.Config.Name)
	}
	return from, nil
}

// measure reads the sizes of the files, which the session may not report.
func (d *libraryDownload) measure(ctx context.Context, item string) error {
	return d.ask(ctx, func(ctx context.Context, m *library.Manager) error {
		all, err := m.ListLibraryItemFiles(ctx, item)
		if err != nil {
			return err
		}
		sizes := map[string]int64{}
		for _, f := range all {
			if f.Size != nil {
				sizes[f.Name] = *f.Size
			}
		}
		d.files = nil
		for name := range d.from {
			size, known := sizes[name]
			if !known {
				size = -1
			}
			d.files = append(d.files, templates.LibraryFile{Name: name, Size: size})
		}
		return nil
	})
}

// keepAlive renews the session until ctx ends. An error is ignored: the next renewal follows soon, and an ended session
// shows when it is used.
func (d *libraryDownload) keepAlive(ctx context.Context) {
	ticks := time.NewTicker(d.every)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
		_ = d.ask(ctx, func(ctx context.Context, m *library.Manager) error {
			return m.KeepAliveLibraryItemDownloadSession(ctx, d.id)
		})
	}
}

func (d *libraryDownload) Files() []templates.LibraryFile { return d.files }

// Read returns the content of a file. It is only requested from the URL that vCenter gave, since the request contains
// the session ID.
func (d *libraryDownload) Read(ctx context.Context, name string) (io.ReadCloser, error) {
	for again := false; ; again = true {
		c, err := d.server.RESTClient(ctx, aboutLibraries)
		if err != nil {
			return nil, err
		}
		response, err := d.get(ctx, c, name)
		if err != nil {
			return nil, d.server.Translate(ctx, withoutURL(err))
		}
		if response.StatusCode == http.StatusOK {
			return response.Body, nil
		}
		_ = response.Body.Close()
		if again || response.StatusCode != http.StatusUnauthorized {
			return nil, runtime.NewUnavailable(fmt.Errorf("the status is %d", response.StatusCode), "vCenter %s did not give %s of the content library",
				d.server.Config.Name, shown(name))
		}
		d.server.DropREST(ctx, c)
	}
}

func (d *libraryDownload) get(ctx context.Context, c *rest.Client, name string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, d.from[name].String(), nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept-Encoding", "identity")
	request.Header.Set("vmware-api-session-id", c.SessionID())
	client := &http.Client{Transport: c.Transport, CheckRedirect: c.CheckRedirect}
	return client.Do(request)
}

// Close ends the session and its downloads. A session that cannot be ended expires.
func (d *libraryDownload) Close() {
	d.stop()
	d.keeping.Wait()
	for _, end := range []func(*library.Manager, context.Context, string) error{
		(*library.Manager).CancelLibraryItemDownloadSession, (*library.Manager).DeleteLibraryItemDownloadSession,
	} {
		_ = d.ask(context.Background(), func(ctx context.Context, m *library.Manager) error { return end(m, ctx, d.id) })
	}
}
