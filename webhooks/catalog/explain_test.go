package catalog

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/grants"
)

func texts(m *Meeting) string {
	var all []string
	for _, missed := range m.Missed {
		all = append(all, missed.Field+" "+missed.Why)
	}
	return strings.Join(all, "\n")
}

// Each field that can keep a policy from being asked is named, with what it has and what the request is.
func TestMeetingNamesWhatIsMissed(t *testing.T) {
	const field = "spec.match.resources[0] "
	selector := func(m *v1alpha1.PolicyMatch) {
		m.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "blue"}}
	}
	for name, tc := range map[string]struct {
		change  func(*v1alpha1.PolicyMatch)
		request *admissionv1.AdmissionRequest
		reader  namespaces
		want    string
	}{
		"nothing":     {nil, request("apps", "v1", "deployments", "", "UPDATE"), namespaces{}, ""},
		"group":       {nil, request("batch", "v1", "deployments", "", "UPDATE"), namespaces{}, field + `apiGroups has ["apps"], not "batch"`},
		"version":     {nil, request("apps", "v2", "deployments", "", "UPDATE"), namespaces{}, field + `apiVersions has ["v1"], not "v2"`},
		"resource":    {nil, request("apps", "v1", "daemonsets", "", "UPDATE"), namespaces{}, field + `resources has ["deployments"], not "daemonsets"`},
		"subresource": {nil, request("apps", "v1", "deployments", "scale", "UPDATE"), namespaces{}, field + `resources has ["deployments"], not "deployments/scale"`},
		"operation": {nil, request("apps", "v1", "deployments", "", "DELETE"), namespaces{},
			field + `operations has ["CREATE", "UPDATE"], not "DELETE"`},
		"several": {nil, request("batch", "v1", "jobs", "", "UPDATE"), namespaces{},
			field + `apiGroups has ["apps"], not "batch", and resources has ["deployments"], not "jobs"`},
		"namespaceSelector": {selector, request("apps", "v1", "deployments", "", "UPDATE"), namespaces{cached: labelled("red")},
			"spec.match.namespaceSelector is team=blue, but namespace ns has the labels team=red"},
		"namespaceSelector, no labels": {selector, request("apps", "v1", "deployments", "", "UPDATE"), namespaces{cached: map[string]any{"ns": map[string]any{}}},
			"spec.match.namespaceSelector is team=blue, but namespace ns has the labels (none)"},
		"namespaceSelector met": {selector, request("apps", "v1", "deployments", "", "UPDATE"), namespaces{cached: labelled("blue")}, ""},
		"excludeNamespaces": {func(m *v1alpha1.PolicyMatch) { m.ExcludeNamespaces = []string{"other", "ns"} },
			request("apps", "v1", "deployments", "", "UPDATE"), namespaces{}, "spec.match.excludeNamespaces[1] is ns, the namespace of the request"},
		"excludeUsers": {func(m *v1alpha1.PolicyMatch) { m.ExcludeUsers = []string{"eve"} },
			request("apps", "v1", "deployments", "", "UPDATE"), namespaces{}, "spec.match.excludeUsers[0] is eve, the requester"},
		"excludeGroups": {func(m *v1alpha1.PolicyMatch) { m.ExcludeGroups = []string{"ops", "admins"} },
			request("apps", "v1", "deployments", "", "UPDATE"), namespaces{}, "spec.match.excludeGroups[1] is admins, a group of eve"},
	} {
		t.Run(name, func(t *testing.T) {
			p := policy("p", "apps/v1/deployments CREATE,UPDATE")
			if tc.change != nil {
				tc.change(p.Spec.Match)
			}
			tc.request.UserInfo = authenticationv1.UserInfo{Username: "eve", Groups: []string{"admins"}}
			m := mustCompile(t, p).Policy("p").Meeting(t.Context(), tc.request, tc.reader)
			if got := texts(m); got != tc.want || m.Met != (tc.want == "") {
				t.Errorf("met %t, missed\n%s\nwant\n%s", m.Met, got, tc.want)
			}
		})
	}
}

