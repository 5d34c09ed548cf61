package vsphere_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vmware/govmomi/vim25/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/templates"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/inventory"
	"sallyport.dev/sallyport/test/support/race"
	"sallyport.dev/sallyport/test/support/step"
)

// reads are the requests that change nothing. Trouble with each of them is left to make test-all.
var reads = []string{"Login", "FindByInventoryPath", "RetrievePropertiesEx"}

// troubles are what can befall a request of a method.
var troubles = map[string]func(w *templateWorld, method string){
	"not sent":   func(w *templateWorld, m string) { w.faults.Fail(errors.New("the connection broke off"), m) },
	"reply lost": func(w *templateWorld, m string) { w.faults.LoseReply(m) },
	"refused": func(w *templateWorld, m string) {
		w.faults.Refuse(&types.NoPermission{PrivilegeId: "Some.Privilege"}, m)
	},
	"changed":       func(w *templateWorld, m string) { w.faults.Refuse(&types.ConcurrentAccess{}, m) },
	"session ended": func(w *templateWorld, m string) { w.faults.Before(w.ExpireSessions, m) },
}

// calls are the calls of a store, each on what prepare makes.
var calls = map[string]struct {
	prepare func(w *templateWorld) templates.Item
	call    func(w *templateWorld, item templates.Item) error
	done    func(items []templates.Item) bool
}{
	"Import": {
		func(*templateWorld) templates.Item { return templates.Item{} },
		func(w *templateWorld, _ templates.Item) error {
			_, err := w.store.Import(w.Context(), w.d, release("1"), func(int32) {})
			return err
		},
		func(items []templates.Item) bool { return len(items) == 1 && items[0].Stage == templates.Imported },
	},
	"Finish": {
		func(w *templateWorld) templates.Item { return w.imports("1") },
		func(w *templateWorld, item templates.Item) error {
			_, err := w.store.Finish(w.Context(), w.d, item)
			return err
		},
		func(items []templates.Item) bool { return len(items) == 1 && items[0].Stage == templates.Whole },
	},
	"Rename": {
		func(w *templateWorld) templates.Item { return w.whole("1") },
		func(w *templateWorld, item templates.Item) error {
			_, err := w.store.Rename(w.Context(), w.d, item, "ubuntu")
			return err
		},
		func(items []templates.Item) bool { return len(items) == 1 && items[0].Name == "ubuntu" },
	},
	"Destroy": {
		func(w *templateWorld) templates.Item { return w.whole("1") },
		func(w *templateWorld, item templates.Item) error { return w.store.Destroy(w.Context(), w.d, item) },
		func(items []templates.Item) bool { return len(items) == 0 },
	},
}

// in is the same world in another test.
func (w *templateWorld) in(t *testing.T) *templateWorld {
	same := *w.world
	same.T = step.T{T: t}
	return &templateWorld{world: &same, store: w.store, d: w.d}
}

// whole has a release imported and finished.
func (w *templateWorld) whole(name string) templates.Item {
	w.Helper()
	item, err := w.store.Finish(w.Context(), w.d, w.imports(name))
	w.Must(err)
	return item
}

// clear destroys everything of the VSphereTemplate.
func (w *templateWorld) clear() {
	w.Helper()
	for _, item := range w.look().Items {
		w.Must(w.store.Destroy(w.Context(), w.d, item))
	}
	w.shows()
}

