package keeper_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/double/toys"
	"sallyport.dev/sallyport/test/support/env/install"
	"sallyport.dev/sallyport/test/support/step"
	"sallyport.dev/sallyport/webhooks/catalog"
	"sallyport.dev/sallyport/webhooks/catalog/keeper"
	"sallyport.dev/sallyport/webhooks/decision"
	"sallyport.dev/sallyport/webhooks/facts"
	"sallyport.dev/sallyport/webhooks/grants"
	"sallyport.dev/sallyport/webhooks/record"
)

func TestMain(m *testing.M) { install.Main(m) }

// cluster is a release namespace on a control plane. RegoPolicies have no namespace: tests do not run beside each other, and
// leave none behind.
type cluster struct {
	t         *testing.T
	config    *rest.Config
	client    client.Client
	scheme    *runtime.Scheme
	namespace string
}

func newCluster(t *testing.T, config *rest.Config) *cluster {
	t.Helper()
	c := &cluster{t: t, config: config, scheme: runtime.NewScheme()}
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		c.must(add(c.scheme))
	}
	var err error
	c.client, err = client.New(config, client.Options{Scheme: c.scheme})
	c.must(err)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "keeper-"}}
	c.must(c.client.Create(t.Context(), namespace))
	c.namespace = namespace.Name
	return c
}

func (c *cluster) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// create an object, which is gone again when the test ends.
func (c *cluster) create(o client.Object) {
	c.t.Helper()
	c.must(c.client.Create(c.t.Context(), o))
	c.t.Cleanup(func() {
		if err := c.client.Delete(context.Background(), o); client.IgnoreNotFound(err) != nil {
			c.t.Error(err)
		}
	})
}

// edit the policy p, whatever else writes it.
func (c *cluster) edit(change func(*v1alpha1.RegoPolicy)) {
	c.t.Helper()
	c.await("the edit to be taken", func() bool {
		var p v1alpha1.RegoPolicy
		c.must(c.client.Get(c.t.Context(), client.ObjectKey{Name: "p"}, &p))
		change(&p)
		err := c.client.Update(c.t.Context(), &p)
		if !apierrors.IsConflict(err) {
			c.must(err)
		}
		return err == nil
	})
}

func (c *cluster) await(what string, condition func() bool) {
	c.t.Helper()
	err := step.Await(c.t.Context(), func(context.Context) (bool, error) { return condition(), nil })
	if err != nil {
		c.t.Fatalf("waiting for %s: %v", what, err)
	}
}

// replica is what of the manager has to do with policies.
type replica struct {
	*keeper.Keeper
	*cluster
	gate     *decision.Decider
	registry *prometheus.Registry
	stop     func()
}

// options of a replica.
type options struct {
	config *rest.Config                    // nil: the administrator's
	facts  func(*facts.Store) keeper.Facts // something around the store
	ships  []string                        // the policies of the release
}

func (c *cluster) start(o options) *replica {
	c.t.Helper()
	if o.config == nil {
		o.config = c.config
	}
	skip := true
	mgr, err := ctrl.NewManager(o.config, ctrl.Options{
		Scheme: c.scheme, Cache: cache.Options{ByObject: keeper.CacheOptions(c.namespace)},
		Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: &skip},
	})
	c.must(err)
	cached, err := cache.New(o.config, cache.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: c.scheme, Mapper: mgr.GetRESTMapper(), DefaultTransform: facts.Compact})
	c.must(err)
	c.must(mgr.Add(cached))
	direct, err := client.New(o.config, client.Options{Scheme: c.scheme, Mapper: mgr.GetRESTMapper()})
	c.must(err)
	store := facts.NewStore(cached, direct)
	var source keeper.Facts = store
	if o.facts != nil {
		source = o.facts(store)
	}
	r := &replica{cluster: c, registry: prometheus.NewRegistry()}
	recorder := record.NewRecorder(r.registry, nil, false)
	r.gate = decision.NewDecider(nil, store, recorder, time.Now)
	r.Keeper = keeper.New(grants.Patchable{By: grants.Release{Name: "gate", Namespace: c.namespace}}, r.gate, source, r.registry)
	r.Ships = func(context.Context) ([]string, error) { return slices.Clone(o.ships), nil }
	c.must(r.SetupWithManager(mgr))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	r.stop = func() {
		if cancel(); ended == nil {
			return
		}
		if err := <-ended; err != nil {
			c.t.Errorf("the manager ended: %v", err)
		}
		ended = nil
		recorder.Close(time.Minute)
	}
	c.t.Cleanup(r.stop)
	return r
}

