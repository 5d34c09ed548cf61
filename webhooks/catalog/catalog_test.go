package catalog

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/engine"
)

// policy that matches resources given as "group/version/resource OPERATION,...", where resource may hold a subresource.
func policy(name string, matches ...string) v1alpha1.RegoPolicy {
	p := v1alpha1.RegoPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.RegoPolicySpec{
		Package: "toy." + name, Match: &v1alpha1.PolicyMatch{},
		Modules: []v1alpha1.PolicyModule{{Name: "p.rego", Source: "# METADATA\n# title: T\n# description: D\npackage toy." + name +
			"\n\nvalid_input if true\n\nwarn contains \"w\" if true\n"}},
	}}
	for _, m := range matches {
		what, operations, _ := strings.Cut(m, " ")
		parts := strings.SplitN(what, "/", 3)
		r := v1alpha1.PolicyResources{APIGroups: parts[:1], APIVersions: parts[1:2], Resources: parts[2:]}
		for o := range strings.SplitSeq(operations, ",") {
			r.Operations = append(r.Operations, v1alpha1.MatchOperation(o))
		}
		p.Spec.Match.Resources = append(p.Spec.Match.Resources, r)
	}
	return p
}

func mustCompile(t *testing.T, objects ...v1alpha1.RegoPolicy) *Set {
	t.Helper()
	set, err := Compile(objects)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func request(group, version, resource, sub, operation string) *admissionv1.AdmissionRequest {
	return &admissionv1.AdmissionRequest{
		Operation: admissionv1.Operation(operation), SubResource: sub, Namespace: "ns",
		Resource: metav1.GroupVersionResource{Group: group, Version: version, Resource: resource},
	}
}

func namesOf(selected []Selected) string {
	var names []string
	for _, s := range selected {
		names = append(names, s.Name())
	}
	return strings.Join(names, " ")
}

// Wildcards mean what they mean in webhook configurations: "*" covers resources but no subresources.
func TestSelectByResource(t *testing.T) {
	set := mustCompile(t,
		policy("exact", "apps/v1/deployments UPDATE"),
		policy("scale", "apps/v1/deployments/scale UPDATE"),
		policy("all", "*/*/* CREATE,UPDATE,DELETE"),
		policy("everything", "*/*/*/* UPDATE"),
		policy("subs", "apps/*/deployments/* UPDATE"),
		policy("scales", "*/*/*/scale UPDATE"),
		policy("twice", "apps/v1/deployments UPDATE", "apps/*/* UPDATE"),
		policy("other", "apps/v2/deployments UPDATE", "batch/v1/jobs UPDATE"),
	)
	for name, tc := range map[string]struct {
		request *admissionv1.AdmissionRequest
		want    string
	}{
		"a resource":            {request("apps", "v1", "deployments", "", "UPDATE"), "all everything exact twice"},
		"a subresource":         {request("apps", "v1", "deployments", "scale", "UPDATE"), "everything scale scales subs"},
		"another subresource":   {request("apps", "v1", "deployments", "status", "UPDATE"), "everything subs"},
		"another operation":     {request("apps", "v1", "deployments", "", "DELETE"), "all"},
		"another version":       {request("apps", "v2", "deployments", "", "UPDATE"), "all everything other twice"},
		"another group":         {request("batch", "v1", "deployments", "", "UPDATE"), "all everything"},
		"a resource of batch":   {request("batch", "v1", "jobs", "", "UPDATE"), "all everything other"},
		"an operation of none":  {request("apps", "v1", "deployments", "", "CONNECT"), ""},
		"scale of another kind": {request("x.io", "v1", "things", "scale", "UPDATE"), "everything scales"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := namesOf(set.Select(t.Context(), tc.request, nil)); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// namespaces answers for Namespace objects: what a cache and the API server have.
type namespaces struct {
	cached, live map[string]any
	err          error
}

func (n namespaces) Read(_ context.Context, q engine.Query) (engine.Answer, error) {
	from := n.cached
	if q.Live {
		from = n.live
	}
	v, err := engine.ValueOf(from[q.Name])
	return engine.Answer{Value: v, Live: q.Live}, errors.Join(err, n.err)
}

func labelled(team string) map[string]any {
	return map[string]any{"ns": map[string]any{"metadata": map[string]any{"labels": map[string]any{"team": team}}}}
}

func TestSelectByNamespace(t *testing.T) {
	p := policy("p", "apps/v1/deployments UPDATE")
	p.Spec.Match.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "blue"}}
	set := mustCompile(t, p)
	if reads := set.Reads(); len(reads) != 1 || reads[0].Kind != "Namespace" {
		t.Errorf("the set reads %v", reads)
	}
	onNamespace := request("apps", "v1", "deployments", "", "UPDATE")
	clusterScoped := request("apps", "v1", "deployments", "", "UPDATE")
	clusterScoped.Namespace = ""
	for name, tc := range map[string]struct {
		request *admissionv1.AdmissionRequest
		reader  namespaces
		met     bool
		failed  bool
	}{
		"labels match":                  {onNamespace, namespaces{cached: labelled("blue")}, true, false},
		"labels differ":                 {onNamespace, namespaces{cached: labelled("red")}, false, false},
		"not in the cache yet":          {onNamespace, namespaces{live: labelled("blue")}, true, false},
		"nowhere is not no match":       {onNamespace, namespaces{}, true, true},
		"unreadable is not no match":    {onNamespace, namespaces{err: errors.New("gone")}, true, true},
		"cluster-scoped is always met":  {clusterScoped, namespaces{err: errors.New("never asked")}, true, false},
		"no labels at all do not match": {onNamespace, namespaces{cached: map[string]any{"ns": map[string]any{}}}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			selected := set.Select(t.Context(), tc.request, tc.reader)
			if (len(selected) == 1) != tc.met || tc.met && (selected[0].Err != nil) != tc.failed {
				t.Errorf("got %+v", selected)
			}
		})
	}
}

func TestSelectByObject(t *testing.T) {
	p := policy("p", "apps/v1/deployments UPDATE")
	p.Spec.Match.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"kept": "yes"}}
	set := mustCompile(t, p)
	const kept, not = `{"metadata": {"labels": {"kept": "yes"}}}`, `{"metadata": {}}`
	for name, tc := range map[string]struct {
		object, old string
		met, failed bool
	}{
		"as it would be": {kept, not, true, false}, "as it is": {not, kept, true, false}, "neither": {not, not, false, false},
		"only the old one is there": {"", kept, true, false}, "nothing is there": {"", "", false, false},
		"no object": {"[]", "", true, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := request("apps", "v1", "deployments", "", "UPDATE")
			r.Object.Raw, r.OldObject.Raw = []byte(tc.object), []byte(tc.old)
			selected := set.Select(t.Context(), r, namespaces{})
			if (len(selected) == 1) != tc.met || tc.met && (selected[0].Err != nil) != tc.failed {
				t.Errorf("got %+v", selected)
			}
			m := set.Policy("p").Meeting(t.Context(), r, namespaces{})
			if m.Met != tc.met || (m.Unread != nil) != tc.failed || !tc.met && m.Missed[0].Field != "spec.match.objectSelector" {
				t.Errorf("explained as %+v", m)
			}
		})
	}
	m := set.Policy("p").Match()
	if metav1.FormatLabelSelector(m.ObjectSelector) != "kept=yes" {
		t.Errorf("it matches %+v", m)
	}
}

