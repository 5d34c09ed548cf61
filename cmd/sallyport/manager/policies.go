package manager

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/cmd/sallyport/bundled"
	"sallyport.dev/sallyport/reconcilers/audit"
	"sallyport.dev/sallyport/reconcilers/policy"
	"sallyport.dev/sallyport/reconcilers/policy/registration"
	"sallyport.dev/sallyport/reconcilers/policy/shipping"
	"sallyport.dev/sallyport/replicas"
	"sallyport.dev/sallyport/webhooks/catalog"
	"sallyport.dev/sallyport/webhooks/catalog/keeper"
	"sallyport.dev/sallyport/webhooks/decision"
	"sallyport.dev/sallyport/webhooks/engine"
	"sallyport.dev/sallyport/webhooks/facts"
)

// newFacts returns the store that answers the facts of policies. It has its own cache, so that facts are complete whatever other parts
// of the program leave out of theirs, and a kind that cannot be read does not block the rest.
func newFacts(mgr ctrl.Manager, config *rest.Config, namespace string, reads *policyReads) (*facts.Store, error) {
	var store *facts.Store
	cached, err := cache.New(config, cache.Options{
		Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		DefaultTransform: facts.Compact,
		// A read must not re-create an informer that was removed.
		ReaderFailOnMissingInformer: true,
		DefaultWatchErrorHandler: func(ctx context.Context, r *toolscache.Reflector, err error) {
			toolscache.DefaultWatchErrorHandler(ctx, r, err)
			store.WatchFailed(r.TypeDescription(), err)
		},
	})
	if err != nil {
		return nil, fmt.Errorf("setting up the cache for facts: %w", err)
	}
	if err := mgr.Add(cached); err != nil {
		return nil, fmt.Errorf("adding the cache for facts: %w", err)
	}
	direct, err := directClient(config, mgr)
	if err != nil {
		return nil, fmt.Errorf("setting up the client for live facts: %w", err)
	}
	store = facts.NewStore(cached, direct)
	store.Home(namespace)
	store.Restrict(reads.allow)
	if err := ctrlmetrics.Registry.Register(store); err != nil {
		return nil, fmt.Errorf("registering the metrics of facts: %w", err)
	}
	reads.changed = store.Relisted
	return store, nil
}

// directClient returns a client without a cache and with its own rate limit.
func directClient(config *rest.Config, mgr ctrl.Manager) (client.Client, error) {
	own := rest.CopyConfig(config)
	own.QPS, own.Burst = 100, 200
	rest.AddUserAgent(own, "sallyport-facts")
	return client.New(own, client.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
}

// addPolicies connects the gate to the policies of the cluster in every replica. The leader applies the shipped policies and writes
// the status of all policies.
func (o *Options) addPolicies(
	mgr ctrl.Manager, gate *decision.Decider, store *facts.Store, reads *policyReads, namespace string, replica *replicas.Replica,
) error {
	if err := reads.setupWithManager(mgr); err != nil {
		return fmt.Errorf("following what policies may read: %w", err)
	}
	kept := keeper.New(o.patchable(namespace), gate, store, ctrlmetrics.Registry)
	kept.Replaces = func(ctx context.Context) bool { return replaces(ctx, replica) }
	kept.Ships = func(ctx context.Context) ([]string, error) { return o.shipped(ctx, mgr.GetClient(), namespace) }
	if err := kept.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("setting up the catalog of policies: %w", err)
	}
	if err := mgr.AddReadyzCheck("policies", kept.Ready); err != nil {
		return err
	}
	if err := mgr.Add(reporting{kept, kept.Subscribe(), replica.ReportPolicies}); err != nil {
		return err
	}
	runner, err := o.newTestRunner(mgr, store, o.patchable(namespace))
	if err != nil {
		return fmt.Errorf("setting up the test runs of policies: %w", err)
	}
	store.RunTestsWith(runner)
	sources, err := bundled.Sources()
	if err != nil {
		return fmt.Errorf("reading the policies in the program: %w", err)
	}
	r := &policy.Reconciler{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Namespace: namespace, ConfigMap: o.ShippedPolicies, Release: o.Release, Sources: sources,
		Changed: kept.Subscribe(), Checker: checker{runner}, Tester: tester{runner},
		Events: mgr.GetEventRecorder(eventSource), Now: time.Now,
	}
	registrar, err := o.addRegistration(mgr, kept, replica, namespace, r.Look)
	if err != nil {
		return err
	}
	auditor, err := o.addAudit(mgr, gate, kept, reads, namespace, r.Look)
	if err != nil {
		return err
	}
	reads.granted = auditor.Granted
	r.Catalog, r.Behind = states{kept, registrar, auditor}, registrar.Behind
	if err := r.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("setting up the RegoPolicy reconciler: %w", err)
	}
	return o.addVetting(mgr, r)
}

