package facts

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/fairqueue"
	"sallyport.dev/sallyport/webhooks/engine"
)

const (
	// liveReads limits concurrent live reads and access reviews; more wait, and equal queries share one read.
	liveReads = 16
	// liveWaiting limits the queue of each share: more would not run before their policies' deadlines.
	liveWaiting = 256
	// liveTimeout limits a live read; requests leave earlier, at their policy's deadline.
	liveTimeout = 5 * time.Second
	// pageSize is the largest page of a live list, as kubectl's; firstPage is the size of the first one. Later pages have about
	// pageBytes, because a page is decoded as a whole.
	pageSize, firstPage, pageBytes = 500, 50, 4 << 20
	// mostPlaces is how many namespaces are listed one by one. For more, one list covers all namespaces.
	mostPlaces = 100
	// maxObjects and maxBytes limit what is read for one query, and the size of its answer.
	maxObjects, maxBytes = 10_000, 64 << 20
	// maxCompared limits the objects whose metadata are compared with the cache for one query.
	maxCompared = 100_000
)

// live reads from the API server. Requests with the same query share one read, unless it has begun: a read that began earlier may
// miss what the later request's author has just seen. Reads of different namespaces take turns at the slots; at the client's rate limit, only those
// with a slot wait.
type live struct {
	client client.Client
	slots  *fairqueue.Slots

	onForbidden func(gvk schema.GroupVersionKind)                   // is called with a kind that Sallyport may not read
	cached      func(gvk schema.GroupVersionKind) (informer, error) // the cache of a kind, or why it has none

	unselectable unselectable

	mu      sync.Mutex
	waiting map[string]*flight
}

// flight is one read with its waiters. It is cancelled when the last waiter leaves: any user can send requests, and those that are
// abandoned must not delay others.
type flight struct {
	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{}
	found  found
	err    error

	waiters int // guarded by the lock of live
}

func newLive(c client.Client) *live {
	none := func(schema.GroupVersionKind) (informer, error) { return nil, ErrNotSynced }
	return &live{client: c, cached: none, slots: fairqueue.NewSlots(liveReads, liveWaiting), waiting: map[string]*flight{}, unselectable: newUnselectable()}
}

// read answers a query within a share. A read that waits in the queue of another share is not joined.
func (l *live) read(ctx context.Context, whose string, q engine.Query) (found, error) {
	text, err := json.Marshal(q)
	if err != nil {
		return found{}, err
	}
	key := whose + " " + string(text)
	f := l.join(key, whose, q)
	defer l.leave(f, key)
	select {
	case <-f.done:
		return f.found, f.err
	case <-ctx.Done():
		return found{}, context.Cause(ctx)
	}
}

// join returns the waiting flight for the query, or starts one.
func (l *live) join(key, whose string, q engine.Query) *flight {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.waiting[key]
	if f == nil {
		f = &flight{done: make(chan struct{})}
		f.ctx, f.cancel = context.WithCancel(context.Background())
		l.waiting[key] = f
		go l.run(f, key, whose, q)
	}
	f.waiters++
	return f
}

// cancel removes a waiter.
func (l *live) leave(f *flight, key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f.waiters--; f.waiters > 0 {
		return
	}
	f.cancel()
	l.unlist(f, key)
}

// unlist makes later requests for the same query start another read. The caller holds l.mu.
func (l *live) unlist(f *flight, key string) {
	if l.waiting[key] == f {
		delete(l.waiting, key)
	}
}

func (l *live) run(f *flight, key, whose string, q engine.Query) {
	defer close(f.done)
	defer func() { // a panic here would end the process
		if p := recover(); p != nil {
			f.err = fmt.Errorf("panic: %v", p)
		}
	}()
	if f.err = l.slots.Acquire(f.ctx, whose); f.err != nil {
		return
	}
	defer l.slots.Release()
	l.mu.Lock()
	l.unlist(f, key)
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(f.ctx, liveTimeout)
	defer cancel()
	if q.Name != "" {
		f.found, f.err = get(ctx, l.client, q)
	} else {
		f.found, f.err = l.list(ctx, q)
	}
	if apierrors.IsForbidden(f.err) {
		l.onForbidden(schema.FromAPIVersionAndKind(q.APIVersion, q.Kind))
	}
}

// may asks the API server whether the requester, not Sallyport, has a right.
func (l *live) may(ctx context.Context, whose string, who requester, access *engine.Access) (bool, error) {
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: who.Username, UID: who.UID, Groups: who.Groups, Extra: Extra[authorizationv1.ExtraValue](who.Extra),
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: access.Verb, Group: access.Group, Resource: access.Resource, Namespace: access.Namespace, Name: access.Name,
		},
	}}
	if err := l.slots.Acquire(ctx, whose); err != nil {
		return false, err
	}
	defer l.slots.Release()
	if err := l.client.Create(ctx, review); err != nil {
		return false, err
	}
	if review.Status.EvaluationError != "" && !review.Status.Allowed {
		return false, fmt.Errorf("the authorizer could not decide: %s", review.Status.EvaluationError)
	}
	return review.Status.Allowed, nil
}

// Extra converts the extra attributes of a user between API types.
func Extra[To, From ~[]string](of map[string]From) map[string]To {
	if of == nil {
		return nil
	}
	converted := make(map[string]To, len(of))
	for key, values := range of {
		converted[key] = To(values)
	}
	return converted
}
