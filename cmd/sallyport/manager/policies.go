package manager

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/policy"
	"sallyport.dev/sallyport/webhooks"
	"sallyport.dev/sallyport/webhooks/catalog"
	"sallyport.dev/sallyport/webhooks/catalog/keeper"
	"sallyport.dev/sallyport/webhooks/engine"
	"sallyport.dev/sallyport/webhooks/facts"
)

// newFacts gives the store that answers the facts of policies, with a cache of its own: nothing that another part of the
// program leaves out of its cache may be missing in a fact, and a kind that cannot be read must not hold up the rest.
func newFacts(mgr ctrl.Manager, config *rest.Config) (*facts.Store, error) {
	cached, err := cache.New(config, cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		DefaultTransform: cache.TransformStripManagedFields(),
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
	return facts.NewStore(cached, direct), nil
}

// directClient reads past every cache, with a rate limit of its own.
func directClient(config *rest.Config, mgr ctrl.Manager) (client.Client, error) {
	own := rest.CopyConfig(config)
	own.QPS, own.Burst = 50, 100
	rest.AddUserAgent(own, "sallyport-facts")
	return client.New(own, client.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
}

// addPolicies has the gate decide by the policies of the cluster, in every replica, and has the one that leads ship those of
// this release and show what became of each.
func (o *Options) addPolicies(mgr ctrl.Manager, gate *webhooks.Gate, store *facts.Store, namespace string, report func(hash string)) error {
	kept := keeper.New(namespace, gate, store, ctrlmetrics.Registry)
	if err := kept.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("setting up the catalog of policies: %w", err)
	}
	if err := mgr.AddReadyzCheck("policies", kept.Ready); err != nil {
		return err
	}
	if err := mgr.Add(reporting{kept, kept.Subscribe(), report}); err != nil {
		return err
	}
	r := &policy.Reconciler{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Namespace: namespace, ConfigMap: o.ShippedPolicies, Release: o.Release,
		Catalog: states{kept}, Changed: kept.Subscribe(), Checker: checker{},
		Events: mgr.GetEventRecorder(eventSource), Now: time.Now,
	}
	if err := r.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("setting up the RegoPolicy reconciler: %w", err)
	}
	return nil
}

// reporting makes known to the other replicas by what this one decides.
type reporting struct {
	kept    *keeper.Keeper
	changed <-chan event.GenericEvent
	report  func(hash string)
}

// NeedLeaderElection is for the manager: every replica reports.
func (reporting) NeedLeaderElection() bool { return false }

// Start reports until the context ends.
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

// states gives the reconciler of RegoPolicies, which knows nothing of webhooks, what the catalog made of them.
type states struct{ kept *keeper.Keeper }

// State of a RegoPolicy.
func (s states) State(name string) (policy.State, bool) {
	is, ok := s.kept.State(name)
	if !ok {
		return policy.State{}, false
	}
	state := policy.State{
		UID: is.UID, Generation: is.Generation, Library: is.Library, Active: is.ActiveHash, LastGood: is.LastGood,
		Compiled: policy.Finding{Reason: v1alpha1.ReasonCompiled},
	}
	found := policy.Finding{Reason: v1alpha1.ConditionReason(is.Problem)}
	var places engine.CompileErrors
	switch {
	case errors.As(is.Err, &places):
		found.Message = places.Error() // without saying again which policy it is
	case is.Err != nil:
		found.Message = is.Err.Error()
	}
	switch {
	case is.Problem.OfText():
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

// checker compiles policies as the catalog does.
type checker struct{}

// Check gives the errors by the policies' names.
func (checker) Check(ctx context.Context, world []v1alpha1.RegoPolicy) map[string]error {
	_, found := new(catalog.Catalog).Build(ctx, world, nil)
	wrong := map[string]error{}
	for _, s := range found {
		if s.Err != nil {
			wrong[s.Name] = s.Err
		}
	}
	return wrong
}
