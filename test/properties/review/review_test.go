package review

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/cmd/sallyport/bundled"
	"sallyport.dev/sallyport/test/support/env"
	"sallyport.dev/sallyport/webhooks/offline"
)

// ownPolicies say what the shipped ones do not: warnings, a mode that refuses nothing, a question of access, and what is not
// understood.
func ownPolicies(t *testing.T) []v1alpha1.RegoPolicy {
	t.Helper()
	const head = "# METADATA\n# title: Test\n# description: Test.\npackage sallyport.review.%s\n\n"
	make := func(name, body string, operations []v1alpha1.MatchOperation, change func(*v1alpha1.RegoPolicySpec)) v1alpha1.RegoPolicy {
		p := v1alpha1.RegoPolicy{ObjectMeta: metav1.ObjectMeta{Name: "review-" + name}, Spec: v1alpha1.RegoPolicySpec{
			Package: "sallyport.review." + name, Modules: []v1alpha1.PolicyModule{{Name: name + ".rego", Source: fmt.Sprintf(head, name) + body}},
			Match: &v1alpha1.PolicyMatch{Resources: []v1alpha1.PolicyResources{{
				APIGroups: []string{v1alpha1.GroupName}, APIVersions: []string{"*"}, Resources: []string{"virtualmachines"}, Operations: operations,
			}}},
		}}
		change(&p.Spec)
		return p
	}
	const denial = "\n# METADATA\n# title: Test\n# custom: {reason: %s, remedyInMessage: None.}\ndeny contains {\"reason\": %[1]q, \"message\": \"%s\"} if "
	none := func(*v1alpha1.RegoPolicySpec) {}
	const notes = `object.get(input.request.object.metadata, "annotations", {})`
	return []v1alpha1.RegoPolicy{
		make("warns", "valid_input := true\n\nwarn contains $\"{input.request.object.metadata.name} is noted\" if "+notes+`["example.com/noted"]`+"\n",
			[]v1alpha1.MatchOperation{"CREATE"}, none),
		make("tried", "valid_input := true\n"+fmt.Sprintf(denial, "Noted", "it would be refused")+notes+`["example.com/noted"]`+"\n",
			[]v1alpha1.MatchOperation{"CREATE"}, func(s *v1alpha1.RegoPolicySpec) { s.Mode = v1alpha1.ModeWarn }),
		make("odd", "valid_input if is_null(object.get("+notes+`, "example.com/odd", null))`+"\n"+fmt.Sprintf(denial, "Never", "never")+"false\n",
			[]v1alpha1.MatchOperation{"CREATE"}, func(s *v1alpha1.RegoPolicySpec) { s.OnError = v1alpha1.OnErrorAllow }),
		make("strict", "valid_input if not "+notes+`["example.com/odd"] == "seven"`+"\n"+fmt.Sprintf(denial, "Never", "never")+"false\n",
			[]v1alpha1.MatchOperation{"CREATE"}, none),
		make("locks", `facts["may"] := {"access": {"verb": "override", "group": "sallyport.dev", "resource": "regopolicies", "name": "locks"}} if `+notes+`["sallyport.dev/locked"]

facts["may"] := null if not `+notes+`["sallyport.dev/locked"]

valid_input if is_boolean(input.facts.may)

valid_input if input.facts.may == null
`+fmt.Sprintf(denial, "Locked", "only who may override it can lock a machine")+"input.facts.may == false\n",
			[]v1alpha1.MatchOperation{"UPDATE"}, none),
	}
}

