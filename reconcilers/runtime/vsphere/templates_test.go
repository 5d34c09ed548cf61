package vsphere_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/util/uuid"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere"
	"sallyport.dev/sallyport/reconcilers/template"
)

// templates is a world with a folder for the templates of a VSphereTemplate.
type templates struct {
	*world
	store template.Store
	d     template.Domain
}

const folder = "/DC0/vm/templates"

func newTemplates(t *testing.T) *templates {
	t.Helper()
	w := newWorld(t)
	w.AddFolder(folder)
	return templatesOf(w)
}

func templatesOf(w *world) *templates {
	return &templates{world: w, store: storeOf(w.runtime), d: domainAt("a", "/DC0", folder)}
}

func storeOf(rt *vsphere.Runtime) template.Store {
	return vsphere.TemplatesOf(rt, func(context.Context, *v1alpha1.VSphereTemplate) error { return nil }, time.Hour)
}

// domainAt gives a failure domain with a folder in a datacenter.
func domainAt(name, center string, folder v1alpha1.InventoryPath) template.Domain {
	at := func(path string) v1alpha1.InventoryPath { return v1alpha1.InventoryPath(center + path) }
	domain := v1alpha1.VSphereFailureDomain{
		Name: name, Folder: folder, Datastore: at("/datastore/LocalDS_0"), Network: at("/network/VM Network"),
		ResourcePool: at("/host" + strings.TrimSuffix(center, "/") + "_C0"),
	}
	return template.Domain{
		Owner: uuid.NewUUID(), Namespace: "ns", Object: "ubuntu", Domain: &domain,
		Spec: &v1alpha1.VSphereTemplateSpec{
			ServerRef: v1alpha1.VSphereServerReference{Name: "lab"}, Name: "ubuntu", Release: "1",
			FailureDomains: []v1alpha1.VSphereFailureDomain{domain},
		},
	}
}

// made is when everything was made.
var made = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

// release is what is imported of a release.
func release(name string) template.Import {
	return template.Import{Name: "ubuntu-new-" + name, Mark: template.Mark{Release: name, Digest: "d" + name, Made: made}, Archive: image()}
}

// imports has a release imported.
func (w *templates) imports(name string) template.Item {
	w.Helper()
	item, err := w.store.Import(w.Context(), w.d, release(name), func(int32) {})
	w.Must(err)
	return item
}

func (w *templates) look() template.View {
	w.Helper()
	view, err := w.store.Look(w.Context(), w.d)
	w.Must(err)
	return view
}

// shows fails the test unless the folder has these items, whatever their versions.
func (w *templates) shows(items ...template.Item) {
	w.Helper()
	if diff := cmp.Diff(items, w.look().Items, cmpopts.IgnoreFields(template.Item{}, "Version", "Bytes"), cmpopts.EquateEmpty()); diff != "" {
		w.Errorf("the folder shows something else (-want +got):\n%s", diff)
	}
}

// A release is imported, finished, given the name, and destroyed.
func TestTemplate(t *testing.T) {
	w := newTemplates(t)
	w.Must(w.Tag(t.Context(), w.Hosts()[0], "kind", "image"))
	w.d.Spec.Firmware, w.d.Spec.SecureBoot = v1alpha1.VSphereFirmwareEFI, new(true)
	w.d.Spec.Tags = []v1alpha1.VSphereTag{{Category: "kind", Name: "image"}}
	w.shows()
	item := w.imports("1")
	want := template.Item{
		Mark: release("1").Mark, MoRef: item.MoRef, InstanceUUID: item.InstanceUUID, Name: "ubuntu-new-1",
		Stage: template.Imported, DiskType: v1alpha1.VSphereDiskThin,
	}
	w.shows(want)
	if _, err := w.store.Rename(t.Context(), w.d, template.Item{MoRef: "vm-0"}, "ubuntu"); err == nil {
		t.Error("something that is not there was renamed")
	}
	item, err := w.store.Finish(t.Context(), w.d, item)
	w.Must(err)
	want.Stage = template.Whole
	w.shows(want)
	state := w.State(folder + "/ubuntu-new-1")
	if !state.Template || state.Firmware != "efi" || !state.SecureBoot || !strings.Contains(state.Annotation, "ns/ubuntu") {
		t.Errorf("the template is %+v", state)
	}
	if tags, err := w.TagsOf(t.Context(), folder+"/ubuntu-new-1"); err != nil || !slices.Equal(tags, []string{"image"}) {
		t.Errorf("the template has the tags %v, error %v", tags, err)
	}
	item, err = w.store.Rename(t.Context(), w.d, item, "ubuntu")
	w.Must(err)
	want.Name = "ubuntu"
	w.shows(want)
	if open := w.OpenLeases(); open != 0 {
		t.Errorf("%d leases are open", open)
	}
	w.Must(w.store.Destroy(t.Context(), w.d, item))
	w.shows()
	w.Must(w.store.Destroy(t.Context(), w.d, item))
}
