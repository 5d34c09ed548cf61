package policy

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// registrar says of every policy that it is registered, audited and reported like this.
type registrar struct {
	Catalog
	finding, reported *Finding
	violations        *v1alpha1.PolicyViolations
}

func (r *registrar) State(name string) (State, bool) {
	s, ok := r.Catalog.State(name)
	s.Registered, s.Reported, s.Violations = r.finding, r.reported, r.violations
	return s, ok
}

// What the API server asks about is shown, and told when it is news.
func TestRegistrationIsShown(t *testing.T) {
	f := newFixture(t)
	says := &registrar{Catalog: f.Catalog}
	f.Catalog = says
	p := toy("guard", "fine")
	f.Must(f.api.Create(t.Context(), &p))
	shows := func(finding *Finding, want string, told ...string) {
		t.Helper()
		says.finding = finding
		f.settles()
		f.shows("guard", "Registered", want)
		f.tells(told...)
	}
	shows(nil, "", "Normal Activated RegoPolicy/guard: Revision 66696e65 is active.")
	shows(&Finding{v1alpha1.ReasonWaitingForReplicas, "Not yet: b."}, "False WaitingForReplicas Not yet: b.") // which is soon over
	shows(&Finding{v1alpha1.ReasonRegistered, "Registered for CREATE of pods."},
		"True Registered Registered for CREATE of pods.",
		"Normal Registered RegoPolicy/guard: Registered for CREATE of pods.")
	shows(nil, "True Registered Registered for CREATE of pods.") // nothing is known of a new leader's
	shows(&Finding{v1alpha1.ReasonNotRegistrable, "No."}, "False NotRegistrable No.", "Warning NotRegistrable RegoPolicy/guard: No.")
	shows(&Finding{v1alpha1.ReasonRegistrationFailed, "Cannot."}, "False RegistrationFailed Cannot.", "Warning RegistrationFailed RegoPolicy/guard: Cannot.")
	shows(&Finding{}, "") // it matches nothing but our kinds

	slip := toy("slip", "BROKEN")
	f.Must(f.api.Create(t.Context(), &slip))
	says.finding = &Finding{v1alpha1.ReasonNoGoodRevision, "It is not asked."}
	f.settles()
	f.shows("slip", "Registered", "False NoGoodRevision It is not asked.")
	f.shows("slip", "Active", "False NoGoodRevision No revision is active: requests for Sallyport's own kinds that it matches follow spec.onError, which is Deny. See condition Compiled.")
}

// The state of the reports is a condition, and no event.
func TestReportsAreShown(t *testing.T) {
	f := newFixture(t)
	says := &registrar{Catalog: f.Catalog, violations: &v1alpha1.PolicyViolations{AuditedAt: metav1.Unix(0, 0)}}
	f.Catalog = says
	p := toy("guard", "fine", func(p *v1alpha1.RegoPolicy) { p.Spec.BackgroundAudit = v1alpha1.AuditEnabled })
	f.Must(f.api.Create(t.Context(), &p))
	shows := func(reason v1alpha1.ConditionReason, message, want string, told ...string) {
		t.Helper()
		says.reported = &Finding{reason, message}
		f.settles()
		f.shows("guard", "Reported", want)
		f.tells(told...)
	}
	shows(v1alpha1.ReasonReported, "All is reported.", "True Reported All is reported.", "Normal Activated RegoPolicy/guard")
	shows(v1alpha1.ReasonReportNameTaken, "One is taken.", "False ReportNameTaken One is taken.")
}
