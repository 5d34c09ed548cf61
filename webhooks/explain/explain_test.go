package explain_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/shipped"
	"sallyport.dev/sallyport/webhooks/catalog"
	"sallyport.dev/sallyport/webhooks/decision"
	"sallyport.dev/sallyport/webhooks/engine"
	"sallyport.dev/sallyport/webhooks/explain"
	"sallyport.dev/sallyport/webhooks/facts"
)

// now is when everything is asked.
var now = time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)

// world answers facts by the kind that is asked for, access by whether it is granted.
type world struct {
	answers map[string]any
	granted bool
	err     error
	reads   atomic.Int32
}

func (w *world) For(*admissionv1.AdmissionRequest, facts.Subject) engine.Reader { return w }

func (w *world) Read(_ context.Context, q engine.Query) (engine.Answer, error) {
	w.reads.Add(1)
	if q.Access != nil {
		v, err := engine.ValueOf(w.granted)
		return engine.Answer{Value: v, Live: true}, err
	}
	v, err := engine.ValueOf(w.answers[q.Kind])
	return engine.Answer{Value: v, Live: q.Live}, errors.Join(err, w.err)
}

// owners is a small policy about a kind that is not Sallyport's.
func owners(change func(*v1alpha1.RegoPolicySpec)) v1alpha1.RegoPolicy {
	p := v1alpha1.RegoPolicy{ObjectMeta: metav1.ObjectMeta{Name: "owners", UID: "u"}, Spec: v1alpha1.RegoPolicySpec{
		Package: "acme.owners", TimeoutMilliseconds: 60_000,
		Match: &v1alpha1.PolicyMatch{Resources: []v1alpha1.PolicyResources{{
			APIGroups: []string{"apps"}, APIVersions: []string{"v1"}, Resources: []string{"deployments"}, Operations: []v1alpha1.MatchOperation{"CREATE"},
		}}},
		Modules: []v1alpha1.PolicyModule{{Name: "owner.rego", Source: `# METADATA
# title: Owners
# description: Everything has an owner.
package acme.owners

valid_input if is_object(input.request.object.metadata.labels)

# METADATA
# title: No owner
# custom: {reason: NoOwner, remedy: Add the label.}
deny contains {"reason": "NoOwner", "message": $"{input.request.name} has no owner"} if {
	not input.request.object.metadata.labels.owner
}

warn contains "the owner is nobody" if input.request.object.metadata.labels.owner == "nobody"
`}},
	}}
	if change != nil {
		change(&p.Spec)
	}
	return p
}

// denying has the policy refuse by other conditions.
func denying(conditions ...string) func(*v1alpha1.RegoPolicySpec) {
	return func(s *v1alpha1.RegoPolicySpec) {
		before, rest, _ := strings.Cut(s.Modules[0].Source, "# METADATA\n# title: No owner")
		metadata, _, _ := strings.Cut(rest, "\tnot ")
		for _, c := range conditions {
			before += "# METADATA\n# title: No owner" + metadata + "\t" + c + "\n}\n"
		}
		s.Modules[0].Source = before
	}
}

// deployment is the creation of one with those metadata by bob.
func deployment(t *testing.T, metadata string) *decision.Review {
	t.Helper()
	return review(t, fmt.Sprintf(`{"uid": "r", "operation": "CREATE", "name": "web", "namespace": "team", "userInfo": {"username": "bob"},
		"kind": {"group": "apps", "version": "v1", "kind": "Deployment"}, "resource": {"group": "apps", "version": "v1", "resource": "deployments"},
		"object": {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": %s}}`, metadata))
}

