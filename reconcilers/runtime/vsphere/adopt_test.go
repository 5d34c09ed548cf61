package vsphere_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vmware/govmomi/vim25/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/disk"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/machine"
	"sallyport.dev/sallyport/test/support/race"
	"sallyport.dev/sallyport/test/support/step"
)

func TestNotThere(t *testing.T) {
	w := newWorld(t)
	template := w.machine("template")
	w.SetTemplate(w.path(template), true)
	byUUID := machineAt("uuid", "")
	byUUID.Spec.Runtime.VSphere.InstanceUUID = "01234567-89AB-cdef-0123-456789abcdef"
	for want, m := range map[string]runtime.Machine{
		"no machine at /DC0/vm/missing":  machineAt("missing", "/DC0/vm/missing"),
		"no machine at /DC0/vm,":         machineAt("folder", "/DC0/vm"),
		"instance UUID 01234567-89AB-cd": byUUID,
	} {
		seen, err := w.runtime.Observe(t.Context(), m)
		if diff := cmp.Diff(runtime.Observation{}, seen); err != nil || diff != "" {
			t.Errorf("%s: observed %v\n%s", want, err, diff)
		}
		if _, err := w.runtime.Ensure(t.Context(), m); !runtime.IsNotFound(err) || !strings.Contains(runtime.Message(err), want) {
			t.Errorf("got error %v, want NotFound with %s", err, want)
		}
	}
	if _, err := w.runtime.Ensure(t.Context(), template); !runtime.IsInvalidSpec(err) || !strings.Contains(err.Error(), "govc vm.markasvm") {
		t.Errorf("a template: got error %v, want InvalidSpec with a way out", err)
	}
	if _, err := w.runtime.Observe(t.Context(), runtime.Machine{UID: "x"}); !runtime.IsNotSupported(err) {
		t.Errorf("a machine without a spec: got error %v, want NotSupported", err)
	}
	if _, err := w.runtime.Ensure(t.Context(), runtime.Machine{Spec: template.Spec}); !runtime.IsInvalidState(err) {
		t.Errorf("a machine without a UID: got error %v, want InvalidState", err)
	}
}

func TestByInstanceUUID(t *testing.T) {
	w := newWorld(t)
	m := w.machine("by-uuid")
	uuid := w.State(w.path(m)).InstanceUUID
	m.Spec.Runtime.VSphere = &v1alpha1.VSphereRuntime{InstanceUUID: strings.ToUpper(uuid)}
	id, err := w.runtime.Ensure(t.Context(), m)
	if err != nil || id != uuid {
		t.Errorf("got %s and error %v, want %s", id, err, uuid)
	}
}

// A BIOS UUID in the place of an instance UUID (vmware/terraform-provider-vsphere#282) is told. Whose it is, and its instance UUID, are not.
func TestByBIOSUUID(t *testing.T) {
	w := newWorld(t)
	m := w.machine("by-bios")
	state := w.State(w.path(m))
	m.Spec.Runtime.VSphere = &v1alpha1.VSphereRuntime{InstanceUUID: strings.ToUpper(state.BIOSUUID)}
	_, err := w.runtime.Ensure(t.Context(), m)
	if text := runtime.Message(err); !runtime.IsNotFound(err) || !strings.Contains(text, "is the BIOS UUID of a machine") ||
		strings.Contains(text, state.InstanceUUID) || strings.Contains(text, "by-bios") {
		t.Errorf("got error %v", err)
	}
	if _, elsewhere := w.runtime.Path(t.Context(), m); runtime.Message(elsewhere) != runtime.Message(err) {
		t.Errorf("its path: got error %v", elsewhere)
	}
}

// Escapes in a path may be in capitals, as URLs have them: vCenter writes %2f and %5c, and compares paths as text.
func TestEscapesInCapitals(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"a%2fb", "a%5cb", "50%25"} {
		m := w.machine("plain")
		path := w.Rename(w.path(m), name)
		capitals := strings.NewReplacer("%2f", "%2F", "%5c", "%5C").Replace(path)
		m.Spec.Runtime.VSphere.InventoryPath = capitals
		if _, err := w.runtime.Ensure(t.Context(), m); err != nil {
			t.Errorf("%s: %v", capitals, err)
		}
		if got, err := w.runtime.Path(t.Context(), m); err != nil || got != path {
			t.Errorf("%s is at %s, error %v", capitals, got, err)
		}
	}
}

