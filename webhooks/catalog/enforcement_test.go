package catalog

import (
	"errors"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/engine"
)

// The object of a broken policy says how its last good revision is enforced, and the revision what it matches.
func TestABrokenObjectSaysHowItsLastGoodRevisionIsEnforced(t *testing.T) {
	was := policy("p", "apps/v1/deployments UPDATE,DELETE")
	was.Spec.Mode = v1alpha1.ModeWarn
	was.Spec.OnError = v1alpha1.OnErrorDeny
	was = stored(was, "uid")
	update := request("apps", "v1", "deployments", "", "UPDATE")
	statefulSet := request("apps", "v1", "statefulsets", "", "UPDATE")
	someone := request("apps", "v1", "deployments", "", "UPDATE")
	someone.UserInfo.Username = "someone"
	for name, tc := range map[string]struct {
		edit    func(*v1alpha1.RegoPolicySpec)
		mode    v1alpha1.PolicyMode
		onError v1alpha1.PolicyErrorAction
		request *admissionv1.AdmissionRequest
		judged  bool
	}{
		"nothing":       {func(*v1alpha1.RegoPolicySpec) {}, "Warn", "Deny", update, true},
		"to Audit":      {func(s *v1alpha1.RegoPolicySpec) { s.Mode = "Audit" }, "Audit", "Deny", update, true},
		"to Enforce":    {func(s *v1alpha1.RegoPolicySpec) { s.Mode = "Enforce" }, "Enforce", "Deny", update, true},
		"mode left out": {func(s *v1alpha1.RegoPolicySpec) { s.Mode = "" }, "Enforce", "Deny", update, true},
		"to Allow":      {func(s *v1alpha1.RegoPolicySpec) { s.OnError = "Allow" }, "Warn", "Allow", update, true},
		"a user":        {func(s *v1alpha1.RegoPolicySpec) { s.Match.ExcludeUsers = []string{"someone"} }, "Warn", "Deny", someone, true},
		"fewer resources": {func(s *v1alpha1.RegoPolicySpec) {
			s.Match.Resources[0].Operations = []v1alpha1.MatchOperation{"DELETE"}
		},
			"Warn", "Deny", update, true},
		"more resources": {func(s *v1alpha1.RegoPolicySpec) { s.Match.Resources[0].Resources = []string{"*"} }, "Warn", "Deny", statefulSet, false},
		"no resources":   {func(s *v1alpha1.RegoPolicySpec) { s.Match = nil }, "Warn", "Deny", update, true},
		"a mode, and modes with an invalid selector": {func(s *v1alpha1.RegoPolicySpec) {
			s.Mode, s.NamespaceModes = "Audit", []v1alpha1.NamespaceMode{unclear("Audit")}
		}, "Warn", "Deny", update, true},
	} {
		t.Run(name, func(t *testing.T) {
			c := &Catalog{}
			build(t, c, nil, was)
			broken := *was.DeepCopy()
			tc.edit(&broken.Spec)
			got := build(t, c, nil, edited(broken, nonsense))
			got.check(t, "p", "last good", v1alpha1.ReasonCompileFailed)
			p := got.Policy("p")
			if p.Mode != tc.mode || p.OnError != tc.onError {
				t.Errorf("got mode %s, onError %s", p.Mode, p.OnError)
			}
			selected := got.Select(t.Context(), tc.request, namespaces{cached: labelled("red")})
			if judged := len(selected) == 1 && selected[0].Err == nil; judged != tc.judged {
				t.Errorf("got %+v", selected)
			}
		})
	}
}