// shipped returns the names of the policies of the release; none if it ships none.
func (o *Options) shipped(ctx context.Context, reader client.Reader, namespace string) ([]string, error) {
	if o.ShippedPolicies == "" {
		return nil, nil
	}
	cm := &corev1.ConfigMap{}
	if err := reader.Get(ctx, types.NamespacedName{Namespace: namespace, Name: o.ShippedPolicies}, cm); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading ConfigMap %s/%s: %w", namespace, o.ShippedPolicies, err)
	}
	return shipping.Names(cm), nil
}

type versions interface {
	Versions(context.Context) (map[string]string, error)
}

// replaces reports whether live replicas differ in their version. If that cannot be read, none is replaced: this must not end the service.
func replaces(ctx context.Context, replicas versions) bool {
	all, err := replicas.Versions(ctx)
	return err == nil && len(slices.Compact(slices.Sorted(maps.Values(all)))) > 1
}

// addVetting adds a readiness check: the shipped policies of the release can be applied.
func (o *Options) addVetting(mgr ctrl.Manager, r *policy.Reconciler) error {
	if o.ShippedPolicies == "" {
		return nil
	}
	v := &policy.Vetting{Reconciler: r, Shipment: o.Shipment}
	if o.ReplicaUID != "" {
		v.Pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: o.ReplicaName, UID: types.UID(o.ReplicaUID)}}
	}
	if err := mgr.Add(v); err != nil {
		return fmt.Errorf("setting up the check of shipped policies: %w", err)
	}
	return mgr.AddReadyzCheck("shipped", v.Ready)
}

// reporting publishes the active revisions of this replica.
type reporting struct {
	kept    *keeper.Keeper
	changed <-chan event.GenericEvent
	report  func(hash string)
}

// NeedLeaderElection reports false, because every replica reports.
func (reporting) NeedLeaderElection() bool { return false }

func (r reporting) Start(ctx context.Context) error {
	for {
		select {
		case <-r.changed:
			r.report(r.kept.Hash())
		case <-ctx.Done():
			return nil
		}
	}
}

// states adapts the catalog to the reconciler of RegoPolicies, which does not depend on the webhooks.
type states struct {
	kept      *keeper.Keeper
	registrar *registration.Reconciler
	auditor   *audit.Reconciler
}

func (s states) State(name string) (policy.State, bool) {
	is, ok := s.kept.State(name)
	if !ok {
		return policy.State{}, false
	}
	state := policy.State{
		UID: is.UID, Generation: is.Generation, Library: is.Library, Active: is.ActiveHash, LastGood: is.LastGood, Text: is.Text,
		Compiled: policy.Finding{Reason: v1alpha1.ReasonCompiled}, Registered: registered(s.registrar, name, is.Generation),
		Violations: s.auditor.Violations(name), Reported: (*policy.Finding)(s.auditor.Reported(name)),
		Auditing: s.auditor.Auditing(name),
	}
	found := policy.Finding{Reason: is.Problem}
	var places engine.CompileErrors
	switch {
	case errors.As(is.Err, &places):
		found.Message = places.Error() // without the policy's name
	case is.Err != nil:
		found.Message = is.Err.Error()
	}
	switch {
	case catalog.OfText(is.Problem):
		state.Compiled = found
	case is.Problem != "":
		state.Reads = found
	case !is.Library:
		state.Reads.Reason = v1alpha1.ReasonReadsGranted
	}
	if is.Active != nil {
		// What was decoded, or compiled, can be encoded.
		state.Data, _ = is.Active.Encode()
	}
	return state, true
}
