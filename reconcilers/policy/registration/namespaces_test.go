package registration

import (
	"fmt"
	"slices"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules"
	"k8s.io/apiserver/pkg/authentication/user"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// guarded has a match select namespaces by a label.
func guarded(m v1alpha1.PolicyMatch) v1alpha1.PolicyMatch {
	m.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"guard": "on"}}
	m.ExcludeNamespaces = []string{"spare"}
	return m
}

// asking are the entries that the API server asks about a request, as it decides that: by rules, by the labels of the namespace,
// which of a Namespace that is written are the new ones, by those of the object, before or after, and by conditions.
func asking(t *testing.T, entries []*entry, a *admission.VersionedAttributes, namespace labels.Set) (names []string) {
	t.Helper()
	selects := func(s *metav1.LabelSelector, set labels.Set) bool {
		selector, err := metav1.LabelSelectorAsSelector(s)
		if err != nil {
			t.Fatal(err)
		}
		return selector.Matches(set)
	}
	labelsOf := func(o runtime.Object) labels.Set {
		if u, ok := o.(*unstructured.Unstructured); ok && u != nil {
			return u.GetLabels()
		}
		return nil
	}
	if a.GetResource().Resource == "namespaces" && a.GetSubresource() == "" && a.GetOperation() != admission.Delete {
		namespace = labelsOf(a.GetObject())
	}
	for _, e := range entries {
		met := slices.ContainsFunc(e.Rules, func(r rule) bool { return (&rules.Matcher{Rule: r, Attr: a.Attributes}).Matches() })
		objects := len(e.ObjectSelector.MatchExpressions) == 0 ||
			a.GetObject() != nil && selects(e.ObjectSelector, labelsOf(a.GetObject())) || a.GetOldObject() != nil && selects(e.ObjectSelector, labelsOf(a.GetOldObject()))
		if !met || !objects || !selects(e.NamespaceSelector, namespace) {
			continue
		}
		result := matcher(t, e.MatchConditions).Match(t.Context(), a, nil, nil)
		if result.Error != nil {
			t.Fatal(result.Error)
		}
		if result.Matches {
			names = append(names, e.Name)
		}
	}
	return names
}

