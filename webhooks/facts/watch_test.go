package facts_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/test/support/env"
	"sallyport.dev/sallyport/webhooks/engine"
	"sallyport.dev/sallyport/webhooks/facts"
)

// newRunning is a fixture whose store is started and declares nothing, with little patience. Its cache and its client know
// kinds by one RESTMapper, as in the manager.
func newRunning(t *testing.T, config *rest.Config) *fixture {
	t.Helper()
	f := newFixture(t, config)
	if config == nil {
		config = env.Shared(t).Config
	}
	direct, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	cached, err := cache.New(config, cache.Options{
		Mapper: direct.RESTMapper(), DefaultTransform: facts.Compact, ReaderFailOnMissingInformer: true,
		DefaultWatchErrorHandler: func(_ context.Context, r *toolscache.Reflector, err error) { f.WatchFailed(r.TypeDescription(), err) },
	})
	if err != nil {
		t.Fatal(err)
	}
	f.Store = facts.NewStore(cached, direct)
	f.Hasten()
	go func() {
		if err := cached.Start(t.Context()); err != nil {
			t.Errorf("running the cache: %v", err)
		}
	}()
	return f
}

// lacking gives what is lacking for reads, a line each.
func (f *fixture) lacking(t *testing.T, reads ...engine.Read) string {
	var lines []string
	for _, l := range f.Watch(t.Context(), "p", reads) {
		lines = append(lines, l.Err.Error())
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func (f *fixture) awaitLack(t *testing.T, want string, reads ...engine.Read) {
	t.Helper()
	var got string
	f.await(t, "what is lacking to be: "+want, func() bool {
		got = f.lacking(t, reads...)
		return got == want
	})
}

// gauge returns the value of a metric of the store for a kind.
func (f *fixture) gauge(t *testing.T, name, kind string) float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(f.Store)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == name && m.GetLabel()[0].GetValue() == kind {
				return m.GetGauge().GetValue()
			}
		}
	}
	t.Fatalf("there is no %s of %s", name, kind)
	return 0
}

// Kinds and indexes are added while the store answers for others.
func TestReadsAreDeclaredWhileRunning(t *testing.T) {
	f := newRunning(t, nil)
	changed := make(chan struct{}, 100)
	f.Notify(func() { changed <- struct{}{} })
	f.pod(t, "a", "n1", corev1.PodRunning)
	pods, byNode := engine.Read{APIVersion: "v1", Kind: "Pod"}, podReads[0]
	if got := f.lacking(t, pods); got != "v1 Pod: not synced yet" {
		t.Errorf("at first %q", got)
	}
	for f.lacking(t, pods) != "" {
		<-changed
	}
	before := float64(time.Now().Unix())
	if got := f.gauge(t, "sallyport_fact_cache_synced", "v1/Pod"); got != 1 {
		t.Errorf("the metric of the synced cache is %v", got)
	}
	heard := f.gauge(t, "sallyport_fact_cache_heard_timestamp_seconds", "v1/Pod")
	if heard < before || heard != f.gauge(t, "sallyport_fact_cache_heard_timestamp_seconds", "v1/Pod") {
		t.Errorf("heard at %v, after %v", heard, before)
	}
	list := f.pods(nil)
	if got, _ := f.read(t, facts.Subject{}, list); got != "a" {
		t.Errorf("got %q", got)
	}

	// An index covers what was there before and what comes later.
	f.awaitLack(t, "", byNode)
	list.Fields = map[string]string{"spec.nodeName": "n1"}
	if got, _ := f.read(t, facts.Subject{}, list); got != "a" {
		t.Errorf("by a new index: got %q", got)
	}
	f.pod(t, "b", "n1", corev1.PodRunning)
	f.await(t, "the index to have both", func() bool {
		got, _ := f.read(t, facts.Subject{}, list)
		return got == "a b"
	})

	if err := f.Synced(); err != nil {
		t.Errorf("nothing decides, so nothing has to be synced: %v", err)
	}
	f.Use([]engine.Read{byNode}, []engine.Read{pods})
	if err := f.Synced(); err != nil {
		t.Error(err)
	}
	f.Use([]engine.Read{{APIVersion: "v1", Kind: "ConfigMap"}}, nil)
	if err := f.Synced(); !errors.Is(err, facts.ErrNotSynced) {
		t.Errorf("got %v", err)
	}
}

