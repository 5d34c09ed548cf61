package vsphere

import (
	"context"
	"net/http"
	"time"

	"github.com/vmware/govmomi/vapi/library"
	"github.com/vmware/govmomi/vapi/rest"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/templates"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/session"
)

const (
	// maxFound limits the libraries, items or files that are read: each takes a request.
	maxFound = 64
	// ofItem is the section of the spec for the item of a content library.
	ofItem section = "spec.source.libraryItem."
	// aboutLibraries describes the requests in errors of the REST API.
	aboutLibraries = "content libraries"
)

type libraryItem struct {
	server *session.Server
	of     v1alpha1.VSphereLibraryItem
	every  time.Duration // interval of the keep-alive of a download
}

// LibraryItem returns the item of a content library for a VSphereTemplate, if the tenants allow the library.
func (s *Sessions) LibraryItem(ctx context.Context, d templates.Domain) (templates.LibraryItem, error) {
	name := d.Spec.ServerRef.Name
	present := s.await(ctx, name)
	if present == nil {
		return nil, notConnected(name)
	}
	if err := inTime(ctx, func(ctx context.Context) error { return s.templates.mayRead(ctx, d) }); err != nil {
		return nil, err
	}
	return &libraryItem{present.server, *d.Spec.Source.LibraryItem, keepDownload}, nil
}

// ask makes related requests about content libraries.
func (i *libraryItem) ask(ctx context.Context, requests func(context.Context, *library.Manager) error) error {
	return inTime(ctx, func(ctx context.Context) error {
		return i.server.REST(ctx, aboutLibraries, func(c *rest.Client) error { return requests(ctx, library.NewManager(c)) })
	})
}

// find returns the ID of the item. vCenter allows several libraries with the same name.
func (i *libraryItem) find(ctx context.Context) (id string, err error) {
	kind := ""
	err = i.ask(ctx, func(ctx context.Context, m *library.Manager) error {
		ids, err := m.FindLibrary(ctx, library.Find{Name: i.of.Library})
		if err != nil {
			return err
		}
		in, err := i.onlyMatch("library", "content library "+shown(i.of.Library), ids, func(id string) (bool, error) {
			found, err := m.GetLibraryByID(ctx, id)
			return found.Name == i.of.Library, err
		})
		if err != nil {
			return err
		}
		ids, err = m.FindLibraryItems(ctx, library.FindItem{LibraryID: in, Name: i.of.Name})
		if err != nil {
			return err
		}
		id, err = i.onlyMatch("name", "item "+shown(i.of.Name)+" in content library "+shown(i.of.Library), ids, func(id string) (bool, error) {
			found, err := m.GetLibraryItem(ctx, id)
			if found.Name == i.of.Name {
				kind = found.Type
			}
			return found.Name == i.of.Name, err
		})
		return err
	})
	if err == nil && kind == library.ItemTypeVMTX {
		err = ofItem.invalid("name", "the item %s is a VM template, which cannot be downloaded: clone it into the library as an OVF template", shown(i.of.Name))
	}
	return id, err
}

// onlyMatch returns the single match whose name equals the requested one (vCenter matches case-insensitively).
func (i *libraryItem) onlyMatch(field, what string, ids []string, is func(id string) (bool, error)) (string, error) {
	if len(ids) > maxFound {
		return "", ofItem.invalid(field, "vCenter %s has %d of name %s: rename some", i.server.Config.Name, len(ids), what)
	}
	var called []string
	for _, id := range ids {
		yes, err := is(id)
		if rest.IsStatusError(err, http.StatusNotFound) { // it was removed in the meantime
			continue
		}
		if err != nil {
			return "", err
		}
		if yes {
			called = append(called, id)
		}
	}
	switch len(called) {
	case 1:
		return called[0], nil
	case 0:
		return "", ofItem.invalid(field, "vCenter %s has no %s, or does not show it", i.server.Config.Name, what)
	}
	return "", ofItem.invalid(field, "vCenter %s has %d of %s: rename all but one", i.server.Config.Name, len(called), what)
}

// prepared converts the error of requests about an item that was just found.
func prepared(err error) error {
	if rest.IsStatusError(err, http.StatusNotFound) {
		return runtime.NewUnavailable(nil, "the item of the content library was changed or removed, or its download ended, in the meantime")
	}
	return err
}