// The instance ID finds a machine that somebody has renamed, and tells it from a copy, with the same marker, that has
// taken its name.
func TestRenamedAndCopied(t *testing.T) {
	w := newWorld(t)
	m := w.adopted("original")
	was := w.observe(m)
	w.Rename(w.path(m), "renamed")
	if diff := cmp.Diff(was, w.observe(m)); diff != "" {
		t.Errorf("a renamed machine (-before +after):\n%s", diff)
	}
	forgotten := m
	forgotten.InstanceID = ""
	if seen := w.observe(forgotten); seen.Exists {
		t.Errorf("without an ID: %+v", seen)
	}
	copied := w.machine("original")
	w.SetExtraConfig(w.path(copied), map[string]string{machine.OwnerKey: string(m.UID)})
	if diff := cmp.Diff(was, w.observe(m)); diff != "" {
		t.Errorf("a machine that was copied (-before +after):\n%s", diff)
	}
	if seen := w.observe(forgotten); seen.InstanceID == was.InstanceID {
		t.Errorf("without an ID, the place should tell: %+v", seen)
	}
}

// Whoever tampers with a status gets no right to a machine that nobody has marked.
func TestIDGivesNoRight(t *testing.T) {
	w := newWorld(t)
	free := w.machine("free")
	m := machineAt("greedy", "/DC0/vm/missing")
	m.InstanceID = w.State(w.path(free)).InstanceUUID
	if _, err := w.runtime.Ensure(t.Context(), m); !runtime.IsNotFound(err) {
		t.Errorf("got error %v, want NotFound", err)
	}
	if err := w.runtime.PowerOn(t.Context(), m); !runtime.IsNotFound(err) {
		t.Errorf("got error %v, want NotFound", err)
	}
	if got := w.State(w.path(free)); got.ExtraConfig[machine.OwnerKey] != "" || got.PowerOns != 0 {
		t.Errorf("the machine is %+v", got)
	}
}

func TestTwoAdopt(t *testing.T) {
	w := newWorld(t)
	one := w.machine("wanted")
	two := one
	two.UID = "uid-two"
	second := disk.New(w.connect(w.config()))
	w.faults.Before(func() {
		_, err := second.Ensure(t.Context(), two)
		w.Must(err)
	}, "ReconfigVM_Task")
	if _, err := w.runtime.Ensure(t.Context(), one); !runtime.IsOwnedByAnother(err) || strings.Contains(err.Error(), "two") {
		t.Errorf("the slower one: got error %v, want OwnedByAnother", err)
	}
	if got := w.State(w.path(one)).ExtraConfig[machine.OwnerKey]; got != "uid-two" {
		t.Errorf("the machine is %s's", got)
	}
}

// Whose a machine is, is told within a namespace, and the way out to everybody. What vCenter has for a name may be anything.
func TestWhoseItIs(t *testing.T) {
	w := newWorld(t)
	m := w.machine("theirs")
	const wayOut = "remove sallyport.owner from its extraConfig in vCenter (docs/vsphere.md, What Sallyport leaves on a machine)"
	for name, want := range map[string]string{
		"ns/web-1": "the machine at /DC0/vm/theirs belongs to VirtualMachine web-1 of this namespace, or is a copy of a machine that does. " +
			"Name another machine, or delete VirtualMachine web-1, which leaves the machine as it is. ",
		"ns/theirs": "belongs to another VirtualMachine of this name, an earlier one or one in another cluster, or is a copy of a machine that does. " +
			"Name another machine, or take it over: kubectl sallyport take-over svm theirs -n ns. If",
		"ns-2/secret":     "belongs to another VirtualMachine, or is a copy of a machine that does. Name another machine. If",
		"ns/Secret of ns": "belongs to another VirtualMachine, or",
		"ns/":             "belongs to another VirtualMachine, or",
		"secret":          "belongs to another VirtualMachine, or",
		"":                "belongs to another VirtualMachine, or",
	} {
		w.SetExtraConfig(w.path(m), map[string]string{machine.OwnerKey: "uid-secret", machine.NameKey: name})
		_, err := w.runtime.Ensure(t.Context(), m)
		got := runtime.Message(err)
		if !runtime.IsOwnedByAnother(err) || !strings.HasPrefix(got, "spec.runtime.vsphere: ") || !strings.Contains(got, want) || !strings.HasSuffix(got, wayOut) {
			t.Errorf("%q: got error %v, want %s", name, err, want)
		}
		if strings.Contains(strings.ToLower(got), "secret") {
			t.Errorf("%q: told is %s", name, got)
		}
	}
}