// What a connection carries has no labels to API servers, which is not to have none: no selector selects it, not even one for their absence.
func TestSelectorsSelectNoConnection(t *testing.T) {
	unlabelled := policy("unlabelled", "/v1/pods/exec CONNECT")
	unlabelled.Spec.Match.ObjectSelector = &metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "kept", Operator: metav1.LabelSelectorOpDoesNotExist}},
	}
	set := mustCompile(t, unlabelled, policy("any", "/v1/pods/exec CONNECT"))
	r := request("", "v1", "pods", "exec", "CONNECT")
	r.Object.Raw = []byte(`{"apiVersion": "v1", "kind": "PodExecOptions", "command": ["sh"]}`)
	if got := namesOf(set.Select(t.Context(), r, nil)); got != "any" {
		t.Errorf("got %q", got)
	}
}

// One run tells everything that is wrong, each with its policy.
func TestCompileJoinsErrors(t *testing.T) {
	syntax := policy("syntax", "apps/v1/deployments UPDATE")
	syntax.Spec.Modules[0].Source += "\nx := \n"
	nothing := policy("nothing")
	selector := policy("selector", "apps/v1/deployments UPDATE")
	selector.Spec.Match.NamespaceSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}}
	library := v1alpha1.RegoPolicy{ObjectMeta: metav1.ObjectMeta{Name: "lib"}, Spec: v1alpha1.RegoPolicySpec{
		Package: "sallyport.lib.x", Library: true,
		Modules: []v1alpha1.PolicyModule{{Name: "x.rego", Source: "package sallyport.lib.x\n\ny := input.request.uid\n"}},
	}}
	_, err := Compile([]v1alpha1.RegoPolicy{syntax, nothing, selector, library, policy("good", "apps/v1/deployments UPDATE")})
	if err == nil {
		t.Fatal("compiled")
	}
	for _, text := range []string{
		"policy syntax does not compile:\nsyntax/p.rego:", "policy nothing: spec.match: resources", "policy selector: spec.match: namespaceSelector",
		"library lib does not compile:\nlib/x.rego:3:6: a library must not read input.request.uid: pass values as arguments",
	} {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("got\n%v\nwithout %q", err, text)
		}
	}
}

