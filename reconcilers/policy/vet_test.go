package policy

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/policy/shipping"
)

// vetting is that of a replica that does not lead.
func (f *fixture) vetting(release, shipment string) (*Vetting, *told) {
	r, heard := f.leader(f.Namespace), &told{}
	r.Release, r.Events = release, heard
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: "new-1", UID: "1"}}
	return &Vetting{Reconciler: r, Shipment: shipment, Pod: pod}, heard
}

// vets has a replica look once, and holds whether it is ready.
func (f *fixture) vets(v *Vetting, want string) {
	f.Helper()
	f.runs(v, func() bool {
		got := "ready"
		if err := v.Ready(nil); err != nil {
			got = err.Error()
		}
		return strings.HasPrefix(got, want)
	}, want)
}

func (f *fixture) runs(v *Vetting, is func() bool, what string) {
	f.Helper()
	ctx, cancel := context.WithCancel(f.Context())
	ended := make(chan error, 1)
	go func() { ended <- v.Start(ctx) }()
	for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			f.Errorf("the replica says %v and not %s", v.Ready(nil), what)
			break
		}
	}
	cancel()
	f.Must(<-ended)
}

// shipment puts a hash on the ConfigMap.
func (f *fixture) shipment(hash string) {
	f.Helper()
	cm := &corev1.ConfigMap{}
	f.Must(f.api.Get(f.Context(), types.NamespacedName{Namespace: f.Namespace, Name: f.ConfigMap}, cm))
	cm.Annotations[shipping.ShipmentAnnotation] = hash
	f.Must(f.api.Update(f.Context(), cm))
}

// A replica is ready if what it is to ship can be applied, whether it leads or not.
func TestReplicaIsNotReadyBeforeItsShipmentIsGood(t *testing.T) {
	f := newFixture(t)
	f.ships("1.0.0", toy("lib", "has:x", library), toy("guard", "needs:x"), toy("other", "a"))
	f.shipment("one")
	first, heard := f.vetting("1.0.0", "one")
	if err := first.Ready(nil); err == nil {
		t.Error("it is ready before it has looked")
	}
	f.vets(first, "ready")
	f.is("guard", "") // it does not lead
	f.settles()
	mine := toy("mine", "needs:x")
	f.Must(f.api.Create(t.Context(), &mine))

	f.ships("1.1.0", toy("lib", "has:x", library), toy("guard", "BROKEN"), toy("other", "b"), toy("loud", "a", func(p *v1alpha1.RegoPolicy) { p.Spec.Mode = "Shout" }))
	f.shipment("two")
	next, said := f.vetting("1.1.0", "two")
	f.vets(next, "RegoPolicy guard: Release 1.1.0 is not applied: guard/main.rego:1:1: BROKEN; RegoPolicy loud: Release 1.1.0: applying RegoPolicy loud: ")
	if all := said.take(); len(all) != 2 ||
		all[0] != "Warning CheckFailed Pod/new-1: RegoPolicy guard: Release 1.1.0 is not applied: guard/main.rego:1:1: BROKEN" ||
		!strings.HasPrefix(all[1], "Warning ApplyFailed Pod/new-1: RegoPolicy loud: ") || !strings.Contains(all[1], "spec.mode") {
		t.Errorf("people are told %q", all)
	}
	f.is("other", "a")

	// Those that were there go on, and so does one of them that is started again.
	if err := first.Ready(nil); err != nil {
		t.Errorf("another release ends the service: %v", err)
	}
	again, _ := f.vetting("1.0.0", "one")
	f.vets(again, "ready")
	for _, text := range heard.take() {
		t.Errorf("people are told %s", text)
	}

	// Other values in the same release are another shipment.
	f.ships("1.0.0", toy("lib", "has:y", library), toy("guard", "needs:y"), toy("other", "a"))
	f.shipment("three")
	other, _ := f.vetting("1.0.0", "three")
	f.vets(other, "RegoPolicy guard: Release 1.0.0 is not applied: guard/main.rego:1:1: needs:y is not there; "+
		"RegoPolicy lib: Release 1.0.0 is not applied: RegoPolicy mine would break")
	f.vets(again, "ready")
	f.Must(f.api.Delete(t.Context(), f.policy("mine")))
	f.vets(other, "ready")

	// Back again.
	f.ships("1.0.0", toy("lib", "has:x", library), toy("guard", "needs:x"), toy("other", "a"))
	f.shipment("one")
	back, _ := f.vetting("1.0.0", "one")
	f.vets(back, "ready")
}

// What people have edited, or named, is theirs.
func TestReplicaIsReadyInSpiteOfEdits(t *testing.T) {
	f := newFixture(t)
	f.ships("1.0.0", toy("guard", "a"))
	f.settles()
	f.word("guard", "mine")
	taken := toy("taken", "a")
	f.Must(f.api.Create(t.Context(), &taken))
	f.ships("1.1.0", toy("guard", "b"), toy("taken", "b"))
	v, said := f.vetting("1.1.0", "")
	f.vets(v, "ready")
	if all := said.take(); len(all) > 0 {
		t.Errorf("people are told %q", all)
	}
}

// Without a good ConfigMap, and with one that cannot be read.
func TestReplicaWithAnUnreadableShipment(t *testing.T) {
	f := newFixture(t)
	v, _ := f.vetting("1.0.0", "one")
	f.vets(v, "ready") // nothing is shipped
	f.shipsTexts("1.0.0", map[string]string{"guard.yaml": "kind: Nonsense"})
	v, _ = f.vetting("1.0.0", "")
	f.vets(v, "RegoPolicy guard: ConfigMap "+f.Namespace+"/sallyport-policies, key guard.yaml: ")
}

// checks counts how often policies are checked.
type checks struct {
	Checker
	n int
}

func (c *checks) Check(ctx context.Context, world []v1alpha1.RegoPolicy) map[string]error {
	c.n++
	return c.Checker.Check(ctx, world)
}

// A replica that has vetted changes and leads then makes them without trying them again, if they are still the same.
func TestVettedIsNotTriedAgain(t *testing.T) {
	f := newFixture(t)
	counted := &checks{Checker: f.Checker}
	f.Checker = counted
	vets := func(wrong int) (tried int) {
		t.Helper()
		before := counted.n
		got, err := f.vet(t.Context(), "", vetted{})
		if err != nil || len(got.wrong) != wrong {
			t.Errorf("vetting gives %v, %v", got.wrong, err)
		}
		return counted.n - before
	}
	leads := func() (tried int) {
		t.Helper()
		before := counted.n
		_, err := f.ship(t.Context())
		f.Must(err)
		return counted.n - before
	}
	f.ships("1.0.0", toy("lib", "has:x", library), toy("guard", "needs:x"))
	if vets(0) == 0 || leads() != 0 {
		t.Error("what was vetted is tried again, or not at all")
	}
	f.is("guard", "needs:x")

	f.ships("1.0.0", toy("lib", "has:x", library), toy("guard", "needs:x again"))
	vets(0)
	f.word("lib", "has:nothing") // meanwhile
	if leads() == 0 {
		t.Error("another world is not tried")
	}
	f.is("guard", "needs:x")

	f.word("lib", "has:x")
	f.ships("1.0.0", toy("lib", "has:x", library), toy("guard", "BROKEN"))
	if vets(1) == 0 || leads() == 0 {
		t.Error("what was refused is not tried again")
	}
}
