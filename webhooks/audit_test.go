package webhooks

import (
	"math"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// What exists is judged whatever the mode, and nothing is recorded of it.
func TestAuditOfAnObjectThatExists(t *testing.T) {
	red, big := denies("red", "TooRed", 403), denies("big", "TooBig", 403)
	excluded := func(s *v1alpha1.RegoPolicySpec) { s.Match.ExcludeNamespaces = []string{"ns"} }
	for name, c := range map[string]struct {
		policy  v1alpha1.RegoPolicy
		asked   bool
		mode    v1alpha1.PolicyMode
		denials int
		err     bool
	}{
		"Enforce":           {policyOf("p", red), true, v1alpha1.ModeEnforce, 1, false},
		"Audit":             {policyOf("p", red, mode(v1alpha1.ModeAudit)), true, v1alpha1.ModeAudit, 1, false},
		"two denials, Warn": {policyOf("p", red+big, mode(v1alpha1.ModeWarn)), true, v1alpha1.ModeWarn, 2, false},
		"in order":          {policyOf("p", denies("blue", "TooBlue", 403)), true, v1alpha1.ModeEnforce, 0, false},
		"excluded":          {policyOf("p", red, excluded), false, "", 0, false},
		"another policy":    {policyOf("q", red), false, "", 0, false},
		"cannot tell":       {policyOf("p", "warn contains \"w\" if to_number(input.request.object.spec.name) == 1\n"), true, v1alpha1.ModeEnforce, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, world{}, c.policy)
			got, err := f.Audit(t.Context(), "p", schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, &unstructured.Unstructured{
				Object: map[string]any{
					"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "cm", "namespace": "ns"},
					"spec": map[string]any{"name": "x", "red": true, "big": true},
				},
			})
			if got.Asked != c.asked || got.Mode != c.mode || len(got.Denials) != c.denials || (err != nil) != c.err {
				t.Errorf("got %+v, error %v", got, err)
			}
			if f.records.Len() > 0 {
				t.Errorf("recorded is %s", &f.records)
			}
		})
	}
}

// What cannot be put as a request is not judged as if nothing was in it.
func TestAuditOfAnObjectThatIsNoJSON(t *testing.T) {
	f := newFixture(t, world{}, policyOf("p", denies("red", "TooRed", 403)))
	object := &unstructured.Unstructured{Object: map[string]any{"kind": "ConfigMap", "spec": map[string]any{"red": true, "n": math.NaN()}}}
	got, err := f.Audit(t.Context(), "p", schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, object)
	if err == nil {
		t.Errorf("got %+v", got)
	}
}