// world makes what the requests are about.
func (c *cluster) world(t *testing.T) {
	t.Helper()
	for name, labels := range map[string]map[string]string{"gold": {"tier": "gold"}, "silver": nil, "ending": nil} {
		c.make(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
	}
	ending := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ending"}}
	if err := c.Delete(t.Context(), ending); err != nil { // nobody finishes it here
		t.Fatal(err)
	}
	l := &list{t: t}
	c.make(t, &unstructured.Unstructured{Object: parsed(t, `{"apiVersion": %q, "kind": "VSphereServer", "metadata": {"name": "vc"}, "spec": {
		"url": "https://vc", "credentialsSecretRef": {"name": "vc"}, "trust": {"caBundle": "-----BEGIN CERTIFICATE-----"}, "tenants": [
			{"name": "gold", "namespaces": {"selector": {"matchLabels": {"tier": "gold"}}}, "folders": ["/DC0/vm/gold"], "adopt": true},
			{"name": "silver", "namespaces": {"names": ["silver"]}}]}}`, v1alpha1.GroupVersion)})
	for _, phase := range phases {
		c.machine(t, l, strings.ToLower(phase), "Manual", fmt.Sprintf(`{"phase": %q}`, phase))
	}
	c.machine(t, l, "always", "AlwaysOn", `{"phase": "Running"}`)
	c.machine(t, l, "off", "AlwaysOff", `{"phase": "Stopped"}`)
	c.machine(t, l, "free", "AlwaysOnUnlessStoppedManually", `{"phase": "Running"}`)
	c.machine(t, l, "deleting", "Manual", `{"phase": "Running", "activeOperation": {"id": "x", "origin": "Deletion", "type": "Delete", "claimedAt": "2026-01-01T00:00:00.000000Z"}}`)
	c.machine(t, l, "held", "Manual", `{"phase": "Starting", "activeOperation": {"id": "y", "origin": "RunPolicy", "type": "Start", "claimedAt": "2026-01-01T00:00:00.000000Z"}}`)
	c.machine(t, l, "undoing", "Manual", `{"phase": "Starting", "undoing": [{"id": "z", "origin": "Operation", "name": "gone", "type": "Stop", "claimedAt": "2026-01-01T00:00:00.000000Z", "end": "Superseded"}]}`)
	c.machine(t, l, "leaving", "Manual", `{"phase": "Running"}`)
	for i := range 6 {
		c.machine(t, l, fmt.Sprintf("user-%d", i), "Manual", `{"phase": "Running"}`)
	}
	adopted := &unstructured.Unstructured{Object: l.machine("adopted", `{"runtime": {"vsphere": {"serverRef": {"name": "vc"}, "inventoryPath": "/DC0/vm/gold/a"}}}`)}
	c.make(t, adopted)
	c.pool(t, l)
	for _, name := range []string{"leaving", "deleting"} {
		if err := c.Delete(t.Context(), &unstructured.Unstructured{Object: l.machine(name, `{}`)}); err != nil {
			t.Fatal(err)
		}
	}
	c.make(t, &unstructured.Unstructured{Object: l.operation("done", `{"virtualMachineName": "free", "type": "Restart"}`)})
	c.status(t, l.operation("done", `{}`), `{"phase": "Completed"}`)
}

// pool makes one with a member, whose UID is in a label of it.
func (c *cluster) pool(t *testing.T, l *list) {
	t.Helper()
	pool := &unstructured.Unstructured{Object: l.pool("ci", `{"pod": {}}`, `, "scaleDownPolicy": "Explicit", "replicas": 3`)}
	c.make(t, pool)
	member := &unstructured.Unstructured{Object: l.machine("ci-0", `{"runtime": {"pod": {}}}`)}
	member.SetLabels(map[string]string{v1alpha1.LabelPoolUID: string(pool.GetUID())})
	member.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(pool, pool.GroupVersionKind())})
	c.make(t, member)
	pool.SetLabels(map[string]string{"member": string(member.GetUID())})
	if err := c.Update(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
}

func (c *cluster) machine(t *testing.T, l *list, name, runPolicy, status string) {
	t.Helper()
	machine := l.machine(name, fmt.Sprintf(`{"runPolicy": %q, "runtime": {"pod": {}}}`, runPolicy))
	c.make(t, &unstructured.Unstructured{Object: runtime.DeepCopyJSON(machine)})
	c.status(t, machine, status)
}

func (c *cluster) status(t *testing.T, object map[string]any, status string) {
	t.Helper()
	u := &unstructured.Unstructured{Object: object}
	if err := c.Status().Patch(t.Context(), u, client.RawPatch("application/merge-patch+json", []byte(`{"status": `+status+`}`))); err != nil {
		t.Fatalf("status of %s: %v", u.GetName(), err)
	}
}

