package vsphere_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vmware/govmomi/vim25/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/templates"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/inventory"
	"sallyport.dev/sallyport/test/support/race"
)

// referring gives a machine that is to be made from the VSphereTemplate.
func (w *templateWorld) referring(name string) runtime.Machine {
	w.Helper()
	m := w.cloned(name)
	cloneOf(m).Template = v1alpha1.VSphereCloneSource{TemplateRef: &v1alpha1.VSphereTemplateReference{Name: "ubuntu"}}
	m.Template = &runtime.Template{Name: "ubuntu", UID: w.d.Owner, Path: folder + "/ubuntu", Imported: w.ids}
	return m
}

// inPlace has a release imported and given the name.
func (w *templateWorld) inPlace(name string) templates.Item {
	w.Helper()
	return w.renamed(w.whole(name), "ubuntu")
}

func (w *templateWorld) renamed(item templates.Item, name string) templates.Item {
	w.Helper()
	item, err := w.store.Rename(w.Context(), w.d, item, name)
	w.Must(err)
	return item
}

// madeFrom fails the test unless the machine says that it was made from the item.
func (w *templateWorld) madeFrom(m runtime.Machine, item templates.Item) {
	w.Helper()
	want := &v1alpha1.VSphereTemplateRelease{Name: "ubuntu", Release: item.Release, MoRef: item.MoRef}
	if diff := cmp.Diff(want, w.observe(m).Template); diff != "" {
		w.Errorf("%s was made from something else (-want +got):\n%s", m, diff)
	}
}

// A restored VSphereTemplate sees what an earlier one of its namespace and name has, and has it once it took that over, as machines do. That
// of another name is a stranger's.
func TestTemplateTakenOver(t *testing.T) {
	w := newTemplates(t)
	one, lost := w.inPlace("1"), w.d.Owner
	w.d.Owner = uuid.NewUUID()
	view := w.look()
	if len(view.Items) > 0 || !view.Others["ubuntu"] || view.Earlier["ubuntu"] != (templates.EarlierItem{Owner: lost, InstanceUUID: one.InstanceUUID}) {
		t.Errorf("the folder shows %+v", view)
	}
	if _, err := w.store.Rename(t.Context(), w.d, one, "theirs"); !runtime.IsInvalidState(err) {
		t.Errorf("before it is taken over: %v", err)
	}
	stranger := w.d
	stranger.Object = "ubuntu-2"
	if view, err := w.store.Look(t.Context(), stranger); err != nil || len(view.Items)+len(view.Earlier) > 0 {
		t.Errorf("another VSphereTemplate is shown %+v, %v", view, err)
	}
	if _, err := w.runtime.Ensure(t.Context(), w.referring("early")); !runtime.IsInvalidSpec(err) {
		t.Errorf("a machine was made from it: %v", err)
	}
	w.d.Former = []string{string(lost)}
	w.shows(one)
	m := w.referring("restored")
	m.Template.Former = w.d.Former
	w.madeFrom(w.ensure(m), one)
	two := w.whole("2")
	w.Must(w.store.Replace(t.Context(), w.d, one, "ubuntu-1", two))
	one = w.look().Items[1]
	w.Must(w.store.Destroy(t.Context(), w.d, one))
}

// Machines are made from the release that has the name when they are made, and say so ever after.
func TestTemplateReferred(t *testing.T) {
	race.Skip(t)
	w := newTemplates(t)
	one := w.inPlace("1")
	first := w.ensure(w.referring("first"))
	w.madeFrom(first, one)
	w.renamed(one, "ubuntu-1")
	two := w.inPlace("2")
	second := w.ensure(w.referring("second"))
	w.madeFrom(second, two)
	w.madeFrom(first, one)
	if mark := w.State(w.path(second)).ExtraConfig[inventory.TemplateKey]; mark != "" {
		t.Errorf("the machine has the mark %s", mark)
	}
}

// What a machine was made from is not what was made from a copy of it.
func TestTemplateReferredIsNotInherited(t *testing.T) {
	w := newTemplates(t)
	w.inPlace("1")
	first := w.ensure(w.referring("first"))
	w.SetTemplate(w.path(first), true)
	copied := w.cloned("copied")
	cloneOf(copied).Template.InventoryPath = v1alpha1.InventoryPath(w.path(first))
	copied = w.ensure(copied)
	if from := w.observe(copied).Template; from != nil {
		t.Errorf("it says that it was made from %+v", from)
	}
}

// In the gap between two renames nothing is made, and nothing is wrong with the spec.
func TestTemplateReferredInTheGap(t *testing.T) {
	w := newTemplates(t)
	one, two := w.inPlace("1"), w.whole("2")
	one = w.renamed(one, "ubuntu-1")
	m := w.referring("web")
	w.replacing(w.runtime.Ensure(t.Context(), m))
	two = w.renamed(two, "ubuntu")
	w.madeFrom(w.ensure(m), two)
	w.Must(w.store.Destroy(t.Context(), w.d, one))
}

const replacing = "spec.runtime.vsphere.clone.template.templateRef: vCenter lab has no template of VSphereTemplate ubuntu at " + folder +
	"/ubuntu at the moment: it is being replaced, or was moved or renamed"

