package catalog

import (
	"errors"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/yaml"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/policies"
)

// requests are what a fuzzed policy is selected for.
var requests = []*admissionv1.AdmissionRequest{
	request("apps", "v1", "deployments", "", "UPDATE"), request("apps", "v1", "deployments", "scale", "UPDATE"), request("", "v1", "pods", "eviction", "CREATE"),
	request("", "v1", "namespaces", "", "CREATE"), request("sallyport.dev", "v1alpha1", "virtualmachines", "", "CREATE"),
	request("sallyport.dev", "v1alpha1", "regopolicies", "", "DELETE"), request("", "v1", "configmaps", "", "CONNECT"),
}

// means tells, from the text of a policy alone, that it is about a request for sure: the resource is named, nobody is excluded and nothing
// is selected.
func means(p *v1alpha1.RegoPolicy, r *admissionv1.AdmissionRequest) bool {
	m := p.Spec.Match
	if p.Spec.Library || m == nil || !nothingElse(m) {
		return false
	}
	resource := r.Resource.Resource
	if r.SubResource != "" {
		resource += "/" + r.SubResource
	}
	return slices.ContainsFunc(m.Resources, func(o v1alpha1.PolicyResources) bool {
		return slices.Contains(o.APIGroups, r.Resource.Group) && slices.Contains(o.APIVersions, r.Resource.Version) &&
			slices.Contains(o.Resources, resource) && slices.Contains(o.Operations, v1alpha1.MatchOperation(r.Operation))
	})
}

// nothingElse tells that a match has resources and nothing that leaves requests out.
func nothingElse(m *v1alpha1.PolicyMatch) bool {
	text, err := yaml.Marshal(m)
	var fields map[string]any
	return err == nil && yaml.Unmarshal(text, &fields) == nil && len(fields) == 1 && len(m.Resources) > 0
}

// Whatever a RegoPolicy says, it is a policy or it is told why it is none; it is asked about what it names, broken or not, and who cannot ask
// it is told so; and its manifest is the same policy.
func FuzzPolicy(f *testing.F) {
	shipped, err := policies.Shipped()
	if err != nil {
		f.Fatal(err)
	}
	p := policy("p", "apps/v1/deployments UPDATE", "/v1/pods/eviction CREATE", "*/*/* DELETE")
	for _, one := range append(shipped, p, edited(p, "x :=\n"), edited(p, "warn contains input.facts.x\n"), v1alpha1.RegoPolicy{}) {
		text, err := Manifest(&one)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte("metadata: {name: a}\nspec: {package: a, match: {}, mode: Audit, onError: Allow, parameters: [1], reads: [{kind: x}], timeoutMilliseconds: -1}"))
	f.Add([]byte("metadata: {name: a}\nspec: {package: \"a[\", match: {resources: [{apiGroups: [apps], apiVersions: [v1], resources: [deployments], operations: [UPDATE]}]}}"))
	f.Add([]byte("spec: {parametersSchema: {type: object, properties: {a: {x-kubernetes-validations: [{rule: self > 1}]}}}, parameters: {a: {}}}"))
	f.Add([]byte("spec: {library: true, package: sallyport.lib.x, modules: [{name: a, source: \"package sallyport.lib.x\\n\\ta := `\\n\\t`\"}]}"))
	f.Add([]byte("spec: {namespaceModes: [{mode: Bogus, namespaceSelector: {matchExpressions: [{operator: Near}]}}, {}]}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		var object v1alpha1.RegoPolicy
		if err := yaml.UnmarshalStrict(text, &object); err != nil {
			t.Skip()
		}
		checked := Sources([]v1alpha1.RegoPolicy{object})[0].Check()
		if checked != nil && strings.Contains(checked.Error(), "panic") && !strings.Contains(string(text), "panic") {
			t.Errorf("%v", checked)
		}
		c := &Catalog{}
		set, states := c.Build(t.Context(), []v1alpha1.RegoPolicy{object}, nil)
		if (states[0].Err == nil) != (checked == nil) {
			t.Errorf("checked it is %v, and built %v", checked, states[0].Err)
		}
		for _, r := range requests {
			selected := set.Select(t.Context(), r, namespaces{err: errors.New("gone")})
			for _, s := range selected {
				if s.Name() != object.Name || checked != nil && s.Err == nil {
					t.Errorf("%s %s: selected is %+v, of a policy that is %v", r.Operation, r.Resource, s, checked)
				}
			}
			if p := set.Policy(object.Name); p != nil {
				if m := p.Meeting(t.Context(), r, namespaces{err: errors.New("gone")}); m.Met != (len(selected) > 0) {
					t.Errorf("%s %s: selected is %+v, and explained %+v", r.Operation, r.Resource, selected, m)
				}
			}
			repairs := checked != nil && Repairs(r) // which nothing broken keeps out
			if len(selected) == 0 && means(&object, r) && !repairs {
				t.Errorf("%s %s: nobody is asked", r.Operation, r.Resource)
			}
		}
		manifest, err := Manifest(&object)
		if err != nil {
			t.Fatal(err)
		}
		var again v1alpha1.RegoPolicy
		if err := yaml.UnmarshalStrict(manifest, &again); err != nil {
			t.Fatalf("its manifest cannot be read: %v\n%s", err, manifest)
		}
		if equality.Semantic.DeepEqual(object, again) {
			return
		}
		if rechecked := Sources([]v1alpha1.RegoPolicy{again})[0].Check(); (rechecked == nil) != (checked == nil) {
			t.Errorf("it is %v, and its manifest %v", checked, rechecked)
		}
	})
}