func requests(t *testing.T, world []map[string]any) []request {
	l := &list{t: t}
	l.badOperations()
	l.users()
	l.machines()
	l.pools()
	for _, c := range updates() {
		l.all = append(l.all, c.of(world))
	}
	l.matrix()
	l.others()
	l.regoPolicies()
	return l.all
}

// review says what the cluster would.
func (c *cluster) review(t *testing.T, r request, world []map[string]any) answer {
	t.Helper()
	state := make([]offline.Document, len(world))
	for i, o := range world {
		state[i] = offline.Document{Object: o, File: "state", Line: i}
	}
	reviewer, err := bundled.Reviewer(offline.Options{Policies: c.set, Stored: c.objects, TestRunner: testRunner(t), State: state, Namespace: "default", Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	report, err := reviewer.Review(t.Context(), &offline.Request{
		Document: offline.Document{Object: runtime.DeepCopyJSON(r.object), File: "request"}, Operation: r.operation,
		User: r.user.info(), Validation: r.validation,
	})
	if err != nil {
		t.Fatal(err)
	}
	result := report.Results[0]
	got := answer{Status: result.Status, Warnings: result.Warnings}
	if result.Status == nil {
		got.Object = result.Object
	}
	if undecided := result.Verdict == offline.Undecided; undecided != (got.Status != nil && got.Status.Code == 500) {
		t.Errorf("the verdict is %s with status %v", result.Verdict, got.Status)
	}
	return got
}

// What review says is what the cluster answers: code, reason, message, causes, warnings, and the object that is stored.
func TestReviewSaysWhatTheClusterAnswers(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-all")
	}
	c := newCluster(t)
	c.world(t)
	t.Run("as kubectl", c.speaksAsKubectl)
	counted, reasons := map[string]int{}, map[string]bool{}
	for i, r := range requests(t, c.dump(t)) {
		if r.operation == admissionv1.Update && text(r.object, "metadata", "resourceVersion") != "1" { // what kubectl replace does
			r.object = c.withVersion(t, r)
		}
		t.Run(fmt.Sprintf("%03d %.80s", i, r.what), func(t *testing.T) {
			world := append(c.dump(t), c.answers(t, r.user)...)
			said := c.review(t, r, world)
			answered := c.send(t, r)
			counted[outcome(answered)]++
			for _, cause := range causes(answered) {
				_, reason, _ := strings.Cut(string(cause.Type), "/")
				reasons[reason] = true
			}
			if diff := gocmp.Diff(comparable(t, r, answered), comparable(t, r, said)); diff != "" {
				t.Errorf("%s %s: the cluster answers (-), review says (+):\n%s", r.operation, r.body(t), diff)
			}
		})
	}
	t.Logf("the cluster answered: %v", counted)
	t.Run("replay", c.replays)
	for _, wanted := range []string{"admitted", "schema", "policy", "server"} {
		if counted[wanted] < 5 {
			t.Errorf("of what comes of a request, %s is hardly among the answers: %v", wanted, counted)
		}
	}
	for _, reason := range []string{
		"OperationInProgress", "VirtualMachineNotFound", "VirtualMachineTerminating", "RunPolicyForbids", "PhaseForbids",
		"VSphereServerNotFound", "NamespaceNotAllowed", "AdoptionNotAllowed", "InventoryPathMalformed", "FolderNotAllowed",
		"Locked", "InputNotUnderstood", "ScaleDownNotNamed", "TargetNotMember",
		"CompileFailed", "ContractBroken", "ParametersInvalid", "TestsFailed", "TestsMissing", "Weakened", "Deleted",
	} {
		if !reasons[reason] {
			t.Errorf("nothing was refused with %s", reason)
		}
	}
}

// What a person reads is what kubectl prints, but for the file that it names.
func (c *cluster) speaksAsKubectl(t *testing.T) {
	l := &list{t: t}
	plane := env.Shared(t)
	for _, r := range []map[string]any{
		with(l.stop("said"), "Explode", "spec", "type"), with(l.stop("said"), "x", "spec", "colour"), l.operation("said", `{"virtualMachineName": "nobody", "type": "Stop"}`),
		l.operation("said", `{"virtualMachineName": "stopping", "type": "Stop"}`), l.operation("said", `{"virtualMachineName": "always", "type": "Stop"}`),
		with(l.stop("said"), "nowhere", "metadata", "namespace"), l.machine("free", `{"runtime": {"pod": {}}}`), l.machine("said", `{"runtime": {}}`),
	} {
		said := c.review(t, request{operation: admissionv1.Create, object: r, user: user{name: "admin"}, validation: offline.Strict}, c.dump(t))
		encoded, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		_, printed, _ := plane.KubectlAs(t.Context(), plane.Kubeconfig(), bytes.NewReader(encoded), "create", "-f", "-")
		printed = strings.ReplaceAll(strings.TrimSpace(printed), `error when creating "STDIN": `, "")
		if said.Status == nil {
			t.Errorf("%s is admitted; kubectl prints %s", encoded, printed)
		} else if text := offline.KubectlSays(said.Status); strings.ReplaceAll(text, ": \n", ":\n") != strings.ReplaceAll(printed, ": \n", ":\n") {
			t.Errorf("%s: review prints\n%s\nkubectl\n%s", encoded, text, printed)
		}
	}
}

// withVersion is the object with the version of the stored one.
func (c *cluster) withVersion(t *testing.T, r request) map[string]any {
	t.Helper()
	u := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(r.object)}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(u), u); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	} else if err != nil {
		return r.object
	}
	return with(r.object, u.GetResourceVersion(), "metadata", "resourceVersion")
}

