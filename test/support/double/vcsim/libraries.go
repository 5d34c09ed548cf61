package vcsim

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vapi/library"
	"github.com/vmware/govmomi/vapi/rest"
	"github.com/vmware/govmomi/vim25/soap"
)

// Library is a content library.
type Library struct {
	center *VCenter
	id     string
}

// AddLibrary makes a content library, whatever others are called.
func (v *VCenter) AddLibrary(ctx context.Context, name string) (*Library, error) {
	l := &Library{center: v}
	err := v.rest(ctx, func(c *rest.Client) (err error) {
		on := library.StorageBacking{DatastoreID: v.first("Datastore").Reference().Value, Type: "DATASTORE"}
		l.id, err = library.NewManager(c).CreateLibrary(ctx, library.Library{Name: name, Type: "LOCAL", Storage: []library.StorageBacking{on}})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("making content library %s: %w", name, err)
	}
	return l, nil
}

// Add uploads an item of a type, such as ovf, and gives the folder of this computer that its files are in. A file that ends in .ova is taken
// apart, as vCenter does with those of items of type ovf. The simulator keeps something else of what ends in .vmdk, but not in .VMDK.
func (l *Library) Add(ctx context.Context, name, kind string, files ...File) (folder string, err error) {
	err = l.center.rest(ctx, func(c *rest.Client) error {
		m := library.NewManager(c)
		id, err := m.CreateLibraryItem(ctx, library.Item{Name: name, Type: kind, LibraryID: l.id})
		if err != nil {
			return err
		}
		on := l.center.first("Datastore").(*simulator.Datastore).Info.GetDatastoreInfo().Url
		folder = filepath.Join(on, "contentlib-"+l.id, id)
		session, err := m.CreateLibraryItemUpdateSession(ctx, library.Session{LibraryItemID: id})
		if err != nil {
			return err
		}
		for _, f := range files {
			to, err := m.AddLibraryItemFile(ctx, session, library.UpdateFile{Name: f.Name, SourceType: "PUSH", Size: int64(len(f.Content))})
			if err != nil {
				return err
			}
			at, err := c.ParseURL(to.UploadEndpoint.URI)
			if err != nil {
				return err
			}
			if err := c.Upload(ctx, strings.NewReader(f.Content), at, &soap.Upload{Method: "PUT", ContentLength: int64(len(f.Content))}); err != nil {
				return err
			}
		}
		return m.CompleteLibraryItemUpdateSession(ctx, session)
	})
	if err != nil {
		return "", fmt.Errorf("uploading item %s: %w", name, err)
	}
	return folder, nil
}

// OpenDownloads counts the downloads from content libraries that have not ended.
func (v *VCenter) OpenDownloads(ctx context.Context) (open int, err error) {
	err = v.rest(ctx, func(c *rest.Client) error {
		ids, err := library.NewManager(c).ListLibraryItemDownloadSession(ctx)
		open = len(ids)
		return err
	})
	return open, err
}
