package pool

import (
	"context"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// gatherPeriod is how long changes of members and disks are gathered before their pool is reconciled: otherwise the
// start of a thousand members would reconcile the pool and write its status for each of them.
const gatherPeriod = time.Second

type (
	queue          = workqueue.TypedRateLimitingInterface[reconcile.Request]
	delayedHandler struct{ handler.EventHandler }
)

// delayedQueue adds items after gatherPeriod, so that changes within it cause one reconciliation.
type delayedQueue struct{ queue }

func (q delayedQueue) Add(item reconcile.Request) { q.AddAfter(item, gatherPeriod) }

func (g delayedHandler) Create(ctx context.Context, e event.CreateEvent, q queue) {
	g.EventHandler.Create(ctx, e, delayedQueue{q})
}

func (g delayedHandler) Update(ctx context.Context, e event.UpdateEvent, q queue) {
	g.EventHandler.Update(ctx, e, delayedQueue{q})
}

func (g delayedHandler) Delete(ctx context.Context, e event.DeleteEvent, q queue) {
	g.EventHandler.Delete(ctx, e, delayedQueue{q})
}

// generationChanged drops status updates of a pool: the reconciler writes the status itself and would be triggered
// again.
var generationChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	return e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration()
}}
