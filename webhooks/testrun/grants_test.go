package testrun

import (
	"context"
	"testing"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/catalog"
	"sallyport.dev/sallyport/webhooks/engine"
	"sallyport.dev/sallyport/webhooks/grants"
)

const patching = `patch contains {"op": "add", "path": "/metadata/labels", "value": {}} if input.request.object.bare == true`

// What a policy would patch and may not is found when it is written: its rules, or what it matches.
func TestPatchesThatAreNotGranted(t *testing.T) {
	about := func(p *v1alpha1.RegoPolicy, group, resource string, operations ...v1alpha1.MatchOperation) *v1alpha1.RegoPolicy {
		r := &p.Spec.Match.Resources[0]
		r.APIGroups, r.Resources = []string{group}, []string{resource}
		if len(operations) > 0 {
			r.Operations = operations
		}
		return p
	}
	matching := func(name, group, resource string) *v1alpha1.RegoPolicy {
		p := about(toy(name), group, resource)
		p.Spec.Modules, p.Spec.Tests = nil, nil
		return p
	}
	s := newFixture(t, Subcommand, long, toy("a"), toy("patches", patching))
	s.Patchable = grants.Patchable{Kinds: grants.Kinds{"pods": grants.Metadata}, By: grants.Release{Name: "gate", Namespace: "sys"}}
	const (
		toys  = "unpatchable spec.match.resources[0].resources[0], toys.toy: policies may not patch it; to grant its labels and annotations, run: helm upgrade gate CHART --namespace sys --reuse-values --set-json 'patchable={\"toys.toy\":\"Metadata\"}'"
		roles = "unpatchable spec.match.resources[0].resources[0], roles.rbac.authorization.k8s.io: no policy may patch it: it controls access"
	)
	for name, tc := range map[string]struct {
		policy *v1alpha1.RegoPolicy
		want   string
	}{
		"what is granted":                     {about(toy("p", patching), "", "pods"), "2 passed"},
		"what is not":                         {toy("p", patching), toys + "\n2 passed"},
		"what never is":                       {about(toy("p", patching), "rbac.authorization.k8s.io", "roles"), roles + "\n2 passed"},
		"what is deleted is not patched":      {about(toy("p", patching), "toy", "toys", v1alpha1.MatchDelete), "2 passed"},
		"no patch rules":                      {toy("p"), "2 passed"},
		"another match of one that patches":   {matching("patches", "rbac.authorization.k8s.io", "roles"), roles},
		"another match of one that does not":  {matching("a", "rbac.authorization.k8s.io", "roles"), ""},
		"a granted match of one that patches": {matching("patches", "", "pods"), ""},
	} {
		if got, err := s.asks(t.Context(), t, tc.policy); err != nil || got != tc.want {
			t.Errorf("%s: got %q, %v\nwant %q", name, got, err, tc.want)
		}
	}
}

// Rights are asked for anew whatever is cached, and who does not answer holds nobody up.
func TestReadsThatAreNotGranted(t *testing.T) {
	p := toy("p")
	p.Spec.Reads = []v1alpha1.PolicyRead{{APIVersion: "apps/v1", Kind: "Deployment"}}
	p.Spec.Match.NamespaceSelector = nil
	p.Spec.NamespaceModes = []v1alpha1.NamespaceMode{{Mode: v1alpha1.ModeWarn}}
	s := newFixture(t, Subcommand, long)
	s.Patchable.By = grants.Release{Name: "gate", Namespace: "sys"}
	var asked []engine.Read
	lacking := []catalog.Grant{{APIGroup: "apps", Resource: "deployments", Verbs: []string{"watch"}}}
	s.Ungranted = func(_ context.Context, _ string, reads []engine.Read) []catalog.Grant {
		asked = reads
		return lacking
	}
	const want = "ungranted [watch] of deployments.apps: helm upgrade gate CHART --namespace sys --reuse-values --set-json 'rbac.reads={\"deployments.apps\":true}'\n2 passed"
	for range 2 {
		if got, err := s.asks(t.Context(), t, p); err != nil || got != want {
			t.Errorf("got %q, %v\nwant %q", got, err, want)
		}
	}
	if len(asked) != 2 || asked[0].Kind != "Deployment" || asked[1].Kind != "Namespace" {
		t.Errorf("asked about %+v", asked)
	}
	lacking = nil
	if got, err := s.asks(t.Context(), t, p); err != nil || got != "2 passed" {
		t.Errorf("got %q, %v after it was granted", got, err)
	}
	s.Ungranted = func(ctx context.Context, _ string, _ []engine.Read) []catalog.Grant {
		<-ctx.Done()
		return nil
	}
	if got, err := s.asks(t.Context(), t, p); err != nil || got != "2 passed" {
		t.Errorf("got %q, %v while nobody answers", got, err)
	}
}