func review(t *testing.T, request string) *decision.Review {
	t.Helper()
	r, err := decision.Decode([]byte(`{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": ` + request + `}`))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func explained(t *testing.T, x explain.Explainer, objects []v1alpha1.RegoPolicy, r *decision.Review) []*explain.Policy {
	t.Helper()
	x.Set, x.States = new(catalog.Catalog).Build(t.Context(), objects, nil)
	found, err := x.Explain(t.Context(), &decision.Question{Endpoint: decision.Validating, Review: r, At: now})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestSummaries(t *testing.T) {
	const override = `{"labels": {}, "annotations": {"sallyport.dev/override": "owners; uid=; by=bob; until=2026-11-20T10:30:00Z; a fire"}}`
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "namespaces"}, "team", errors.New("not yours"))
	byTeam := func(s *v1alpha1.RegoPolicySpec) {
		s.Match.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}
	}
	for name, tc := range map[string]struct {
		change   func(*v1alpha1.RegoPolicySpec)
		metadata string
		world    *world
		own      bool
		summary  string
		verdict  string
		override string
	}{
		"a rule that does not apply": {nil, `{"labels": {"owner": "bob"}}`, &world{}, false,
			"allows: deny at owner.rego:12 needs `not input.request.object.metadata.labels.owner`, which is false for input.request.object.metadata.labels.owner=\"bob\"", "allowed", ""},
		"a warning": {nil, `{"labels": {"owner": "nobody"}}`, &world{}, false, "allows, with a warning: the owner is nobody", "allowed", ""},
		"a denial":  {nil, `{"labels": {}}`, &world{}, false, "denies: [NoOwner] web has no owner (owner.rego:11)", "denied", ""},
		"a denial with cause and remedy": {func(s *v1alpha1.RegoPolicySpec) {
			s.Modules[0].Source = strings.Replace(s.Modules[0].Source, `has no owner"}`, `cannot run", "cause": "it has no owner", "remedy": "add one"}`, 1)
		}, `{"labels": {}}`, &world{}, false, "denies: [NoOwner] web cannot run because it has no owner; add one (owner.rego:11)", "denied", ""},
		"mode Warn": {func(s *v1alpha1.RegoPolicySpec) { s.Mode = "Warn" }, `{"labels": {}}`, &world{}, false,
			"only warns, in mode Warn: [NoOwner] web has no owner (owner.rego:11)", "warned", ""},
		"mode Audit": {func(s *v1alpha1.RegoPolicySpec) { s.NamespaceModes = []v1alpha1.NamespaceMode{{Mode: "Audit"}} }, `{"labels": {}}`, &world{}, false,
			"only records, in mode Audit: [NoOwner] web has no owner (owner.rego:11)", "audited", ""},
		"not understood": {nil, `{"labels": 7}`, &world{}, false,
			"evaluation failed, the request is denied (spec.onError): valid_input at owner.rego:6 needs `is_object(input.request.object.metadata.labels)`, which is false for input.request.object.metadata.labels=7", "error_denied", ""},
		"not understood and let pass": {func(s *v1alpha1.RegoPolicySpec) { s.OnError = "Allow" }, `{}`, &world{}, false,
			"evaluation failed, the request is admitted (spec.onError): valid_input at owner.rego:6 needs " +
				"`is_object(input.request.object.metadata.labels)`, input.request.object.metadata.labels is undefined", "error_allowed", ""},
		"an override that counts": {nil, override, &world{granted: true}, false,
			"denies, but is overridden: [NoOwner] web has no owner (owner.rego:11)", "overridden", "is in effect: bob overrides the policy until 2026-11-20T10:30:00Z, reason: a fire"},
		"an override without the verb": {nil, override, &world{}, false, "denies: [NoOwner] web has no owner (owner.rego:11)", "denied",
			"is ignored: bob may not override policy owners: missing the verb override on regopolicies.sallyport.dev owners"},
		"an override that is not needed": {nil, strings.Replace(override, `{}`, `{"owner": "bob"}`, 1), &world{granted: true}, false,
			"allows: deny at owner.rego:12 needs `not input.request.object.metadata.labels.owner`, which is false for input.request.object.metadata.labels.owner=\"bob\"",
			"allowed", "is not needed: the policy allows the request"},
		"another namespace": {byTeam, `{"labels": {}}`, &world{answers: map[string]any{"Namespace": map[string]any{}}}, false,
			"not evaluated: spec.match.namespaceSelector is team=a, but namespace team has the labels (none)", "not_asked", ""},
		"a namespace that cannot be read": {byTeam, `{"labels": {}}`, &world{err: errors.New("gone")}, false,
			"evaluation failed, the request is denied (spec.onError): reading the labels of namespace team: gone", "error_denied", ""},
		"a namespace that the asker may not read": {byTeam, `{"labels": {}}`, &world{err: forbidden}, true,
			`evaluated, but the result is unknown, because you may not read the objects that it reads: reading the labels of namespace team: namespaces "team" is forbidden: not yours`, "unknown", ""},
		"broken": {func(s *v1alpha1.RegoPolicySpec) { s.Modules[0].Source += "\nx := \n" }, `{"labels": {}}`, &world{}, false, "evaluation failed, the request is denied (spec.onError): " +
			"it does not compile: owners/owner.rego:", "error_denied", ""},
		"rules that do not apply": {
			denying(`input.request.object.metadata.labels.tier == "test"`, `input.request.object.metadata.labels.owner == "bob"
	input.request.object.metadata.labels.tier == "prod"`, `input.request.object.metadata.labels.owner == "eve"`),
			`{"labels": {"owner": "bob", "tier": "web"}}`, &world{}, false,
			"allows: deny at owner.rego:19 needs `input.request.object.metadata.labels.tier == \"prod\"`, which is false for " +
				"input.request.object.metadata.labels.tier=\"web\" (and 2 other rules do not apply)", "allowed", "",
		},
		"a rule about one of many": {denying("some value in input.request.object.metadata.labels\n\tvalue == \"test\""), `{"labels": {"a": "1", "b": "2", "c": "3"}}`, &world{}, false,
			"allows: deny at owner.rego:13 needs `value == \"test\"`, which is false for value=\"1\", nor for 2 others", "allowed", ""},
		"no rule that could object": {func(s *v1alpha1.RegoPolicySpec) {
			s.Modules[0].Source = strings.Split(s.Modules[0].Source, "# METADATA\n# title: No owner")[0] + "warn contains \"w\" if input.request.object.metadata.labels.w"
		}, `{"labels": {}}`, &world{}, false, "allows: it has no deny rule that can apply", "allowed", ""},
		"not understood, mode Warn": {func(s *v1alpha1.RegoPolicySpec) { s.Mode = "Warn" }, `{"labels": 7}`, &world{}, false,
			"evaluation failed, the request is admitted (mode Warn): valid_input at owner.rego:6 needs `is_object(input.request.object.metadata.labels)`, which is false for input.request.object.metadata.labels=7", "error_allowed", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := tc.world
			all := explained(t, explain.Explainer{Facts: w, Own: tc.own}, []v1alpha1.RegoPolicy{owners(tc.change)}, deployment(t, tc.metadata))
			if len(all) != 1 {
				t.Fatalf("explained are %d policies", len(all))
			}
			e := all[0]
			got := strings.TrimPrefix(e.Summary, "owners: ")
			if strings.HasSuffix(tc.summary, ":") && strings.HasPrefix(got, tc.summary) { // what follows is the compiler's
				got = tc.summary
			}
			if got != tc.summary {
				t.Errorf("got  %s\nwant %s", got, tc.summary)
			}
			if e.Verdict != tc.verdict || e.Override != tc.override {
				t.Errorf("the verdict is %s, the override %q; want %s, %q", e.Verdict, e.Override, tc.verdict, tc.override)
			}
			if name == "broken" && e.Broken == "" {
				t.Error("it is not said to be broken")
			}
		})
	}
}

