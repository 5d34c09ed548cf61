package registration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/yaml"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// compiler is the API server's own, for expressions that are written now.
var compiler = cel.NewConditionCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))

// matcher compiles conditions, which must be free of errors.
func matcher(t *testing.T, conditions []admissionregistrationv1.MatchCondition) matchconditions.Matcher {
	t.Helper()
	accessors := make([]cel.ExpressionAccessor, len(conditions))
	for i, c := range conditions {
		accessors[i] = &matchconditions.MatchCondition{Name: c.Name, Expression: c.Expression}
	}
	compiled := compiler.CompileCondition(accessors, cel.OptionalVariableDeclarations{HasAuthorizer: true}, environment.NewExpressions)
	if errs := compiled.CompilationErrors(); len(errs) > 0 {
		t.Fatalf("%v", errs)
	}
	fail := admissionregistrationv1.Fail
	return matchconditions.NewMatcher(compiled, &fail, "webhook", "test", "test")
}

// An entry as it is written, of a policy with everything.
func TestEntry(t *testing.T) {
	first := on("CUD", "deployments.apps", "pods/eviction")
	first.Resources = append(first.Resources, v1alpha1.PolicyResources{
		APIGroups: []string{"extensions", "networking.k8s.io"}, APIVersions: []string{"v1", "*"}, Resources: []string{"ingresses", "ingresses/status"},
		Operations: []v1alpha1.MatchOperation{v1alpha1.MatchDelete},
	})
	first.NamespaceSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "team", Operator: "Exists"}}}
	first.ExcludeNamespaces, first.ExcludeUsers, first.ExcludeGroups = []string{"ci", "a"}, []string{"bob", "al\"ice"}, []string{"ops"}
	second := on("CUD", "deployments.apps")
	second.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"stage": "test"}}
	second.ExcludeNamespaces, second.ExcludeUsers = []string{"ci", "b"}, []string{"carol"}
	p := policy("owners", first, func(p *Policy) { p.Matches, p.Timeout = append(p.Matches, second), 1001*time.Millisecond })
	targets, refused := p.targets(chartRules, possible)
	service := admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Namespace: home, Name: "w"}}
	e := newEntry(&p, targets, service, home)
	matcher(t, e.MatchConditions)
	w := e.ValidatingWebhook
	w.MatchConditions = w.MatchConditions[3:] // the others have tests of their own
	text, err := yaml.Marshal(w)
	if err != nil {
		t.Fatal(err)
	}
	const want = `admissionReviewVersions:
- v1
clientConfig:
  service:
    name: w
    namespace: sallyport-system
failurePolicy: Fail
matchConditions:
- expression: '!(request.userInfo.?username.orValue("") in ["al\"ice", "bob", "carol"])'
  name: is-not-by-an-excluded-user
- expression: '!request.userInfo.?groups.orValue([]).exists(g, g in ["ops"])'
  name: is-not-by-an-excluded-group
matchPolicy: Equivalent
name: owners.policies.sallyport.dev
namespaceSelector:
  matchExpressions:
  - key: kubernetes.io/metadata.name
    operator: NotIn
    values:
    - a
    - b
    - ci
    - kube-system
    - sallyport-system
  - key: stage
    operator: In
    values:
    - test
  - key: team
    operator: Exists
objectSelector: {}
rules:
- apiGroups:
  - apps
  apiVersions:
  - v1
  operations:
  - CREATE
  - UPDATE
  - DELETE
  resources:
  - deployments
  scope: '*'
- apiGroups:
  - ""
  apiVersions:
  - v1
  operations:
  - CREATE
  - UPDATE
  - DELETE
  resources:
  - pods/eviction
  scope: '*'
- apiGroups:
  - extensions
  - networking.k8s.io
  apiVersions:
  - '*'
  operations:
  - DELETE
  resources:
  - ingresses
  scope: '*'
sideEffects: NoneOnDryRun
timeoutSeconds: 3
`
	if diff := cmp.Diff(want, string(text)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := strings.Join(refused, "\n"); strings.Count(got, "spec.match.resources[2].resources[1], ingresses.") != 2 || strings.Count(got, "\n") != 1 {
		t.Errorf("refused is\n%s", got)
	}
}

