package offline_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/cmd/sallyport/bundled"
	"sallyport.dev/sallyport/test/support/shipped"
	"sallyport.dev/sallyport/webhooks/catalog"
	. "sallyport.dev/sallyport/webhooks/offline"
)

// policy is a RegoPolicy with a body below its heading.
func policy(t *testing.T, match, reads, body string, spec ...func(*v1alpha1.RegoPolicySpec)) v1alpha1.RegoPolicy {
	t.Helper()
	source := "# METADATA\n# title: Test\n# description: Test.\npackage example\n\n" + body
	d := document(t, fmt.Sprintf("apiVersion: sallyport.dev/v1alpha1\nkind: RegoPolicy\nmetadata: {name: example}\n"+
		"spec: {package: example, match: {resources: [%s]}, reads: [%s]}\n", match, reads))
	var p v1alpha1.RegoPolicy
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(d.Object, &p, true); err != nil {
		t.Fatal(err)
	}
	p.Spec.Modules = []v1alpha1.PolicyModule{{Name: "example.rego", Source: source}}
	for _, change := range spec {
		change(&p.Spec)
	}
	return p
}

func documents(t *testing.T, text string) []Document {
	t.Helper()
	found, err := Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func document(t *testing.T, text string) Document { t.Helper(); return documents(t, text)[0] }

func compiled(t *testing.T, objects ...v1alpha1.RegoPolicy) *catalog.Set {
	t.Helper()
	set, err := catalog.Compile(objects)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

var now = time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)

func reviewer(t *testing.T, set *catalog.Set, state string) *Reviewer {
	t.Helper()
	r, err := bundled.Reviewer(Options{Policies: set, State: documents(t, state), Namespace: "default", Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// ask reviews a document.
func ask(t *testing.T, r *Reviewer, text string, change ...func(*Request)) *Result {
	t.Helper()
	request := &Request{Document: document(t, text), User: UserNamed("alice"), Validation: Strict}
	for _, c := range change {
		c(request)
	}
	report, err := r.Review(context.Background(), request)
	if err != nil {
		t.Fatal(err)
	}
	return report.Results[0]
}

func deletion(r *Request) { r.Operation = admissionv1.Delete }

func scaled(r *Request) { r.Subresource = Scale }

// is holds a result against its verdict and a part of what is said with it.
func is(t *testing.T, r *Result, verdict Verdict, text string) {
	t.Helper()
	said := strings.Join(append(r.Warnings, notesOf(r)), "\n")
	if r.Status != nil {
		said += fmt.Sprintf("\n%d %s %s", r.Status.Code, r.Status.Reason, r.Status.Message)
	}
	for _, p := range r.Policies {
		said += "\n" + p.Error
	}
	if r.Verdict != verdict || !strings.Contains(said, text) {
		t.Errorf("%s, want %s with %q in\n%s", r.Verdict, verdict, text, said)
	}
}

const (
	deployments = `{apiGroups: [apps], apiVersions: ["*"], resources: [deployments, deployments/scale], operations: [CREATE, UPDATE, DELETE]}`
	pods        = "{apiVersion: v1, kind: Pod}"
	web         = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, labels: {app: web}}\nspec: {replicas: %d}\n"
)

func deployment(replicas int) string { return fmt.Sprintf(web, replicas) }

func pod(name, metadata, phase string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s%s}\nstatus: {phase: %s}\n---\n", name, metadata, phase)
}

// deny is a policy that says what it sees.
func deny(facts, message, condition string) string {
	return facts + "\nvalid_input := true\n\n# METADATA\n# title: Test\n# custom: {reason: Seen, remedyInMessage: None.}\n" +
		fmt.Sprintf("deny contains {\"reason\": \"Seen\", \"message\": %s} if %s\n", message, condition)
}

// Facts are answered from the world as they are from a cluster: in order of age, without the object under review, by labels,
// fields and what is to be left out.
func TestFactsOfTheWorld(t *testing.T) {
	list := func(selection string) string {
		return deny(`facts.pods := {"apiVersion": "v1", "kind": "Pod", "namespace": input.request.namespace`+selection+`}`,
			`concat(",", [p.metadata.name | some p in input.facts.pods])`, "is_array(input.facts.pods)")
	}
	state := pod("b", ", labels: {app: web}", "Running") + pod("a", ", labels: {app: web}", "Failed") + pod("c", ", labels: {app: db}", "Running") +
		pod("old", ", creationTimestamp: '2001-01-01T00:00:00Z'", "Running") + pod("far", ", namespace: far, labels: {app: web}", "Running") +
		"apiVersion: v1\nkind: List\nitems: []\n"
	for name, tc := range map[string]struct{ selection, want string }{
		"all":        {``, "old,b,a,c"},
		"by labels":  {`, "labels": {"app": input.request.object.metadata.labels.app}`, "b,a"},
		"by a field": {`, "fields": {"status.phase": "Running"}`, "old,b,c"},
		"but some":   {`, "except": {"status.phase": ["Running"]}`, "a"},
	} {
		t.Run(name, func(t *testing.T) {
			set := compiled(t, policy(t, deployments, "{apiVersion: v1, kind: Pod, indexes: [status.phase]}", list(tc.selection)))
			is(t, ask(t, reviewer(t, set, state), deployment(1)), Denied, "403 Seen admission webhook \"example.policies.sallyport.dev\" denied the request: [example/Seen] "+tc.want)
		})
	}
	t.Run("the object under review", func(t *testing.T) {
		body := deny(`facts.all := {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": input.request.namespace}
facts.self := {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": input.request.namespace, "name": "web"}`,
			`$"{count(input.facts.all)} {object.get(input.facts.self, ["spec", "replicas"], "none")}"`, "is_array(input.facts.all)")
		set := compiled(t, policy(t, deployments, "{apiVersion: apps/v1, kind: Deployment}", body))
		is(t, ask(t, reviewer(t, set, deployment(5)), deployment(2)), Denied, "[example/Seen] 0 5")
	})
	t.Run("the parent", func(t *testing.T) {
		body := deny(`facts.parent := {"parent": true}`, `$"{input.facts.parent.metadata.labels.app}: {input.request.oldObject.spec.replicas} to {input.request.object.spec.replicas}"`,
			`input.request.kind.kind == "Scale"`)
		set := compiled(t, policy(t, strings.Replace(deployments, "deployments, ", "", 1), "{apiVersion: apps/v1, kind: Deployment}", body))
		for name, text := range map[string]string{
			"a Scale": "apiVersion: autoscaling/v1\nkind: Scale\nmetadata: {name: web}\nspec: {replicas: 2}\n", "the parent": deployment(2),
		} {
			t.Run(name, func(t *testing.T) {
				is(t, ask(t, reviewer(t, set, deployment(5)), text, scaled), Denied, "[example/Seen] web: 5 to 2")
			})
		}
	})
}

// A version that is not in the state cannot be made up: that is not known, and not nothing.
func TestVersionsAreNotConverted(t *testing.T) {
	set := compiled(t, policy(t, deployments, "{apiVersion: example.com/v2, kind: Fox}",
		deny(`facts.foxes := {"apiVersion": "example.com/v2", "kind": "Fox", "namespace": input.request.namespace}
facts.one := {"apiVersion": "example.com/v2", "kind": "Fox", "namespace": input.request.namespace, "name": "a"}`, `"no"`, "false")))
	r := ask(t, reviewer(t, set, "apiVersion: example.com/v1\nkind: Fox\nmetadata: {name: a, namespace: default}\n"), deployment(1))
	is(t, r, Undecided, "Fox default/a is in the state as example.com/v1, but a policy reads it as example.com/v2")
}

// What is admitted is there for the next request; what is not, or perhaps, is not.
func TestOnlyWhatIsAdmittedJoinsTheWorld(t *testing.T) {
	set := compiled(t, policy(t, deployments, "{apiVersion: apps/v1, kind: Deployment}", deny(
		`facts.others := {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": input.request.namespace}
facts["may"] := {"access": {"verb": "x", "group": "", "resource": "y", "namespace": "", "name": ""}} if input.request.object.spec.replicas == 9
facts["may"] := null if not input.request.object.spec.replicas == 9
facts["none"] := null`, `$"beside {input.facts.others[0].metadata.name}"`, "count(input.facts.others) > 0")))
	r := reviewer(t, set, "")
	named := func(name string, replicas int) string {
		return strings.Replace(deployment(replicas), "name: web", "name: "+name, 1)
	}
	is(t, ask(t, r, named("unknown", 9)), Undecided, "the state has no answer; add this SubjectAccessReview to it")
	is(t, ask(t, r, named("first", 1)), Admitted, "")
	is(t, ask(t, r, named("second", 1)), Denied, "beside first")
	is(t, ask(t, r, named("first", 2)), Admitted, "")
	is(t, ask(t, r, named("first", 2), deletion), Admitted, "")
	is(t, ask(t, r, named("second", 1)), Admitted, "")
}

func machine(name, metadata string) string {
	return fmt.Sprintf("apiVersion: sallyport.dev/v1alpha1\nkind: VirtualMachine\nmetadata: {name: %s%s}\nspec: {runtime: {pod: {}}}\nstatus: {phase: Running}\n---\n",
		name, metadata)
}

func stop(name, vm string) string {
	return fmt.Sprintf("apiVersion: sallyport.dev/v1alpha1\nkind: VirtualMachineOperation\nmetadata: {%s}\nspec: {virtualMachineName: %s, type: Stop}\n", name, vm)
}

// A deletion ends as in a cluster: with finalizers the object stays and is terminating.
func TestDeletion(t *testing.T) {
	r := reviewer(t, shipped.Set(t), machine("kept", ", finalizers: [sallyport.dev/virtual-machine]")+machine("gone", ""))
	for name, want := range map[string]string{"kept": "VirtualMachineTerminating", "gone": "VirtualMachineNotFound"} {
		is(t, ask(t, r, stop("name: before-"+name, name)), Admitted, "")
		is(t, ask(t, r, machine(name, ""), deletion), Admitted, "")
		is(t, ask(t, r, stop("name: after-"+name, name)), Denied, want)
	}
	left := r.Stored(v1alpha1.GroupVersion.WithKind("VirtualMachine").GroupKind(), "default", "kept")
	if left == nil || left.GetDeletionTimestamp() == nil || left.GetGeneration() != 2 {
		t.Errorf("left is %v", left)
	}
	// What is being deleted is left alone, and goes with its last finalizer.
	is(t, ask(t, r, machine("kept", ", finalizers: []")), Admitted, "matchCondition is-not-terminating")
	if r.Stored(left.GroupVersionKind().GroupKind(), "default", "kept") != nil {
		t.Error("it is still there without a finalizer")
	}
}

// A request in a namespace that there is not, or not for long, is refused; without Namespaces the world says nothing of them.
func TestNamespaces(t *testing.T) {
	namespace := func(name, rest string) string {
		return "apiVersion: v1\nkind: Namespace\nmetadata: {name: " + name + rest + "\n---\n"
	}
	set := compiled(t, policy(t, deployments, "", deny("", `"here"`, "true"), func(s *v1alpha1.RegoPolicySpec) {
		s.Match.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "gold"}}
	}))
	in := func(name string) string {
		return strings.Replace(deployment(1), "name: web", "name: web, namespace: "+name, 1)
	}
	for name, tc := range map[string]struct {
		state   string
		verdict Verdict
		text    string
	}{
		"missing":     {namespace("other", "}"), Denied, `404 NotFound namespaces "team" not found`},
		"terminating": {namespace("team", "}\nstatus: {phase: Terminating}"), Denied, "403 Forbidden deployments.apps \"web\" is forbidden: unable to create new content in namespace team because it is being terminated"},
		"selected":    {namespace("team", ", labels: {tier: gold}}"), Denied, "[example/Seen] here"},
		"left out":    {namespace("team", ", labels: {tier: silver}}"), Admitted, "no policy matches"},
		"not told":    {"apiVersion: v1\nkind: List\nitems: []\n", Admitted, "no policy matches"},
	} {
		t.Run(name, func(t *testing.T) { is(t, ask(t, reviewer(t, set, tc.state), in("team")), tc.verdict, tc.text) })
	}
	is(t, ask(t, reviewer(t, set, namespace("other", "}")), deployment(1)), Admitted, "")
	is(t, ask(t, reviewer(t, set, ""), "apiVersion: v1\nkind: Namespace\nmetadata: {name: default}\n", deletion), Denied, "this namespace may not be deleted")
}

