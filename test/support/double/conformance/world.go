package conformance

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/test/support/double/fake"
)

// PodMachine is a machine that Ensure makes.
func PodMachine(name string) runtime.Machine {
	return runtime.Machine{
		NamespacedName: types.NamespacedName{Namespace: "ns", Name: name},
		UID:            types.UID("uid-" + name),
		Spec:           &v1alpha1.VirtualMachineSpec{Runtime: v1alpha1.VirtualMachineRuntime{Pod: &v1alpha1.PodRuntime{}}},
	}
}

// OfWorld is the harness of a simulated world and of the runtimes that lead to it, each of which is a client of that name. Machines are made.
func OfWorld(w *fake.World, connect func(client string) runtime.Runtime) Harness {
	return Harness{
		Runtime:   connect("first"),
		Machine:   func(_ *testing.T, name string) runtime.Machine { return PodMachine(name) },
		Advance:   func(m runtime.Machine) { w.Advance(m.UID) },
		Reconnect: func(*testing.T) runtime.Runtime { return connect("second") },
		Instances: func(_ *testing.T, m runtime.Machine) (n int) {
			for _, in := range w.Instances() {
				if in.Owner == m.UID {
					n++
				}
			}
			return n
		},
		IgnoreShutdown: func(_ *testing.T, m runtime.Machine) { w.SetGuest(m.UID, fake.Guest{Ignores: true}) },
		HeedShutdown:   func(_ *testing.T, m runtime.Machine) { w.GuestActs(m.UID) },
		RemoveTools:    func(_ *testing.T, m runtime.Machine) { w.SetGuest(m.UID, fake.Guest{NoTools: true}) },
		SetGuest:       func(_ *testing.T, m runtime.Machine, says runtime.Guest) { w.SetGuest(m.UID, fake.Guest{Says: says}) },
		Ask:            func(_ *testing.T, m runtime.Machine, q v1alpha1.PendingQuestion) { w.Ask(m.UID, &q) },
		Pause:          func(_ *testing.T, m runtime.Machine) { w.Pause(m.UID) },
		Spoil:          func(_ *testing.T, m runtime.Machine) func() { return w.Spoil(m.UID, "convert it") },
		Hold:           func(_ *testing.T, m runtime.Machine, kind runtime.TaskKind) func() { return w.Hold(m.UID, kind) },
		OtherNode: func(_ *testing.T, m runtime.Machine) string {
			in, _ := w.Instance(m.UID)
			return map[string]string{"node-1": "node-2", "node-2": "node-1"}[in.NodeName]
		},
		Foreign: func(*testing.T) (runtime.Machine, func() error) { return foreignInstance(w) },
		LoseReply: func(_ *testing.T, m runtime.Machine, verb runtime.Verb) {
			w.Script(fake.At{Verb: verb, Machine: m.UID}, fake.LoseReply())
		},
		Stall: func(_ *testing.T, m runtime.Machine, verb runtime.Verb) <-chan struct{} {
			stall := fake.NewStall(fake.ActAfter)
			w.Script(fake.At{Verb: verb, Machine: m.UID}, stall.Fault())
			return stall.Reached()
		},
	}
}

// foreignInstance makes an instance of somebody else, and gives what finds out whether anything of it was changed.
func foreignInstance(w *fake.World) (m runtime.Machine, changed func() error) {
	m = PodMachine("foreign")
	w.AddInstance(fake.Instance{Place: fake.Place(m), Owner: "somebody-else", Power: v1alpha1.PowerRunning, Incarnation: "theirs"})
	want := w.Instances()
	return m, func() error {
		if diff := cmp.Diff(want, w.Instances()); diff != "" {
			return fmt.Errorf("(-before +after):\n%s", diff)
		}
		return nil
	}
}
