package catalog

import (
	"errors"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// onNamespaceOf is a request on Namespace ns, which belongs to a team before and after; "-" means that there is no such object.
func onNamespaceOf(operation, sub, before, after string) *admissionv1.AdmissionRequest {
	object := func(team string) runtime.RawExtension {
		if team == "-" {
			return runtime.RawExtension{}
		}
		return runtime.RawExtension{Raw: []byte(`{"metadata": {"name": "ns", "labels": {"team": "` + team + `"}}}`)}
	}
	r := request("", "v1", "namespaces", sub, operation)
	r.Name, r.OldObject, r.Object = "ns", object(before), object(after)
	return r
}

// A request that changes a Namespace is one for the policies that select it as it is, and for those that select it as it would be,
// and is judged as strictly as the stricter of both. Nothing of it is looked up.
func TestNamespacesByLabelsThatTheRequestChanges(t *testing.T) {
	p := policy("p", "/v1/namespaces CREATE,UPDATE,DELETE", "/v1/namespaces/finalize UPDATE", "/v1/namespaces/status UPDATE")
	p.Spec.Match.NamespaceSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: "team", Operator: "In", Values: []string{"blue", "green"}},
	}}
	p.Spec.NamespaceModes = []v1alpha1.NamespaceMode{modeOf("green", "Warn"), modeOf("red", "Audit")}
	set := mustCompile(t, p)
	unnamed := onNamespaceOf("CREATE", "", "-", "green")
	unnamed.Name, unnamed.Namespace = "", ""
	unnamedRed := onNamespaceOf("CREATE", "", "-", "red")
	unnamedRed.Name, unnamedRed.Namespace = "", ""
	for name, tc := range map[string]struct {
		request *admissionv1.AdmissionRequest
		want    v1alpha1.PolicyMode // "" means that it is not met
		fails   bool
	}{
		"made":                        {onNamespaceOf("CREATE", "", "-", "blue"), "Enforce", false},
		"made, in another mode":       {onNamespaceOf("CREATE", "", "-", "green"), "Warn", false},
		"made, with a name to come":   {unnamed, "Warn", false},
		"not for it, the same":        {unnamedRed, "", false},
		"made for others":             {onNamespaceOf("CREATE", "", "-", "red"), "", false},
		"stays":                       {onNamespaceOf("UPDATE", "", "blue", "blue"), "Enforce", false},
		"taken away":                  {onNamespaceOf("UPDATE", "", "blue", "red"), "Enforce", false},
		"taken":                       {onNamespaceOf("UPDATE", "", "red", "blue"), "Enforce", false},
		"to a looser mode":            {onNamespaceOf("UPDATE", "", "blue", "green"), "Enforce", false},
		"to a stricter mode":          {onNamespaceOf("UPDATE", "", "green", "blue"), "Enforce", false},
		"from the looser one away":    {onNamespaceOf("UPDATE", "", "green", "red"), "Warn", false},
		"of others":                   {onNamespaceOf("UPDATE", "", "red", "red"), "", false},
		"by its status":               {onNamespaceOf("UPDATE", "status", "blue", "red"), "Enforce", false},
		"as it ends":                  {onNamespaceOf("UPDATE", "finalize", "red", "blue"), "Enforce", false},
		"deleted":                     {onNamespaceOf("DELETE", "", "blue", "-"), "Enforce", false},
		"deleted, of others":          {onNamespaceOf("DELETE", "", "red", "-"), "", false},
		"deleted, and nobody says of": {onNamespaceOf("DELETE", "", "-", "-"), "Enforce", true},
	} {
		t.Run(name, func(t *testing.T) {
			selected := set.Select(t.Context(), tc.request, namespaces{err: errors.New("asked")})
			switch {
			case tc.want == "" && len(selected) > 0, tc.want != "" && len(selected) == 0:
				t.Errorf("got %+v", selected)
			case tc.want != "" && (selected[0].Mode != tc.want || (selected[0].Err != nil) != tc.fails):
				t.Errorf("got mode %s, %v; want %s", selected[0].Mode, selected[0].Err, tc.want)
			}
			meeting := set.Policies()[0].Meeting(t.Context(), tc.request, namespaces{err: errors.New("asked")})
			if !tc.fails && (meeting.Met != (tc.want != "") || meeting.Met && meeting.Mode != tc.want) {
				t.Errorf("explained is %+v", meeting)
			}
		})
	}
}

// The label of a Namespace of another group's is nothing to go by, and neither is what an object says of the namespace that it is in.
func TestLabelsOfOtherObjectsAreNotTheNamespaces(t *testing.T) {
	p := policy("p", "*/*/namespaces UPDATE", "/v1/configmaps UPDATE")
	p.Spec.Match.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "blue"}}
	set := mustCompile(t, p)
	for _, resource := range []metav1.GroupVersionResource{
		{Group: "example.com", Version: "v1", Resource: "namespaces"}, {Version: "v1", Resource: "configmaps"},
	} {
		r := onNamespaceOf("UPDATE", "", "red", "red")
		r.Resource = resource
		if got := set.Select(t.Context(), r, namespaces{cached: labelled("blue")}); len(got) != 1 {
			t.Errorf("%s is not met by the labels of its namespace: %v", resource, got)
		}
		r = onNamespaceOf("UPDATE", "", "blue", "blue")
		r.Resource = resource
		if got := set.Select(t.Context(), r, namespaces{cached: labelled("red")}); len(got) != 0 {
			t.Errorf("%s is met by labels of its own: %v", resource, got)
		}
	}
}

// What is said of a Namespace that is not selected has the labels of both.
func TestMeetingNamesBothLabels(t *testing.T) {
	p := policy("p", "/v1/namespaces UPDATE")
	p.Spec.Match.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "blue"}}
	m := mustCompile(t, p).Policies()[0].Meeting(t.Context(), onNamespaceOf("UPDATE", "", "red", "green"), nil)
	if len(m.Missed) != 1 || !strings.Contains(m.Missed[0].Why, "namespace ns has the labels team=red and would have team=green") {
		t.Errorf("it says %+v", m.Missed)
	}
}
