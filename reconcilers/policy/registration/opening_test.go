package registration

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// open writes the annotations as the command does, in both configurations or, as if it had died in between, in one.
func (f *fixture) open(o Opening, mutating bool) {
	f.Helper()
	for _, s := range f.newSides() {
		if s.mutating && !mutating {
			continue
		}
		c := s.object(f.Configuration)
		f.Must(f.api.Get(f.Context(), client.ObjectKeyFromObject(c), c))
		if !s.mutating {
			o.Write(c)
		}
		Ease(c)
		f.Must(f.api.Update(f.Context(), c))
	}
}

// A gate that somebody opens stays open until the time is over, whoever leads, and then all is as it was.
func TestGateOpensAndCloses(t *testing.T) {
	f := newFixture(t)
	told := events.NewFakeRecorder(10)
	f.Events = told
	any := on("D", "*.*")
	any.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{v1alpha1.GroupName + "/mark": "true"}}
	f.decide("1", policy("owners", on("CU", "deployments.apps"), mutates), policy("own", on("D", "virtualmachines.sallyport.dev")), policy("any", any))
	f.settles()
	closed := []string{
		"owners Fail: CREATE, UPDATE of deployments.apps", "mutating owners Fail: CREATE, UPDATE of deployments.apps", "own Fail: DELETE of virtualmachines.sallyport.dev",
		"any Fail: DELETE of everything", "any on own Fail: DELETE of *.sallyport.dev",
	}
	open := []string{
		"owners Ignore: CREATE, UPDATE of deployments.apps", "mutating owners Ignore: CREATE, UPDATE of deployments.apps", "own Fail: DELETE of virtualmachines.sallyport.dev",
		"any Ignore: DELETE of everything", "any on own Fail: DELETE of *.sallyport.dev",
	}
	f.has(closed...)
	o := Opening{Until: f.now.Add(time.Hour).Truncate(time.Second), Reason: "ticket 42", By: "alice"}
	f.open(o, false)
	if again := f.reconcile(); again <= 0 || again > time.Hour+time.Second {
		t.Errorf("looks again after %v, want it when the gate closes", again)
	}
	f.has(open...)
	f.finds("owners", v1alpha1.ReasonGateOpen, "until "+o.Until.UTC().Format(time.RFC3339), "ticket 42", "kubectl sallyport gate close")
	f.event(told, "Warning GateOpen ")

	f.lead() // another leader
	f.Events = told
	f.now = f.now.Add(30 * time.Minute)
	f.reconcile()
	f.has(open...)
	f.event(told, "Warning GateOpen ")

	f.now = f.now.Add(31 * time.Minute)
	f.settles()
	f.has(closed...)
	f.event(told, "Normal GateClosed ")
	if _, there := OpeningOf(f.validating("-policies")); there {
		t.Error("the annotations are still there")
	}
	f.finds("owners", v1alpha1.ReasonRegistered)

	f.open(Opening{Until: f.now.Add(48 * time.Hour), Reason: "for ever"}, true)
	f.settles()
	f.has(closed...) // an end that is too far ahead opens nothing
	f.open(o, true)
	f.settles() // over, as for a leader that comes late
	f.has(closed...)
}

// A replica that is late does not keep the gate from opening, but its entries refuse again only when all replicas are in step.
func TestGateClosesWhenReplicasAreInStep(t *testing.T) {
	f := newFixture(t)
	f.decide("1", policy("owners", on("C", "pods")))
	f.settles()
	f.replicas["other_1"] = "0"
	f.open(Opening{Until: f.now.Add(time.Hour)}, true)
	f.reconcile()
	f.has("owners Ignore: CREATE of pods")
	f.now = f.now.Add(2 * time.Hour)
	f.reconcile()
	f.has("owners Ignore: CREATE of pods")
	f.finds("owners", v1alpha1.ReasonWaitingForReplicas)
	f.replicas["other_1"] = "1"
	f.settles()
	f.has("owners Fail: CREATE of pods")
}

// event takes the next event, which must begin so.
func (f *fixture) event(from *events.FakeRecorder, begins string) {
	f.Helper()
	select {
	case got := <-from.Events:
		if len(got) < len(begins) || got[:len(begins)] != begins {
			f.Errorf("the event is %q, want %q", got, begins)
		}
	default:
		f.Errorf("there is no event %q", begins)
	}
}

func TestOpeningThatCannotBeRead(t *testing.T) {
	c := (&Reconciler{}).newSides()[0].object("c")
	c.SetAnnotations(map[string]string{v1alpha1.AnnotationGateOpenUntil: "tomorrow"})
	if o, there := OpeningOf(c); !there || o.Counts(time.Now()) {
		t.Errorf("got %v, %t", o, there)
	}
}