// A policy that never was good refuses or admits as its onError says, but never what could repair it.
func TestBrokenFromTheBeginning(t *testing.T) {
	p := stored(edited(policy("p", "*/*/* CREATE,UPDATE,DELETE", "*/*/*/* UPDATE"), nonsense), "uid")
	p.Spec.Match.ExcludeUsers = []string{"someone"}
	p.Spec.Match.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "blue"}}
	p.Spec.OnError = v1alpha1.OnErrorAllow
	p.Spec.Reads = []v1alpha1.PolicyRead{{APIVersion: "v1", Kind: "Service"}}
	someone := request("apps", "v1", "deployments", "", "UPDATE")
	someone.UserInfo.Username = "someone"
	blue, red := namespaces{cached: labelled("blue")}, namespaces{cached: labelled("red")}
	for name, tc := range map[string]struct {
		request *admissionv1.AdmissionRequest
		reader  namespaces
		met     bool
	}{
		"what it matches":           {request("apps", "v1", "deployments", "", "UPDATE"), blue, true},
		"another namespace":         {request("apps", "v1", "deployments", "", "UPDATE"), red, false},
		"an unreadable namespace":   {request("apps", "v1", "deployments", "", "UPDATE"), namespaces{err: errors.New("gone")}, true},
		"a user that is left out":   {someone, blue, false},
		"a policy":                  {request("sallyport.dev", "v1alpha1", "regopolicies", "", "UPDATE"), blue, false},
		"a policy's status":         {request("sallyport.dev", "v1alpha1", "regopolicies", "status", "UPDATE"), blue, false},
		"a machine":                 {request("sallyport.dev", "v1alpha1", "virtualmachines", "", "UPDATE"), blue, true},
		"policies of somebody else": {request("other.dev", "v1", "regopolicies", "", "UPDATE"), blue, true},
	} {
		t.Run(name, func(t *testing.T) {
			got := build(t, &Catalog{}, nil, p)
			got.check(t, "p", "broken", v1alpha1.ReasonCompileFailed)
			b := got.Policy("p")
			if !b.Validates() || b.Mutates() || b.OnError != v1alpha1.OnErrorAllow || b.Mode != v1alpha1.ModeEnforce || len(got.Reads()) != 0 {
				t.Errorf("got %+v", b)
			}
			selected := got.Select(t.Context(), tc.request, tc.reader)
			if (len(selected) == 1) != tc.met {
				t.Fatalf("got %+v", selected)
			}
			var cause *engine.Error
			if tc.met && (!errors.As(selected[0].Err, &cause) || cause.Cause != engine.CompileFailed ||
				!strings.Contains(cause.Error(), "it does not compile: p/p.rego:")) {
				t.Errorf("got %v", selected[0].Err)
			}
		})
	}
}

// A selector that is invalid selects everything.
func TestUnusableMatch(t *testing.T) {
	good := stored(policy("p", "apps/v1/deployments UPDATE"), "uid")
	nothing := edited(good, "")
	nothing.Spec.Match = nil
	selector := edited(good, "")
	selector.Spec.Match = selector.Spec.Match.DeepCopy()
	selector.Spec.Match.NamespaceSelector = &metav1.LabelSelector{
		MatchLabels:      map[string]string{"team": "blue"},
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}},
	}
	update := request("apps", "v1", "deployments", "", "UPDATE")
	for name, tc := range map[string]struct {
		object v1alpha1.RegoPolicy
		team   string
		met    bool
	}{
		"no resources": {nothing, "blue", false},
		"a selector":   {selector, "red", true},
	} {
		t.Run(name, func(t *testing.T) {
			if err := Sources([]v1alpha1.RegoPolicy{tc.object})[0].Check(); err == nil || !strings.Contains(err.Error(), "policy p: spec.match: ") {
				t.Errorf("checked: %v", err)
			}
			c := &Catalog{}
			alone := build(t, c, nil, tc.object)
			alone.check(t, "p", "broken", v1alpha1.ReasonCompileFailed)
			if got := alone.Select(t.Context(), update, namespaces{cached: labelled(tc.team)}); (len(got) == 1) != tc.met {
				t.Errorf("got %+v", got)
			}
			build(t, c, nil, good)
			build(t, c, nil, tc.object).check(t, "p", "last good", v1alpha1.ReasonCompileFailed)
		})
	}
}

// Secrets are not read for any policy, and a policy that lists them does not decide.
func TestReadsThatNoPolicyHas(t *testing.T) {
	for name, tc := range map[string]struct{ apiVersion, kind, wrong string }{
		"Secrets":                     {"v1", "Secret", "spec.reads[1]: unreadable: core Secrets are never read for a policy"},
		"Secrets in another version":  {"v2", "Secret", "core Secrets are never read for a policy"},
		"every kind":                  {"v1", "*", "list every kind by name"},
		"Secrets of every version":    {"*", "Secret", "list every kind by name"},
		"Secrets of somebody else":    {"bank.example.com/v1", "Secret", ""},
		"a kind that is called alike": {"v1", "SecretStore", ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := stored(policy("p", "apps/v1/deployments UPDATE"), "uid")
			p.Spec.Reads = []v1alpha1.PolicyRead{{APIVersion: "v1", Kind: "Pod"}, {APIVersion: tc.apiVersion, Kind: tc.kind}}
			problem := v1alpha1.ReasonContractBroken
			if tc.wrong == "" {
				problem = ""
			}
			got := build(t, &Catalog{}, nil, p)
			state := got.states["p"]
			if state.Problem != problem || (state.Err == nil) != (tc.wrong == "") || state.Err != nil && !strings.Contains(state.Err.Error(), tc.wrong) {
				t.Errorf("got %s: %v", state.Problem, state.Err)
			}
			if err := sourceOf(&p, nil).Check(); (err == nil) != (tc.wrong == "") {
				t.Errorf("checked: %v", err)
			}
		})
	}
}