// Whatever befalls any request, the call can be made again on what is seen then, nothing is shown as further than it is, and what is not
// ours stays as it is.
func TestTemplateTrouble(t *testing.T) {
	race.Skip(t)
	w := newTemplates(t)
	w.d.Spec.Firmware = v1alpha1.VSphereFirmwareEFI
	theirs := w.whole("0")
	theirPath := folder + "/" + theirs.Name
	w.d.Owner = "another"
	theirState := w.State(theirPath)
	for name, c := range calls {
		t.Run(name, func(t *testing.T) {
			w := w.in(t)
			item := c.prepare(w)
			w.faults.Called()
			w.Must(c.call(w, item))
			requests := w.faults.Called()
			w.clear()
			for i, method := range requests {
				nth := len(slices.DeleteFunc(slices.Clone(requests[:i]), func(m string) bool { return m != method }))
				if slices.Contains(reads, method) && testing.Short() {
					continue
				}
				for trouble, befall := range troubles {
					if testing.Short() && !slices.Contains([]string{"not sent", "reply lost", "session ended"}, trouble) {
						continue
					}
					t.Run(fmt.Sprintf("%s %d %s", method, nth, trouble), func(t *testing.T) {
						w := w.in(t)
						item := c.prepare(w)
						for range nth {
							w.faults.Before(func() {}, method)
						}
						befall(w, method)
						err := c.call(w, item)
						w.faults.Clear()
						w.after(c.call, c.done, err)
						w.clear()
						if diff := cmp.Diff(theirState, w.State(theirPath)); diff != "" {
							t.Fatalf("theirs has changed (-want +got):\n%s", diff)
						}
					})
				}
			}
		})
	}
}

// after judges what a call has left that ended with that error, and makes it again.
func (w *templateWorld) after(call func(*templateWorld, templates.Item) error, done func([]templates.Item) bool, err error) {
	w.Helper()
	if err != nil && (runtime.Reason(err) == v1alpha1.ReasonRuntimeFailed && !runtime.IsInvalidState(err) || strings.Contains(err.Error(), "https://")) {
		w.Errorf("got error %v", err)
	}
	items := w.look().Items
	if err == nil && !done(items) {
		w.Errorf("it is not done, and shows %+v", items)
	}
	if len(items) == 1 && items[0].Stage != templates.Partial && w.OpenLeases() > 0 {
		w.Errorf("what is being imported is shown as %+v", items[0])
	}
	// What a request began whose answer was lost may be there only after a look: it is in the way of one more call then.
	w.Until("it is done again", func() (string, bool) {
		switch partial := slices.IndexFunc(items, func(item templates.Item) bool { return item.Stage == templates.Partial }); {
		case done(items):
			return "", true
		case len(items) == 0:
			err = call(w, templates.Item{})
		case partial >= 0:
			err = errors.Join(w.store.Destroy(w.Context(), w.d, items[partial]), call(w, templates.Item{}))
		case len(items) > 1: // an import whose answer was lost, and the one after it: the reconciler removes what is left over
			err = w.store.Destroy(w.Context(), w.d, items[1])
		default:
			err = call(w, items[0])
		}
		items = w.look().Items
		return fmt.Sprintf("%v, %+v", err, items), done(items)
	})
}

// A copy of a template has its mark, and is somebody's who has made it.
func TestTemplateCopies(t *testing.T) {
	w := newTemplates(t)
	item := w.whole("1")
	copied := w.Copy(folder+"/"+item.Name, "ubuntu")
	if w.State(copied).ExtraConfig[inventory.TemplateKey] == "" {
		t.Fatal("the copy has not inherited the mark")
	}
	w.shows(item)
	if !w.look().Others["ubuntu"] {
		t.Errorf("the folder shows %+v", w.look())
	}
	if _, err := w.store.Rename(t.Context(), w.d, item, "ubuntu"); !isTaken(err) {
		t.Errorf("taking the name of the copy: got error %v", err)
	}
	for _, try := range []func(templates.Item) error{
		func(item templates.Item) error { _, err := w.store.Rename(t.Context(), w.d, item, "other"); return err },
		func(item templates.Item) error { _, err := w.store.Finish(t.Context(), w.d, item); return err },
		func(item templates.Item) error { return w.store.Destroy(t.Context(), w.d, item) },
	} {
		before := w.State(copied)
		forged := item
		forged.MoRef, forged.Name = w.MoRef(copied), "ubuntu"
		if err := try(forged); !runtime.IsInvalidState(err) {
			t.Errorf("got error %v", err)
		}
		if diff := cmp.Diff(before, w.State(copied)); diff != "" {
			t.Errorf("the copy has changed (-want +got):\n%s", diff)
		}
	}
}
