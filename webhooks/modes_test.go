package webhooks

import (
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/shipped"
	"sallyport.dev/sallyport/webhooks/catalog"
	"sallyport.dev/sallyport/webhooks/decision"
)

// catalogOf makes sets of policies that need not be in order.
type catalogOf struct{ catalog.Catalog }

func (c *catalogOf) build(t *testing.T, objects ...v1alpha1.RegoPolicy) *catalog.Set {
	t.Helper()
	set, _ := c.Build(t.Context(), objects, nil)
	return set
}

// inStage has a policy judge namespaces of that stage in another mode.
func inStage(stage string, mode v1alpha1.PolicyMode) func(*v1alpha1.RegoPolicySpec) {
	return func(s *v1alpha1.RegoPolicySpec) {
		s.NamespaceModes = append(s.NamespaceModes, v1alpha1.NamespaceMode{
			Mode: mode, NamespaceSelector: metav1.LabelSelector{MatchLabels: map[string]string{"stage": stage}},
		})
	}
}

// stage is the world in which every namespace has that label.
func stage(name string) world {
	return world{answer: map[string]any{"metadata": map[string]any{"labels": map[string]any{"stage": name}}}}
}

// Response, record and metrics have the mode of the request's namespace.
func TestModesByNamespace(t *testing.T) {
	p := policyOf("p", denies("red", "TooRed", 403), inStage("test", v1alpha1.ModeWarn), inStage("lab", v1alpha1.ModeAudit))
	for name, tc := range map[string]struct {
		world    world
		allowed  bool
		warnings int
		verdict  string
		mode     v1alpha1.PolicyMode
		denials  string
	}{
		"production": {stage("production"), false, 0, "denied", v1alpha1.ModeEnforce, `{"p":{"denied":1}}`},
		"test":       {stage("test"), true, 1, "warned", v1alpha1.ModeWarn, `{"p":{"wouldDeny":1}}`},
		"lab":        {stage("lab"), true, 0, "audited", v1alpha1.ModeAudit, `{"p":{"wouldDeny":1}}`},
		"unknown":    {world{err: errors.New("gone")}, false, 0, "error_denied", v1alpha1.ModeEnforce, `{"p":{"denied":1}}`},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, tc.world, p)
			got := f.Validate(t.Context(), reviewOf(t, admissionv1.Create, red))
			if got.Allowed != tc.allowed || len(got.Warnings) != tc.warnings {
				t.Errorf("got %+v", got)
			}
			if n, err := testutil.GatherAndCount(f.registry, "sallyport_decisions_total"); n != 1 || err != nil {
				t.Errorf("%d kinds of decisions are counted", n)
			}
			reason := "TooRed"
			if tc.world.err != nil {
				reason = "FactUnavailable"
			}
			if n := f.count(t, "sallyport_decisions_total", string(tc.mode), "p", reason, tc.verdict, decision.Validating); n != 1 {
				t.Errorf("counted %v times in mode %s", n, tc.mode)
			}
			if got := f.recorder.Denials(); got != tc.denials {
				t.Errorf("got the denials %s, want %s", got, tc.denials)
			}
			if p := f.only(t).Policies[0]; p.Mode != tc.mode || p.Verdict != tc.verdict {
				t.Errorf("recorded as %+v", p)
			}
		})
	}
}

// The API server would drop a warning with a line break: it is one line.
func TestWarningsAreOneLineEach(t *testing.T) {
	f := newFixture(t, world{}, policyOf("p", "warn contains \"one\\nand\\ttwo\" if true\n"))
	if got := f.Validate(t.Context(), reviewOf(t, admissionv1.Create, harmless)); len(got.Warnings) != 1 || got.Warnings[0] != "one and two" {
		t.Errorf("got %q", got.Warnings)
	}
}

// Where the supersede policy does not refuse, nothing yields to the newer operation either: it waits.
func TestNewerOperationWaitsWhereSupersedeIsNotEnforced(t *testing.T) {
	shipped := shipped.Policies(t)
	for i := range shipped {
		if shipped[i].Name == "operations-supersede" || shipped[i].Name == "operations-applicability" {
			inStage("test", v1alpha1.ModeWarn)(&shipped[i].Spec)
		}
	}
	forced, start := svmop("force", v1alpha1.OperationStop, true), svmop("start", v1alpha1.OperationStart, false)
	running := []v1alpha1.VirtualMachineOperation{forced}
	for name, tc := range map[string]struct {
		world          world
		denied, failed bool
	}{
		"enforced":     {stage("production"), true, false},
		"tried out":    {stage("test"), false, false},
		"nobody knows": {world{err: errors.New("gone")}, false, true},
	} {
		got, err := newShippedFixture(t, tc.world, shipped...).Arbitrate(t.Context(), &start, svm("Stopping"), running)
		if (err != nil) != tc.failed || got.Denied != tc.denied || len(got.Supersedes) != 0 {
			t.Errorf("%s: got %+v, %v", name, got, err)
		}
	}
	// What yields by the matrix does so in every mode.
	stop := svmop("stop", v1alpha1.OperationStop, false)
	got, err := newShippedFixture(t, stage("test"), shipped...).Arbitrate(t.Context(), &forced, svm("Stopping"), []v1alpha1.VirtualMachineOperation{stop})
	if err != nil || got.Denied || len(got.Supersedes) != 1 {
		t.Errorf("got %+v, %v", got, err)
	}
}