// selecting has a match select objects that have a label.
func selecting(m v1alpha1.PolicyMatch, label string) v1alpha1.PolicyMatch {
	m.ObjectSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: label, Operator: "Exists"}}}
	return m
}

// An entry for everything is for what somebody has marked, never for what a cluster does not run without, and for no more than the
// policy's own conditions leave.
func TestEntryForEverything(t *testing.T) {
	everything := selecting(on("CUD", "x"), "sallyport.dev/kept")
	everything.Resources[0].APIGroups, everything.Resources[0].Resources = []string{"*"}, []string{"*/*"}
	everything.Conditions = []v1alpha1.MatchCondition{{Name: "is-not-called-b", Expression: `request.name != "b"`}}
	again := *everything.DeepCopy()
	again.Conditions = append(again.Conditions, v1alpha1.MatchCondition{Name: "is-not-called-b", Expression: `request.name != "c"`})
	p := policy("kept", everything, func(p *Policy) { p.Matches = append(p.Matches, again) })
	targets, _ := p.targets(chartRules, possible)
	e := newEntry(&p, targets, admissionregistrationv1.WebhookClientConfig{}, home)
	if got := metav1.FormatLabelSelector(e.ObjectSelector); got != "sallyport.dev/kept" {
		t.Errorf("objectSelector is %s", got)
	}
	m := matcher(t, e.MatchConditions)
	for _, tc := range []struct {
		resource schema.GroupVersionResource
		name     string
		op       admission.Operation
		left     string // the condition that leaves it out
	}{
		{schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, "a", admission.Create, ""},
		{schema.GroupVersionResource{Version: "v1", Resource: "nodes"}, "a", admission.Delete, ""},
		{schema.GroupVersionResource{Version: "v1", Resource: "nodes"}, "a", admission.Create, "is-not-about-what-a-cluster-does-not-run-without"},
		{schema.GroupVersionResource{Group: "storage.k8s.io", Version: "v1", Resource: "csinodes"}, "a", admission.Create, "is-not-about-what-a-cluster-does-not-run-without"},
		{schema.GroupVersionResource{Group: "storage.k8s.io", Version: "v1", Resource: "csinodes"}, "a", admission.Delete, ""},
		{schema.GroupVersionResource{Version: "v1", Resource: "events"}, "a", admission.Create, "is-not-about-what-a-cluster-does-not-run-without"},
		{schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}, "a", admission.Delete, "is-not-about-what-a-cluster-does-not-run-without"},
		{schema.GroupVersionResource{Group: "sallyport.dev", Version: "v1alpha1", Resource: "regopolicies"}, "a", admission.Delete, "is-not-about-what-a-cluster-does-not-run-without"},
		{schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, "b", admission.Create, "match-0.sallyport.dev/is-not-called-b"},
		{schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, "c", admission.Create, "match-1.sallyport.dev/is-not-called-b"},
	} {
		object := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": tc.name}}}
		attributes := &admission.VersionedAttributes{
			Attributes: admission.NewAttributesRecord(object, object, schema.GroupVersionKind{}, "ns", tc.name, tc.resource, "", tc.op, nil, false, &user.DefaultInfo{}),
		}
		attributes.VersionedObject.Set(object)
		attributes.VersionedOldObject.Set(object)
		if r := m.Match(t.Context(), attributes, nil, nil); r.Error != nil || r.FailedConditionName != tc.left {
			t.Errorf("%s of %s %s: left out by %q, %v", tc.op, tc.resource.Resource, tc.name, r.FailedConditionName, r.Error)
		}
	}
}