// A policy is asked about what the chart's webhooks do not send, as in a cluster, and it is said which is never asked.
func TestPoliciesThatNobodyAsks(t *testing.T) {
	set := compiled(t, policy(t, `{apiGroups: [sallyport.dev], apiVersions: ["*"], resources: [virtualmachines], operations: [DELETE]}`, "", deny("", `"no"`, "true")))
	is(t, ask(t, reviewer(t, set, machine("web-1", "")), machine("web-1", ""), deletion), Denied, "[example/Seen] no")

	set = compiled(t, policy(t, `{apiGroups: [coordination.k8s.io], apiVersions: ["*"], resources: [leases], operations: [CREATE]}`, "", deny("", `"no"`, "true")))
	lease := "apiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata: {name: a, namespace: default}\n"
	is(t, ask(t, reviewer(t, set, ""), lease), Admitted, "policy example matches, but is not evaluated: spec.match.resources[0].resources[0], "+
		"leases.coordination.k8s.io: nodes and leaders renew Leases to show that they are alive")
}

// What a policy's objectSelector and conditions leave out it is not asked about.
func TestPoliciesThatAreAskedAboutLess(t *testing.T) {
	everything := `{apiGroups: ["*"], apiVersions: ["*"], resources: ["*/*"], operations: [CREATE]}`
	set := compiled(t, policy(t, everything, "", deny("", `"no"`, "true"), func(s *v1alpha1.RegoPolicySpec) {
		s.Match.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"sallyport.dev/kept": "yes"}}
		s.Match.Conditions = []v1alpha1.MatchCondition{{Name: "is-a", Expression: "object.metadata.name == 'a'"}}
	}))
	configMap := func(name, labels string) string {
		return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, namespace: default, labels: {%s}}\n", name, labels)
	}
	r := reviewer(t, set, "")
	is(t, ask(t, r, configMap("a", "sallyport.dev/kept: 'yes'")), Denied, "[example/Seen] no")
	is(t, ask(t, r, configMap("b", "sallyport.dev/kept: 'yes'")), Admitted, "its matchCondition match-0.sallyport.dev/is-a excludes this request")
	is(t, ask(t, r, configMap("a", "sallyport.dev/kept: 'no'")), Admitted, "")
}

