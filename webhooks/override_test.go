package webhooks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/decision"
	"sallyport.dev/sallyport/webhooks/engine"
	"sallyport.dev/sallyport/webhooks/facts"
)

// rights answers who holds the verb override on which policy, and what the parent of a subresource is.
type rights struct {
	holders map[string]string // the policy that a user may override
	parent  string
	object  string // as its metadata is read; "" if it may not be
	err     error

	mu     sync.Mutex
	asked  []string
	looked int
}

func (r *rights) For(request *admissionv1.AdmissionRequest, _ facts.Subject) engine.Reader {
	return asking{r, request.UserInfo.Username}
}

type asking struct {
	*rights
	user string
}

// reads returns how many objects were read.
func (r *rights) reads() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.looked
}

func (a asking) Read(_ context.Context, q engine.Query) (engine.Answer, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case q.Parent:
		if !q.Metadata {
			a.asked = append(a.asked, "parent")
		}
		v, err := engine.ParseValue([]byte(a.parent))
		return engine.Answer{Value: v, Live: true}, errors.Join(err, a.err)
	case q.Metadata && a.object == "":
		return engine.Answer{}, facts.ErrUnreadable
	case q.Metadata:
		a.looked++
		v, err := engine.ParseValue([]byte(a.object))
		return engine.Answer{Value: v, Live: true}, errors.Join(err, a.err)
	}
	if q.Access == nil {
		return engine.Answer{}, errors.Join(errors.New("asked for a "+q.Kind), a.err)
	}
	a.asked = append(a.asked, fmt.Sprintf("%s: %s %s.%s %s, live %v", a.user, q.Access.Verb, q.Access.Resource, q.Access.Group, q.Access.Name, q.Live))
	v, err := engine.ValueOf(q.Access.Verb == "override" && q.Access.Name != "" && a.holders[a.user] == q.Access.Name)
	return engine.Answer{Value: v, Live: true}, errors.Join(err, a.err)
}

// told keeps events.
type told struct {
	mu     sync.Mutex
	events []string
}

func (e *told) Eventf(regarding, related runtime.Object, kind, reason, action, note string, args ...any) {
	about, to := regarding.(*corev1.ObjectReference), related.(*corev1.ObjectReference)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.events = append(e.events, fmt.Sprintf("%s %s %s/%s(%s) %s %s: %s",
		kind, reason, about.Kind, about.Name, about.UID, action, to.Kind, fmt.Sprintf(note, args...)))
}

// overridable is a gate by whose policies red and big objects are refused; alice may override policy colour.
func overridable(t *testing.T, change ...func(*v1alpha1.RegoPolicySpec)) (*fixture, *rights, *told) {
	t.Helper()
	// At a deletion there is only the object as it is stored.
	ofDeleted := strings.ReplaceAll(denies("red", "TooRed", 403), "request.object", "request.oldObject")
	f := newFixture(t, world{},
		policyOf("colour", denies("red", "TooRed", 403)+ofDeleted, change...), policyOf("size", denies("big", "TooBig", 403), change...))
	r, e := &rights{holders: map[string]string{"alice": "colour", "system:serviceaccount:ns:robot": "colour"}}, &told{}
	f.facts = r
	f.writeEvents(e, atOnce)
	return f, r, e
}

const (
	red       = `{"name": "x", "red": true}`
	redAndBig = `{"name": "x", "red": true, "big": true}`
	harmless  = `{"name": "x"}`
	// good is an override at a creation, for the fixture's time.
	good = "colour; uid=; by=alice; until=2026-11-20T10:30:00Z; drill 7; see the wiki"
)

// verified says that the review is from a verified API server.
func verified(r *decision.Review) *decision.Review {
	r.Verified = true
	return r
}

func by(user string) func(*admissionv1.AdmissionRequest) {
	return func(r *admissionv1.AdmissionRequest) { r.UserInfo.Username = user }
}

// annotatedWith has the object, or the object as it is stored, carry an annotation.
func annotatedWith(text string, objects ...string) func(*admissionv1.AdmissionRequest) {
	if len(objects) == 0 {
		objects = []string{"new", "old"}
	}
	return func(r *admissionv1.AdmissionRequest) {
		for _, o := range objects {
			raw := map[string]*runtime.RawExtension{"new": &r.Object, "old": &r.OldObject}[o]
			if len(raw.Raw) == 0 {
				continue
			}
			raw.Raw = []byte(strings.Replace(string(raw.Raw), `"uid"`, fmt.Sprintf(`"annotations": {"sallyport.dev/override": %q}, "uid"`, text), 1))
		}
	}
}

