package main

import (
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/charts"
	"sallyport.dev/sallyport/policies"
)

// What Kinds says of a kind is what the markers of its type say, and a deletion of its definition does not pass deletion-definitions unasked.
func TestKindsAreAsTheirTypes(t *testing.T) {
	crds, err := charts.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	shipped, err := policies.Shipped()
	if err != nil {
		t.Fatal(err)
	}
	definitions := shipped[slices.IndexFunc(shipped, func(p v1alpha1.RegoPolicy) bool { return p.Name == "deletion-definitions" })].Spec
	if len(crds) != len(v1alpha1.Kinds) {
		t.Errorf("%d definitions for %d kinds", len(crds), len(v1alpha1.Kinds))
	}
	for _, kind := range v1alpha1.Kinds {
		name := kind.Resource() + "." + v1alpha1.GroupName
		i := slices.IndexFunc(crds, func(crd *apiextensionsv1.CustomResourceDefinition) bool { return crd.Name == name })
		if i < 0 {
			t.Errorf("there is no definition %s", name)
			continue
		}
		is := crds[i].Spec
		if is.Names.Kind != kind.Name || !slices.Equal(is.Names.ShortNames, []string{kind.ShortName}) || (is.Scope == apiextensionsv1.ClusterScoped) != kind.Cluster {
			t.Errorf("%s is %+v, %s", kind.Name, is.Names, is.Scope)
		}
		if !slices.ContainsFunc(definitions.Reads, func(r v1alpha1.PolicyRead) bool {
			return r.APIVersion == v1alpha1.GroupVersion.String() && r.Kind == kind.Name
		}) || !strings.Contains(definitions.Modules[0].Source, `"`+name+`": "`+kind.Name+`"`) {
			t.Errorf("policy deletion-definitions does not look for objects of kind %s", kind.Name)
		}
	}
}