// Whoever takes from a Namespace the label by which a policy is chosen is judged by it, as is who puts it there; and each request
// is asked about once.
func TestEntriesAboutNamespaces(t *testing.T) {
	everything := selecting(guarded(on("CUD", "x")), "sallyport.dev/kept")
	everything.Resources[0].APIGroups, everything.Resources[0].Resources = []string{"*"}, []string{"*/*"}
	namespaces, configMaps := schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	const own, other = "p.namespaces.sallyport.dev", "p.policies.sallyport.dev"
	type ask struct {
		resource      schema.GroupVersionResource
		sub           string
		operation     admission.Operation
		name          string
		before, after labels.Set // nil means no such object
		want          string
	}
	set := func(pairs ...string) labels.Set {
		s := labels.Set{namespaceName: "team"}
		for i := 0; i < len(pairs); i += 2 {
			s[pairs[i]] = pairs[i+1]
		}
		return s
	}
	on1, off := set("guard", "on"), set("guard", "off")
	forged := labels.Set{namespaceName: systemNamespace, "guard": "on"}
	for name, test := range map[string]struct {
		match    v1alpha1.PolicyMatch
		mutating bool
		asks     map[string]ask
	}{
		"by name": {guarded(on("CUD", "namespaces", "configmaps", "namespaces/status", "deployments.apps")), false, map[string]ask{
			"relabelled away":    {namespaces, "", admission.Update, "team", on1, off, own},
			"relabelled here":    {namespaces, "", admission.Update, "team", off, on1, own},
			"of others":          {namespaces, "", admission.Update, "team", off, set("guard", "of"), ""},
			"made":               {namespaces, "", admission.Create, "team", nil, on1, own},
			"made elsewhere":     {namespaces, "", admission.Create, "team", nil, off, ""},
			"deleted":            {namespaces, "", admission.Delete, "team", on1, nil, own},
			"kube-system's":      {namespaces, "", admission.Update, systemNamespace, on1, off, ""},
			"Sallyport's":        {namespaces, "", admission.Update, home, on1, off, ""},
			"an excluded one":    {namespaces, "", admission.Update, "spare", on1, off, ""},
			"an object in it":    {configMaps, "", admission.Update, "a", labels.Set{}, labels.Set{"a": "b"}, other},
			"nobody knows whose": {namespaces, "", admission.Create, "", nil, forged, own},
		}},
		"alone": {guarded(on("U", "namespaces")), false, map[string]ask{
			"relabelled away": {namespaces, "", admission.Update, "team", on1, off, own},
		}},
		"among everything": {everything, false, map[string]ask{
			"relabelled away": {namespaces, "", admission.Update, "team", set("guard", "on", "sallyport.dev/kept", "x"), off, own},
			"stays":           {namespaces, "", admission.Update, "team", set("guard", "on", "sallyport.dev/kept", "x"), set("guard", "on", "sallyport.dev/kept", "y"), own},
			"finalized":       {namespaces, "finalize", admission.Update, "team", set("guard", "on", "sallyport.dev/kept", "x"), off, own},
			"never was":       {namespaces, "", admission.Update, "team", set("guard", "on"), set("sallyport.dev/kept", "x"), ""},
			"an object in it": {configMaps, "", admission.Update, "a", labels.Set{"sallyport.dev/kept": "x"}, labels.Set{}, other},
		}},
		"mutating, everywhere": {on("C", "namespaces", "configmaps"), true, map[string]ask{
			"with a forged name": {namespaces, "", admission.Create, "", nil, forged, own},
			"kube-system":        {namespaces, "", admission.Create, systemNamespace, nil, forged, ""},
			"an object in it":    {configMaps, "", admission.Create, "a", nil, labels.Set{}, other},
		}},
		"validating, everywhere": {on("CU", "namespaces", "configmaps"), false, map[string]ask{
			"as it is": {namespaces, "", admission.Update, "team", on1, off, other},
		}},
	} {
		p := policy("p", test.match)
		targets, _ := p.targets(chartRules, possible)
		entries := newEntries(&p, targets, test.mutating, admissionregistrationv1.WebhookClientConfig{}, home)
		for what, a := range test.asks {
			t.Run(name+", "+what, func(t *testing.T) {
				object := func(set labels.Set) runtime.Object {
					if set == nil {
						return nil
					}
					u := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": a.name}}}
					u.SetLabels(set)
					return u
				}
				attributes := &admission.VersionedAttributes{Attributes: admission.NewAttributesRecord(object(a.after), object(a.before),
					schema.GroupVersionKind{}, "team", a.name, a.resource, a.sub, a.operation, nil, false, &user.DefaultInfo{})}
				attributes.VersionedObject.Set(attributes.GetObject())
				attributes.VersionedOldObject.Set(attributes.GetOldObject())
				if got := fmt.Sprint(asking(t, entries, attributes, on1)); got != fmt.Sprint(slices.DeleteFunc([]string{a.want}, func(s string) bool { return s == "" })) {
					t.Errorf("asked is %s, want %q", got, a.want)
				}
			})
		}
	}
}

// Two entries of one policy come together and go together, and nothing is left unasked on the way from one to two.
func TestEntriesAboutNamespacesComeAndGo(t *testing.T) {
	f := newFixture(t)
	plain := policy("guard", on("CU", "namespaces", "configmaps"))
	split := policy("guard", guarded(on("CU", "namespaces", "configmaps")))
	f.decide("1", plain)
	f.settles()
	f.has("guard Fail: CREATE, UPDATE of namespaces; CREATE, UPDATE of configmaps")
	f.decide("2", split)
	f.replicas["late_1"] = "1"
	f.reconcile()
	f.has("guard Fail: CREATE, UPDATE of namespaces; CREATE, UPDATE of configmaps")
	f.finds("guard", v1alpha1.ReasonWaitingForReplicas)
	delete(f.replicas, "late_1")
	f.settles()
	f.has("guard Fail: CREATE, UPDATE of namespaces; CREATE, UPDATE of configmaps", "guard on namespaces Fail: CREATE, UPDATE of namespaces")
	f.finds("guard", v1alpha1.ReasonRegistered, "CREATE, UPDATE of namespaces; CREATE, UPDATE of configmaps.")
	f.decide("3", policy("guard", guarded(on("U", "namespaces"))))
	f.settles()
	f.has("guard on namespaces Fail: UPDATE of namespaces")
	f.decide("4", policy("guard", guarded(on("U", "namespaces")), broken))
	f.settles()
	f.has("guard on namespaces Fail: UPDATE of namespaces")
	f.decide("5")
	f.settles()
	f.has()
}
