package vsphere_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/util/uuid"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/templates"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/disk"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/inventory"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/template"
	"sallyport.dev/sallyport/test/support/double/vcsim"
	"sallyport.dev/sallyport/test/support/race"
)

// templateWorld is a world with a folder for the templates of a VSphereTemplate.
type templateWorld struct {
	*world
	store templates.Store
	d     templates.Domain
	ids   []string // instance UUIDs, of which each import gets one
	used  int
}

const folder = "/DC0/vm/templates"

func newTemplates(t *testing.T) *templateWorld {
	t.Helper()
	w := newWorld(t)
	w.AddFolder(folder)
	return templatesOf(w)
}

func templatesOf(w *world) *templateWorld {
	of := &templateWorld{world: w, store: storeOf(w.runtime), d: domainAt("a", "/DC0", folder)}
	for range 8 {
		of.ids = append(of.ids, string(uuid.NewUUID()))
	}
	return of
}

func storeOf(rt *disk.Runtime) templates.Store {
	return storeWith(rt, func(context.Context, *v1alpha1.VSphereTemplate) error { return nil }, time.Hour)
}

// tellingStoreOf is storeOf for imports that tell all the time how much is done.
func tellingStoreOf(rt *disk.Runtime) templates.Store {
	return storeWith(rt, func(context.Context, *v1alpha1.VSphereTemplate) error { return nil }, time.Millisecond)
}

func storeWith(rt *disk.Runtime, tenants template.Tenants, reports time.Duration) templates.Store {
	store := template.New(rt.Server, tenants)
	store.ReportPeriod = reports
	return store
}

