package facts_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/double/toys"
	"sallyport.dev/sallyport/test/support/env"
	"sallyport.dev/sallyport/webhooks/catalog"
	"sallyport.dev/sallyport/webhooks/decision"
	"sallyport.dev/sallyport/webhooks/engine"
	"sallyport.dev/sallyport/webhooks/facts"
	"sallyport.dev/sallyport/webhooks/record"
)

// lag is a way to the API server on which watches can be held up: what comes then is not heard of.
type lag struct {
	config *rest.Config
	held   atomic.Bool
	over   chan struct{}
}

func newLag(t *testing.T, config *rest.Config) *lag {
	l := &lag{config: rest.CopyConfig(config), over: make(chan struct{})}
	t.Cleanup(func() { close(l.over) })
	l.config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			response, err := next.RoundTrip(r)
			if err == nil && r.URL.Query().Has("watch") {
				response.Body = &late{response.Body, l}
			}
			return response, err
		})
	})
	return l
}

type late struct {
	io.ReadCloser
	lag *lag
}

func (b *late) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.lag.held.Load() {
		<-b.lag.over
	}
	return n, err
}

// crowded refuses a Pod on a node that has one in the namespace.
func crowded(t *testing.T, freshness string) *catalog.Set {
	t.Helper()
	set, err := catalog.Compile([]v1alpha1.RegoPolicy{{ObjectMeta: metav1.ObjectMeta{Name: "crowded"}, Spec: v1alpha1.RegoPolicySpec{
		Package: "acme.crowded", TimeoutMilliseconds: 60_000,
		Match: &v1alpha1.PolicyMatch{Resources: []v1alpha1.PolicyResources{{
			APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}, Operations: []v1alpha1.MatchOperation{"CREATE"},
		}}},
		Reads: []v1alpha1.PolicyRead{{APIVersion: "v1", Kind: "Pod", Indexes: []string{"spec.nodeName"}}},
		Modules: []v1alpha1.PolicyModule{{Name: "crowded.rego", Source: fmt.Sprintf(`# METADATA
# title: Crowded
# description: One Pod for each node.
package acme.crowded

facts.others := {
	"apiVersion": "v1", "kind": "Pod", "namespace": input.request.namespace,
	"fields": {"spec.nodeName": input.request.object.spec.nodeName}, %s
}

valid_input if is_string(input.request.object.spec.nodeName)

# METADATA
# title: Crowded
# custom: {reason: Crowded, remedy: Take another node.}
deny contains {"reason": "Crowded", "message": $"{other.metadata.name} is there"} if some other in input.facts.others
`, freshness)}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// ask asks the policy about a new Pod on a node.
func (f *fixture) ask(t *testing.T, set *catalog.Set, node string) *admissionv1.AdmissionResponse {
	t.Helper()
	object := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "new", "namespace": %q}, "spec": {"nodeName": %q}}`, f.namespace, node)
	review := toys.Review(t, &admissionv1.AdmissionRequest{
		UID: "r", Operation: admissionv1.Create, Namespace: f.namespace, Name: "new",
		Kind:     metav1.GroupVersionKind{Version: "v1", Kind: "Pod"},
		Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
		Object:   runtime.RawExtension{Raw: []byte(object)},
	})
	recorder := record.NewRecorder(prometheus.NewRegistry(), io.Discard, false)
	defer recorder.Close(time.Minute)
	return decision.NewDecider(set, f.Store, recorder, time.Now).Answer(t.Context(), &decision.Question{Endpoint: decision.Validating, Review: review})
}

// "Stale replicated state", CVE-2021-43979: a copy that is behind admits nothing that a policy refuses as soon as the policy asks past it; and a
// copy that is not there, or not the whole, is no empty one.
func TestStaleReplicatedStateDoesNotAdmit(t *testing.T) {
	behind := newLag(t, env.Shared(t).Config)
	f := newFixture(t, behind.config, podReads...)
	f.awaitSync(t)
	cached, live := crowded(t, ""), crowded(t, `"freshness": "live"`)
	seen := f.pod(t, "seen", "n1", corev1.PodRunning)
	f.await(t, "the cache to have the first Pod", func() bool {
		answer := f.ask(t, cached, "n1")
		return !answer.Allowed && strings.Contains(answer.Result.Message, "[crowded/Crowded] seen is there")
	})
	behind.held.Store(true)
	f.pod(t, "unseen", "n2", corev1.PodRunning)
	if answer := f.ask(t, live, "n2"); answer.Allowed || !strings.Contains(answer.Result.Message, "[crowded/Crowded] unseen is there") {
		t.Errorf("past the cache: got %+v", answer)
	}
	if answer := f.ask(t, cached, "n2"); !answer.Allowed {
		t.Errorf("the cache is not behind, so this test says nothing: %+v", answer)
	}
	// The other way round nobody has to ask: a denial is not from a copy that is behind.
	if err := f.client.Delete(t.Context(), seen, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	if answer := f.ask(t, cached, "n1"); !answer.Allowed {
		t.Errorf("refused for a Pod that is gone: %+v", answer.Result)
	}

	for name, reads := range map[string][]engine.Read{"not watched": nil, "not synced": podReads} {
		unstarted, err := cache.New(env.Shared(t).Config, cache.Options{})
		if err != nil {
			t.Fatal(err)
		}
		none := &fixture{Store: facts.NewStore(unstarted, f.client), client: f.client, namespace: f.namespace}
		if err := none.Declare(t.Context(), reads); err != nil {
			t.Fatal(err)
		}
		if answer := none.ask(t, cached, "n3"); answer.Allowed || answer.Result.Reason != "FactUnavailable" {
			t.Errorf("%s: got %+v", name, answer)
		}
	}
}

// "SSRF from a policy's context", GHSA-qr4g-8hrp-c4rw: what a requester writes goes into a question as a value, and never becomes a part of the
// question: no other path is asked, and nothing is selected but what is said.
func TestSSRFByWhatARequestSays(t *testing.T) {
	var asked []string
	config := rest.CopyConfig(env.Shared(t).Config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			asked = append(asked, r.URL.Path)
			return next.RoundTrip(r)
		})
	})
	f := newFixture(t, config)
	f.pod(t, "a", "n1", corev1.PodRunning)
	live := func(change func(*engine.Query)) engine.Query {
		return f.pods(func(q *engine.Query) {
			q.Live = true
			change(q)
		})
	}
	f.read(t, facts.Subject{}, live(func(*engine.Query) {})) // so that it knows the kind
	list := "/api/v1/namespaces/" + f.namespace + "/pods"
	for _, hostile := range []string{
		"../../secrets", "a/log", "a/../b", "..", ".", "/", "%2e%2e", "a%2flog", "a?watch=true", "a#b", "a\nb", "a\x00", "", "a,b", "a,!nobody", "a,pod in (a)", "a)", "=a", "!=a",
		"a,metadata.name=a", `a\,metadata.name=a`, "a&labelSelector=", "é",
	} {
		for what, q := range map[string]engine.Query{
			"name":      live(func(q *engine.Query) { q.Name = hostile }),
			"namespace": live(func(q *engine.Query) { q.Namespace = hostile }),
			"label":     live(func(q *engine.Query) { q.Labels = map[string]string{"pod": hostile} }),
			"field":     live(func(q *engine.Query) { q.Fields = map[string]string{"spec.nodeName": hostile} }),
			"value":     live(func(q *engine.Query) { q.Except = map[string][]string{"spec.nodeName": {hostile, "n1"}} }),
		} {
			if hostile == "" && (what == "name" || what == "namespace") { // which says: all
				continue
			}
			asked = nil
			answer, err := f.For(&admissionv1.AdmissionRequest{}, facts.Subject{}).Read(t.Context(), q)
			if err == nil && !answer.Value.IsNull() && names(t, answer.Value) != "" {
				t.Errorf("%s %q: found %s", what, hostile, names(t, answer.Value))
			}
			for _, path := range asked {
				if path != list && path != list+"/"+hostile && path != strings.Replace(list, f.namespace, hostile, 1) || strings.Contains(hostile, "/") && path != list {
					t.Errorf("%s %q: asked for %s", what, hostile, path)
				}
			}
		}
	}
}

// "A policy editor reads any object": who may write a policy, and posts a review that nobody made, is shown no Secret and nothing of
// Sallyport's own namespace. A policy needs no fact for that but the object whose subresource is requested.
func TestParentOfAReviewThatIsMadeUp(t *testing.T) {
	f := newFixture(t, nil)
	const password = "hunter2"
	for _, o := range []client.Object{
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "login", Namespace: f.namespace}, StringData: map[string]string{"p": password}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "login", Namespace: f.namespace}, Data: map[string]string{"p": password}},
	} {
		if err := f.client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	for _, resource := range []string{"secrets", "configmaps"} {
		for _, operation := range []admissionv1.Operation{admissionv1.Create, admissionv1.Update, admissionv1.Delete, admissionv1.Connect} {
			said, recorded := f.spied(t, resource, operation)
			for _, text := range []string{password, "aHVudGVyMg=="} {
				if strings.Contains(said, text) || strings.Contains(recorded, text) {
					t.Errorf("%s of %s: the answer is %s, the record %s", operation, resource, said, recorded)
				}
			}
			if !strings.Contains(said, "policy evaluation failed") {
				t.Errorf("%s of %s: the answer is %s", operation, resource, said)
			}
		}
	}
}

// spied posts a review to a policy that shows the object whose subresource is requested.
func (f *fixture) spied(t *testing.T, resource string, operation admissionv1.Operation) (said, recorded string) {
	t.Helper()
	set, err := catalog.Compile([]v1alpha1.RegoPolicy{{ObjectMeta: metav1.ObjectMeta{Name: "spy"}, Spec: v1alpha1.RegoPolicySpec{
		Package: "acme.spy", TimeoutMilliseconds: 60_000,
		Match: &v1alpha1.PolicyMatch{Resources: []v1alpha1.PolicyResources{{
			APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{resource + "/scale"},
			Operations: []v1alpha1.MatchOperation{v1alpha1.MatchOperation(operation)},
		}}},
		Modules: []v1alpha1.PolicyModule{{Name: "spy.rego", Source: `# METADATA
# title: Spy
# description: Shows what it must not.
package acme.spy

facts.it := {"parent": true}

valid_input if true

# METADATA
# title: Seen
# custom: {reason: Seen, remedyInMessage: None.}
deny contains {"reason": "Seen", "message": json.marshal(input.facts.it)} if true
`}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	review := toys.Review(t, &admissionv1.AdmissionRequest{
		UID: "r", Operation: operation, Namespace: f.namespace, Name: "login", SubResource: "scale",
		Kind:     metav1.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"},
		Resource: metav1.GroupVersionResource{Version: "v1", Resource: resource},
	})
	var records bytes.Buffer
	recorder := record.NewRecorder(prometheus.NewRegistry(), &records, false)
	answer := decision.NewDecider(set, f.Store, recorder, time.Now).Answer(t.Context(), &decision.Question{Endpoint: decision.Validating, Review: review})
	recorder.Close(time.Minute)
	return answer.Result.String() + strings.Join(answer.Warnings, "\n"), records.String()
}