func TestTimeouts(t *testing.T) {
	for policy, want := range map[time.Duration]int32{
		10 * time.Millisecond: 2, 500 * time.Millisecond: 2, time.Second: 2, 1001 * time.Millisecond: 3, 3 * time.Second: 4, 4 * time.Second: 5,
	} {
		if got := timeoutOf(policy); got != want {
			t.Errorf("a policy that may take %v is waited for %d s, want %d", policy, got, want)
		}
	}
}

// What is registered, what is the chart's, and what is never asked about, with the reason.
func TestTargets(t *testing.T) {
	both := func(group string, resources ...string) v1alpha1.PolicyMatch {
		m := on("CUD", "x")
		m.Resources[0].APIGroups, m.Resources[0].Resources = []string{group}, resources
		return m
	}
	for name, test := range map[string]struct {
		match   v1alpha1.PolicyMatch
		asked   string
		refused []string // a part of each
	}{
		"another's kind":                {on("CU", "deployments.apps"), "CREATE, UPDATE of deployments.apps", nil},
		"ours":                          {on("CU", "virtualmachines.sallyport.dev"), "", nil},
		"ours, also when it is deleted": {on("CUD", "virtualmachines.sallyport.dev"), "DELETE of virtualmachines.sallyport.dev", nil},
		"a later one of ours":           {on("C", "virtualmachinepools.sallyport.dev"), "CREATE of virtualmachinepools.sallyport.dev", nil},
		"policies":                      {on("CUD", "regopolicies.sallyport.dev"), "", nil},
		"a subresource":                 {on("U", "deployments.apps/scale"), "UPDATE of deployments.apps/scale", nil},
		"evictions":                     {on("C", "pods/eviction"), "CREATE of pods/eviction", nil},
		"every resource":                {both("apps", "*"), "", []string{"resources[0], *.apps: a wildcard"}},
		"everything":                    {both("*", "*/*"), "", []string{"name the resources"}},
		"every scale":                   {both("apps", "*/scale", "deployments"), "CREATE, UPDATE, DELETE of deployments.apps", []string{"*.apps/scale: a wildcard"}},
		"every subresource":             {both("", "pods/*"), "", []string{"pods/*: a wildcard"}},
		"every group":                   {both("*", "deployments"), "", []string{"name the groups"}},
		"a status":                      {on("U", "deployments.apps/status"), "", []string{"match the resource itself"}},
		"requests in a status":          {on("U", "virtualmachines.kubevirt.io/status"), "UPDATE of virtualmachines.kubevirt.io/status", nil},
		"the end of a namespace":        {on("U", "namespaces/finalize", "namespaces"), "UPDATE of namespaces", []string{"must be able to finish"}},
		"Leases":                        {on("U", "leases.coordination.k8s.io"), "", []string{"leaders renew Leases to show that they are alive"}},
		"events, of either kind":        {on("C", "events", "events.events.k8s.io"), "", []string{"reports what has happened", "reports what has happened"}},
		"reviews": {on("C", "tokenreviews.authentication.k8s.io", "subjectaccessreviews.authorization.k8s.io"), "",
			[]string{"authenticates requests with it", "authorize requests with it"}},
		"webhook configurations":                     {on("U", "validatingwebhookconfigurations.admissionregistration.k8s.io"), "", []string{"calls no webhook"}},
		"nodes":                                      {on("CUD", "nodes"), "DELETE of nodes", []string{"nodes: a cluster that restarts"}},
		"what a node says of itself":                 {on("CUD", "csinodes.storage.k8s.io", "resourceslices.resource.k8s.io"), "DELETE of csinodes.storage.k8s.io", []string{"before it is ready", "report their devices"}},
		"volumes on their way":                       {on("CUD", "volumeattachments.storage.k8s.io", "csidrivers.storage.k8s.io"), "CREATE, UPDATE, DELETE of csidrivers.storage.k8s.io", []string{"attached and detached"}},
		"a node's parts":                             {on("U", "nodes/other", "nodes/status"), "", []string{"nodes/other: a cluster", "nodes/status: a status"}},
		"everything that is marked":                  {selecting(both("*", "*/*"), "sallyport.dev/kept"), "CREATE, UPDATE, DELETE of everything", nil},
		"everything with a label of somebody else's": {selecting(both("*", "*/*"), "kept"), "", []string{"label below sallyport.dev/"}},
		"Leases that are marked":                     {selecting(on("U", "leases.coordination.k8s.io"), "sallyport.dev/kept"), "", []string{"leaders renew Leases to show that they are alive"}},
		"certificates":                               {on("U", "certificatesigningrequests.certificates.k8s.io/approval"), "", []string{"nodes get their certificates"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := policy("p", test.match)
			targets, refused := p.targets(chartRules, possible)
			var asked []string
			for i := range targets {
				asked = append(asked, targets[i].String())
			}
			if got := strings.Join(asked, "; "); got != test.asked {
				t.Errorf("asks about %q, want %q", got, test.asked)
			}
			if len(refused) != len(test.refused) {
				t.Fatalf("refused is %q, want %q", refused, test.refused)
			}
			for i, want := range test.refused {
				if !strings.Contains(refused[i], want) || !strings.HasPrefix(refused[i], "spec.match.resources[") {
					t.Errorf("said is %q, without %q", refused[i], want)
				}
			}
		})
	}
	// RegoPolicies have no mutating webhook of the chart's, and get none.
	p := policy("p", on("CU", "regopolicies.sallyport.dev"))
	if targets, refused := p.targets(chartRules[:1], possibleChanges); len(targets) > 0 || !strings.Contains(fmt.Sprint(refused), "repair a policy") {
		t.Errorf("asks about %v, refused is %q", targets, refused)
	}
}