func TestOverride(t *testing.T) {
	robots := strings.Replace(good, "alice", "system:serviceaccount:ns:robot", 1)
	until := func(when string) string { return strings.Replace(good, "2026-11-20T10:30:00Z", when, 1) }
	for name, tc := range map[string]struct {
		operation admissionv1.Operation
		spec      string
		change    []func(*admissionv1.AdmissionRequest)
		policy    func(*v1alpha1.RegoPolicySpec)
		passes    bool
		warning   string // "": none
		asked     int
	}{
		"at a creation":                  {operation: "CREATE", change: list(annotatedWith(good)), passes: true, warning: "[colour/TooRed] is overridden until 2026-11-20T10:30:00Z: x has red", asked: 1},
		"of an update":                   {operation: "UPDATE", change: list(annotatedWith(strings.Replace(good, "uid=", "uid=u-1", 1), "new")), passes: true, warning: "] is overridden until ", asked: 1},
		"of an update that takes it off": {operation: "UPDATE", change: list(annotatedWith(strings.Replace(good, "uid=", "uid=u-1", 1), "old"))},
		"of a deletion":                  {operation: "DELETE", change: list(annotatedWith(strings.Replace(good, "uid=", "uid=u-1", 1), "old")), passes: true, warning: "] is overridden until ", asked: 1},
		"in another time zone":           {operation: "CREATE", change: list(annotatedWith(until("2026-11-20T12:00:00+01:30"))), passes: true, warning: "is overridden until 2026-11-20T10:30:00Z", asked: 1},
		"until an hour from now":         {operation: "CREATE", change: list(annotatedWith(until("2026-11-20T11:00:59Z"))), passes: true, warning: "] is overridden until ", asked: 1},
		"with spaces around":             {operation: "CREATE", change: list(annotatedWith(" colour ;uid=; by=alice;  until=2026-11-20T10:30:00Z;drill ")), passes: true, warning: "] is overridden until ", asked: 1},
		"none":                           {operation: "CREATE"},
		"an empty one":                   {operation: "CREATE", change: list(annotatedWith(""))},
		"where nothing is refused":       {operation: "CREATE", spec: harmless, change: list(annotatedWith(good)), passes: true},
		"wrong, where nothing is":        {operation: "CREATE", spec: harmless, change: list(annotatedWith("nonsense")), passes: true},
		"tried out, dry":                 {operation: "CREATE", change: list(annotatedWith(good), dryRun), passes: true, warning: "] is overridden until ", asked: 1},

		"expired":             {operation: "CREATE", change: list(annotatedWith(until("2026-11-20T10:00:00Z"))), warning: "until=2026-11-20T10:00:00Z has passed (now 2026-11-20T10:00:00Z)"},
		"too far ahead":       {operation: "CREATE", change: list(annotatedWith(until("2026-11-20T11:01:01Z"))), warning: "until=2026-11-20T11:01:01Z is more than an hour ahead (now 2026-11-20T10:00:00Z)"},
		"no time":             {operation: "CREATE", change: list(annotatedWith(until("tonight"))), warning: "until= must be a time such as 2026-01-02T15:04:05Z"},
		"a time without zone": {operation: "CREATE", change: list(annotatedWith(until("2026-11-20T10:30:00"))), warning: "until= must be a time such as"},
		"no until":            {operation: "CREATE", change: list(annotatedWith("colour; uid=; by=alice; 2026-11-20T10:30:00Z; drill")), warning: "the fourth field must be until=<time>"},
		"no uid":              {operation: "CREATE", change: list(annotatedWith("colour; by=alice; until=2026-11-20T10:30:00Z; drill; x")), warning: "the second field must be uid=<object UID> (empty on create)"},
		"nobody's":            {operation: "CREATE", change: list(annotatedWith("colour; uid=; until=2026-11-20T10:30:00Z; drill")), warning: "by= is missing: the third field must be by="},
		"by nobody":           {operation: "CREATE", change: list(annotatedWith(strings.Replace(good, "by=alice", "by=", 1))), warning: "by= is missing: the third field must be by="},
		"by somebody else":    {operation: "CREATE", change: list(annotatedWith(strings.Replace(good, "by=alice", "by=bob", 1))), warning: "by= is not the user who sent this request"},
		"of somebody else":    {operation: "CREATE", change: list(annotatedWith(good), by("system:serviceaccount:ns:robot")), policy: whoMay(v1alpha1.OverrideEverybody), warning: "by= is not the user who sent this request"},
		"no reason":           {operation: "CREATE", change: list(annotatedWith("colour; uid=; by=alice; until=2026-11-20T10:30:00Z; ")), warning: "the fifth field, the reason, is missing"},
		"no policy":           {operation: "CREATE", change: list(annotatedWith("; uid=; by=alice; until=2026-11-20T10:30:00Z; drill")), warning: "the first field must be the name of the policy"},
		"too few parts":       {operation: "CREATE", change: list(annotatedWith("please")), warning: `the second field must be uid=<object UID> (empty on create), as in "POLICY; uid=UID; by=USER; until=TIME; REASON"`},
		"too long":            {operation: "CREATE", change: list(annotatedWith(good + strings.Repeat("!", 1024))), warning: "it has more than 1024 characters"},
		"an unknown policy":   {operation: "CREATE", change: list(annotatedWith(strings.Replace(good, "colour", "colours", 1))), warning: `policy "colours" does not exist`},
		"another policy":      {operation: "CREATE", change: list(annotatedWith(strings.Replace(good, "colour", "size", 1))), warning: "the override names policy size, but colour refused the request"},
		"a uid at a creation": {operation: "CREATE", change: list(annotatedWith(strings.Replace(good, "uid=", "uid=u-1", 1))), warning: "uid= must be empty, because the object is being created"},
		"no uid of an update": {operation: "UPDATE", change: list(annotatedWith(good)), warning: "uid= must be the UID of this object (kubectl get -o jsonpath={.metadata.uid})"},
		"another uid":         {operation: "DELETE", change: list(annotatedWith(strings.Replace(good, "uid=", "uid=U-1", 1), "old")), warning: "uid= must be the UID of this object"},
		"without the verb":    {operation: "CREATE", change: list(annotatedWith(strings.Replace(good, "alice", "bob", 1)), by("bob")), warning: "bob may not override policy colour: missing the verb override on regopolicies.sallyport.dev colour", asked: 1},
		"a service account":   {operation: "CREATE", change: list(annotatedWith(robots), by("system:serviceaccount:ns:robot")), warning: "service accounts cannot override policy colour (spec.override is Users)"},
		"a service account where all may": {operation: "CREATE", change: list(annotatedWith(robots), by("system:serviceaccount:ns:robot")), policy: whoMay(v1alpha1.OverrideEverybody),
			passes: true, warning: "] is overridden until ", asked: 1},
		"where nobody may": {operation: "CREATE", change: list(annotatedWith(good)), policy: whoMay(v1alpha1.OverrideNobody), warning: "policy colour cannot be overridden (spec.override is Nobody)"},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.policy == nil {
				tc.policy = whoMay("")
			}
			if tc.spec == "" {
				tc.spec = red
			}
			f, r, e := overridable(t, tc.policy)
			got := f.Validate(t.Context(), verified(reviewOf(t, tc.operation, tc.spec, append(list(by("alice")), tc.change...)...)))
			if got.Allowed != tc.passes || len(r.asked) != tc.asked {
				t.Errorf("allowed %v, %+v; asked %q", got.Allowed, got.Result, r.asked)
			}
			text := strings.Join(got.Warnings, "\n")
			if (text == "") != (tc.warning == "") || !strings.Contains(text, tc.warning) {
				t.Errorf("got the warning %q, want %q", text, tc.warning)
			}
			if !tc.passes && tc.warning != "" && !strings.HasPrefix(text, "annotation sallyport.dev/override is ignored: ") {
				t.Errorf("got the warning %q", text)
			}
			overrides := f.count(t, "sallyport_policy_overrides_total")
			told := strings.Count(strings.Join(e.events, "\n"), " Overridden ")
			if counted := tc.passes && tc.asked == 1 && name != "tried out, dry"; (overrides == 1) != counted || (told == 2) != counted {
				t.Errorf("%v overrides are counted, and told %q", overrides, e.events)
			}
			for _, a := range r.asked {
				if !strings.HasSuffix(a, ": override regopolicies.sallyport.dev colour, live true") {
					t.Errorf("asked %s", a)
				}
			}
		})
	}
}