func (r *replica) awaitReady() {
	r.t.Helper()
	var err error
	defer func() {
		if r.t.Failed() {
			r.t.Logf("not ready: %v", err)
		}
	}()
	r.await("the replica to be ready", func() bool { err = r.Ready(nil); return err == nil })
}

// awaitState waits until a policy's present generation is in a state.
func (r *replica) awaitState(name string, is func(catalog.State) bool) catalog.State {
	r.t.Helper()
	var p v1alpha1.RegoPolicy
	r.must(r.client.Get(r.t.Context(), client.ObjectKey{Name: name}, &p))
	var s catalog.State
	defer func() {
		if r.t.Failed() {
			r.t.Logf("it is %+v", s)
		}
	}()
	r.await("policy "+name+" to be in another state", func() bool {
		var ok bool
		s, ok = r.State(name)
		return ok && s.UID == p.UID && s.Generation == p.Generation && is(s)
	})
	return s
}

func current(s catalog.State) bool  { return s.Active != nil && !s.LastGood && s.Err == nil }
func lastGood(s catalog.State) bool { return s.Active != nil && s.LastGood && s.Err != nil }
func broken(s catalog.State) bool   { return s.Active == nil && catalog.OfText(s.Problem) }

// answer is what is said of a ConfigMap: "" if it is admitted, and "nobody judges" as long as there is no set.
func (r *replica) answer() string {
	r.t.Helper()
	review := toys.Review(r.t, &admissionv1.AdmissionRequest{
		UID: "r-1", Operation: admissionv1.Create, Namespace: "ns", Name: "cm",
		Kind:     metav1.GroupVersionKind{Version: "v1", Kind: "ConfigMap"},
		Resource: metav1.GroupVersionResource{Version: "v1", Resource: "configmaps"},
		Object:   runtime.RawExtension{Raw: []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"cm","namespace":"ns"}}`)},
	})
	response := r.gate.Answer(r.t.Context(), &decision.Question{Endpoint: decision.Validating, Review: review})
	switch {
	case response == nil:
		return "nobody judges"
	case response.Allowed:
		return ""
	default:
		return response.Result.Message
	}
}

// saying is the Rego of a policy that refuses with a word.
func saying(name, word string) string {
	return fmt.Sprintf(`# METADATA
# title: T
# description: D
package toy.%s

valid_input if true

# METADATA
# title: T
# custom: {reason: Never, remedyInMessage: do it}
deny contains {"reason": "Never", "message": %q} if true
`, name, word)
}

// policy on ConfigMaps.
func policy(name, text string, reads ...v1alpha1.PolicyRead) *v1alpha1.RegoPolicy {
	return &v1alpha1.RegoPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.RegoPolicySpec{
		Package: "toy." + name, Reads: reads, TimeoutMilliseconds: 4000,
		Match: &v1alpha1.PolicyMatch{Resources: []v1alpha1.PolicyResources{{
			APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"},
			Operations: []v1alpha1.MatchOperation{"CREATE"},
		}}},
		Modules: []v1alpha1.PolicyModule{{Name: "p.rego", Source: text}},
	}}
}

func text(source string) func(*v1alpha1.RegoPolicy) {
	return func(p *v1alpha1.RegoPolicy) { p.Spec.Modules[0].Source = source }
}

const nonsense = "package toy.p\n\nx := y\n"

// store keeps a good revision, as the leader does.
func (r *replica) store(state catalog.State, number int64) {
	r.t.Helper()
	data, err := state.Active.Encode()
	r.must(err)
	r.create(&appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("%s-%s", state.Name, state.ActiveHash[:10]), Namespace: r.namespace,
			Labels: map[string]string{keeper.PolicyLabel: state.Name},
		},
		Data: runtime.RawExtension{Raw: data}, Revision: number,
	})
}

// metric gives the lines of a metric, without its name.
func (r *replica) metric(name string) string {
	r.t.Helper()
	families, err := r.registry.Gather()
	r.must(err)
	var out bytes.Buffer
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				fmt.Fprintf(&out, "%s=%s ", l.GetName(), l.GetValue())
			}
			fmt.Fprintf(&out, "%v\n", m.GetGauge().GetValue()+m.GetCounter().GetValue())
		}
	}
	return strings.TrimSpace(out.String())
}