func TestGeneratedNames(t *testing.T) {
	r := reviewer(t, shipped.Set(t), machine("web-1", "")+machine("web-2", ""))
	for i, vm := range []string{"web-1", "web-2"} {
		result := ask(t, r, stop("generateName: stop-", vm))
		if want := fmt.Sprintf("stop-%05d", i+1); result.Name != want || result.Verdict != Admitted {
			t.Errorf("%s is %s, want %s", result.Name, result.Verdict, want)
		}
	}
	long := ask(t, r, stop("generateName: "+strings.Repeat("a", 80), "web-2"))
	if len(long.Name) != 63 {
		t.Errorf("%s has %d characters", long.Name, len(long.Name))
	}
	is(t, ask(t, r, stop("labels: {}", "web-2")), Denied, "metadata.name: Required value: name or generateName is required")
}

// Of kinds without a schema at least the metadata is looked at: all kinds have it.
func TestForeignMetadata(t *testing.T) {
	r := reviewer(t, shipped.Set(t), "")
	for text, tc := range map[string]struct {
		verdict Verdict
		text    string
	}{
		"metadata: x":                        {Denied, "400 BadRequest Pod in version \"v1\" cannot be handled as a Pod"},
		"metadata: {name: 7}":                {Denied, "400 BadRequest"},
		"metadata: {name: a, finalizers: x}": {Denied, "400 BadRequest"},
		"metadata: {}":                       {Denied, "422 Invalid Pod \"\" is invalid: metadata.name: Required value: name or generateName is required"},
		"spec: {}":                           {Denied, "metadata.name: Required value"},
		"metadata: {generateName: a-}\nspec: {a: 1}": {Admitted, "nothing was checked"},
	} {
		t.Run(text, func(t *testing.T) { is(t, ask(t, r, "apiVersion: v1\nkind: Pod\n"+text+"\n"), tc.verdict, tc.text) })
	}
	is(t, ask(t, r, "apiVersion: authorization.k8s.io/v1\nkind: SubjectAccessReview\nspec: {}\n"), Admitted, "nothing was checked")
}