func causes(a answer) []metav1.StatusCause {
	if a.Status == nil || a.Status.Details == nil {
		return nil
	}
	return a.Status.Details.Causes
}

// outcome says who made the answer.
func outcome(a answer) string {
	switch {
	case a.Status == nil:
		return "admitted"
	case strings.HasPrefix(a.Status.Message, "admission webhook"):
		return "policy"
	case a.Status.Reason == metav1.StatusReasonInvalid || a.Status.Reason == metav1.StatusReasonBadRequest:
		return "schema"
	default:
		return "server"
	}
}

// madeName is one that the API server has made from generateName, which review numbers.
var madeName = regexp.MustCompile(`\bmade-[a-z0-9]{5}\b`)

// moment is a time, which is another each time.
var moment = regexp.MustCompile(`\b20[2-9]\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)

// comparable leaves out what can be the same only by chance, and what cannot be had without a cluster:
//   - random names, UIDs of new objects, times, resource versions;
//   - metadata.managedFields;
//   - the order of errors in fields, which the API server has at random;
//   - the words that differ between versions of the API server, for requests that say so;
//   - after a deletion, what is answered: the API server gives a Status in place of what is gone, and the object otherwise.
func comparable(t *testing.T, r request, a answer) map[string]any {
	t.Helper()
	if r.operation == admissionv1.Delete && a.Status == nil {
		a.Object = nil
	}
	for _, field := range []string{"managedFields", "resourceVersion"} {
		unstructured.RemoveNestedField(a.Object, "metadata", field)
	}
	if a.Status != nil && a.Status.Reason == metav1.StatusReasonInvalid && a.Status.Details != nil {
		slices.SortFunc(a.Status.Details.Causes, func(a, b metav1.StatusCause) int {
			return cmp.Or(strings.Compare(a.Field, b.Field), strings.Compare(a.Message, b.Message))
		})
		words := strings.Fields(strings.NewReplacer(",", " ", "[", " ", "]", " ").Replace(a.Status.Message))
		slices.Sort(words)
		a.Status.Message = strings.Join(words, " ")
	}
	if r.wording != "" && a.Status != nil {
		a.Status.Message, a.Status.Details = r.wording, nil
	}
	if r.operation == admissionv1.Create {
		unstructured.RemoveNestedField(a.Object, "metadata", "uid")
		if a.Status != nil && a.Status.Details != nil { // our webhook names the object that it saw
			a.Status.Details.UID = ""
		}
	}
	encoded, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	encoded = madeName.ReplaceAll(encoded, []byte("made-NAME"))
	encoded = moment.ReplaceAll(encoded, []byte("TIME"))
	var decoded map[string]any
	if err := json.Unmarshal(encoded, &decoded); err != nil {
		t.Fatal(err)
	}
	return decoded
}