// What the API server does not ask is not asked, whatever it would say.
func TestLeftOut(t *testing.T) {
	e := explained(t, explain.Explainer{Facts: &world{}}, []v1alpha1.RegoPolicy{owners(nil)}, deployment(t, `{"labels": {}}`))[0]
	e.LeftOut("nobody asks")
	if e.Verdict != explain.NotAsked || e.Summary != "owners: not evaluated: nobody asks (if it were: denies: [NoOwner] web has no owner (owner.rego:11))" {
		t.Errorf("%s: %s", e.Verdict, e.Summary)
	}
}

// The verdict and its explanation rest on the same answers: nothing is read twice.
func TestFactsAreReadOnce(t *testing.T) {
	all := shipped.Policies(t)
	w := &world{answers: map[string]any{"VirtualMachineOperation": []any{}, "VirtualMachine": machine("Running")}}
	explained(t, explain.Explainer{Facts: w, Policy: "operations-supersede"}, all, operation(t, "Stop"))
	if got := w.reads.Load(); got != 2 {
		t.Errorf("of two facts %d reads were made", got)
	}
}

func machine(phase string) map[string]any {
	return map[string]any{
		"apiVersion": "sallyport.dev/v1alpha1", "kind": "VirtualMachine", "metadata": map[string]any{"name": "web-1", "namespace": "team", "uid": "m"},
		"spec": map[string]any{"runPolicy": "Manual", "runtime": map[string]any{"pod": map[string]any{}}}, "status": map[string]any{"phase": phase},
	}
}