// The schema of input is written by hand: it must have what the API server sends, and nothing else.
func TestSchemaIsThatOfAdmissionRequests(t *testing.T) {
	fields := map[string]reflect.Type{
		"request": reflect.TypeFor[admissionv1.AdmissionRequest](), "userInfo": reflect.TypeFor[authenticationv1.UserInfo](),
		"kind": reflect.TypeFor[metav1.GroupVersionKind](), "resource": reflect.TypeFor[metav1.GroupVersionResource](),
	}
	var schema struct {
		Properties map[string]struct {
			Properties map[string]struct {
				Properties map[string]any `json:"properties"`
			} `json:"properties"`
		} `json:"properties"`
	}
	if err := json.Unmarshal(inputSchema, &schema); err != nil {
		t.Fatal(err)
	}
	request := schema.Properties["request"].Properties
	if diff := cmp.Diff(jsonNames(fields["request"]), slices.Sorted(maps.Keys(request))); diff != "" {
		t.Errorf("request (-API +schema):\n%s", diff)
	}
	for _, name := range []string{"userInfo", "kind", "resource"} {
		if diff := cmp.Diff(jsonNames(fields[name]), slices.Sorted(maps.Keys(request[name].Properties))); diff != "" {
			t.Errorf("request.%s (-API +schema):\n%s", name, diff)
		}
	}
	misspelled := policy("p", "apps/v1/deployments UPDATE")
	misspelled.Spec.Modules[0].Source += "\nx if input.request.namespac == \"a\"\n"
	if _, err := Compile([]v1alpha1.RegoPolicy{misspelled}); err == nil || !strings.Contains(err.Error(), "undefined ref: input.request.namespac") {
		t.Errorf("got %v", err)
	}
}

// jsonNames are the names of a struct's fields in JSON, sorted.
func jsonNames(of reflect.Type) []string {
	var names []string
	for i := range of.NumField() {
		name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func TestDefaultsAreThoseOfTheAPI(t *testing.T) {
	p := mustCompile(t, policy("p", "apps/v1/deployments UPDATE")).Policy("p")
	if p.Mode != v1alpha1.ModeEnforce || p.OnError != v1alpha1.OnErrorDeny {
		t.Errorf("got mode %q, onError %q", p.Mode, p.OnError)
	}
	if got := Sources([]v1alpha1.RegoPolicy{policy("p", "apps/v1/deployments UPDATE")})[0].Timeout; got != v1alpha1.DefaultTimeoutMilliseconds*time.Millisecond {
		t.Errorf("got a timeout of %s", got)
	}
	broken := policy("p", "apps/v1/deployments UPDATE")
	broken.Spec.Parameters = &runtime.RawExtension{Raw: []byte("[]")}
	if _, err := Compile([]v1alpha1.RegoPolicy{broken}); err == nil || !strings.Contains(err.Error(), "spec.parameters") {
		t.Errorf("got %v", err)
	}
}