// request is what the API server holds conditions against.
type request struct {
	operation   admission.Operation
	object, old string // in YAML
	user        string
	groups      []string
	// of resource and subresource; things if empty
	group, resource, part string
}

func (r *request) attributes(t *testing.T) *admission.VersionedAttributes {
	t.Helper()
	decoded := func(text string) runtime.Object {
		if text == "" {
			return nil
		}
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
			t.Fatal(err)
		}
		return u
	}
	object, old := decoded(r.object), decoded(r.old)
	kind := schema.GroupVersionKind{Version: "v1", Kind: "Thing"}
	var info user.Info
	if r.user != "nobody at all" {
		info = &user.DefaultInfo{Name: r.user, Groups: r.groups}
	}
	resource := schema.GroupVersionResource{Group: r.group, Version: "v1", Resource: r.resource}
	if r.resource == "" {
		resource.Resource = "things"
	}
	a := &admission.VersionedAttributes{VersionedKind: kind, Attributes: admission.NewAttributesRecord(
		object, old, kind, "ns", "x", resource, r.part, r.operation, nil, false, info)}
	a.VersionedObject.Set(object)
	a.VersionedOldObject.Set(old)
	return a
}

// What is asked about, and what passes. Nothing that may be missing is an error, which would refuse the request.
func TestConditions(t *testing.T) {
	const (
		plain    = `{apiVersion: v1, kind: Thing, metadata: {name: x, resourceVersion: "1", labels: {a: b}}, spec: {n: 1}, status: {s: 1}}`
		changed  = `{apiVersion: v1, kind: Thing, metadata: {name: x, resourceVersion: "2", labels: {a: b}}, spec: {n: 2}, status: {s: 1}}`
		booked   = `{apiVersion: v1, kind: Thing, metadata: {name: x, resourceVersion: "2", generation: 3, finalizers: [a/b], managedFields: [{manager: x}], labels: {a: b}}, spec: {n: 1}, status: {s: 2}}`
		labelled = `{metadata: {name: x, labels: {a: c}}, spec: {n: 1}, status: {s: 1}}`
		bare     = `{metadata: {name: x}, spec: {n: 1}, status: {s: 1}}`
		owned    = `{metadata: {name: x, labels: {a: b}, ownerReferences: [{name: y}]}, spec: {n: 1}, status: {s: 1}}`
		noSpec   = `{apiVersion: v1, kind: Thing, metadata: {name: x, labels: {a: b}}, status: {s: 1}}`
		data     = `{metadata: {name: x}, data: {k: v}}`
		moreData = `{metadata: {name: x}, data: {k: v}, binaryData: {k: v}}`
		ending   = `{metadata: {name: x, deletionTimestamp: "2026-01-01T00:00:00Z", finalizers: [a/b]}, spec: {n: 1}}`
		ended    = `{metadata: {name: x, deletionTimestamp: "2026-01-01T00:00:00Z"}, spec: {n: 2}}`
		scale    = `{apiVersion: autoscaling/v1, kind: Scale, metadata: {name: x}, spec: {replicas: 3}, status: {replicas: 3}}`
		scaled   = `{apiVersion: autoscaling/v1, kind: Scale, metadata: {name: x}, spec: {replicas: 1}, status: {replicas: 3}}`
		headless = `{spec: {replicas: 3}}`
		headed   = `{spec: {replicas: 1}}`
	)
	match := on("CUD", "things")
	match.ExcludeUsers = []string{"bob", `qu"ote\ 'n' ` + "\n\t\x00\x7fü💥\u2028", `"] || true || "" in ["`}
	match.ExcludeGroups = []string{"ops", "`x`", `\x00`}
	conditions := conditionsOf([]v1alpha1.PolicyMatch{match, {ExcludeUsers: []string{"carol"}}}, []target{{operations: possible}})
	m := matcher(t, conditions)
	for name, test := range map[string]struct {
		request
		by string // the condition that leaves it out; empty if it is asked about
	}{
		"a creation":                        {request{operation: admission.Create, object: plain}, ""},
		"a creation without metadata":       {request{operation: admission.Create, object: headless}, ""},
		"an eviction":                       {request{operation: admission.Create, object: `{kind: Eviction, metadata: {name: x}}`}, ""},
		"a change":                          {request{operation: admission.Update, object: changed, old: plain}, ""},
		"no change":                         {request{operation: admission.Update, object: plain, old: plain}, "changes-more-than-status-or-finalizers"},
		"status and bookkeeping":            {request{operation: admission.Update, object: booked, old: plain}, "changes-more-than-status-or-finalizers"},
		"and back":                          {request{operation: admission.Update, object: plain, old: booked}, "changes-more-than-status-or-finalizers"},
		"a label":                           {request{operation: admission.Update, object: labelled, old: plain}, ""},
		"the last label less":               {request{operation: admission.Update, object: bare, old: plain}, ""},
		"the first label":                   {request{operation: admission.Update, object: plain, old: bare}, ""},
		"an owner":                          {request{operation: admission.Update, object: owned, old: plain}, ""},
		"a spec less":                       {request{operation: admission.Update, object: noSpec, old: plain}, ""},
		"a spec more":                       {request{operation: admission.Update, object: plain, old: noSpec}, ""},
		"a field beside the spec":           {request{operation: admission.Update, object: moreData, old: data}, ""},
		"a field beside the spec less":      {request{operation: admission.Update, object: data, old: moreData}, ""},
		"another version's kind":            {request{operation: admission.Update, object: plain, old: strings.Replace(plain, "v1", "v2", 1)}, "changes-more-than-status-or-finalizers"},
		"a scale":                           {request{operation: admission.Update, object: scaled, old: scale}, ""},
		"the same scale":                    {request{operation: admission.Update, object: scale, old: scale}, "changes-more-than-status-or-finalizers"},
		"a change without metadata":         {request{operation: admission.Update, object: headed, old: headless}, ""},
		"metadata that were not there":      {request{operation: admission.Update, object: scale, old: headless}, ""},
		"metadata that are not there":       {request{operation: admission.Update, object: headless, old: scale}, ""},
		"an update without an old object":   {request{operation: admission.Update, object: plain}, ""},
		"a terminating object's finalizer":  {request{operation: admission.Update, object: ended, old: ending}, "is-not-terminating"},
		"a terminating object's spec":       {request{operation: admission.Update, object: ended, old: ended}, "is-not-terminating"},
		"the last finalizer of a live one":  {request{operation: admission.Update, object: plain, old: strings.Replace(plain, "labels", "finalizers: [a/b], labels", 1)}, "changes-more-than-status-or-finalizers"},
		"a deletion":                        {request{operation: admission.Delete, old: plain}, ""},
		"a deletion of nothing known":       {request{operation: admission.Delete}, ""},
		"a deletion without metadata":       {request{operation: admission.Delete, old: headless}, ""},
		"a deletion once more":              {request{operation: admission.Delete, old: ending}, "is-not-terminating"},
		"the API server":                    {request{operation: admission.Create, object: plain, user: "system:apiserver", groups: []string{"system:masters"}}, "is-not-the-api-servers-own"},
		"a user of that group":              {request{operation: admission.Create, object: plain, user: "kubernetes-admin", groups: []string{"system:masters"}}, ""},
		"an excluded user":                  {request{operation: admission.Create, object: plain, user: "bob"}, "is-not-by-an-excluded-user"},
		"an excluded user of another match": {request{operation: admission.Delete, old: plain, user: "carol"}, "is-not-by-an-excluded-user"},
		"one of an odd name":                {request{operation: admission.Create, object: plain, user: match.ExcludeUsers[1]}, "is-not-by-an-excluded-user"},
		"one of a name that is CEL":         {request{operation: admission.Create, object: plain, user: match.ExcludeUsers[2]}, "is-not-by-an-excluded-user"},
		"nearly that":                       {request{operation: admission.Create, object: plain, user: match.ExcludeUsers[1] + " "}, ""},
		"an excluded group":                 {request{operation: admission.Create, object: plain, user: "dave", groups: []string{"x", "ops"}}, "is-not-by-an-excluded-group"},
		"one of an odd group":               {request{operation: admission.Create, object: plain, user: "dave", groups: []string{`\x00`}}, "is-not-by-an-excluded-group"},
		"another group":                     {request{operation: admission.Create, object: plain, user: "dave", groups: []string{"x", "\x00"}}, ""},
		"no user":                           {request{operation: admission.Create, object: plain, user: "nobody at all"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := m.Match(t.Context(), test.attributes(t), nil, nil)
			if got.Error != nil || got.Matches != (test.by == "") || got.FailedConditionName != test.by {
				t.Errorf("asked is %t (%s, %v), want it left out by %q", got.Matches, got.FailedConditionName, got.Error, test.by)
			}
		})
	}
}

