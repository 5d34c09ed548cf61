package manager

import (
	"context"
	"fmt"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"sallyport.dev/sallyport/reconcilers/policy/shipping"
	"sallyport.dev/sallyport/webhooks/grants"
)

// policyReads follows the list of what policies may read: an annotation of the ConfigMap with the shipped policies. Every replica has it.
type policyReads struct {
	reader    client.Reader
	configMap types.NamespacedName
	changed   func()
	granted   func(context.Context)        // after a change of the list
	list      atomic.Pointer[grants.Reads] // nil until it is read
}

// allow reports whether a policy may read a resource, and whether that is known yet.
func (p *policyReads) allow(policy, group, resource string) (allowed, known bool) {
	list := p.list.Load()
	return list != nil && list.Allow(policy, group, resource), list != nil
}

// Allow reports whether a policy is known to be allowed to read a resource.
func (p *policyReads) Allow(policy, group, resource string) bool {
	allowed, _ := p.allow(policy, group, resource)
	return allowed
}

// Reconcile reads the list. It is empty if the first read finds no ConfigMap. If the ConfigMap is missing later, the list does not change:
// `helm upgrade --force-replace` and Argo's Replace delete the ConfigMap and create it again.
func (p *policyReads) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	cm := &corev1.ConfigMap{}
	err := p.reader.Get(ctx, p.configMap, cm)
	switch {
	case apierrors.IsNotFound(err) && p.list.Load() != nil:
		return reconcile.Result{}, nil
	case client.IgnoreNotFound(err) != nil:
		return reconcile.Result{}, fmt.Errorf("reading ConfigMap %s: %w", p.configMap, err)
	}
	list, err := grants.ParseReads(cm.Annotations[shipping.ReadsAnnotation])
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("annotation %s of ConfigMap %s: %w", shipping.ReadsAnnotation, p.configMap, err)
	}
	if former := p.list.Swap(&list); former == nil || former.String() != list.String() {
		p.changed()
		if former != nil {
			p.granted(ctx)
		}
	}
	return reconcile.Result{}, nil
}

// setupWithManager makes every replica follow the list. The manager's cache must have cachedShipment.
func (p *policyReads) setupWithManager(mgr ctrl.Manager) error {
	if p.configMap.Name == "" {
		p.list.Store(&grants.Reads{})
		return nil
	}
	p.reader = mgr.GetClient()
	everywhere := false
	only := func(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{{}} }
	return ctrl.NewControllerManagedBy(mgr).Named("policy-reads").
		Watches(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(only)).
		WatchesRawSource(source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			queue.Add(reconcile.Request{}) // there may be no ConfigMap
			return nil
		})).
		WithOptions(controller.Options{NeedLeaderElection: &everywhere}).
		Complete(p)
}

// cachedShipment is what the manager's cache has of ConfigMaps: the one with the shipped policies.
func (o *Options) cachedShipment(namespace string) cache.ByObject {
	return cache.ByObject{Namespaces: map[string]cache.Config{
		namespace: {FieldSelector: fields.OneTermEqualSelector("metadata.name", o.ShippedPolicies)},
	}}
}