func (w *templateWorld) replacing(id string, err error) {
	w.Helper()
	if id != "" || !runtime.IsUnavailable(err) || runtime.Message(err) != replacing {
		w.Errorf("got machine %q, error %v", id, err)
	}
}

// A template that is replaced after it was looked at is still the one that the machine is made from; one that is destroyed then is looked
// for again.
func TestTemplateReferredWhileReplaced(t *testing.T) {
	race.Skip(t)
	w := newTemplates(t)
	one, two := w.inPlace("1"), w.whole("2")
	w.faults.Before(func() {
		one = w.renamed(one, "ubuntu-1")
		two = w.renamed(two, "ubuntu")
	}, "CloneVM_Task")
	first := w.referring("first")
	_, err := w.runtime.Ensure(t.Context(), first)
	w.Must(err)
	w.madeFrom(w.ensure(first), one)

	two = w.look().Items[0]
	w.faults.Before(func() { w.Must(w.store.Destroy(t.Context(), w.d, two)) }, "CloneVM_Task")
	second := w.referring("second")
	w.replacing(w.runtime.Ensure(t.Context(), second))
	w.renamed(w.look().Items[0], "ubuntu")
	w.madeFrom(w.ensure(second), one)
}

// While a machine is being made from it the template may be renamed, and is not destroyed.
func TestTemplateReferredIsPinned(t *testing.T) {
	w := newTemplates(t)
	one := w.inPlace("1")
	m := w.referring("web")
	release := w.Hold(folder+"/ubuntu", runtime.TaskCreate)
	_, err := w.runtime.Ensure(t.Context(), m)
	w.Must(err)
	w.refused("destroying", w.store.Destroy(t.Context(), w.d, one))
	release()
	w.madeFrom(w.ensure(m), one)
}

// edit changes the template as only a machine can be changed.
func (w *templateWorld) edit(change func(path string)) {
	const path = folder + "/ubuntu"
	w.SetTemplate(path, false)
	change(path)
	w.SetTemplate(path, true)
}

// Nothing is made from what is not the VSphereTemplate's own, however it is called and whatever it has inherited.
func TestTemplateReferredForeign(t *testing.T) {
	race.Skip(t)
	const foreign = "spec.runtime.vsphere.clone.template.templateRef: vCenter lab has a %s REF at " + folder +
		"/ubuntu, which does not belong to VSphereTemplate ubuntu: rename or remove it there"
	theirs := strings.Replace(foreign, "%s", "template", 1)
	for name, tc := range map[string]struct {
		change func(w *templateWorld, item templates.Item, m *runtime.Machine)
		want   string
	}{
		"of another VSphereTemplate of this name": {func(_ *templateWorld, _ templates.Item, m *runtime.Machine) { m.Template.UID = "an-earlier-one" }, theirs},
		"with a forged mark":                      {func(w *templateWorld, item templates.Item, m *runtime.Machine) { m.Template.Imported = w.ids[1:] }, theirs},
		"a copy": {func(w *templateWorld, _ templates.Item, _ *runtime.Machine) {
			w.edit(func(path string) { w.SetInstanceUUID(path, string(uuid.NewUUID())) })
		}, theirs},
		"without a mark": {func(w *templateWorld, _ templates.Item, _ *runtime.Machine) {
			w.edit(func(path string) { w.SetExtraConfig(path, map[string]string{inventory.TemplateKey: ""}) })
		}, theirs},
		"a machine": {func(w *templateWorld, item templates.Item, _ *runtime.Machine) {
			w.renamed(item, "aside")
			path, err := w.AddMachine("ubuntu")
			w.Must(err)
			w.Move(path, folder)
		}, strings.Replace(foreign, "%s", "machine", 1)},
		"with snapshots": {func(w *templateWorld, _ templates.Item, _ *runtime.Machine) { w.SetSnapshot(folder+"/ubuntu", true) },
			"spec.runtime.vsphere.clone.template.templateRef: the template at " + folder + "/ubuntu has snapshots: remove them"},
		"no template any more": {func(w *templateWorld, _ templates.Item, _ *runtime.Machine) { w.SetTemplate(folder+"/ubuntu", false) }, replacing},
		"not resolved":         {func(_ *templateWorld, _ templates.Item, m *runtime.Machine) { m.Template = nil }, strings.Replace(replacing, folder+"/ubuntu", "", 1)},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTemplates(t)
			m := w.referring("web")
			tc.change(w, w.inPlace("1"), &m)
			_, err := w.runtime.Ensure(t.Context(), m)
			want := strings.Replace(tc.want, "REF", w.MoRef(folder+"/ubuntu"), 1)
			if runtime.Message(err) != want || runtime.IsInvalidSpec(err) == runtime.IsUnavailable(err) {
				t.Errorf("got error %v, want %s", err, want)
			}
			for _, path := range w.Machines() {
				if w.State(path).InstanceUUID == string(m.UID) {
					t.Errorf("%s was made", path)
				}
			}
		})
	}
}

// A template that vCenter stops showing while it is read is one that is being replaced.
func TestTemplateReferredThatGoes(t *testing.T) {
	w := newTemplates(t)
	w.inPlace("1")
	m := w.referring("web")
	w.faults.Refuse(&types.ManagedObjectNotFound{}, "CloneVM_Task")
	w.replacing(w.runtime.Ensure(t.Context(), m))
}