// Writes of a status that ask for something are evaluated, and no others.
func TestRequestsInAStatus(t *testing.T) {
	p := policy("p", on("U", "virtualmachines.kubevirt.io/status"))
	targets, _ := p.targets(chartRules, possible)
	m := matcher(t, conditionsOf(p.Matches, targets))
	const plain, asked, other = `{metadata: {name: x}, status: {}}`, `{metadata: {name: x}, status: {stateChangeRequests: [{action: Stop}]}}`, `{metadata: {name: x}, status: {ready: true}}`
	for name, test := range map[string]struct {
		object, old, resource, part string
		asked                       bool
	}{
		"a stop":                         {asked, plain, "virtualmachines", "status", true},
		"a stop that is carried out":     {plain, asked, "virtualmachines", "status", true},
		"another field":                  {other, plain, "virtualmachines", "status", false},
		"a request that was there":       {asked, asked, "virtualmachines", "status", false},
		"without a status":               {`{metadata: {name: x}}`, `{metadata: {name: x}}`, "virtualmachines", "status", false},
		"the object, which has a status": {asked, plain, "virtualmachines", "", false},
		"another kind":                   {asked, plain, "virtualmachineinstances", "status", false},
	} {
		r := request{operation: admission.Update, object: test.object, old: test.old, group: "kubevirt.io", resource: test.resource, part: test.part}
		if got := m.Match(t.Context(), r.attributes(t), nil, nil); got.Error != nil || got.Matches != test.asked {
			t.Errorf("%s: evaluated is %t (%v), want %t", name, got.Matches, got.Error, test.asked)
		}
	}
}

