package deletion

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/client-go/kubernetes/scheme"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/charts"
	"sallyport.dev/sallyport/cmd/sallyport/bundled"
	"sallyport.dev/sallyport/reconcilers/policy/registration"
	"sallyport.dev/sallyport/test/support/shipped"
	"sallyport.dev/sallyport/webhooks/catalog"
	"sallyport.dev/sallyport/webhooks/engine"
	"sallyport.dev/sallyport/webhooks/server"
)

const protected, cascade, definitions = "deletion-protected", "deletion-cascade", "deletion-definitions"

// matchers are the entries of a policy. The API server asks it if one matches.
type matchers []struct {
	groups []string
	matchconditions.Matcher
}

func (m matchers) Match(ctx context.Context, a *admission.VersionedAttributes, params runtime.Object, by authorizer.UnconditionalAuthorizer) (last matchconditions.MatchResult) {
	for _, e := range m {
		if !slices.Contains(e.groups, "*") && !slices.Contains(e.groups, a.GetResource().Group) {
			continue
		}
		if last = e.Match(ctx, a, params, by); last.Matches || last.Error != nil {
			return last
		}
	}
	return last
}

// conditions are those by which the API server asks a policy, in its own code.
func conditions(t *testing.T, policy string) matchconditions.Matcher {
	t.Helper()
	mutating, validating, err := charts.Webhooks()
	if err != nil {
		t.Fatal(err)
	}
	r := &registration.Reconciler{Namespace: "sallyport-system", ValidatePath: server.ValidatePolicyPath, MutatePath: server.MutatePolicyPath}
	_, all, never := r.Preview(mutating, validating, []registration.Policy{bundled.About(shipped.Set(t).Policy(policy))})
	if len(never[policy]) > 0 || len(all.Webhooks) == 0 {
		t.Fatalf("%d entries are registered, and never registered is %q", len(all.Webhooks), never[policy])
	}
	found := make(matchers, len(all.Webhooks))
	for i := range all.Webhooks {
		w := &all.Webhooks[i]
		found[i].Matcher = matcher(t, policy, w)
		for _, rule := range w.Rules {
			found[i].groups = append(found[i].groups, rule.APIGroups...)
		}
	}
	return found
}

func matcher(t *testing.T, policy string, w *admissionregistrationv1.ValidatingWebhook) matchconditions.Matcher {
	t.Helper()
	if *w.FailurePolicy != admissionregistrationv1.Fail {
		t.Errorf("what it cannot be asked about is not refused but %s", *w.FailurePolicy)
	}
	expressions := make([]cel.ExpressionAccessor, len(w.MatchConditions))
	for i, c := range w.MatchConditions {
		expressions[i] = &matchconditions.MatchCondition{Name: c.Name, Expression: c.Expression}
	}
	program := cel.NewConditionCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())).
		CompileCondition(expressions, cel.OptionalVariableDeclarations{HasAuthorizer: true}, environment.NewExpressions)
	if errs := program.CompilationErrors(); len(errs) > 0 {
		t.Fatalf("%v", errs)
	}
	return matchconditions.NewMatcher(program, w.FailurePolicy, "webhook", "test", policy)
}

// request is one of a resource that nobody knows, unless it says else.
type request struct {
	operation   admission.Operation
	resource    schema.GroupResource
	subresource string
	object, old runtime.Object
	by          string
}

func (r *request) attributes() *admission.VersionedAttributes {
	resource := r.resource
	if resource.Resource == "" {
		resource = schema.GroupResource{Group: "example.com", Resource: "things"}
	}
	kind := schema.GroupVersionKind{Group: resource.Group, Version: "v1", Kind: "Thing"}
	a := &admission.VersionedAttributes{VersionedKind: kind, Attributes: admission.NewAttributesRecord(
		r.object, r.old, kind, "ns", "x", resource.WithVersion("v1"), r.subresource, r.operation, nil, false, &user.DefaultInfo{Name: r.by})}
	a.VersionedObject.Set(r.object)
	a.VersionedOldObject.Set(r.old)
	return a
}

// thing is an object of a kind that nobody knows, with these metadata beside its name.
func thing(metadata map[string]any) *unstructured.Unstructured {
	all := map[string]any{"name": "x"}
	for key, value := range metadata {
		all[key] = value
	}
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Thing", "metadata": all}}
}

func labelled(value string) *unstructured.Unstructured {
	return thing(map[string]any{"labels": map[string]any{v1alpha1.LabelDeletionProtection: value}})
}

func owned(value string, owners ...string) *unstructured.Unstructured {
	o := labelled(value)
	var references []metav1.OwnerReference
	for _, uid := range owners {
		references = append(references, metav1.OwnerReference{APIVersion: "v1", Kind: "Owner", Name: "o", UID: types.UID(uid)})
	}
	o.SetOwnerReferences(references)
	return o
}