func operation(t *testing.T, kind string) *decision.Review {
	t.Helper()
	return review(t, fmt.Sprintf(`{"uid": "r", "operation": "CREATE", "name": "op", "namespace": "team", "userInfo": {"username": "bob"},
		"kind": {"group": "sallyport.dev", "version": "v1alpha1", "kind": "VirtualMachineOperation"},
		"resource": {"group": "sallyport.dev", "version": "v1alpha1", "resource": "virtualmachineoperations"},
		"object": {"apiVersion": "sallyport.dev/v1alpha1", "kind": "VirtualMachineOperation", "metadata": {"name": "op", "namespace": "team"},
			"spec": {"virtualMachineName": "web-1", "type": %q, "force": false}}}`, kind))
}

// The shipped policies, about requests and facts with broken fields too: a policy that refuses has a rule that says so, one that
// admits has none, and one that could not decide has what stood in its way; and each rule that does not apply tells where it stopped.
func TestExplanationsAgreeWithVerdicts(t *testing.T) {
	all := shipped.Policies(t)
	for i := range all {
		all[i].Spec.TimeoutMilliseconds = 60_000
	}
	random := rand.New(rand.NewPCG(3, 3))
	one := func(of ...any) any { return of[random.IntN(len(of))] }
	set, states := new(catalog.Catalog).Build(t.Context(), all, nil)
	seen := map[string]int{}
	for i := range 80 {
		var running []any
		for n := range random.IntN(3) {
			running = append(running, map[string]any{
				"metadata": map[string]any{"name": fmt.Sprintf("running-%d", n), "uid": one("a", "b", "c", 7)},
				"spec":     map[string]any{"virtualMachineName": "web-1", "type": one("Start", "Stop", "Migrate", "Bogus", nil), "force": one(true, false)},
			})
		}
		vm := machine(one("Running", "Stopped", "Starting", "Bogus").(string))
		if random.IntN(4) == 0 {
			vm["status"] = one(nil, map[string]any{"activeOperation": map[string]any{"origin": "RunPolicy", "type": one("Start", 7)}})
		}
		if running == nil {
			running = []any{}
		}
		w := &world{answers: map[string]any{"VirtualMachineOperation": running, "VirtualMachine": one(vm, vm, vm, nil)}}
		r := operation(t, one("Start", "Stop", "Restart", "Bogus").(string))
		for _, endpoint := range []string{decision.Validating, decision.Mutating} {
			x := explain.Explainer{Set: set, States: states, Facts: w}
			found, err := x.Explain(t.Context(), &decision.Question{Endpoint: endpoint, Review: r, At: now})
			if err != nil {
				t.Fatalf("number %d: %v", i, err)
			}
			for _, e := range found {
				seen[e.Verdict]++
				if problem := disagrees(e); problem != "" {
					text, _ := json.MarshalIndent(e, "", "  ")
					t.Fatalf("number %d: %s\n%s", i, problem, text)
				}
			}
		}
	}
	for _, verdict := range []string{"allowed", "denied", "error_denied", explain.NotAsked} {
		if seen[verdict] < 10 {
			t.Errorf("%s was seen %d times, which is no test: %v", verdict, seen[verdict], seen)
		}
	}
}

func disagrees(e *explain.Policy) string {
	denials := 0
	for _, r := range e.Rules {
		if (len(r.Says) > 0) == (r.Needs != nil) {
			return r.Rule + " at " + r.Place + " both applies and does not, or neither"
		}
		if r.Rule == "deny" {
			denials += len(r.Says)
		}
	}
	obstacle := e.Input != nil
	for _, f := range e.Facts {
		obstacle = obstacle || f.Needs != nil || f.Error != ""
	}
	switch {
	case e.Verdict == explain.NotAsked && len(e.Match.Missed) == 0:
		return "it is not asked, and nothing says why"
	case e.Verdict == "denied" && denials == 0, e.Verdict == "allowed" && denials > 0:
		return fmt.Sprintf("it is %s by %d denials", e.Verdict, denials)
	case strings.HasPrefix(e.Verdict, "error") && e.Cause == engine.InputNotUnderstood && !obstacle && !strings.Contains(e.Error, ": must be "):
		return "nothing says what was not understood"
	case e.Summary == "" || strings.Contains(e.Summary, "\n"):
		return "the summary is no line"
	}
	return ""
}
