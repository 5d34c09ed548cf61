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

// gathering is how long changes of members and disks are gathered before their pool is looked at: a pool of a thousand that start would else be
// looked at for each, and written.
const gathering = time.Second

type (
	queue    = workqueue.TypedRateLimitingInterface[reconcile.Request]
	gathered struct{ handler.EventHandler }
)

// later has what is added to a queue looked at after a while, once for all that is added meanwhile.
type later struct{ queue }

func (q later) Add(item reconcile.Request) { q.AddAfter(item, gathering) }

// Create takes note of a new object.
func (g gathered) Create(ctx context.Context, e event.CreateEvent, q queue) {
	g.EventHandler.Create(ctx, e, later{q})
}

// Update takes note of an object that has changed.
func (g gathered) Update(ctx context.Context, e event.UpdateEvent, q queue) {
	g.EventHandler.Update(ctx, e, later{q})
}

// Delete takes note of an object that is gone.
func (g gathered) Delete(ctx context.Context, e event.DeleteEvent, q queue) {
	g.EventHandler.Delete(ctx, e, later{q})
}

// urgent are changes of a pool that are not what is written here itself, its status, which would have it looked at again at once.
var urgent = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	return e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration()
}}
