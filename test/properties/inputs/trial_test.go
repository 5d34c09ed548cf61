package inputs_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/prometheus/client_golang/prometheus"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/policies"
	"sallyport.dev/sallyport/test/support/shipped"
	"sallyport.dev/sallyport/webhooks/catalog"
	"sallyport.dev/sallyport/webhooks/decision"
	"sallyport.dev/sallyport/webhooks/engine"
	"sallyport.dev/sallyport/webhooks/facts"
	"sallyport.dev/sallyport/webhooks/grants"
	"sallyport.dev/sallyport/webhooks/record"
)

// sets has policies that a test does not change compiled once for all tests.
var sets catalog.Sets

// compile gives the shipped policies, changed for the test. The deadline is long, because
// a busy machine must not make errors that look like those that are looked for.
func compile(t *testing.T, change func(*v1alpha1.RegoPolicy)) *catalog.Set {
	t.Helper()
	shipped, err := policies.Shipped()
	if err != nil {
		t.Fatal(err)
	}
	for i := range shipped {
		shipped[i].Spec.TimeoutMilliseconds = 60_000
		change(&shipped[i])
	}
	set, err := sets.Compile(shipped, grants.Patchable{})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func asShipped(*v1alpha1.RegoPolicy) {}

func onErrorAllow(p *v1alpha1.RegoPolicy) { p.Spec.OnError = v1alpha1.OnErrorAllow }

// unguarded takes the policies' valid_input away.
func unguarded(p *v1alpha1.RegoPolicy) {
	for i := range p.Spec.Modules {
		m := &p.Spec.Modules[i]
		m.Source = strings.Replace(m.Source, "\nvalid_input if {\n", "\nvalid_input if true\n\n_once_valid_input if {\n", 1)
	}
}

// oracleOf reads the tables out of the shipped policies.
func oracleOf(t *testing.T) *oracle {
	t.Helper()
	tables, err := shipped.TablesOf(shipped.Policies(t))
	if err != nil {
		t.Fatal(err)
	}
	return &oracle{tables}
}

// recorder that keeps nothing.
var recorder = record.NewRecorder(prometheus.NewRegistry(), nil, false)

func gateOver(set *catalog.Set, source decision.FactSource) *decision.Decider {
	return decision.NewDecider(set, source, recorder, func() time.Time { return decidedAt })
}

func decode(request any) (*decision.Review, error) {
	body, err := json.Marshal(object{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})
	if err != nil {
		return nil, err
	}
	return decision.Decode(body)
}

// trial is one broken input and what became of it.
type trial struct {
	base     *base
	changes  []change
	request  object
	world    *world
	rejected error // no AdmissionReview: HTTP 400, and the API server refuses
	expected map[string]opinion
	response *admissionv1.AdmissionResponse
}

func (o *oracle) try(ctx context.Context, set *catalog.Set, b *base, changes []change) *trial {
	request, _ := changed("request", b.request, changes).(object)
	tr := &trial{base: b, changes: changes, request: request, world: &world{objects: b.world.objects, changes: changes}}
	review, err := decode(request)
	if err != nil {
		tr.rejected = err
		return tr
	}
	tr.expected = o.expect(request, tr.world, review.Subject())
	tr.response = gateOver(set, tr.world).Answer(ctx, &decision.Question{Endpoint: decision.Validating, Review: review})
	return tr
}

// unreadable tells whether some policy cannot read the input.
func (tr *trial) unreadable() bool {
	for _, e := range tr.expected {
		if e.problem != "" {
			return true
		}
	}
	return false
}

var objected = regexp.MustCompile(`^\[([a-z-]+)/([A-Za-z]+)\]`)

// said sorts objections by policy: the reasons it gave.
func said(texts []string) map[string][]string {
	by := map[string][]string{}
	for _, t := range texts {
		if m := objected.FindStringSubmatch(t); m != nil && !slices.Contains(by[m[1]], m[2]) {
			by[m[1]] = append(by[m[1]], m[2])
		}
	}
	return by
}

// misread are the causes of an error that may come of an input that cannot be read.
var misread = []string{string(engine.InputNotUnderstood), string(engine.EvaluationFailed)}

// finding is a difference between what a policy said and what it must say. It is a hole if something passes because it
// could not be read, or that is not to pass.
type finding struct {
	text string
	hole bool
}

// check holds the response against the oracle, policy by policy, so that no hole hides behind another policy's denial.
func (tr *trial) check(errorsPass bool) *finding {
	if tr.rejected != nil {
		if !slices.ContainsFunc(tr.changes, func(c change) bool { return c.root == "request" && c.path[0] != "object" }) {
			return &finding{text: fmt.Sprintf("the object is no reason to reject the review: %v", tr.rejected)}
		}
		return nil
	}
	var refusals []string
	if !tr.response.Allowed {
		for _, c := range tr.response.Result.Details.Causes {
			refusals = append(refusals, c.Message)
		}
	}
	refused, warned := said(refusals), said(tr.response.Warnings)
	for _, policy := range slices.Sorted(maps.Keys(tr.expected)) {
		want := tr.expected[policy]
		if want.problem == "" && tr.mistyped(policy, slices.Concat(refusals, tr.response.Warnings)) {
			want.problem = "a field is not of its type"
		}
		if f := want.against(refused[policy], warned[policy], errorsPass); f != nil {
			f.text = fmt.Sprintf("%s: it refuses for %v and warns of %v, %s", policy, refused[policy], warned[policy], f.text)
			return f
		}
	}
	if tr.response.Allowed != (len(refused) == 0) {
		return &finding{text: "the response is not what the policies say", hole: tr.response.Allowed}
	}
	if tr.turned() && len(tr.openers()) == 0 {
		return &finding{text: "no change that could do this turned the denial into an allow", hole: true}
	}
	return nil
}

var ofAnotherType = regexp.MustCompile(`^\[([a-z-]+)/InputNotUnderstood\] .*?(\w+): must be `)

// mistyped reports whether a policy names a field that was changed to another type. It may also name one that it does not need: what it
// reads is not always known in detail, and no API server has such an object.
func (tr *trial) mistyped(policy string, texts []string) bool {
	return slices.ContainsFunc(texts, func(text string) bool {
		m := ofAnotherType.FindStringSubmatch(text)
		return m != nil && m[1] == policy && slices.ContainsFunc(tr.changes, func(c change) bool {
			return !c.remove && slices.Contains(c.path, any(m[2]))
		})
	})
}

// turned tells whether the request is allowed, with nothing to be said against it, and would not be without the changes.
func (tr *trial) turned() bool {
	return tr.response.Allowed && len(tr.response.Warnings) == 0 && tr.base.class != allowed
}

// openers are the changes that may have turned a denial into an allow.
func (tr *trial) openers() []string {
	var found []string
	for _, c := range tr.changes {
		if c.opens() {
			found = append(found, digits.ReplaceAllString(c.String(), "n"))
		}
	}
	return found
}

var digits = regexp.MustCompile(`\d+`)

// against compares an opinion with what the policy said.
func (want opinion) against(refused, warned []string, errorsPass bool) *finding {
	erred := func(reasons []string) bool {
		return slices.ContainsFunc(reasons, func(r string) bool { return slices.Contains(misread, r) })
	}
	switch {
	case want.problem == "" && want.reason == "":
		if len(refused)+len(warned) > 0 {
			return &finding{text: "but there is nothing to object to"}
		}
	case want.problem == "":
		if !slices.Equal(refused, []string{want.reason}) || len(warned) > 0 {
			return &finding{text: "but must refuse for " + want.reason, hole: len(refused) == 0}
		}
	case !errorsPass:
		if len(refused) == 0 || len(warned) > 0 {
			return &finding{text: "but must refuse: " + want.problem, hole: len(refused) == 0}
		}
	default: // an error passes, but not in silence; a denial is as good
		if erred(refused) || len(refused) == 0 && !erred(warned) {
			return &finding{text: "but must warn of an error: " + want.problem, hole: len(refused) == 0}
		}
	}
	return nil
}

// String is everything that is needed to see what happened, and to see it again.
func (tr *trial) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "base: %s\n", tr.base.name)
	for _, c := range tr.changes {
		fmt.Fprintf(&b, "change: %s\n", c)
	}
	fmt.Fprintf(&b, "expected: %+v\nrequest: %s\n", tr.expected, shown(tr.request))
	if tr.response != nil {
		fmt.Fprintf(&b, "response: allowed %v, warnings %q, result %s\n", tr.response.Allowed, tr.response.Warnings, shown(tr.response.Result))
	}
	for _, q := range []engine.Query{aboutMachine(namespace, machineName), aboutOperations(namespace, machineName), aboutNode(nodeName)} {
		fmt.Fprintf(&b, "answer for %s: %s\n", q.Kind, shown(tr.world.answer(q, facts.Subject{})))
	}
	return b.String()
}