// What is left out for want of a schema is said by whether policies were asked.
func TestForeignKindsAreSaidToHaveNoSchema(t *testing.T) {
	set := compiled(t, policy(t, `{apiGroups: [apps, example.com, sallyport.dev], apiVersions: ["*"], resources: [deployments, gadgets, virtualmachines], operations: [CREATE]}`,
		"", deny("", `"no"`, "false")))
	for name, tc := range map[string]struct{ text, notes string }{
		"asked":         {deployment(1), "no schema of Deployment is available: only Sallyport's policies were evaluated"},
		"not asked":     {pod("a", "", ""), "no policy matches, and no schema of Pod is available: nothing was checked"},
		"with a schema": {machine("web-1", ""), ""},
		"a template of KubeVirt": {
			"apiVersion: sallyport.dev/v1alpha1\nkind: VirtualMachine\nmetadata: {name: web-2}\n" +
				"spec: {memory: 1Gi, runtime: {kubevirt: {create: {disks: [{name: a, dataVolume: a}], template: {spec: {anything: [1]}}}}}}\n",
			"KubeVirt validates spec.runtime.kubevirt.create.template when the machine is created: what it rejects is in condition Ready",
		},
		"guessed": {"apiVersion: example.com/v1\nkind: Gadget\nmetadata: {name: a}\n", "no schema of Gadget is available: only Sallyport's policies were evaluated, " +
			"for resource gadgets.example.com, which is a guess (add the CustomResourceDefinition to the state)"},
	} {
		t.Run(name, func(t *testing.T) {
			if notes := notesOf(ask(t, reviewer(t, set, ""), tc.text)); notes != tc.notes {
				t.Errorf("got %q, want %q", notes, tc.notes)
			}
		})
	}
}

