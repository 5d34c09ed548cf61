package watch

import (
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sallyport.dev/sallyport/fairqueue"
)

// firstRetry is the shortest wait after an error.
const firstRetry = 250 * time.Millisecond

// Options returns the options of a controller whose keys are objects of tenants. Namespaces are served in turn. Errors are
// retried after at most lastRetry, which is also how late a deadline may be noticed while errors last.
func Options(lastRetry time.Duration) controller.Options {
	return controller.Options{
		MaxConcurrentReconciles: 16, // a slow call of a runtime blocks only its own object
		NewQueue:                fairqueue.NewQueue,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
	}
}