// A kind that does not exist holds nobody up, and is found when it does.
func TestKindThatIsServedLater(t *testing.T) {
	f := newRunning(t, nil)
	group := strings.ReplaceAll(f.namespace, "-", "") + ".test"
	read := engine.Read{APIVersion: group + "/v1", Kind: "Thing", Indexes: []string{"spec.color"}}
	f.awaitLack(t, group+"/v1 Thing: the API server does not serve this kind", read)
	f.awaitLack(t, "", podReads...)

	keep := true
	crd := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "things." + group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "things", Kind: "Thing"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", XPreserveUnknownFields: &keep,
				}}}},
		},
	}
	if err := env.Shared(t).InstallCRDs(t.Context(), crd); err != nil {
		t.Fatal(err)
	}
	thing := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": group + "/v1", "kind": "Thing", "metadata": map[string]any{"name": "a", "namespace": f.namespace},
		"spec": map[string]any{"color": "red"},
	}}
	if err := f.client.Create(t.Context(), thing); err != nil {
		t.Fatal(err)
	}
	f.awaitLack(t, "", read)
	q := engine.Query{APIVersion: group + "/v1", Kind: "Thing", Namespace: f.namespace, Fields: map[string]string{"spec.color": "red"}}
	f.await(t, "the thing to be found by its color", func() bool { got, _ := f.read(t, facts.Subject{}, q); return got == "a" })
}

// What is lacking is named to the verb. A right to list without one to watch would leave a cache that never learns anything.
func TestForbiddenReads(t *testing.T) {
	f := newRunning(t, nil)
	config, err := env.Shared(t).UserConfig(f.namespace)
	if err != nil {
		t.Fatal(err)
	}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: f.namespace}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: f.namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: f.namespace},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: f.namespace}},
	}
	for _, o := range []client.Object{role, binding} {
		if err := f.client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	allow := func(verbs ...string) {
		t.Helper()
		role.Rules = []rbacv1.PolicyRule{{APIGroups: []string{"apps"}, Resources: []string{"deployments"}, Verbs: verbs}}
		if err := f.client.Update(t.Context(), role); err != nil {
			t.Fatal(err)
		}
	}
	limited := newRunning(t, config)
	read := engine.Read{APIVersion: "apps/v1", Kind: "Deployment"}
	limited.awaitLack(t, "apps/v1 Deployment: Sallyport may not get, list, watch deployments.apps", read)
	var forbidden *facts.ForbiddenError
	if lacks := limited.Watch(t.Context(), "p", []engine.Read{read}); !errors.As(lacks[0].Err, &forbidden) ||
		cmp.Diff([]string{"get", "list", "watch"}, forbidden.Verbs) != "" || forbidden.Group != "apps" || forbidden.Resource != "deployments" {
		t.Errorf("got %+v", lacks)
	}
	allow("get", "list")
	limited.awaitLack(t, "apps/v1 Deployment: Sallyport may not watch deployments.apps", read)
	allow("get", "list", "watch")
	limited.awaitLack(t, "", read)
}

