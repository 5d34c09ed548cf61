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
	"sallyport.dev/sallyport/reconcilers/template"
)

const (
	// preparePatience is how long vCenter may take to get an item ready, which it may have to download itself first.
	preparePatience = 30 * time.Minute
	// keepDownload is how often vCenter is told that a download goes on. It gives up on one of which it hears nothing for five minutes.
	keepDownload = time.Minute
)

// libraryDownload is a download session of vCenter. Whoever knows its ID can download the files, so that errors must not have it.
type libraryDownload struct {
	*libraryItem
	id    string
	files []template.LibraryFile
	from  map[string]*url.URL // By the names of the files; these have the ID.

	stop    context.CancelFunc
	keeping sync.WaitGroup
}

// Open finds the item, and has vCenter prepare its files. If the reply to the request for a session is lost nobody knows that one: vCenter
// ends it after five minutes, as it does when this process ends.
func (i *libraryItem) Open(ctx context.Context) (template.Download, error) {
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
	d.keeping.Go(func() { d.keep(ctx) })
	if err := d.prepare(ctx, item); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// ask is that of the item, and gives errors without their causes, in which there are URLs with the session's ID.
func (d *libraryDownload) ask(ctx context.Context, requests func(context.Context, *library.Manager) error) error {
	err := d.libraryItem.ask(ctx, func(ctx context.Context, m *library.Manager) error { return prepared(requests(ctx, m)) })
	if of, is := errors.AsType[*runtime.Error](err); is {
		return &runtime.Error{Kind: of.Kind, Message: of.Message}
	}
	return err
}

// prepare has vCenter get all files ready, and learns how large they are.
func (d *libraryDownload) prepare(ctx context.Context, item string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, preparePatience,
		runtime.NewUnavailable(nil, "vCenter %s has not prepared the item of the content library for %s", d.server.config.Name, preparePatience))
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
	for waits := pauses(50*time.Millisecond, 5*time.Second); ; {
		var file *library.DownloadFile
		err := d.ask(ctx, func(ctx context.Context, m *library.Manager) (err error) {
			file, err = m.GetLibraryItemDownloadSessionFile(ctx, d.id, name)
			if _, said := errors.AsType[*rest.LocalizableMessage](err); said {
				return runtime.NewUnavailable(nil, "vCenter %s cannot prepare %s of the content library", d.server.config.Name, shown(name))
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
		if err := pause(ctx, waits); err != nil {
			return d.server.translate(ctx, err)
		}
	}
}

// endpoint understands where a file is downloaded from.
func (d *libraryDownload) endpoint(ctx context.Context, text string) (from *url.URL, err error) {
	err = inTime(ctx, func(ctx context.Context) error {
		return d.server.call(ctx, func(c *vim25.Client) (err error) {
			from, err = c.ParseURL(text)
			return withoutURL(err)
		})
	})
	if err != nil || from.Scheme != "https" || from.Host == "" {
		return nil, runtime.NewUnavailable(nil, "vCenter %s wants files of content libraries downloaded without TLS, or from an invalid URL", d.server.config.Name)
	}
	return from, nil
}

// measure learns how large the files are. Sessions need not know that.
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
			d.files = append(d.files, template.LibraryFile{Name: name, Size: size})
		}
		return nil
	})
}

// keep tells vCenter that the download goes on. If that fails it is told the next time; a session that has ended shows when it is used.
func (d *libraryDownload) keep(ctx context.Context) {
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

// Files are those of the item.
func (d *libraryDownload) Files() []template.LibraryFile { return d.files }

// Read returns the content of a file, from nowhere else than vCenter says, which has the session's ID shown there.
func (d *libraryDownload) Read(ctx context.Context, name string) (io.ReadCloser, error) {
	for again := false; ; again = true {
		c, err := d.server.restClient(ctx, aboutLibraries)
		if err != nil {
			return nil, err
		}
		response, err := d.get(ctx, c, name)
		if err != nil {
			return nil, d.server.translate(ctx, withoutURL(err))
		}
		if response.StatusCode == http.StatusOK {
			return response.Body, nil
		}
		_ = response.Body.Close()
		if again || response.StatusCode != http.StatusUnauthorized {
			return nil, runtime.NewUnavailable(fmt.Errorf("the status is %d", response.StatusCode), "vCenter %s did not give %s of the content library",
				d.server.config.Name, shown(name))
		}
		d.server.leaveREST(ctx, c)
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

// Close ends the session, with what is still being downloaded, and forgets it. One that cannot be ended ends by itself.
func (d *libraryDownload) Close() {
	d.stop()
	d.keeping.Wait()
	for _, end := range []func(*library.Manager, context.Context, string) error{
		(*library.Manager).CancelLibraryItemDownloadSession, (*library.Manager).DeleteLibraryItemDownloadSession,
	} {
		_ = d.ask(context.Background(), func(ctx context.Context, m *library.Manager) error { return end(m, ctx, d.id) })
	}
}
