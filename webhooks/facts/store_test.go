package facts_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/test/support/env"
	"sallyport.dev/sallyport/test/support/env/install"
	"sallyport.dev/sallyport/test/support/step"
	"sallyport.dev/sallyport/webhooks/engine"
	"sallyport.dev/sallyport/webhooks/facts"
)

// Pods are the kind of these tests: a label stands for what other kinds have in their spec, and spec.nodeName and
// status.phase are fields that the API server can select by.

func TestMain(m *testing.M) { install.Main(m) } // with a kind of ours that is cluster-scoped

var podReads = []engine.Read{{APIVersion: "v1", Kind: "Pod", Indexes: []string{"spec.nodeName"}}}

type fixture struct {
	*facts.Store
	client    client.Client
	namespace string
}

// newFixture starts a store on the shared control plane, in a namespace of its own.
func newFixture(t *testing.T, config *rest.Config, reads ...engine.Read) *fixture {
	t.Helper()
	cp := env.Shared(t)
	admin, err := client.New(cp.Config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "facts-"}}
	if err := admin.Create(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	if config == nil {
		config = cp.Config
	}
	cached, err := cache.New(config, cache.Options{DefaultTransform: facts.Compact})
	if err != nil {
		t.Fatal(err)
	}
	direct, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{Store: facts.NewStore(cached, direct), client: admin, namespace: namespace.Name}
	if err := f.Declare(t.Context(), reads); err != nil {
		t.Fatal(err)
	}
	go func() {
		if err := cached.Start(t.Context()); err != nil {
			t.Errorf("running the cache: %v", err)
		}
	}()
	return f
}

func (f *fixture) awaitSync(t *testing.T) {
	t.Helper()
	f.await(t, "the store to be synced", func() bool { return f.Synced() == nil })
}

func (f *fixture) await(t *testing.T, what string, condition func() bool) {
	t.Helper()
	err := step.Await(t.Context(), func(context.Context) (bool, error) { return condition(), nil })
	if err != nil {
		t.Fatalf("waiting for %s: %v", what, err)
	}
}

// pod makes a pod on a node, in a phase.
func (f *fixture) pod(t *testing.T, name, node string, phase corev1.PodPhase) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: f.namespace, Labels: map[string]string{"pod": name}},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	if err := f.client.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	pod.Status.Phase = phase
	if err := f.client.Status().Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	return pod
}

func (f *fixture) read(t *testing.T, subject facts.Subject, q engine.Query) (string, engine.Answer) {
	t.Helper()
	answer, err := f.For(&admissionv1.AdmissionRequest{}, subject).Read(t.Context(), q)
	if err != nil {
		t.Fatalf("reading %+v: %v", q, err)
	}
	return names(t, answer.Value), answer
}

// names of the objects in an answer, in alphabetical order; "null" for null.
func names(t *testing.T, v engine.Value) string {
	t.Helper()
	if v.IsNull() {
		return "null"
	}
	if name := v.Get("metadata").Get("name").Text(); name != "" {
		return name
	}
	var all string
	for _, o := range objects(t, v) {
		all += o.GetName() + " "
	}
	letters := strings.Split(all, " ")
	slices.Sort(letters)
	return strings.TrimSpace(strings.Join(letters, " "))
}

func objects(t *testing.T, v engine.Value) []unstructured.Unstructured {
	t.Helper()
	text, err := v.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	var decoded []map[string]any
	if err := json.Unmarshal(text, &decoded); err != nil {
		t.Fatalf("reading %s: %v", text, err)
	}
	list := make([]unstructured.Unstructured, len(decoded))
	for i := range decoded {
		list[i].Object = decoded[i]
	}
	return list
}

func (f *fixture) pods(change func(*engine.Query)) engine.Query {
	q := engine.Query{Fact: "pods", APIVersion: "v1", Kind: "Pod", Namespace: f.namespace}
	if change != nil {
		change(&q)
	}
	return q
}

// chosen are the names of the objects that a query selects.
func chosen(t *testing.T, all engine.Value, q engine.Query) string {
	t.Helper()
	var found []string
	for _, o := range objects(t, all) {
		if facts.Selects(q, &o) {
			found = append(found, o.GetName())
		}
	}
	slices.Sort(found)
	return strings.Join(found, " ")
}