// domainAt gives a failure domain with a folder in a datacenter.
func domainAt(name, center string, folder v1alpha1.InventoryPath) templates.Domain {
	at := func(path string) v1alpha1.InventoryPath { return v1alpha1.InventoryPath(center + path) }
	domain := v1alpha1.VSphereFailureDomain{
		Name: name, Folder: folder, Datastore: at("/datastore/LocalDS_0"), Network: at("/network/VM Network"),
		ResourcePool: at("/host" + strings.TrimSuffix(center, "/") + "_C0"),
	}
	return templates.Domain{
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
func release(name string) templates.Import {
	return templates.Import{Name: "ubuntu-new-" + name, Mark: templates.Mark{Release: name, Digest: "d" + name, Made: made}, Archive: image().open()}
}

// imports has a release imported.
func (w *templateWorld) imports(name string) templates.Item {
	w.Helper()
	what := release(name)
	if w.used < len(w.ids) {
		what.InstanceUUID = w.ids[w.used]
		w.used++
	}
	item, err := w.store.Import(w.Context(), w.d, what, func(int32) {})
	w.Must(err)
	if what.InstanceUUID != "" && item.InstanceUUID != what.InstanceUUID {
		w.Errorf("it has the instance UUID %s, not %s", item.InstanceUUID, what.InstanceUUID)
	}
	return item
}

func (w *templateWorld) look() templates.View {
	w.Helper()
	view, err := w.store.Look(w.Context(), w.d)
	w.Must(err)
	return view
}

// shows fails the test unless the folder has these items, whatever their versions.
func (w *templateWorld) shows(items ...templates.Item) {
	w.Helper()
	if diff := cmp.Diff(items, w.look().Items, cmpopts.IgnoreFields(templates.Item{}, "Version", "Bytes"), cmpopts.EquateEmpty()); diff != "" {
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
	want := templates.Item{
		Mark: release("1").Mark, MoRef: item.MoRef, InstanceUUID: item.InstanceUUID, Name: "ubuntu-new-1",
		Stage: templates.Imported, DiskType: v1alpha1.VSphereDiskThin,
	}
	w.shows(want)
	if _, err := w.store.Rename(t.Context(), w.d, templates.Item{MoRef: "vm-0"}, "ubuntu"); err == nil {
		t.Error("something that is not there was renamed")
	}
	item, err := w.store.Finish(t.Context(), w.d, item)
	w.Must(err)
	want.Stage = templates.Whole
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

// refused fails the test unless nothing was done because the item is not as it was looked at, or is not to be touched.
func (w *templateWorld) refused(what string, err error) {
	w.Helper()
	if !runtime.IsInvalidState(err) || runtime.MayHaveActed(err) {
		w.Errorf("%s: got error %v, want InvalidState", what, err)
	}
}

// Of two processes that rename, one wins, and the other has done nothing.
func TestTemplateRenamedByTwo(t *testing.T) {
	w := newTemplates(t)
	item := w.whole("1")
	other := worldOf(t, w.VCenter)
	w.faults.Before(func() {
		_, err := storeOf(other.runtime).Rename(t.Context(), w.d, item, "first")
		w.Must(err)
	}, "ReconfigVM_Task")
	_, err := w.store.Rename(t.Context(), w.d, item, "second")
	w.refused("the second", err)
	item = w.look().Items[0]
	if item.Name != "first" {
		t.Errorf("it is called %s", item.Name)
	}
	errs := make(chan error, 2)
	for i, store := range []templates.Store{w.store, storeOf(other.runtime)} {
		go func() {
			_, err := store.Rename(t.Context(), w.d, item, []string{"third", "fourth"}[i])
			errs <- err
		}()
	}
	one, two := <-errs, <-errs
	if one == nil {
		one, two = two, one
	}
	w.refused("the one who lost", one)
	w.Must(two)
	if _, err := w.store.Finish(t.Context(), w.d, item); !runtime.IsInvalidState(err) {
		t.Errorf("finishing it as it was: got error %v", err)
	}
	w.refused("destroying it as it was", w.store.Destroy(t.Context(), w.d, item))
}

// Of an exchange of names nothing is done unless both items are as they were looked at. What happens between the two changes leaves the one
// that had the name with the other.
func TestTemplateReplaced(t *testing.T) {
	w := newTemplates(t)
	old, err := w.store.Rename(t.Context(), w.d, w.whole("1"), "ubuntu")
	w.Must(err)
	item := w.whole("2")
	stale := item
	stale.Version = old.Version + "0"
	w.refused("with a stale item", w.store.Replace(t.Context(), w.d, old, "ubuntu-1", stale))
	w.refused("as what there is", w.store.Replace(t.Context(), w.d, old, item.Name, item))
	w.shows(old, item)

	w.faults.Before(func() {}, "ReconfigVM_Task")
	w.faults.Before(func() { w.Copy(folder+"/ubuntu-1", "ubuntu") }, "ReconfigVM_Task")
	if err := w.store.Replace(t.Context(), w.d, old, "ubuntu-1", item); !isTaken(err) {
		t.Errorf("while somebody takes the name: got error %v", err)
	}
	old.Name = "ubuntu-1"
	w.shows(old, item)
	w.Remove(folder + "/ubuntu")

	old, err = w.store.Rename(t.Context(), w.d, w.look().Items[0], "ubuntu")
	w.Must(err)
	w.Must(w.store.Replace(t.Context(), w.d, old, "ubuntu-1", item))
	old.Name, item.Name = "ubuntu-1", "ubuntu"
	w.shows(item, old)
}

// What is not the VSphereTemplate's in every respect is not shown as an item, and neither renamed nor finished nor destroyed.
func TestTemplateOfOthers(t *testing.T) {
	race.Skip(t)
	for name, change := range map[string]func(w *templateWorld, path string) string{
		"of another VSphereTemplate": func(w *templateWorld, path string) string { w.d.Owner = "another"; return path },
		"of another failure domain": func(w *templateWorld, path string) string {
			domain := *w.d.Domain
			domain.Name = "b"
			w.d.Domain = &domain
			return path
		},
		"with another instance UUID": func(w *templateWorld, path string) string {
			w.SetInstanceUUID(path, string(uuid.NewUUID()))
			return path
		},
		"without its mark": func(w *templateWorld, path string) string {
			w.SetExtraConfig(path, map[string]string{inventory.TemplateKey: ""})
			return path
		},
		"in another folder": func(w *templateWorld, path string) string {
			w.AddFolder(folder + "/inner")
			return w.Move(path, folder+"/inner")
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTemplates(t)
			item := w.imports("1")
			path := change(w, folder+"/"+item.Name)
			item.Version = w.Version(path)
			before := w.State(path)
			w.shows()
			_, err := w.store.Rename(t.Context(), w.d, item, "ubuntu")
			w.refused("renaming", err)
			_, err = w.store.Finish(t.Context(), w.d, item)
			w.refused("finishing", err)
			w.refused("destroying", w.store.Destroy(t.Context(), w.d, item))
			if diff := cmp.Diff(before, w.State(path)); diff != "" {
				t.Errorf("it has changed (-want +got):\n%s", diff)
			}
		})
	}
}

// Templates of the same name in two folders, and in two datacenters, have nothing to do with each other.
func TestTemplatesInTwoPlaces(t *testing.T) {
	v, err := vcsim.Start(vcsim.Options{Datacenters: 2, Hosts: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.Close)
	w := templatesOf(worldOf(t, v))
	w.AddFolder(folder)
	w.AddFolder("/DC0/vm/others")
	w.AddFolder("/DC1/vm/templates")
	domains := []templates.Domain{w.d, domainAt("b", "/DC0", "/DC0/vm/others"), domainAt("c", "/DC1", "/DC1/vm/templates")}
	var items []templates.Item
	for _, d := range domains {
		w.d = d
		item, err := w.store.Rename(t.Context(), w.d, w.whole("1"), "ubuntu")
		w.Must(err)
		items = append(items, item)
	}
	w.d = domains[1]
	w.Must(w.store.Destroy(t.Context(), w.d, items[1]))
	for i, d := range domains {
		w.d = d
		if i == 1 {
			w.shows()
		} else {
			w.shows(items[i])
		}
	}
	w.refused("destroying what is elsewhere", w.store.Destroy(t.Context(), domains[0], items[2]))
}

// While a machine is being made from a template it stays, and says so. The machine does not have its mark.
func TestTemplateInUse(t *testing.T) {
	w := newTemplates(t)
	item := w.whole("1")
	path := folder + "/" + item.Name
	m := w.cloned("web")
	cloneOf(m).Template.InventoryPath = v1alpha1.InventoryPath(path)
	cloneOf(m).Folder = folder
	release := w.Hold(path, runtime.TaskCreate)
	_, err := w.runtime.Ensure(t.Context(), m)
	w.Must(err)
	if seen := w.look().Items[0]; !seen.Busy {
		t.Errorf("it is shown as %+v", seen)
	}
	w.refused("destroying", w.store.Destroy(t.Context(), w.d, item))
	release()
	m = w.ensure(m)
	w.Eventually("the task has ended", func() bool { return !w.look().Items[0].Busy }) // a moment after the machine is there
	w.shows(item)
	if mark := w.State(w.path(m)).ExtraConfig[inventory.TemplateKey]; mark != "" {
		t.Errorf("the machine has the mark %s", mark)
	}
	w.Must(w.store.Destroy(t.Context(), w.d, item))
	w.shows()
}

// A disk that somebody has attached is not destroyed with what was imported.
func TestTemplateWithAnotherDisk(t *testing.T) {
	w := newTemplates(t)
	item := w.imports("1")
	file := w.AttachDisk(folder+"/"+item.Name, "theirs")
	w.refused("destroying", w.store.Destroy(t.Context(), w.d, w.look().Items[0]))
	if !w.HasFile(file) {
		t.Error("the disk is gone")
	}
}

// Linked clones rest on a snapshot of what they were cloned from.
func TestTemplateWithSnapshots(t *testing.T) {
	w := newTemplates(t)
	item := w.whole("1")
	w.SetSnapshot(folder+"/"+item.Name, true)
	err := w.store.Destroy(t.Context(), w.d, item)
	w.refused("destroying", err)
	if want := `"ubuntu-new-1" has snapshots, which linked clones may depend on: remove them`; runtime.Message(err) != want {
		t.Errorf("got %q, want %q", runtime.Message(err), want)
	}
	w.SetSnapshot(folder+"/"+item.Name, false)
	w.Must(w.store.Destroy(t.Context(), w.d, w.look().Items[0]))
}

// What cannot be given to a template is named.
func TestTemplateThatCannotBeFinished(t *testing.T) {
	w := newTemplates(t)
	w.Must(w.Tag(t.Context(), w.Hosts()[0], "kind", "image"))
	item := w.imports("1")
	for want, change := range map[string]func(*v1alpha1.VSphereTemplateSpec){
		"spec.secureBoot: secure boot needs the firmware EFI, but the guest would have bios: set spec.firmware to EFI, or " +
			"spec.secureBoot to false": func(s *v1alpha1.VSphereTemplateSpec) { s.SecureBoot = new(true) },
		`spec.tags: vCenter lab has no tag "other" in the category "kind", or does not show it`: func(s *v1alpha1.VSphereTemplateSpec) {
			s.Tags = []v1alpha1.VSphereTag{{Category: "kind", Name: "image"}, {Category: "kind", Name: "other"}}
		},
		`spec.tags: vCenter lab has no tag "image" in the category "other", or does not show it`: func(s *v1alpha1.VSphereTemplateSpec) {
			s.Tags = []v1alpha1.VSphereTag{{Category: "other", Name: "image"}}
		},
	} {
		d := w.d
		spec := *w.d.Spec
		d.Spec = &spec
		change(&spec)
		_, err := w.store.Finish(t.Context(), d, item)
		if !runtime.IsInvalidSpec(err) || runtime.Message(err) != want {
			t.Errorf("got error %v, want %s", err, want)
		}
	}
	w.shows(item)
	_, err := w.store.Finish(t.Context(), w.d, item)
	w.Must(err)
}

// What somebody made a template before it was finished is as good as not imported: nothing can be finished about it any more.
func TestTemplateMadeByHand(t *testing.T) {
	w := newTemplates(t)
	item := w.imports("1")
	w.SetTemplate(folder+"/"+item.Name, true)
	item.Stage = templates.Partial
	w.shows(item)
	_, err := w.store.Finish(t.Context(), w.d, item)
	w.refused("finishing", err)
	w.Must(w.store.Destroy(t.Context(), w.d, item))
}

// Whoever may not have templates where the folder really is changes nothing there.
func TestTemplateTenants(t *testing.T) {
	w := newTemplates(t)
	item := w.imports("1")
	w.faults.Called()
	refusal := runtime.NewPermission(nil, "not there")
	var asked []v1alpha1.VSphereFailureDomain
	for name, tenants := range map[string]template.Tenants{
		"refused": func(_ context.Context, of *v1alpha1.VSphereTemplate) error {
			if of.Namespace != "ns" || of.Name != "ubuntu" || of.UID != w.d.Owner || len(of.Spec.FailureDomains) != 1 {
				t.Errorf("asked about %+v", of)
			}
			asked = append(asked, of.Spec.FailureDomains[0])
			return refusal
		},
		"nobody to ask": nil,
	} {
		store := storeWith(w.runtime, tenants, time.Hour)
		_, imported := store.Import(t.Context(), w.d, release("2"), func(int32) {})
		_, finished := store.Finish(t.Context(), w.d, item)
		_, renamed := store.Rename(t.Context(), w.d, item, "ubuntu")
		for _, err := range []error{imported, finished, renamed, store.Destroy(t.Context(), w.d, item)} {
			if !runtime.IsPermission(err) || tenants != nil && !errors.Is(err, refusal) {
				t.Errorf("%s: got error %v", name, err)
			}
		}
	}
	for _, method := range w.faults.Called() {
		if !slices.Contains(reads, method) {
			t.Errorf("%s was sent", method)
		}
	}
	all, only := *w.d.Domain, v1alpha1.VSphereFailureDomain{Name: "a", Folder: folder}
	if diff := cmp.Diff([]v1alpha1.VSphereFailureDomain{all, only, only, only}, asked); diff != "" {
		t.Errorf("the tenants were asked about (-want +got):\n%s", diff)
	}
	w.shows(item)
}

// Tags are attached only if the tenants allow them, also if they were changed after the import.
func TestTagsOfTenants(t *testing.T) {
	w := newTemplates(t)
	w.Must(w.Tag(t.Context(), w.Hosts()[0], "kind", "image"))
	item := w.imports("1")
	refusal := runtime.NewPermission(nil, "not kind/image")
	w.store = storeWith(w.runtime, func(_ context.Context, of *v1alpha1.VSphereTemplate) error {
		if len(of.Spec.Tags) > 0 {
			return refusal
		}
		return nil
	}, time.Hour)
	w.d.Spec.Tags = []v1alpha1.VSphereTag{{Category: "kind", Name: "image"}}
	if _, err := w.store.Finish(t.Context(), w.d, item); !errors.Is(err, refusal) {
		t.Errorf("finishing: got error %v", err)
	}
	if _, err := w.store.Import(t.Context(), w.d, release("2"), func(int32) {}); !errors.Is(err, refusal) {
		t.Errorf("importing: got error %v", err)
	}
	if tags, err := w.TagsOf(t.Context(), folder+"/"+item.Name); err != nil || len(tags) > 0 {
		t.Errorf("the template has the tags %v, error %v", tags, err)
	}
	w.Must(w.store.Destroy(t.Context(), w.d, w.look().Items[0]))
}

// Through the sessions a VSphereTemplate has the templates of its vCenter, as far as its tenants let it.
func TestSessionsOfTemplates(t *testing.T) {
	w := newTemplates(t)
	var asked int
	sessions := w.connected(vsphere.NewSessions(nil, nil, func(_ context.Context, of *v1alpha1.VSphereTemplate) error {
		if imports := of.Spec.FailureDomains[0].Network != ""; imports != (len(of.Spec.Tags) > 0) {
			t.Errorf("the tenants were asked about %+v of %+v", of.Spec.Tags, of.Spec.FailureDomains)
		}
		asked++
		return nil
	}, func(context.Context, runtime.Change) {}))
	var err error
	w.store, err = sessions.TemplateStore(t.Context(), &v1alpha1.VSphereTemplate{Spec: *w.d.Spec})
	w.Must(err)
	w.d.Spec.Tags = []v1alpha1.VSphereTag{{Category: "kind", Name: "image"}}
	_, err = w.store.Import(t.Context(), w.d, release("1"), func(int32) {})
	w.Must(err)
	w.d.Spec.Tags = nil
	_, err = w.store.Finish(t.Context(), w.d, w.look().Items[0])
	w.Must(err)
	if asked != 3 { // before the import, before what is imported is marked, and before it is finished
		t.Errorf("the tenants were asked %d times", asked)
	}
}

// isTaken reports whether a name was refused because something else in the folder has it.
func isTaken(err error) bool {
	return runtime.IsInvalidState(err) && strings.Contains(runtime.Message(err), "the folder contains another object named")
}
