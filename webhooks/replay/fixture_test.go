package replay_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/double/toys"
	"sallyport.dev/sallyport/webhooks/catalog"
	"sallyport.dev/sallyport/webhooks/decision"
	"sallyport.dev/sallyport/webhooks/engine"
	"sallyport.dev/sallyport/webhooks/facts"
	"sallyport.dev/sallyport/webhooks/grants"
	"sallyport.dev/sallyport/webhooks/record"
	"sallyport.dev/sallyport/webhooks/replay"
)

// deny is a rule that refuses for that reason where the condition holds.
func deny(reason, condition string) string {
	return fmt.Sprintf("# METADATA\n# title: T\n# custom: {reason: %s, remedy: do it}\n"+
		"deny contains {\"reason\": %[1]q, \"message\": $\"{input.request.name} is %[1]s\"} if %[2]s\n\n", reason, condition)
}

// policy judges ConfigMaps.
func policy(name, rules string, change ...func(*v1alpha1.RegoPolicySpec)) v1alpha1.RegoPolicy {
	const head = "# METADATA\n# title: T\n# description: D\npackage toy.%s\n\n"
	p := v1alpha1.RegoPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.RegoPolicySpec{
		Package: "toy." + name, TimeoutMilliseconds: 60_000,
		Match: &v1alpha1.PolicyMatch{Resources: []v1alpha1.PolicyResources{{
			APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"},
			Operations: []v1alpha1.MatchOperation{"CREATE", "UPDATE", "DELETE"},
		}}},
		Reads: []v1alpha1.PolicyRead{
			{APIVersion: "v1", Kind: "Pod", Indexes: []string{"spec.nodeName"}}, {APIVersion: "v1", Kind: "Service"}, {APIVersion: "v1", Kind: "ConfigMap"},
			{APIVersion: "apps/v1", Kind: "Deployment"}, {APIVersion: "apps/v1", Kind: "ReplicaSet"},
		},
	}}
	if !strings.Contains(rules, "valid_input") {
		rules = "valid_input if is_object(input.request)\n\n" + rules
	}
	p.Spec.Modules = []v1alpha1.PolicyModule{{Name: name + ".rego", Source: fmt.Sprintf(head, name) + rules}}
	for _, c := range change {
		c(&p.Spec)
	}
	return p
}

func mode(m v1alpha1.PolicyMode) func(*v1alpha1.RegoPolicySpec) {
	return func(s *v1alpha1.RegoPolicySpec) { s.Mode = m }
}

// world answers by the kind that is asked for; other questions by the words in which errors put them.
type world struct {
	answers map[string]any
	cached  bool
	err     error
}

func (w world) For(*admissionv1.AdmissionRequest, facts.Subject) engine.Reader { return w }

func (w world) Read(_ context.Context, q engine.Query) (engine.Answer, error) {
	key := q.Kind
	switch {
	case q.TestRun:
		key = "testRun"
	case q.Parent:
		key = "parent"
	case q.Access != nil:
		key = q.Access.Verb
	}
	v, err := engine.ValueOf(w.answers[key])
	if w.err != nil {
		err = w.err
	}
	return engine.Answer{Value: v, Live: q.Live || !w.cached, ResourceVersion: "7"}, err
}

// request is one about a ConfigMap.
func request(t testing.TB, name, content string, change ...func(*admissionv1.AdmissionRequest)) *decision.Review {
	t.Helper()
	object := fmt.Sprintf(`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": %q, "namespace": "ns"}, "spec": %s}`, name, content)
	r := &admissionv1.AdmissionRequest{
		UID: "r", Operation: admissionv1.Create, Namespace: "ns", Name: name, Object: runtime.RawExtension{Raw: []byte(object)},
		Kind:     metav1.GroupVersionKind{Version: "v1", Kind: "ConfigMap"},
		Resource: metav1.GroupVersionResource{Version: "v1", Resource: "configmaps"},
	}
	r.UserInfo.Username = "ann"
	for _, c := range change {
		c(r)
	}
	return toys.Review(t, r)
}

// recorded has a gate with these policies decide, on both endpoints, and gives the records.
func recorded(t testing.TB, w world, policies []v1alpha1.RegoPolicy, reviews ...*decision.Review) string {
	t.Helper()
	return taken(t, w, policies, func(gate *decision.Decider) {
		for _, review := range reviews {
			gate.Answer(t.Context(), &decision.Question{Endpoint: decision.Mutating, Review: review})
			gate.Answer(t.Context(), &decision.Question{Endpoint: decision.Validating, Review: review})
		}
	})
}

// taken gives the records of what a gate with these policies is asked.
func taken(t testing.TB, w world, policies []v1alpha1.RegoPolicy, ask func(*decision.Decider)) string {
	t.Helper()
	var text bytes.Buffer
	recorder := record.NewRecorder(prometheus.NewRegistry(), &text, false)
	now := func() time.Time { return time.Date(2026, 11, 20, 10, 0, 0, 5, time.UTC) }
	ask(decision.NewDecider(compiled(t, policies...), w, recorder, now))
	recorder.Close(time.Minute)
	return text.String()
}

// sets are those of all tests: what is replayed is mostly put to the policies that it was recorded with.
var sets catalog.Sets

func compiled(t testing.TB, policies ...v1alpha1.RegoPolicy) *catalog.Set {
	t.Helper()
	set, err := sets.Compile(policies, grants.Patchable{Kinds: grants.Kinds{"configmaps": grants.All}})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func input(name, text string) replay.Input {
	return replay.Input{Name: name, Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }}
}

// replayed puts records to other policies.
func replayed(t *testing.T, text string, policies ...v1alpha1.RegoPolicy) ([]*replay.Result, *replay.Summary) {
	t.Helper()
	var results []*replay.Result
	summary, err := replay.New(compiled(t, policies...)).Replay(t.Context(), []replay.Input{input("day.log", text)}, func(r *replay.Result) error {
		results = append(results, r)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return results, summary
}

// told puts a summary in few words.
func told(s *replay.Summary) string {
	var parts []string
	for _, c := range s.Changes {
		parts = append(parts, strings.TrimSpace(fmt.Sprintf("%d %s>%s %s %s %s", c.Count, c.Was, c.Would, c.Policy, c.Difference, c.What)))
	}
	for _, u := range s.Unknown {
		parts = append(parts, strings.TrimSpace(fmt.Sprintf("%d? %s %s %s", u.Count, u.Policy, u.Cause, u.Fact)))
	}
	return strings.Join(parts, ", ")
}