// Both ways of reading must give the same answer once the cache has caught up.
func TestCacheAndAPIServerAgree(t *testing.T) {
	f := newFixture(t, nil, podReads...)
	f.awaitSync(t)
	f.pod(t, "a", "n1", corev1.PodRunning)
	f.pod(t, "b", "n1", corev1.PodSucceeded)
	f.pod(t, "c", "n2", corev1.PodRunning)
	d := f.pod(t, "d", "n1", corev1.PodRunning)
	_, everything := f.read(t, facts.Subject{}, f.pods(func(q *engine.Query) { q.Live = true }))
	podKind := schema.GroupKind{Kind: "Pod"}
	self := facts.Subject{Kind: podKind, Namespace: f.namespace, Name: "d", UID: d.UID}
	for name, tc := range map[string]struct {
		subject facts.Subject
		change  func(*engine.Query)
		want    string
	}{
		"all":             {change: nil, want: "a b c d"},
		"by index":        {change: func(q *engine.Query) { q.Fields = map[string]string{"spec.nodeName": "n1"} }, want: "a b d"},
		"by index, other": {change: func(q *engine.Query) { q.Fields = map[string]string{"spec.nodeName": "n9"} }, want: ""},
		"by label":        {change: func(q *engine.Query) { q.Labels = map[string]string{"pod": "c"} }, want: "c"},
		"except": {change: func(q *engine.Query) {
			q.Fields = map[string]string{"spec.nodeName": "n1"}
			q.Except = map[string][]string{"status.phase": {"Succeeded", "Failed"}}
		}, want: "a d"},
		"without the object under review":    {subject: self, want: "a b c"},
		"another object of that name":        {subject: facts.Subject{Kind: podKind, Namespace: f.namespace, Name: "d", UID: "other"}, want: "a b c d"},
		"under review without a UID yet":     {subject: facts.Subject{Kind: podKind, Namespace: f.namespace, Name: "d"}, want: "a b c"},
		"another kind of that name":          {subject: facts.Subject{Kind: schema.GroupKind{Kind: "Secret"}, Namespace: f.namespace, Name: "d"}, want: "a b c d"},
		"by name":                            {change: func(q *engine.Query) { q.Name = "b" }, want: "b"},
		"by name, absent":                    {change: func(q *engine.Query) { q.Name = "nobody" }, want: "null"},
		"by name, the object being created":  {subject: self, change: func(q *engine.Query) { q.Name = "d" }, want: "null"},
		"by name, elsewhere":                 {change: func(q *engine.Query) { q.Name, q.Namespace = "a", "default" }, want: "null"},
		"another namespace holds other pods": {change: func(q *engine.Query) { q.Namespace = "default" }, want: ""},
	} {
		t.Run(name, func(t *testing.T) {
			q := f.pods(tc.change)
			live := q
			live.Live = true
			if got, _ := f.read(t, tc.subject, live); got != tc.want {
				t.Errorf("live: got %q, want %q", got, tc.want)
			}
			if q.Name == "" && tc.subject == (facts.Subject{}) {
				if got := chosen(t, everything.Value, q); got != tc.want {
					t.Errorf("by Selects: got %q, want %q", got, tc.want)
				}
			}
			var got string
			f.await(t, fmt.Sprintf("the cache to answer %q", tc.want), func() bool {
				got, _ = f.read(t, tc.subject, q)
				return got == tc.want
			})
		})
	}
}

func TestAnswersSayWhereTheyCameFrom(t *testing.T) {
	f := newFixture(t, nil, podReads...)
	f.awaitSync(t)
	f.pod(t, "a", "n1", corev1.PodRunning)
	for _, live := range []bool{false, true} {
		f.await(t, "an answer with a resourceVersion", func() bool {
			got, answer := f.read(t, facts.Subject{}, f.pods(func(q *engine.Query) { q.Live = live }))
			return got == "a" && answer.Live == live && answer.ResourceVersion != ""
		})
	}
}

// Superseding goes by age, so lists are in the order of creation, and in a fixed order within one second.
func TestListsAreInOrderOfAge(t *testing.T) {
	f := newFixture(t, nil, podReads...)
	for i := range 20 {
		f.pod(t, fmt.Sprintf("p%d", i), "n1", corev1.PodRunning)
	}
	_, answer := f.read(t, facts.Subject{}, f.pods(func(q *engine.Query) { q.Live = true }))
	list := objects(t, answer.Value)
	if len(list) != 20 {
		t.Fatalf("got %d pods", len(list))
	}
	for i := 1; i < len(list); i++ {
		a, b := list[i-1].GetCreationTimestamp(), list[i].GetCreationTimestamp()
		if b.Before(&a) || a.Equal(&b) && list[i].GetUID() <= list[i-1].GetUID() {
			t.Errorf("%s %s stands before %s %s", a, list[i-1].GetUID(), b, list[i].GetUID())
		}
	}
}

func TestOldObjectAnswersForTheObjectUnderReview(t *testing.T) {
	f := newFixture(t, nil, podReads...)
	old, err := engine.ValueOf(map[string]any{"metadata": map[string]any{"name": "before"}})
	if err != nil {
		t.Fatal(err)
	}
	subject := facts.Subject{Kind: schema.GroupKind{Kind: "Pod"}, Namespace: f.namespace, Name: "a", UID: "u", Old: old}
	if got, _ := f.read(t, subject, f.pods(func(q *engine.Query) { q.Name = "a" })); got != "before" {
		t.Errorf("got %q", got)
	}
}

