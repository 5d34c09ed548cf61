package manager

import (
	"fmt"
	"time"

	"k8s.io/client-go/discovery"
	ctrl "sigs.k8s.io/controller-runtime"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/cmd/sallyport/bundled"
	"sallyport.dev/sallyport/reconcilers/policy"
	"sallyport.dev/sallyport/reconcilers/policy/registration"
	"sallyport.dev/sallyport/replicas"
	"sallyport.dev/sallyport/webhooks/catalog"
	"sallyport.dev/sallyport/webhooks/catalog/keeper"
	webhookserver "sallyport.dev/sallyport/webhooks/server"
)

// policiesConfiguration is the name of the webhook configurations that policies are registered in.
func (o *Options) policiesConfiguration() string { return o.WebhookConfiguration + "-policies" }

// addRegistration adds the registration of policies on foreign kinds, which runs in the leader.
func (o *Options) addRegistration(mgr ctrl.Manager, kept *keeper.Keeper, replica *replicas.Replica, namespace string, found func(policy string)) (*registration.Reconciler, error) {
	api, err := discovery.NewDiscoveryClientForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("setting up the registration of policies: %w", err)
	}
	r := &registration.Reconciler{
		Served: func() (*registration.Served, error) { return registration.Discover(api) },
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Namespace: namespace,
		Configuration: o.policiesConfiguration(), Chart: o.WebhookConfiguration,
		ValidatePath: webhookserver.ValidatePolicyPath, MutatePath: webhookserver.MutatePolicyPath,
		NeedsBundle: true, Catalog: active{kept}, Changed: kept.Subscribe(), Replicas: replica, Notify: found, Now: time.Now,
		Events: mgr.GetEventRecorder(eventSource),
	}
	if err := r.SetupWithManager(mgr); err != nil {
		return nil, fmt.Errorf("setting up the registration of policies: %w", err)
	}
	return r, nil
}

// active adapts the catalog to the registration, which does not depend on the webhooks.
type active struct{ kept *keeper.Keeper }

// Active returns the active policies with the hash that replicas report.
func (a active) Active() (string, []registration.Policy) {
	set, states := a.kept.Decides()
	if set == nil {
		return "", nil
	}
	byName := map[string]catalog.State{}
	for _, s := range states {
		byName[s.Name] = s
	}
	var all []registration.Policy
	for _, p := range set.Policies() {
		state := byName[p.Name()]
		one := bundled.About(p)
		one.Generation, one.Timeout = state.Generation, timeoutOf(state)
		all = append(all, one)
	}
	return set.Hash(), all
}

func timeoutOf(state catalog.State) time.Duration {
	if state.Active == nil {
		return new(v1alpha1.RegoPolicySpec).Timeout()
	}
	return state.Active.Policy.Spec.Timeout()
}

// registered returns the registration's finding about a policy in that generation; nil if there is none yet.
func registered(r *registration.Reconciler, name string, generation int64) *policy.Finding {
	f, known := r.Finding(name)
	if !known || f.Generation != generation {
		return nil
	}
	return &policy.Finding{Reason: f.Reason, Message: f.Message}
}