func TestUsers(t *testing.T) {
	for name, want := range map[string]string{
		"alice": "system:authenticated", "system:anonymous": "system:unauthenticated",
		"system:serviceaccount:a:b": "system:serviceaccounts system:serviceaccounts:a system:authenticated",
	} {
		if got := strings.Join(UserNamed(name).Groups, " "); got != want {
			t.Errorf("%s is in %s, want %s", name, got, want)
		}
	}
	for _, given := range []string{"system:authenticated x", "system:unauthenticated x"} {
		if got := strings.Join(UserNamed("alice", strings.Fields(given)...).Groups, " "); got != given {
			t.Errorf("alice of the groups %q has %q", given, got)
		}
	}
}

// A Namespace is judged by the labels that it has and by those that it would have, as on a cluster, and is in itself: what is said
// of namespaces by name is said of it, too.
func TestNamespacesByTheirOwnLabels(t *testing.T) {
	match := `{apiGroups: [""], apiVersions: [v1], resources: [namespaces, configmaps], operations: [CREATE, UPDATE, DELETE]}`
	body := deny("", `$"{input.request.namespace} is guarded"`, "true")
	set := compiled(t, policy(t, match, "", body, func(s *v1alpha1.RegoPolicySpec) {
		s.Match.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"guard": "on"}}
		s.Match.ExcludeNamespaces = []string{"spare"}
	}))
	namespace := func(name, guard string) string {
		return fmt.Sprintf("apiVersion: v1\nkind: Namespace\nmetadata: {name: %s, labels: {guard: %q}}\n", name, guard)
	}
	const denied = `admission webhook "example.namespaces.sallyport.dev" denied the request: [example/Seen] a is guarded`
	for name, tc := range map[string]struct {
		state, text string
		change      func(*Request)
		verdict     Verdict
		said        string
	}{
		"relabelled away": {namespace("a", "on"), namespace("a", "off"), nil, Denied, denied},
		"relabelled here": {namespace("a", "off"), namespace("a", "on"), nil, Denied, denied},
		"of others":       {namespace("a", "off"), namespace("a", "of"), nil, Admitted, "its namespaceSelector is guard in (on)"},
		"made":            {"", namespace("a", "on"), nil, Denied, denied},
		"made elsewhere":  {"", namespace("a", "off"), nil, Admitted, ""},
		"deleted":         {namespace("a", "on"), namespace("a", "off"), deletion, Denied, denied},
		"excluded":        {namespace("spare", "on"), namespace("spare", "off"), nil, Admitted, "is-not-an-excluded-namespace"},
		"an object in it": {namespace("a", "on"), "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x, namespace: a}\n", nil, Denied,
			`admission webhook "example.policies.sallyport.dev" denied the request: [example/Seen] a is guarded`},
	} {
		t.Run(name, func(t *testing.T) {
			state := tc.state
			if state == "" {
				state = namespace("other", "off")
			}
			if tc.change == nil {
				tc.change = func(*Request) {}
			}
			is(t, ask(t, reviewer(t, set, state), tc.text, tc.change), tc.verdict, tc.said)
		})
	}
}

func notesOf(r *Result) string {
	var all []string
	for _, n := range r.Notes {
		all = append(all, n.Text)
	}
	return strings.Join(all, "\n")
}
