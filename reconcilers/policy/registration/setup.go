package registration

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/watch"
)

// SetupWithManager registers the reconciler. It runs in the leader. The configurations are watched by name, so that Sallyport needs no right
// to read others.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	everything := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{{}} })
	b := ctrl.NewControllerManagedBy(mgr).Named("policy-registration").
		Watches(&v1alpha1.RegoPolicy{}, everything, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(source.Channel(r.Changed, everything)).
		WatchesRawSource(source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			queue.Add(reconcile.Request{}) // without policies no watch triggers, but entries may be left over
			return nil
		})).
		WithOptions(controller.Options{
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
		})
	for _, name := range []string{r.Chart, r.Configuration} {
		named, err := watch.LeaderCache(mgr, cache.Options{DefaultFieldSelector: fields.OneTermEqualSelector("metadata.name", name)})
		if err != nil {
			return fmt.Errorf("watching the webhook configurations %s: %w", name, err)
		}
		for _, s := range r.newSides() {
			b = b.WatchesRawSource(source.Kind(named, s.object(name), everything))
		}
	}
	return b.Complete(r)
}