// The mode is named with the field that it is of.
func TestMeetingNamesTheMode(t *testing.T) {
	update := request("apps", "v1", "deployments", "", "UPDATE")
	for team, want := range map[string]string{"blue": "Warn spec.namespaceModes[0]", "red": "Audit spec.namespaceModes[1]", "green": "Enforce spec.mode"} {
		p := policy("p", "apps/v1/deployments UPDATE")
		p.Spec.NamespaceModes = []v1alpha1.NamespaceMode{modeOf("blue", "Warn"), modeOf("red", "Audit"), modeOf("blue", "Audit")}
		m := mustCompile(t, p).Policy("p").Meeting(t.Context(), update, namespaces{cached: labelled(team)})
		if got := fmt.Sprintf("%s %s", m.Mode, m.ModeBy); got != want {
			t.Errorf("team %s: got %s, want %s", team, got, want)
		}
	}
	p := policy("p", "apps/v1/deployments UPDATE")
	p.Spec.NamespaceModes = []v1alpha1.NamespaceMode{modeOf("blue", "Warn")}
	m := mustCompile(t, p).Policy("p").Meeting(t.Context(), update, namespaces{err: errors.New("gone")})
	if !m.Met || m.Unread == nil || m.Mode != v1alpha1.ModeEnforce || m.ModeBy != "the strictest of spec.mode and spec.namespaceModes, because the labels of the namespace are unknown" {
		t.Errorf("with labels that cannot be read: %+v", m)
	}
	p = policy("p", "apps/v1/deployments UPDATE")
	p.Spec.NamespaceModes = []v1alpha1.NamespaceMode{modeOf("*", "Warn")}
	update.Namespace = ""
	if m := mustCompile(t, p).Policy("p").Meeting(t.Context(), update, namespaces{}); m.Mode != v1alpha1.ModeEnforce || m.ModeBy != "spec.mode" {
		t.Errorf("of what is in no namespace: %s %s", m.Mode, m.ModeBy)
	}
}

// Whatever the request and the policy: who is asked is who Select selects, and in the same mode.
func TestMeetingIsWhatSelectDoes(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	one := func(of ...string) string { return of[random.IntN(len(of))] }
	met := 0
	sets := &Sets{} // the rules are the same each time
	for i := range 300 {
		p := policy("p", one("apps", "*", "*", "batch")+"/"+one("v1", "*", "*", "v2")+"/"+one("deployments", "*", "deployments/scale", "*/*", "*/scale")+
			" "+one("UPDATE", "CREATE,UPDATE", "CREATE,UPDATE,DELETE"))
		if random.IntN(3) == 0 {
			p.Spec.Match.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": one("blue", "red")}}
		}
		p.Spec.Match.ExcludeUsers, p.Spec.Match.ExcludeNamespaces = []string{one("eve", "bob", "al", "jo")}, []string{one("ns", "a", "b", "c")}
		p.Spec.NamespaceModes = []v1alpha1.NamespaceMode{modeOf(one("blue", "red"), "Warn"), modeOf(one("*", "red"), "Audit")}
		r := request(one("apps", "batch"), one("v1", "v2"), "deployments", one("", "", "scale", "status"), one("CREATE", "UPDATE", "UPDATE", "DELETE"))
		r.UserInfo.Username, r.Namespace = one("eve", "bob"), one("ns", "")
		reader := namespaces{cached: labelled(one("blue", "red", "green"))}
		if random.IntN(8) == 0 {
			reader.err = errors.New("gone")
		}
		set, err := sets.Compile([]v1alpha1.RegoPolicy{p}, grants.Patchable{})
		if err != nil {
			t.Fatal(err)
		}
		selected := set.Select(t.Context(), r, reader)
		m := set.Policy("p").Meeting(t.Context(), r, reader)
		switch {
		case m.Met != (len(selected) == 1):
			t.Errorf("number %d: the meeting says %t, and selected are %v:\n%s", i, m.Met, selected, texts(m))
		case m.Met && (m.Mode != selected[0].Mode || (m.Unread != nil) != (selected[0].Err != nil)):
			t.Errorf("number %d: the meeting has mode %s and %v, Select %+v", i, m.Mode, m.Unread, selected[0])
		}
		if m.Met {
			met++
		}
	}
	if met < 30 {
		t.Errorf("only %d were met, which is no test", met)
	}
}