// Kinds without a namespace, of the core group and of ours, are asked for by name alone.
func TestClusterScopedKinds(t *testing.T) {
	f := newFixture(t, nil, engine.Read{APIVersion: "v1", Kind: "Namespace"}, engine.Read{APIVersion: "sallyport.dev/v1alpha1", Kind: "VSphereServer"})
	server := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "sallyport.dev/v1alpha1", "kind": "VSphereServer", "metadata": map[string]any{"name": f.namespace},
		"spec": map[string]any{
			"url": "https://vc", "credentialsSecretRef": map[string]any{"name": "vc"},
			"trust": map[string]any{"caBundle": "-----BEGIN CERTIFICATE-----"},
		},
	}}
	if err := f.client.Create(t.Context(), server); err != nil {
		t.Fatal(err)
	}
	f.awaitSync(t)
	for _, apiVersion := range []string{"v1", "sallyport.dev/v1alpha1"} {
		kind := map[string]string{"v1": "Namespace", "sallyport.dev/v1alpha1": "VSphereServer"}[apiVersion]
		for _, live := range []bool{false, true} {
			q := engine.Query{APIVersion: apiVersion, Kind: kind, Name: f.namespace, Live: live}
			f.await(t, kind, func() bool {
				answer, err := f.For(&admissionv1.AdmissionRequest{}, facts.Subject{}).Read(t.Context(), q)
				return err == nil && answer.Live == live && answer.Value.Get("metadata").Get("name").Text() == f.namespace
			})
			q.Name = "no-such"
			if answer, err := f.For(&admissionv1.AdmissionRequest{}, facts.Subject{}).Read(t.Context(), q); err != nil || !answer.Value.IsNull() {
				t.Errorf("%s, live %v: got %+v, %v for one that does not exist", kind, live, answer, err)
			}
		}
	}
}

// An API server selects Pods by spec.nodeName, but not by these others.
func TestLiveListsByWhatTheAPIServerCannotSelectBy(t *testing.T) {
	f := newFixture(t, nil)
	for name, node := range map[string]string{"a": "n1", "b": "n2"} {
		f.pod(t, name, node, corev1.PodRunning)
	}
	for image, want := range map[string]string{"i": "a", "j": ""} {
		got, _ := f.read(t, facts.Subject{}, f.pods(func(q *engine.Query) {
			q.Live, q.Fields = true, map[string]string{"spec.nodeName": "n1", "spec.dnsPolicy": "ClusterFirst", "spec.containers[].image": image}
		}))
		if got != want {
			t.Errorf("image %s: got %q, want %q", image, got, want)
		}
	}
}

// Unknown is not empty.
func TestWhatCannotBeReadIsAnError(t *testing.T) {
	stranger, err := env.Shared(t).UserConfig("stranger")
	if err != nil {
		t.Fatal(err)
	}
	reader := func(f *fixture) engine.Reader {
		return f.For(&admissionv1.AdmissionRequest{}, facts.Subject{})
	}
	unstarted := func() *facts.Store {
		cached, err := cache.New(env.Shared(t).Config, cache.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return facts.NewStore(cached, nil)
	}()
	if err := unstarted.Declare(t.Context(), podReads); err != nil {
		t.Fatal(err)
	}
	f := newFixture(t, nil, podReads...)
	f.awaitSync(t)
	for name, tc := range map[string]struct {
		reader engine.Reader
		query  engine.Query
		want   error
	}{
		"a kind that is not synced":           {unstarted.For(&admissionv1.AdmissionRequest{}, facts.Subject{}), f.pods(nil), facts.ErrNotSynced},
		"a kind that is not watched":          {reader(f), engine.Query{APIVersion: "v1", Kind: "Secret"}, nil},
		"a kind that does not exist":          {reader(f), engine.Query{APIVersion: "no/v1", Kind: "Such", Live: true}, nil},
		"a requester without rights":          {reader(newFixture(t, stranger)), f.pods(func(q *engine.Query) { q.Live = true }), nil},
		"the parent of a request without one": {reader(f), engine.Query{Parent: true}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			answer, err := tc.reader.Read(t.Context(), tc.query)
			if err == nil || tc.want != nil && !errors.Is(err, tc.want) {
				t.Errorf("got answer %+v and error %v", answer, err)
			}
		})
	}
}

// Access is judged by the requester's rights and never by ours.
func TestAccessIsTheRequesters(t *testing.T) {
	f := newFixture(t, nil)
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "r", Namespace: f.namespace}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}},
	}}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "r", Namespace: f.namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "r"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: "readers"}},
	}
	for _, o := range []client.Object{role, binding} {
		if err := f.client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	may := func(verb string, groups ...string) bool {
		request := &admissionv1.AdmissionRequest{UserInfo: authenticationv1.UserInfo{Username: "ann", Groups: groups}}
		answer, err := f.For(request, facts.Subject{}).Read(t.Context(), engine.Query{
			Access: &engine.Access{Verb: verb, Resource: "pods", Namespace: f.namespace},
		})
		if err != nil {
			t.Fatal(err)
		}
		text, _ := answer.Value.MarshalJSON()
		return string(text) == "true"
	}
	f.await(t, "the role to be effective", func() bool { return may("get", "readers") })
	got := map[string]bool{"delete": may("delete", "readers"), "get without the group": may("get")}
	if diff := cmp.Diff(map[string]bool{"delete": false, "get without the group": false}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
