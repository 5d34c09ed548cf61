package testrun

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/catalog"
	"sallyport.dev/sallyport/webhooks/engine"
)

// What cmd says of spec.match is part of the finding, also where nothing has to be compiled.
func TestWhatThePolicyMatchesIsLookedAt(t *testing.T) {
	stored := *toy("own", patching)
	world := func(context.Context) ([]v1alpha1.RegoPolicy, error) { return []v1alpha1.RegoPolicy{stored}, nil }
	runner := New(Options{Registry: prometheus.NewRegistry(), World: world, Match: func(_ context.Context, o *v1alpha1.RegoPolicy) (refused, unserved []string) {
		if !catalog.Patches(o) {
			t.Error("it is not known which rules the policy has")
		}
		return []string{"spec.match.excludeNamespaces[0]: no " + o.Spec.Match.ExcludeNamespaces[0]}, []string{"there is no deployment.apps"}
	}})
	document, err := engine.ParseValue([]byte(`{"metadata": {"name": "own"}, "spec": {"match": {"excludeNamespaces": ["kube-*"],
		"resources": [{"apiGroups": ["apps"], "apiVersions": ["*"], "resources": ["deployment"], "operations": ["CREATE"]}]}}}`))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := runner.RunTests(t.Context(), document)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(answer)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"kind":"NotRegistrable"`, `"message":"spec.match.excludeNamespaces[0]: no kube-*"`, `"unserved":["there is no deployment.apps"]`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("it says %s, without %s", text, want)
		}
	}
}

// What the process of a test run could not read within its limits is not read beside it, without any.
func TestWhatOutrunsItsLimitsIsNotReadForItsMatch(t *testing.T) {
	for kind, parsed := range map[v1alpha1.ConditionReason]bool{v1alpha1.ReasonCompileFailed: false, LimitExceeded: false, v1alpha1.ReasonContractBroken: true} {
		runner := New(Options{Registry: prometheus.NewRegistry(), Match: func(_ context.Context, o *v1alpha1.RegoPolicy) (refused, unserved []string) {
			if got := len(o.Spec.Modules) > 0; got != parsed {
				t.Errorf("%s: the modules are there: %v, want %v", kind, got, parsed)
			}
			return nil, nil
		}})
		object := toy("own", patching)
		runner.addRegistration(t.Context(), object, &Finding{Problems: []Problem{{Kind: kind}}})
		if len(object.Spec.Modules) == 0 {
			t.Errorf("%s: the object has lost its modules", kind)
		}
	}
}
