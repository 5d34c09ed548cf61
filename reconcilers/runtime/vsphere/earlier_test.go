package vsphere_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/uuid"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/machine"
	"sallyport.dev/sallyport/test/support/race"
)

// restored is the machine of a VirtualMachine that was restored from a backup.
func restored(m runtime.Machine, earlier runtime.Earlier) runtime.Machine {
	m.UID, m.InstanceID, m.Earlier = uuid.NewUUID(), "", earlier
	return m
}

const heldText = ` in vCenter lab is marked for ns/web with another UID, as after a restore, or in another cluster. To use it: kubectl sallyport take-over svm web -n ns. ` +
	`To leave it alone and create another one: kubectl sallyport make-anew svm web -n ns`

// Wherever somebody has put it, and however it is called now, the machine of an earlier VirtualMachine of the name is found: velero#2554.
func TestEarlierMachineIsFound(t *testing.T) {
	race.Skip(t)
	for name, tc := range map[string]struct {
		befalls func(w *world, m runtime.Machine)
		held    bool
	}{
		"where it was made": {func(*world, runtime.Machine) {}, true},
		"renamed":           {func(w *world, m runtime.Machine) { w.Rename(w.path(m), "renamed") }, true},
		"on":                {func(w *world, m runtime.Machine) { w.on(m) }, true},
		"its mark was taken off": {func(w *world, m runtime.Machine) {
			w.SetExtraConfig(w.path(m), map[string]string{machine.OwnerKey: ""})
		}, false},
		"a template by now": {func(w *world, m runtime.Machine) { w.SetTemplate(w.path(m), true) }, false},
		"of another namespace": {func(w *world, m runtime.Machine) {
			w.SetExtraConfig(w.path(m), map[string]string{machine.NameKey: "ns-2/web"})
		}, false},
		"of a longer name": {func(w *world, m runtime.Machine) {
			w.SetExtraConfig(w.path(m), map[string]string{machine.NameKey: "ns/web-1"})
		}, false},
		"gone": {func(w *world, m runtime.Machine) {
			w.Must(w.runtime.Delete(w.Context(), m))
			w.observe(m) // Delete only begins the task
		}, false},
		"a copy, or one that it had": {func(w *world, m runtime.Machine) { w.SetInstanceUUID(w.path(m), string(uuid.NewUUID())) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			m := w.ensure(w.cloned("web"))
			tc.befalls(w, m)
			before := w.Machines()
			again := restored(m, "")
			_, err := w.runtime.Ensure(t.Context(), again)
			if held := runtime.IsOwnedByAnother(err); held != tc.held || held && !strings.HasSuffix(runtime.Message(err), heldText) {
				t.Fatalf("got error %v, want it held: %v", err, tc.held)
			}
			if !tc.held {
				w.ensure(again)
			} else if diff := cmp.Diff(before, w.Machines()); diff != "" {
				t.Errorf("(-before +after):\n%s", diff)
			}
		})
	}
}

// What is taken over is the machine that was made for the name, and no other one that bears its mark.
func TestWhatIsTakenOver(t *testing.T) {
	w := newWorld(t)
	m := w.ensure(w.cloned("web"))
	was := w.on(m)
	path := w.path(m)
	// An administrator has cloned it: the copy has its mark, and another UUID.
	twin := w.machine("copy")
	w.SetExtraConfig(w.path(twin), map[string]string{machine.OwnerKey: string(m.UID), machine.NameKey: "ns/web"})
	heir := restored(m, runtime.TakeOver)
	heir = w.ensure(heir)
	state := w.State(path)
	if state.InstanceUUID != string(heir.UID) || state.ExtraConfig[machine.OwnerKey] != string(heir.UID) || state.Power != v1alpha1.PowerRunning {
		t.Errorf("what was made for it is %+v", state)
	}
	if got := w.State(w.path(twin)).ExtraConfig[machine.OwnerKey]; got != string(m.UID) {
		t.Errorf("the copy has the mark %s", got)
	}
	is := w.observe(heir)
	is.InstanceID = was.InstanceID
	if diff := cmp.Diff(was, is); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
	// The cluster that had it, if it is still there, loses it and says so.
	if _, err := w.runtime.Observe(t.Context(), m); err != nil && !runtime.IsOwnedByAnother(err) {
		t.Errorf("the former owner observes: %v", err)
	}
	if err := w.runtime.PowerOff(t.Context(), m, runtime.Forced); !runtime.IsNotFound(err) && !runtime.IsOwnedByAnother(err) {
		t.Errorf("the former owner powers off: %v", err)
	}
	// It is one that was made: the deletion destroys it.
	w.Must(w.runtime.PowerOff(t.Context(), heir, runtime.Forced))
	w.observe(heir)
	w.Must(w.runtime.Delete(t.Context(), heir))
	w.observe(heir)
	if w.State(path).InstanceUUID != "" {
		t.Error("it is still there")
	}

	// Of several, and of what was not made, none is chosen.
	only := restored(m, runtime.TakeOver)
	_, err := w.runtime.Ensure(t.Context(), only)
	if !runtime.IsOwnedByAnother(err) || !strings.Contains(runtime.Message(err), "has 1 machines with the mark of an earlier VirtualMachine ns/web, 0 of them created by Sallyport") {
		t.Errorf("a copy alone: got error %v", err)
	}
}

// A machine that is adopted by its path is taken over there, and only if it is one of the name.
func TestAdoptedMachineIsTakenOver(t *testing.T) {
	w := newWorld(t)
	m := w.adopted("web")
	heir := restored(m, "")
	if _, err := w.runtime.Ensure(t.Context(), heir); !runtime.IsOwnedByAnother(err) {
		t.Errorf("got error %v, want OwnedByAnother", err)
	}
	heir.Earlier = runtime.TakeOver
	other := heir
	other.Name = "web-2"
	if _, err := w.runtime.Ensure(t.Context(), other); !runtime.IsOwnedByAnother(err) {
		t.Errorf("of another name: got error %v, want OwnedByAnother", err)
	}
	heir = w.ensure(heir)
	if got := w.State(w.path(m)).ExtraConfig[machine.OwnerKey]; got != string(heir.UID) {
		t.Errorf("it is marked for %s", got)
	}
	// Whoever had it does not take it back: the annotation counts only for what has nothing yet.
	m.Earlier = runtime.TakeOver
	if _, err := w.runtime.Ensure(t.Context(), m); !runtime.IsOwnedByAnother(err) {
		t.Errorf("the former owner: got error %v, want OwnedByAnother", err)
	}
}