// Conditions that nothing could be said by are left out.
func TestConditionsFitTheOperations(t *testing.T) {
	for operations, want := range map[string]int{"C": 1, "CD": 2, "D": 2, "U": 3, "CUD": 3} {
		p := policy("p", on(operations, "pods"))
		targets, _ := p.targets(nil, possible)
		if got := conditionsOf(p.Matches, targets); len(got) != want {
			t.Errorf("%s: %d conditions, want %d", operations, len(got), want)
		}
	}
}

// An object as large as there is any costs so little that the API server evaluates the conditions: else it would refuse the
// request, unasked.
func TestConditionsOfLargeObjects(t *testing.T) {
	big := func(keys, size int) *unstructured.Unstructured {
		data, labels := map[string]any{}, map[string]any{}
		for i := range keys {
			data[fmt.Sprintf("key-%d", i)] = strings.Repeat("x", size)
			labels[fmt.Sprintf("example.com/key-%d", i)] = "x"
		}
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Thing", "metadata": map[string]any{"name": "x", "annotations": labels}, "data": data,
		}}
	}
	match := v1alpha1.PolicyMatch{}
	for i := range 64 { // as many, and as long, as there can be
		match.ExcludeUsers = append(match.ExcludeUsers, fmt.Sprint(i)+strings.Repeat("u", 1020))
		match.ExcludeGroups = append(match.ExcludeGroups, fmt.Sprint(i)+strings.Repeat("g", 1020))
	}
	m := matcher(t, conditionsOf([]v1alpha1.PolicyMatch{match}, []target{{operations: possible}}))
	for _, size := range [][2]int{{1, 1 << 20}, {1 << 10, 1 << 10}, {30_000, 10}} {
		kind := schema.GroupVersionKind{Version: "v1", Kind: "Thing"}
		object, old := big(size[0], size[1]), big(size[0], size[1])
		who := &user.DefaultInfo{Name: "somebody"}
		for i := range 100 {
			who.Groups = append(who.Groups, fmt.Sprint("group-", i))
		}
		a := &admission.VersionedAttributes{VersionedKind: kind, Attributes: admission.NewAttributesRecord(
			object, old, kind, "ns", "x", schema.GroupVersionResource{Version: "v1", Resource: "things"}, "", admission.Operation(admissionv1.Update), nil, false, who)}
		a.VersionedObject.Set(object)
		a.VersionedOldObject.Set(old)
		if got := m.Match(t.Context(), a, nil, nil); got.Error != nil || got.Matches {
			t.Errorf("%d keys of %d bytes: asked is %t, %v", size[0], size[1], got.Matches, got.Error)
		}
	}
}

// Who is refused because a condition cannot be evaluated reads whose it is: the API server quotes the expression.
func TestAConditionThatFailsNamesItsPolicy(t *testing.T) {
	match := on("C", "deployments.apps")
	match.Conditions = []v1alpha1.MatchCondition{{Name: "big", Expression: "object.spec.replicas > 1"}, {Name: "any", Expression: "true // or so"}}
	p := policy("owners", match)
	e := newEntry(&p, nil, admissionregistrationv1.WebhookClientConfig{}, home)
	kind := schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "x"}}}
	a := &admission.VersionedAttributes{VersionedKind: kind, Attributes: admission.NewAttributesRecord(
		object, nil, kind, "ns", "x", schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, "", admission.Create, nil, false, &user.DefaultInfo{Name: "a"})}
	a.VersionedObject.Set(object)
	const want = "expression 'object.spec.replicas > 1 // RegoPolicy owners, spec.match.conditions: big' resulted in error: no such key: spec"
	if got := matcher(t, e.MatchConditions).Match(t.Context(), a, nil, nil); got.Error == nil || got.Error.Error() != want {
		t.Errorf("the user reads %v", got.Error)
	}
}