func TestRelease(t *testing.T) {
	w := newWorld(t)
	m := w.machine("released")
	w.SetExtraConfig(w.path(m), map[string]string{"guestinfo.theirs": "1"})
	want := w.State(w.path(m)).ExtraConfig
	for range 2 {
		_, err := w.runtime.Ensure(t.Context(), m)
		w.Must(err)
		if got := w.State(w.path(m)).ExtraConfig[machine.NameKey]; got != "ns/released" {
			t.Errorf("the name is %q", got)
		}
		w.Must(w.runtime.Delete(t.Context(), m))
		if diff := cmp.Diff(want, w.State(w.path(m)).ExtraConfig); diff != "" {
			t.Errorf("(-before +after):\n%s", diff)
		}
	}
}

// Whichever request loses its reply, is not sent or gets no answer: repeating the call brings the machine where it should
// be, marked once and powered on once.
func TestAnyRequestFails(t *testing.T) {
	race.Skip(t)
	w := newWorld(t)
	calls := []struct {
		name string
		do   func(ctx context.Context, m runtime.Machine) error
	}{
		{"Ensure", func(ctx context.Context, m runtime.Machine) error {
			_, err := w.runtime.Ensure(ctx, m)
			return err
		}},
		{"PowerOn", w.runtime.PowerOn},
		{"Migrate", func(ctx context.Context, m runtime.Machine) error {
			return w.runtime.Migrate(ctx, m, runtime.Target{NodeName: w.Hosts()[1]})
		}},
		{"Delete", w.runtime.Delete},
	}
	var expire func() // ends the time of the call
	befall := map[string]func(){
		"its reply is lost": func() { w.faults.LoseReply() },
		"it is not sent":    func() { w.faults.Fail(context.DeadlineExceeded) },
		"it gets no answer": func() {
			w.faults.Instead(func(ctx context.Context) error {
				expire()
				<-ctx.Done()
				return ctx.Err()
			})
		},
	}
	// One machine shows which requests a call makes.
	requests := map[string][]string{}
	shown := w.machine("shown")
	w.observe(shown) // It logs in.
	for _, c := range calls {
		w.faults.Called()
		w.Must(c.do(t.Context(), shown))
		requests[c.name] = w.faults.Called()
		w.observe(shown)
	}
	for how, fail := range befall {
		for _, befallen := range calls {
			for i, request := range requests[befallen.name] {
				t.Run(fmt.Sprintf("%s: request %d, %s: %s", befallen.name, i+1, request, how), func(t *testing.T) {
					m := w.machine(strings.NewReplacer("/", "-", " ", "-", ":", "").Replace(t.Name()))
					for _, c := range calls {
						if c.name == befallen.name {
							for range i {
								w.faults.Before(func() {})
							}
							fail()
							var ctx context.Context
							ctx, expire = step.Deadline(t.Context())
							err := c.do(ctx, m)
							expire()
							// How often a call looks whether its change is made is a matter of time.
							if left := w.faults.Clear(); left == 0 && !runtime.IsUnavailable(err) {
								t.Errorf("got error %v, want Unavailable", err)
							}
						}
						w.Must(c.do(t.Context(), m))
						if c.name != "Delete" {
							w.observe(m)
						}
					}
					got := w.State(w.path(m))
					if got.PowerOns != 1 || got.Power != v1alpha1.PowerRunning || got.Host != w.Hosts()[1] {
						t.Errorf("the machine is %+v", got)
					}
					if _, marked := got.ExtraConfig[machine.OwnerKey]; marked {
						t.Errorf("the marker is still there: %+v", got)
					}
				})
			}
		}
	}
}

// The guest goes off, or somebody else is quicker, between a look and what is decided by it.
func TestChangedSinceTheLook(t *testing.T) {
	w := newWorld(t)
	m := w.adopted("fickle")
	for request, mode := range map[string]runtime.Mode{"ShutdownGuest": runtime.Graceful, "PowerOffVM_Task": runtime.Forced} {
		w.on(m)
		w.faults.Before(func() { w.SetPower(w.path(m), v1alpha1.PowerStopped) }, request)
		w.Must(w.runtime.PowerOff(t.Context(), m, mode))
		w.observe(m)
	}
	w.faults.Before(func() { w.SetExtraConfig(w.path(m), map[string]string{"guestinfo.theirs": "1"}) }, "ReconfigVM_Task")
	w.on(m)
	if got := w.State(w.path(m)).PowerOns; got != 3 {
		t.Errorf("the machine was powered on %d times, want 3", got)
	}
}

