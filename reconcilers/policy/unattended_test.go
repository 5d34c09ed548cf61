package policy

import (
	"context"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/policy/unattended"
)

// A status that nobody keeps gets old, and one that is kept does not cost more than a write each period.
func TestStatusIsConfirmed(t *testing.T) {
	f := newFixture(t)
	now := time.Now().Truncate(time.Second)
	f.Now = func() time.Time { return now }
	guard := toy("guard", "a")
	f.Must(f.api.Create(t.Context(), &guard))
	f.settles()
	reported := func() time.Time { return f.policy("guard").Status.ReportedAt.Time }
	for range 3 {
		began := now
		if got := reported(); !got.Equal(began) {
			t.Errorf("at %s it was confirmed at %s", began, got)
		}
		now = began.Add(reportPeriod - time.Second)
		f.settles()
		if got := reported(); !got.Equal(began) {
			t.Errorf("it was confirmed too early, at %s", got)
		}
		result, err := f.Reconcile(t.Context(), request("guard"))
		f.Must(err)
		if result.RequeueAfter <= 0 || result.RequeueAfter > reportPeriod {
			t.Errorf("it is looked at again after %s", result.RequeueAfter)
		}
		now = began.Add(reportPeriod)
		f.settles()
	}
	now = now.Add(-time.Hour) // by a clock that is right again
	f.settles()
	if got := reported(); !got.Equal(now) {
		t.Errorf("a time to come stands: %s", got)
	}
}

// The last replica that ends marks the policies, and the next one takes the marks off.
func TestPoliciesThatNobodyDecidesBy(t *testing.T) {
	f := newFixture(t)
	guard, lib := toy("guard", "a"), toy("lib", "has:x", library)
	f.Must(f.api.Create(t.Context(), &guard))
	f.Must(f.api.Create(t.Context(), &lib))
	f.settles()
	f.told.take()
	mark := func(nobody func(context.Context) (bool, error)) {
		t.Helper()
		f.Must(unattended.Mark(t.Context(), f.api, f.api.Status(), time.Now(), nobody))
	}
	const decides, none = "True CurrentRevision Revision 61 is active.", "False NobodyDecides No replica of Sallyport is running: this policy evaluates no requests."
	mark(func(context.Context) (bool, error) { return false, nil })
	f.shows("guard", v1alpha1.ConditionReady, decides)

	mark(func(context.Context) (bool, error) { return true, nil })
	f.shows("guard", v1alpha1.ConditionReady, none)
	f.shows("guard", v1alpha1.ConditionActive, none)
	f.shows("lib", v1alpha1.ConditionReady, none)
	f.shows("guard", v1alpha1.ConditionCompiled, "True Compiled The policy compiles.")

	f.lead(f.Namespace)
	f.settles()
	f.shows("guard", v1alpha1.ConditionReady, decides)
	f.tells()

	// One that starts while another ends wins.
	mark(func(context.Context) (bool, error) {
		f.patched("guard", `{"metadata":{"labels":{"a":"b"}}}`)
		return true, nil
	})
	f.shows("guard", v1alpha1.ConditionReady, decides)
	if c := v1alpha1.ConditionReady.In(f.policy("lib").Status.Conditions); !strings.HasPrefix(c.Message, "No replica") {
		t.Errorf("the other policy shows %+v", c)
	}
}