func terminating(o *unstructured.Unstructured) *unstructured.Unstructured {
	ended := metav1.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	o = o.DeepCopy()
	o.SetDeletionTimestamp(&ended)
	return o
}

// What the objectSelector lets through, as the API server sees it.
func TestWhatProtectionIsAskedAbout(t *testing.T) {
	const off = "off"
	const on = v1alpha1.DeletionProtectionEnabled
	matcher := conditions(t, protected)
	plain, scale := thing(nil), &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Name: "x"}}
	for name, test := range map[string]struct {
		request
		want bool
	}{
		"a deletion":                        {request{operation: admission.Delete, old: labelled(on)}, true},
		"a deletion of what says off":       {request{operation: admission.Delete, old: labelled(off)}, true},
		"a deletion of nothing known":       {request{operation: admission.Delete}, true},
		"a deletion of what is terminating": {request{operation: admission.Delete, old: terminating(labelled(on))}, false},
		"a deletion by the API server":      {request{operation: admission.Delete, old: labelled(on), by: "system:apiserver"}, false},
		"a creation":                        {request{operation: admission.Create, object: labelled(on)}, false},
		"a creation with off":               {request{operation: admission.Create, object: labelled(off)}, true},
		"a creation without a value":        {request{operation: admission.Create, object: labelled("")}, true},
		"a creation without labels":         {request{operation: admission.Create, object: plain}, false},
		"an eviction":                       {request{operation: admission.Create, subresource: "eviction", object: plain}, false},
		"the label added":                   {request{operation: admission.Update, object: labelled(on), old: plain}, true},
		"the label taken off":               {request{operation: admission.Update, object: plain, old: labelled(on)}, true},
		"the label taken off by status":     {request{operation: admission.Update, subresource: "status", object: plain, old: labelled(on)}, true},
		"the label changed":                 {request{operation: admission.Update, object: labelled(off), old: labelled(on)}, true},
		"the label left":                    {request{operation: admission.Update, object: thing(map[string]any{"labels": map[string]any{v1alpha1.LabelDeletionProtection: on, "a": "b"}}), old: labelled(on)}, false},
		"nothing":                           {request{operation: admission.Update, object: labelled(on), old: labelled(on)}, false},
		"an owner":                          {request{operation: admission.Update, object: owned(on, "1"), old: labelled(on)}, true},
		"another owner":                     {request{operation: admission.Update, object: owned(on, "1", "2"), old: owned(on, "1")}, true},
		"an owner instead of another":       {request{operation: admission.Update, object: owned(on, "2"), old: owned(on, "1")}, true},
		"an owner less":                     {request{operation: admission.Update, object: owned(on, "1"), old: owned(on, "1", "2")}, false},
		"no owner left":                     {request{operation: admission.Update, object: labelled(on), old: owned(on, "1")}, false},
		"owners in another order":           {request{operation: admission.Update, object: owned(on, "2", "1"), old: owned(on, "1", "2")}, false},
		"the label of what is terminating":  {request{operation: admission.Update, object: plain, old: terminating(labelled(on))}, false},
		"a scale":                           {request{operation: admission.Update, subresource: "scale", object: scale, old: scale}, false},
		"what has no metadata":              {request{operation: admission.Update, object: &unstructured.Unstructured{Object: map[string]any{}}, old: plain}, false},
		"an update without an old object":   {request{operation: admission.Update, object: labelled(off)}, true},
		"a Lease":                           {request{operation: admission.Delete, resource: schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}, old: labelled(on)}, false},
		"a Node":                            {request{operation: admission.Delete, resource: schema.GroupResource{Resource: "nodes"}, old: labelled(on)}, true},
		"a VirtualMachine":                  {request{operation: admission.Delete, resource: schema.GroupResource{Group: "sallyport.dev", Resource: "virtualmachines"}, old: labelled(on)}, true},
		"a RegoPolicy":                      {request{operation: admission.Delete, resource: schema.GroupResource{Group: "sallyport.dev", Resource: "regopolicies"}, old: labelled(on)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			got := matcher.Match(t.Context(), test.attributes(), nil, nil)
			if got.Error != nil || got.Matches != test.want {
				t.Errorf("asked is %t (%s, %v), want %t", got.Matches, got.FailedConditionName, got.Error, test.want)
			}
		})
	}
}