// A right that is taken away is noticed when the watch ends, which API servers see to every few minutes, and so is its return.
func TestRevokedReads(t *testing.T) {
	admin := newFixture(t, nil)
	config, err := env.Shared(t).UserConfig(admin.namespace)
	if err != nil {
		t.Fatal(err)
	}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: admin.namespace}}
	allow := func(resources ...string) {
		t.Helper()
		role.Rules = []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: resources, Verbs: []string{"get", "list", "watch"}}}
		if err := admin.client.Update(t.Context(), role); err != nil {
			t.Fatal(err)
		}
	}
	for _, o := range []client.Object{role, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: admin.namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: admin.namespace},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: admin.namespace}},
	}} {
		if err := admin.client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	allow("pods", "services")
	w := watching(config)
	limited := newRunning(t, w.config)
	changed := make(chan struct{}, 1000)
	limited.Notify(func() { changed <- struct{}{} })
	pods, services := engine.Read{APIVersion: "v1", Kind: "Pod"}, engine.Read{APIVersion: "v1", Kind: "Service"}
	limited.awaitLack(t, "", pods, services)
	for len(changed) > 0 {
		<-changed
	}

	w.cut() // for no reason, which is no reason to give anything up
	limited.await(t, "both to be watched again", func() bool { return w.open("pods") == 1 && w.open("services") == 1 })
	if got := limited.lacking(t, pods, services); got != "" {
		t.Errorf("after a disconnection: %q", got)
	}

	allow("services")
	limited.await(t, "the right to be gone", func() bool {
		w.cut()
		return limited.lacking(t, pods, services) == "v1 Pod: Sallyport may not get, list, watch pods"
	})
	<-changed
	if _, err := limited.For(&admissionv1.AdmissionRequest{}, facts.Subject{}).Read(t.Context(), engine.Query{APIVersion: "v1", Kind: "Pod"}); err == nil {
		t.Error("it answers for what it may not read")
	}
	allow("pods", "services")
	limited.awaitLack(t, "", pods, services)
}

// Where it may not be asked what is allowed, trying tells.
func TestForbiddenReadsWithoutReviews(t *testing.T) {
	config, err := env.Shared(t).UserConfig("stranger")
	if err != nil {
		t.Fatal(err)
	}
	direct, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{}
	cached, err := cache.New(config, cache.Options{
		Mapper: direct.RESTMapper(), DefaultTransform: facts.Compact,
		DefaultWatchErrorHandler: func(_ context.Context, r *toolscache.Reflector, err error) { f.WatchFailed(r.TypeDescription(), err) },
	})
	if err != nil {
		t.Fatal(err)
	}
	f.Store = facts.NewStore(cached, reviewless{direct})
	go func() { _ = cached.Start(t.Context()) }()
	f.Hasten()
	f.awaitLack(t, "v1 Pod: Sallyport may not get, list, watch pods", podReads...)
}

// reviewless may not ask for access reviews.
type reviewless struct{ client.Client }

func (reviewless) Create(context.Context, client.Object, ...client.CreateOption) error {
	return errors.New("no reviews here")
}

// What nobody wants any more is given up if it never came to anything.
func TestWhatIsNotWantedIsGivenUp(t *testing.T) {
	f := newRunning(t, nil)
	never := engine.Read{APIVersion: "no.such/v1", Kind: "Thing"}
	f.awaitLack(t, "no.such/v1 Thing: the API server does not serve this kind", never)
	f.awaitLack(t, "", podReads...)
	f.Use(nil, nil)
	reader := f.For(&admissionv1.AdmissionRequest{}, facts.Subject{})
	f.await(t, "the store to forget the kind", func() bool {
		_, err := reader.Read(t.Context(), engine.Query{APIVersion: never.APIVersion, Kind: never.Kind})
		return err != nil && strings.Contains(err.Error(), "is not watched")
	})
	f.awaitLack(t, "", podReads...) // what had synced is there at once
	f.awaitLack(t, "no.such/v1 Thing: the API server does not serve this kind", never)
}

