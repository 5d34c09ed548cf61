package policy

import (
	"context"
	"errors"
	"testing"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// verdicts of tests, in place of a test run.
type testedAs struct{ Tested }

func (t testedAs) Test(context.Context, *v1alpha1.RegoPolicy) (Tested, error) { return t.Tested, nil }

// Ready says what is missing first, and is true only if nothing is.
func TestReady(t *testing.T) {
	f := newFixture(t)
	says := &registrar{Catalog: f.Catalog}
	f.Catalog = says
	p := toy("guard", "fine")
	f.Must(f.api.Create(t.Context(), &p))
	ready := func(want string) {
		t.Helper()
		f.settles()
		f.shows("guard", "Ready", want)
	}
	tests := &testedAs{Tested{Finding: Finding{v1alpha1.ReasonTestsFailed, "One fails."}, Failed: 1}}
	f.Tester = tests
	ready("Unknown TestsNotRun The tests have not run yet. See condition TestsPassed.")
	f.Must(f.test(t.Context(), "guard"))
	ready("False TestsFailed The tests fail. See condition TestsPassed.")
	tests.Tested = Tested{Finding: Finding{v1alpha1.ReasonTestsPassed, "1 test passed."}, Passed: 1}
	f.forget("guard")
	f.Must(f.test(t.Context(), "guard"))
	ready("Unknown WaitingForReplicas The registration of the policy is not known yet.")
	const unasked = " The policy is not registered for everything that it matches. See condition Registered."
	for _, reason := range []v1alpha1.ConditionReason{v1alpha1.ReasonResourceNotServed, v1alpha1.ReasonRegistrationFailed, v1alpha1.ReasonNotRegistrable, v1alpha1.ReasonWaitingForReplicas} {
		says.finding = &Finding{reason, "Why."}
		ready("False " + string(reason) + unasked)
	}
	behind, unknown := []string{"b"}, errors.New("away")
	f.Behind = func(context.Context) ([]string, error) { return behind, nil }
	says.finding = &Finding{v1alpha1.ReasonRegistered, "Registered for CREATE of pods."}
	ready("False WaitingForReplicas These replicas do not serve this revision yet: b.")
	if result, err := f.Reconcile(t.Context(), request("guard")); err != nil || result.RequeueAfter < soonest {
		t.Errorf("it looks again after %v, %v", result.RequeueAfter, err)
	}
	behind = nil
	ready("True CurrentRevision Revision 66696e65 is active.")
	behind = []string{"b"} // because of another policy
	ready("True CurrentRevision Revision 66696e65 is active.")
	says.finding = nil // a new leader does not know yet
	ready("True CurrentRevision Revision 66696e65 is active.")

	f.word("guard", "finer") // nothing is known of what is new
	ready("Unknown TestsNotRun The tests have not run yet. See condition TestsPassed.")
	f.Must(f.test(t.Context(), "guard"))
	ready("Unknown WaitingForReplicas The registration of the policy is not known yet.")
	says.finding = &Finding{} // nothing but Sallyport's own kinds
	ready("False WaitingForReplicas These replicas do not serve this revision yet: b.")
	f.Behind = func(context.Context) ([]string, error) { return []string{"nobody knows"}, unknown }
	if _, err := f.Reconcile(t.Context(), request("guard")); !errors.Is(err, unknown) {
		t.Errorf("it says %v", err)
	}
	f.shows("guard", "Ready", "False WaitingForReplicas These replicas do not serve this revision yet: nobody knows.")
	f.Behind = nil
	ready("True CurrentRevision Revision 66696e6572 is active.")
	f.word("guard", "BROKEN")
	ready("False LastGoodRevision The last good revision 66696e6572 is active instead of the current one. See condition Compiled.")
}
