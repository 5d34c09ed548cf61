package fairqueue

import (
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// NewQueue returns the queue of a controller whose objects are in namespaces, which take turns: one that has thousands of objects due,
// or some that are due all the time, delays those of other namespaces by one object at most. It is for the NewQueue of a controller's
// options.
func NewQueue(name string, limiter workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	return workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[reconcile.Request]{
		DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[reconcile.Request]{
			Name: name,
			Queue: workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[reconcile.Request]{
				Name: name, Queue: &byNamespace{},
			}),
		}),
	})
}

// byNamespace is the store of a queue, which locks it.
type byNamespace struct{ due lines[reconcile.Request] }

// Touch changes nothing for what is due already.
func (*byNamespace) Touch(reconcile.Request) {}

func (q *byNamespace) Push(r reconcile.Request) { q.due.push(r.Namespace, r) }

func (q *byNamespace) Len() int { return q.due.total }

func (q *byNamespace) Pop() reconcile.Request { return q.due.pop() }