// What is not wanted any more is not watched any more, after a while; what is wanted again before that was never gone.
func TestWhatIsNotWantedIsDropped(t *testing.T) {
	w := watching(env.Shared(t).Config)
	f := newRunning(t, w.config)
	services := engine.Read{APIVersion: "v1", Kind: "Service"}
	f.awaitLack(t, "", podReads[0], services)
	f.Use(podReads, []engine.Read{services})
	f.Lapse()
	for range 3 {
		f.Use(podReads, nil) // an edit
		f.Use(podReads, []engine.Read{services})
		f.Lapse()
		f.Use(podReads, nil) // and another, taken back when it has been tried
		if got := f.lacking(t, services); got != "" {
			t.Errorf("wanted again: %q", got)
		}
		f.Lapse()
	}
	if n := w.lists("services"); n != 1 {
		t.Errorf("Services were listed %d times", n)
	}

	f.Use(podReads, nil)
	if n := w.open("services"); n != 1 {
		t.Errorf("Services are watched %d times, and should be for a while", n)
	}
	f.Lapse()
	f.await(t, "the watch to end", func() bool { return w.open("services") == 0 })
	read := func(kind string) error {
		_, err := f.For(&admissionv1.AdmissionRequest{}, facts.Subject{}).Read(t.Context(), engine.Query{APIVersion: "v1", Kind: kind})
		return err
	}
	if err := read("Service"); err == nil || !strings.Contains(err.Error(), "is not watched") {
		t.Errorf("what is gone is answered for: %v", err)
	}
	if err := read("Pod"); err != nil || w.open("pods") != 1 || w.lists("pods") != 1 || f.Synced() != nil {
		t.Errorf("what decides was touched: %v, %d watches, %d lists", err, w.open("pods"), w.lists("pods"))
	}
	f.awaitLack(t, "", services)
	if err := read("Service"); err != nil || w.lists("services") != 2 {
		t.Errorf("wanted anew: %v, listed %d times", err, w.lists("services"))
	}
}

// watches counts what a client lists and watches, and can cut it off.
type watches struct {
	config *rest.Config

	mu     sync.Mutex
	bodies map[*body]string
	listed map[string]int
}

func watching(config *rest.Config) *watches {
	w := &watches{config: rest.CopyConfig(config), bodies: map[*body]string{}, listed: map[string]int{}}
	w.config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) { return w.roundTrip(next, r) })
	})
	return w
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

type body struct {
	io.ReadCloser
	closed func()
}

func (b *body) Close() error {
	b.closed()
	return b.ReadCloser.Close()
}

func (w *watches) roundTrip(next http.RoundTripper, r *http.Request) (*http.Response, error) {
	response, err := next.RoundTrip(r)
	resource := path.Base(r.URL.Path)
	query := r.URL.Query()
	// What is read live is limited; a list may be a watch that begins with everything there is.
	if err != nil || r.Method != http.MethodGet || query.Has("limit") && !query.Has("resourceVersion") {
		return response, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !query.Has("watch") || query.Get("sendInitialEvents") == "true" {
		w.listed[resource]++
	}
	if query.Has("watch") && response.StatusCode == http.StatusOK {
		b := &body{ReadCloser: response.Body}
		b.closed = func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			delete(w.bodies, b)
		}
		w.bodies[b] = resource
		response.Body = b
	}
	return response, nil
}

func (w *watches) open(resource string) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, of := range w.bodies {
		if of == resource {
			n++
		}
	}
	return n
}

func (w *watches) lists(resource string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.listed[resource]
}

// cut ends all watches, as API servers do from time to time.
func (w *watches) cut() {
	w.mu.Lock()
	bodies := slices.Collect(maps.Keys(w.bodies))
	w.mu.Unlock()
	for _, b := range bodies {
		_ = b.Close()
	}
}

// Requests read by one index while others are added.
func TestReadingWhileIndexesAreAdded(t *testing.T) {
	f := newRunning(t, nil)
	f.awaitLack(t, "", podReads...)
	f.pod(t, "a", "n1", corev1.PodRunning)
	q := f.pods(func(q *engine.Query) { q.Fields = map[string]string{"spec.nodeName": "n1"} })
	f.await(t, "the pod", func() bool { got, _ := f.read(t, facts.Subject{}, q); return got == "a" })
	for i := range 10 {
		further := engine.Read{APIVersion: "v1", Kind: "Pod", Indexes: []string{fmt.Sprintf("spec.field%d", i)}}
		f.await(t, "another index", func() bool {
			if got, _ := f.read(t, facts.Subject{}, q); got != "a" {
				t.Errorf("got %q", got)
			}
			return f.lacking(t, further) == ""
		})
	}
}