func list(changes ...func(*admissionv1.AdmissionRequest)) []func(*admissionv1.AdmissionRequest) {
	return changes
}

func dryRun(r *admissionv1.AdmissionRequest) { yes := true; r.DryRun = &yes }

func whoMay(who v1alpha1.PolicyOverride) func(*v1alpha1.RegoPolicySpec) {
	return func(s *v1alpha1.RegoPolicySpec) { s.Override = who }
}

// Who passed what, until when and why is in the record, the audit log, the metrics, and in events on the object and the policy.
func TestOverrideIsToldEverywhere(t *testing.T) {
	f, _, e := overridable(t)
	got := f.Validate(t.Context(), verified(reviewOf(t, admissionv1.Create, red, by("alice"), annotatedWith(good))))
	if !got.Allowed || got.AuditAnnotations["verdict"] != "allowed" ||
		got.AuditAnnotations["override"] != "colour until 2026-11-20T10:30:00Z: drill 7; see the wiki" {
		t.Errorf("got %+v", got)
	}
	record := f.only(t)
	colour := record.Policies[0]
	if colour.Verdict != "overridden" || len(colour.Denials) != 1 || !record.Allowed {
		t.Errorf("got record %+v", colour)
	}
	if diff := cmp.Diff(&decision.Override{By: "alice", Until: "2026-11-20T10:30:00Z", Reason: "drill 7; see the wiki"}, colour.Override); diff != "" {
		t.Errorf("override (-want +got):\n%s", diff)
	}
	const note = "alice overrode [colour/TooRed] (CREATE of ConfigMap ns/cm, until 2026-11-20T10:30:00Z): drill 7; see the wiki"
	want := []string{
		"Warning Overridden ConfigMap/cm(u-1) Override RegoPolicy: " + note, "Warning Overridden RegoPolicy/colour() Override ConfigMap: " + note,
	}
	if diff := cmp.Diff(want, e.events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	metrics := `# HELP sallyport_decisions_total Policy decisions on admission requests, by policy, mode, verdict and reason. A decision counts once for each of its denials.
# TYPE sallyport_decisions_total counter
sallyport_decisions_total{mode="Enforce",policy="colour",reason="TooRed",verdict="overridden",webhook="validate"} 1
sallyport_decisions_total{mode="Enforce",policy="size",reason="",verdict="allowed",webhook="validate"} 1
# HELP sallyport_policy_overrides_total Requests admitted by override of a policy, without dry runs, by policy.
# TYPE sallyport_policy_overrides_total counter
sallyport_policy_overrides_total{policy="colour"} 1
`
	if err := testutil.GatherAndCompare(f.registry, strings.NewReader(metrics), "sallyport_decisions_total", "sallyport_policy_overrides_total"); err != nil {
		t.Error(err)
	}
}

// A policy that cannot decide is overridden as one that denies. The same failure on the mutating endpoint is not: nobody has put
// into the object what belongs there.
func TestOverrideOfAFailure(t *testing.T) {
	const failing = "warn contains \"w\" if to_number(input.request.object.spec.name) == 1\n\n"
	const stamping = `patch contains {"op": "add", "path": "/spec/a", "value": to_number(input.request.object.spec.name)} if true` + "\n"
	f, _, _ := overridable(t)
	f.Swap(newFixture(t, world{}, policyOf("colour", failing+stamping)).set)
	review := reviewOf(t, admissionv1.Create, harmless, by("alice"), annotatedWith(good))
	got := f.Mutate(t.Context(), review)
	if got.Allowed || !strings.Contains(got.Result.Message, "[colour/EvaluationFailed]") || got.AuditAnnotations["override"] != "" {
		t.Errorf("mutate: got %+v", got)
	}
	got = f.Validate(t.Context(), review)
	if !got.Allowed || len(got.Warnings) != 1 || !strings.HasPrefix(got.Warnings[0], "[colour/EvaluationFailed] is overridden until") {
		t.Errorf("validate: got %+v", got)
	}
}

// What cannot be read overrides nothing, and is said.
func TestOverrideThatCannotBeReadIsNone(t *testing.T) {
	f, r, _ := overridable(t)
	r.err = errors.New("connection refused")
	got := f.Validate(t.Context(), reviewOf(t, admissionv1.Create, red, by("alice"), annotatedWith(good)))
	if got.Allowed || len(got.Warnings) != 1 || !strings.Contains(got.Warnings[0], "checking the override: asking whether alice may override policy colour: connection refused") {
		t.Errorf("got %+v", got)
	}
	got = f.Validate(t.Context(), reviewOf(t, admissionv1.Update, red, by("alice"), func(r *admissionv1.AdmissionRequest) { r.SubResource = "scale" }))
	if !got.Allowed { // no policy is about it
		t.Errorf("got %+v", got)
	}
}

// onScale has the policies judge the subresource.
func onScale(s *v1alpha1.RegoPolicySpec) {
	s.Match.Resources[0].Resources = []string{"configmaps", "configmaps/scale"}
}

// A Scale carries no annotations: those of its parent count, with the parent's UID.
func TestOverrideOfASubresourceIsItsParents(t *testing.T) {
	parent := func(uid string) string {
		text, err := json.Marshal(strings.Replace(good, "uid=", "uid="+uid, 1))
		if err != nil {
			t.Fatal(err)
		}
		return `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cm", "namespace": "ns", "uid": "u-parent", "annotations": {"sallyport.dev/override": ` + string(text) + `}}}`
	}
	scale := func(r *admissionv1.AdmissionRequest) { r.SubResource = "scale" }
	for name, tc := range map[string]struct {
		operation admissionv1.Operation
		parent    string
		err       error
		change    func(*admissionv1.AdmissionRequest)
		passes    bool
		warning   string
	}{
		"its parent's":                  {operation: "UPDATE", parent: parent("u-parent"), passes: true, warning: "[colour/TooRed] is overridden"},
		"another object's":              {operation: "UPDATE", parent: parent("u-1"), warning: "uid= must be the UID of this object"},
		"an eviction is no creation":    {operation: "CREATE", parent: parent("u-parent"), passes: true, warning: "[colour/TooRed] is overridden"},
		"a connection's":                {operation: "CONNECT", parent: parent("u-parent"), change: connection, passes: true, warning: "[colour/TooRed] is overridden"},
		"good for the parent's own":     {operation: "CREATE", parent: parent(""), warning: "uid= must be the UID of this object"},
		"what the request says is none": {operation: "UPDATE", parent: "null", change: annotatedWith(strings.Replace(good, "uid=", "uid=u-1", 1))},
		"unreadable":                    {operation: "UPDATE", parent: parent("u-parent"), err: errors.New("forbidden"), warning: "checking the override: reading the object that scale belongs to: forbidden"},
	} {
		t.Run(name, func(t *testing.T) {
			f, r, e := overridable(t, onScale, onConnect)
			r.parent, r.err = tc.parent, tc.err
			change := list(by("alice"), scale)
			if tc.change != nil {
				change = append(change, tc.change)
			}
			got := f.Validate(t.Context(), verified(reviewOf(t, tc.operation, red, change...)))
			text := strings.Join(got.Warnings, "\n")
			if got.Allowed != tc.passes || (text == "") != (tc.warning == "") || !strings.Contains(text, tc.warning) {
				t.Errorf("allowed %v, warning %q", got.Allowed, text)
			}
			if r.asked[0] != "parent" {
				t.Errorf("asked %q", r.asked)
			}
			if tc.passes && (len(e.events) != 2 || !strings.Contains(e.events[0], "ConfigMap/cm(u-parent)") ||
				!strings.Contains(e.events[0], fmt.Sprintf("(%s of scale of ConfigMap ns/cm, until ", tc.operation))) {
				t.Errorf("told %q", e.events)
			}
		})
	}
}

// onOperations has a policy judge new operations.
func onOperations(s *v1alpha1.RegoPolicySpec) {
	s.Match.Resources[0] = v1alpha1.PolicyResources{
		APIGroups: []string{"sallyport.dev"}, APIVersions: []string{"*"}, Resources: []string{"virtualmachineoperations"},
		Operations: []v1alpha1.MatchOperation{"CREATE"},
	}
}

// The second door lets pass what the first one did, for who asked then and by what was stamped then, however long it waited.
func TestOverrideAtTheSecondDoor(t *testing.T) {
	stamped := func(text string, change ...func(*v1alpha1.VirtualMachineOperation)) *v1alpha1.VirtualMachineOperation {
		o := svmop("a", v1alpha1.OperationStop, false)
		o.Spec.RequestedBy.Username, o.Spec.RequestedAt, o.Spec.Override = "alice", "2026-11-19T22:10:00.000000000Z", text
		for _, c := range change {
			c(&o)
		}
		return &o
	}
	const inTime = "colour; uid=; by=alice; until=2026-11-19T22:30:00Z; drill"
	for name, tc := range map[string]struct {
		operation *v1alpha1.VirtualMachineOperation
		err       error
		denied    bool
		open      bool
		message   string
	}{
		"in time when it was asked for": {operation: stamped(inTime)},
		"too late when it was asked for": {operation: stamped("colour; uid=; by=alice; until=2026-11-19T22:00:00Z; drill"), denied: true,
			message: "[colour/Stops] no\nspec.override is ignored: until=2026-11-19T22:00:00Z has passed (now 2026-11-19T22:10:00Z)"},
		"in time only now": {operation: stamped(good), denied: true, message: "is more than an hour ahead (now 2026-11-19T22:10:00Z)"},
		"by who may not": {operation: stamped(strings.Replace(inTime, "alice", "bob", 1), func(o *v1alpha1.VirtualMachineOperation) { o.Spec.RequestedBy.Username = "bob" }),
			denied: true, message: "bob may not override policy colour"},
		"that somebody else was to use": {operation: stamped(strings.Replace(inTime, "alice", "bob", 1)), denied: true,
			message: "spec.override is ignored: by= is not the user who sent this request"},
		"none, and a later annotation": {operation: stamped("", func(o *v1alpha1.VirtualMachineOperation) {
			o.Annotations = map[string]string{v1alpha1.AnnotationOverride: inTime}
		}), denied: true, message: "[colour/Stops] no"},
		"whose time nobody knows": {operation: stamped(inTime, func(o *v1alpha1.VirtualMachineOperation) { o.Spec.RequestedAt = "" }),
			denied: true, message: "spec.requestedAt= is not a valid time"},
		"whose requester nobody knows": {operation: stamped(inTime, func(o *v1alpha1.VirtualMachineOperation) { o.Spec.RequestedBy = nil }),
			denied: true, message: "[colour/Stops] no"},
		"not to be read now": {operation: stamped(inTime), err: errors.New("gone"), open: true},
	} {
		t.Run(name, func(t *testing.T) {
			rule := fmt.Sprintf(denyMetadata, "Stops") + `deny contains {"reason": "Stops", "message": "no"} if input.request.object.spec.type == "Stop"` +
				"\n\noutcome.supersedes contains \"b\" if true\n"
			f, r, e := overridable(t)
			f.Swap(newFixture(t, world{}, policyOf("colour", rule, onOperations)).set)
			r.err = tc.err
			got, err := f.Arbitrate(t.Context(), tc.operation, svm("Running"), nil)
			if (err != nil) != tc.open || got.Denied != tc.denied || !strings.Contains(got.Message, tc.message) {
				t.Fatalf("got %+v, %v", got, err)
			}
			passes := !tc.denied && !tc.open
			if (len(e.events) == 2) != passes || passes && (len(got.Supersedes) != 1 || !strings.Contains(e.events[0], "(CREATE of VirtualMachineOperation ns/a, until ")) {
				t.Errorf("got %+v, told %q", got, e.events)
			}
			if n := f.count(t, "sallyport_policy_overrides_total"); n != 0 {
				t.Errorf("it is counted %v times, and was at the first door", n)
			}
			if verdict := f.only(t).Policies[0].Verdict; (verdict == "overridden") != passes {
				t.Errorf("recorded as %s", verdict)
			}
		})
	}
}

// A machine that passed by override is not let through to a vCenter that its namespace must not use: that is asked again and
// again, of nobody.
func TestOverrideIsNoneForWhereAMachineIs(t *testing.T) {
	f := newShippedFixture(t, world{})
	f.facts = &rights{holders: map[string]string{sallyportUser: "servers-tenancy"}, err: errors.New("nothing is known")}
	machine := svm("Running")
	machine.Annotations = map[string]string{v1alpha1.AnnotationOverride: "servers-tenancy; uid=; by=" + sallyportUser + "; until=2026-11-20T10:30:00Z; drill"}
	machine.Spec.Runtime.VSphere = &v1alpha1.VSphereRuntime{}
	if got, err := f.Admits(t.Context(), machine); err == nil && !got.Denied {
		t.Errorf("got %+v, %v", got, err)
	}
}