func TestWhatDefinitionsIsAskedAbout(t *testing.T) {
	resource := schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}
	definition := func(spec any) *unstructured.Unstructured {
		o := thing(nil)
		o.Object["spec"] = spec
		return o
	}
	matcher := conditions(t, definitions)
	ours := definition(map[string]any{"group": "sallyport.dev"})
	for name, test := range map[string]struct {
		request
		want bool
	}{
		"a definition of ours":            {request{resource: resource, old: ours}, true},
		"one that is terminating":         {request{resource: resource, old: terminating(ours)}, false},
		"the definition of somebody else": {request{resource: resource, old: definition(map[string]any{"group": "example.com"})}, false},
		"a definition of nobody":          {request{resource: resource, old: definition(map[string]any{})}, true},
		"a definition of nothing":         {request{resource: resource, old: thing(nil)}, true},
		"a definition that is not there":  {request{resource: resource}, true},
	} {
		t.Run(name, func(t *testing.T) {
			test.operation = admission.Delete
			got := matcher.Match(t.Context(), test.attributes(), nil, nil)
			if got.Error != nil || got.Matches != test.want {
				t.Errorf("asked is %t (%s, %v), want %t", got.Matches, got.FailedConditionName, got.Error, test.want)
			}
		})
	}
}

// An expression that fails would refuse the request, unasked. Every kind that there is in Kubernetes is tried, with and without
// what the expressions read.
func TestConditionsFailForNoKind(t *testing.T) {
	marks := map[string]metav1.ObjectMeta{
		"nothing":   {},
		"labels":    {Labels: map[string]string{"a": "b"}},
		"the label": {Labels: map[string]string{v1alpha1.LabelDeletionProtection: "enabled"}},
		"owners":    {OwnerReferences: []metav1.OwnerReference{{UID: "1"}}, Labels: map[string]string{v1alpha1.LabelDeletionProtection: ""}},
	}
	protection, going := conditions(t, protected), conditions(t, definitions)
	kinds := 0
	for kind := range scheme.Scheme.AllKnownTypes() {
		o, err := scheme.Scheme.New(kind)
		if err != nil {
			t.Fatal(err)
		}
		if _, has := o.(metav1.Object); !has {
			continue
		}
		kinds++
		for before, old := range marks {
			for after, changed := range marks {
				object, oldObject := marked(o, &changed), marked(o, &old)
				for _, r := range []request{
					{operation: admission.Create, object: object}, {operation: admission.Delete, old: oldObject},
					{operation: admission.Update, object: object, old: oldObject},
					{operation: admission.Update, subresource: "status", object: object, old: oldObject},
				} {
					for name, matcher := range map[string]matchconditions.Matcher{protected: protection, definitions: going} {
						if got := matcher.Match(t.Context(), r.attributes(), nil, nil); got.Error != nil {
							t.Errorf("%s: %s of %s, %s to %s: %v", name, r.operation, kind, before, after, got.Error)
						}
					}
				}
			}
		}
	}
	if kinds < 50 {
		t.Errorf("only %d kinds were tried", kinds)
	}
}

func marked(o runtime.Object, metadata *metav1.ObjectMeta) runtime.Object {
	o = o.DeepCopyObject()
	accessor := o.(metav1.Object)
	accessor.SetLabels(metadata.Labels)
	accessor.SetOwnerReferences(metadata.OwnerReferences)
	return o
}

// Whatever the policy refuses it is asked about: every creation, change and deletion between some states of an object.
func TestConditionsLeaveOutNothingThatIsRefused(t *testing.T) {
	const on = v1alpha1.DeletionProtectionEnabled
	states := []*unstructured.Unstructured{nil}
	for _, value := range []string{"no label", on, "off", ""} {
		for _, owners := range [][]string{nil, {"1"}, {"1", "2"}, {"3"}} {
			o := owned(value, owners...)
			if value == "no label" {
				o.SetLabels(nil)
			}
			o.SetUID("u")
			states = append(states, o, terminating(o))
		}
	}
	matcher, policy := conditions(t, protected), shipped.Set(t).Policy(protected)
	refused, left := 0, 0
	for _, old := range states {
		for _, object := range states {
			r := request{operation: admission.Update, by: "alice"}
			if object == nil && old == nil {
				continue
			}
			if object != nil {
				r.object = object
			}
			if old != nil {
				r.old = old
			}
			switch {
			case object == nil:
				r.operation = admission.Delete
			case old == nil:
				r.operation = admission.Create
			}
			denials := decide(t, policy, &r)
			matched := matcher.Match(t.Context(), r.attributes(), nil, nil)
			if matched.Error != nil || len(denials) > 0 && !matched.Matches {
				t.Errorf("%s from %v to %v: asked is %t (%v), and refused because of %s", r.operation, old, object, matched.Matches, matched.Error, denials)
			}
			if len(denials) > 0 {
				refused++
			}
			if !matched.Matches {
				left++
			}
		}
	}
	if refused < 100 || left < 100 {
		t.Errorf("%d requests are refused, and %d are not asked about", refused, left)
	}
	t.Logf("%d requests are refused, and %d are not asked about", refused, left)
}