// At most so many requests are made: each costs a vCenter time.
func TestRequests(t *testing.T) {
	w := newWorld(t)
	m := w.adopted("cheap")
	w.faults.Called()
	w.observe(m)
	want := []string{"FindByUuid", "RetrievePropertiesEx", "RetrievePropertiesEx"}
	if diff := cmp.Diff(want, w.faults.Called()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	w.Must(w.runtime.PowerOn(t.Context(), m))
	got := w.faults.Called()
	want = append(want, "CurrentTime", "ReconfigVM_Task", "RetrievePropertiesEx")
	if !slices.Equal(got[:len(want)], want) || got[len(got)-1] != "PowerOnVM_Task" {
		t.Errorf("got %v", got)
	}
}

func TestStaleState(t *testing.T) {
	w := newWorld(t)
	m := w.adopted("stale")
	for state, remedy := range map[types.VirtualMachineConnectionState]string{
		types.VirtualMachineConnectionStateDisconnected: "reconnect its host",
		types.VirtualMachineConnectionStateInaccessible: "access to the files",
		types.VirtualMachineConnectionStateInvalid:      "configuration file",
		types.VirtualMachineConnectionStateOrphaned:     "register it",
	} {
		w.SetConnection(w.path(m), state)
		_, err := w.runtime.Observe(t.Context(), m)
		if !runtime.IsUnavailable(err) || !runtime.IsDisconnected(err) || !strings.Contains(runtime.Message(err), remedy) {
			t.Errorf("%s: got error %v, want Unavailable", state, err)
		}
	}
}

func TestLastFailure(t *testing.T) {
	w := newWorld(t)
	m := w.adopted("failing")
	release := w.Hold(w.path(m), runtime.TaskPowerOn)
	w.Must(w.runtime.PowerOn(t.Context(), m))
	begun, err := w.runtime.Observe(t.Context(), m)
	w.Must(err)
	w.Must(w.runtime.Cancel(t.Context(), m, begun.InFlight[0].ID))
	seen := w.observe(m)
	if seen.Power != v1alpha1.PowerStopped || !strings.Contains(seen.LastFailure, "canceled") {
		t.Errorf("after a cancelled power-on: %+v", seen)
	}
	release()
	if seen := w.on(m); seen.LastFailure != "" {
		t.Errorf("after a power-on: %+v", seen)
	}
}

// A machine that was seen before is not exchanged for another one that somebody has put in its place; the same one is taken
// back if it only lost its marker.
func TestAnotherMachineInItsPlace(t *testing.T) {
	w := newWorld(t)
	m := w.machine("web")
	id, err := w.runtime.Ensure(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	m.InstanceID = id
	w.SetExtraConfig(w.path(m), map[string]string{machine.OwnerKey: ""})
	if again, err := w.runtime.Ensure(t.Context(), m); err != nil || again != id {
		t.Errorf("a lost marker: got %s, error %v", again, err)
	}
	moved := w.Rename(w.path(m), "web-old")
	w.SetExtraConfig(moved, map[string]string{machine.OwnerKey: ""})
	if _, err := w.AddMachine("web"); err != nil {
		t.Fatal(err)
	}
	if got, err := w.runtime.Ensure(t.Context(), m); !runtime.IsNotFound(err) {
		t.Errorf("another machine was adopted: %s, error %v", got, err)
	}
	if owner := w.State(w.path(m)).ExtraConfig[machine.OwnerKey]; owner != "" {
		t.Errorf("another machine was marked as that of %s", owner)
	}
}

// A copy inherits the marker: at the place of the machine that was adopted it is not that machine.
func TestCopyInItsPlace(t *testing.T) {
	w := newWorld(t)
	m := w.adopted("web")
	moved := w.Rename(w.path(m), "web-old")
	w.SetExtraConfig(moved, map[string]string{machine.OwnerKey: ""})
	w.SetInstanceUUID(moved, string(uuid.NewUUID()))
	if _, err := w.AddMachine("web"); err != nil {
		t.Fatal(err)
	}
	w.SetExtraConfig(w.path(m), map[string]string{machine.OwnerKey: string(m.UID)})
	for name, err := range map[string]error{
		"powering on": w.runtime.PowerOn(t.Context(), m), "deleting": w.runtime.Delete(t.Context(), m),
	} {
		if !runtime.IsOwnedByAnother(err) || !strings.Contains(runtime.Message(err), m.InstanceID) {
			t.Errorf("%s: got error %v, want OwnedByAnother", name, err)
		}
	}
	if got := w.State(w.path(m)); got.PowerOns != 0 || got.ExtraConfig[machine.OwnerKey] != string(m.UID) {
		t.Errorf("the copy is %+v", got)
	}
}
