package facts_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sallyport.dev/sallyport/test/support/env"
	"sallyport.dev/sallyport/webhooks/engine"
	"sallyport.dev/sallyport/webhooks/facts"
)

// writer changes ConfigMaps of a namespace, and remembers each state of them.
type writer struct {
	*testing.T
	client.Client
	namespace string
	rand      *rand.Rand
	states    []map[string]state // by name
	between   int                // writes before each request of the store
}

// state is what one ConfigMap had.
type state struct{ version, host string }

var hosts = []string{"a", "b", "c"}

// write makes one change: it creates, changes, deletes or replaces a ConfigMap.
func (w *writer) write() {
	w.Helper()
	next := map[string]state{}
	if len(w.states) > 0 {
		maps.Copy(next, w.states[len(w.states)-1])
	}
	name := fmt.Sprintf("c%d", w.rand.IntN(12))
	o := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name, Annotations: map[string]string{"n": fmt.Sprint(len(w.states))}},
		Data:       map[string]string{"host": hosts[w.rand.IntN(len(hosts))]},
	}
	_, there := next[name]
	err := error(nil)
	switch action := w.rand.IntN(4); {
	case !there:
		err = w.Create(w.Context(), o)
	case action == 0:
		err = w.Delete(w.Context(), o)
		delete(next, name)
	default:
		err = w.Update(w.Context(), o)
	}
	if err != nil {
		w.Fatal(err)
	}
	if o.ResourceVersion != "" {
		next[name] = state{o.ResourceVersion, o.Data["host"]}
	}
	w.states = append(w.states, next)
}

// A live list beside a cache that is behind says of each object what it was at some moment of the read: with writes between every two requests,
// it has no object that did not match meanwhile, and lacks none that always did. Of one that needs only some, the former holds, and the
// latter for the objects of the cache.
func TestLiveListsBesideACacheThatIsBehind(t *testing.T) {
	f := newFixture(t, nil)
	seeds := 15
	if testing.Short() {
		seeds = 3
	}
	for seed := range uint64(seeds) {
		w := &writer{T: t, Client: f.client, namespace: f.namespace, rand: rand.New(rand.NewPCG(seed, 0))}
		for range 30 {
			w.write()
		}
		before := w.states[len(w.states)-1]
		store := f.behind(t, w)
		for _, each := range []int{0, 1, 1, 3, 20} { // the last are more than are read one by one
			w.between = each
			for _, some := range []bool{false, true} {
				w.check(store, before, some)
			}
		}
		if err := f.client.DeleteAllOf(t.Context(), &corev1.ConfigMap{}, client.InNamespace(f.namespace)); err != nil {
			t.Fatal(err)
		}
	}
}

// behind returns a store whose cache has ended, and so has what was there before.
func (f *fixture) behind(t *testing.T, w *writer) *facts.Store {
	t.Helper()
	config := env.Shared(t).Config
	ctx, stop := context.WithCancel(t.Context())
	cached, err := cache.New(config, cache.Options{DefaultTransform: facts.Compact})
	if err != nil {
		t.Fatal(err)
	}
	direct, err := client.NewWithWatch(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	happen := func() {
		for range w.between {
			w.write()
		}
	}
	direct = interceptor.NewClient(direct, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			happen()
			return c.List(ctx, list, options...)
		},
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
			happen()
			return c.Get(ctx, key, o, options...)
		},
	})
	store := &fixture{Store: facts.NewStore(cached, direct)}
	if err := store.Declare(t.Context(), []engine.Read{{APIVersion: "v1", Kind: "ConfigMap", Indexes: []string{"data.host"}}}); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- cached.Start(ctx) }()
	store.awaitSync(t)
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	return store.Store
}

// check reads the ConfigMaps with host a.
func (w *writer) check(store *facts.Store, cached map[string]state, some bool) {
	w.Helper()
	from := len(w.states) - 1
	q := engine.Query{
		Fact: "f", APIVersion: "v1", Kind: "ConfigMap", Namespace: w.namespace, Fields: map[string]string{"data.host": "a"}, Live: true, Some: some,
	}
	answer, err := store.For(&admissionv1.AdmissionRequest{Namespace: w.namespace}, facts.Subject{}).Read(w.Context(), q)
	if err != nil {
		w.Fatal(err)
	}
	meanwhile := w.states[from:]
	got := map[string]string{}
	for _, o := range objects(w.T, answer.Value) {
		got[o.GetName()] = o.GetResourceVersion()
		if !slices.ContainsFunc(meanwhile, func(all map[string]state) bool {
			return all[o.GetName()] == state{o.GetResourceVersion(), "a"}
		}) {
			w.Errorf("some %v: %s had no host a in version %s meanwhile", some, o.GetName(), o.GetResourceVersion())
		}
	}
	for name := range meanwhile[0] {
		always := !slices.ContainsFunc(meanwhile, func(all map[string]state) bool { return all[name].host != "a" })
		if always && got[name] == "" && (!some || cached[name].host == "a") {
			w.Errorf("some %v: %s is missing", some, name)
		}
	}
}