// decide gives what the policy says to a request in full.
func decide(t *testing.T, policy *catalog.Policy, r *request) string {
	t.Helper()
	encoded := func(o runtime.Object) runtime.RawExtension {
		if o == nil {
			return runtime.RawExtension{}
		}
		text, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		return runtime.RawExtension{Raw: text}
	}
	document, err := engine.ValueOf(&admissionv1.AdmissionRequest{
		Kind:     metav1.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Thing"},
		Resource: metav1.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "things"},
		Name:     "x", Namespace: "ns", Operation: admissionv1.Operation(r.operation),
		UserInfo: authenticationv1.UserInfo{Username: r.by}, Object: encoded(r.object), OldObject: encoded(r.old),
	})
	if err != nil {
		t.Fatal(err)
	}
	d, err := policy.Decide(t.Context(), engine.Input{Request: document, Now: time.Now()}, nowhere{})
	if err != nil {
		t.Fatalf("%s of %v: %v", r.operation, r.old, err)
	}
	var reasons []string
	for _, denial := range d.Denials {
		reasons = append(reasons, denial.Reason)
	}
	return strings.Join(reasons, ", ")
}

// nowhere answers nothing: nobody who asks for anything is in the requests above.
type nowhere struct{}

func (nowhere) Read(_ context.Context, q engine.Query) (engine.Answer, error) {
	return engine.Answer{}, fmt.Errorf("fact %s was asked for", q.Fact)
}

// Every kind of ours is one whose definition deletion-definitions knows: of another the API server would be told that it is not
// understood.
func TestDefinitionsKnowsOurs(t *testing.T) {
	all, err := charts.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	policy := shipped.Set(t).Policy(definitions)
	for _, d := range all {
		r := &admissionv1.AdmissionRequest{
			Kind:      metav1.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"},
			Resource:  metav1.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"},
			Operation: admissionv1.Delete, UserInfo: authenticationv1.UserInfo{Username: "alice"},
		}
		text, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		r.OldObject.Raw = text
		document, err := engine.ValueOf(r)
		if err != nil {
			t.Fatal(err)
		}
		asked := &listing{t: t}
		if _, err := policy.Decide(t.Context(), engine.Input{Request: document, Now: time.Now()}, asked); err != nil {
			t.Errorf("%s: %v", d.Name, err)
		}
		if asked.kind != d.Spec.Names.Kind {
			t.Errorf("%s: it asks for %q, want %s", d.Name, asked.kind, d.Spec.Names.Kind)
		}
	}
}

// A protected object of every kind of ours keeps its namespace.
func TestCascadeReadsOurKinds(t *testing.T) {
	document, err := engine.ValueOf(&admissionv1.AdmissionRequest{
		Kind:      metav1.GroupVersionKind{Version: "v1", Kind: "Namespace"},
		Resource:  metav1.GroupVersionResource{Version: "v1", Resource: "namespaces"},
		Operation: admissionv1.Delete, Name: "shop", UserInfo: authenticationv1.UserInfo{Username: "alice"},
		OldObject: runtime.RawExtension{Raw: []byte(`{"metadata": {"name": "shop"}}`)},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range v1alpha1.Kinds {
		if kind.Cluster {
			continue
		}
		d, err := shipped.Set(t).Policy(cascade).Decide(t.Context(), engine.Input{Request: document, Now: time.Now()}, holding(kind.Name))
		if err != nil || len(d.Denials) != 1 || d.Denials[0].Reason != "NamespaceHoldsProtected" {
			t.Errorf("%s: %v, %v", kind.Name, d.Denials, err)
		}
	}
}

// holding is the kind of which a namespace has a protected object, and nothing else.
type holding string

func (h holding) Read(_ context.Context, q engine.Query) (engine.Answer, error) {
	found := []any{}
	if q.Kind == string(h) && len(q.Labels) > 0 {
		found = append(found, map[string]any{"metadata": map[string]any{"name": "a", "namespace": "shop"}})
	}
	v, err := engine.ValueOf(found)
	return engine.Answer{Value: v, Live: true}, err
}

// listing answers one question, with an empty list.
type listing struct {
	t    *testing.T
	kind string
}

func (l *listing) Read(_ context.Context, q engine.Query) (engine.Answer, error) {
	if l.kind != "" || !q.Live || q.Namespace != "" || len(q.Labels) > 0 {
		l.t.Errorf("it asks for %+v", q)
	}
	l.kind = q.Kind
	v, err := engine.ValueOf([]any{})
	return engine.Answer{Value: v, Live: true}, err
}
