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

	"sallyport.dev/sallyport/fair"
	"sallyport.dev/sallyport/webhooks/engine"
)

const (
	// liveReads is how many live reads run at once; questions about rights too; more wait, and those that ask the same wait together.
	liveReads = 16
	// liveWaiting is how many wait for their turn in one name: more would not get it before their policies' deadlines.
	liveWaiting = 256
	// liveTimeout ends a live read; requests leave earlier, at their policy's deadline.
	liveTimeout = 5 * time.Second
	// pageSize is how many objects a page of a live list has at most, as kubectl's, and firstPage the first one. The pages after it have about
	// pageBytes, because a page is decoded as a whole.
	pageSize, firstPage, pageBytes = 500, 50, 4 << 20
	// mostPlaces is how many namespaces are listed one by one. For more, the list is of all namespaces.
	mostPlaces = 100
	// maxObjects and maxBytes bound what is read for one question, and what its answer holds. More than that is not a question a
	// policy can decide by.
	maxObjects, maxBytes = 10_000, 64 << 20
)

// live reads past every cache. Requests that ask the same share one read, as long as it has not begun: a read that began
// earlier may miss what the later request's author has just seen. Reads of different namespaces take turns, also at the client's rate
// limit.
type live struct {
	client client.Client
	slots  *fair.Slots

	refused func(gvk schema.GroupVersionKind) // is told of a kind that may not be read

	filtered filtered

	mu      sync.Mutex
	waiting map[string]*flight
}

// flight is one read, and who waits for it. It ends when nobody does: requests come from anybody, and what they asked for before
// they left must not keep others waiting.
type flight struct {
	ctx   context.Context
	leave context.CancelFunc
	done  chan struct{}
	found found
	err   error

	waiters int // guarded by the lock of live
}

func newLive(c client.Client) *live {
	return &live{client: c, slots: fair.NewSlots(liveReads, liveWaiting), waiting: map[string]*flight{}, filtered: newFiltered()}
}

// read answers a question as part of a share. Nobody joins a read that waits in the line of another.
func (l *live) read(ctx context.Context, whose string, q engine.Query) (found, error) {
	text, err := json.Marshal(q)
	if err != nil {
		return found{}, err
	}
	key := whose + " " + string(text)
	f := l.join(key, whose, q)
	defer l.left(f, key)
	select {
	case <-f.done:
		return f.found, f.err
	case <-ctx.Done():
		return found{}, context.Cause(ctx)
	}
}

// join gives the waiting flight for the same question, or starts one.
func (l *live) join(key, whose string, q engine.Query) *flight {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.waiting[key]
	if f == nil {
		f = &flight{done: make(chan struct{})}
		f.ctx, f.leave = context.WithCancel(fair.For(context.Background(), whose))
		l.waiting[key] = f
		go l.fly(f, key, whose, q)
	}
	f.waiters++
	return f
}

// left notes that somebody does not wait any more.
func (l *live) left(f *flight, key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f.waiters--; f.waiters > 0 {
		return
	}
	f.leave()
	l.begun(f, key)
}

// begun has others who ask the same begin anew. Whoever holds the lock may call it.
func (l *live) begun(f *flight, key string) {
	if l.waiting[key] == f {
		delete(l.waiting, key)
	}
}

func (l *live) fly(f *flight, key, whose string, q engine.Query) {
	defer close(f.done)
	defer func() { // nobody else could catch it here, and it would end the process
		if p := recover(); p != nil {
			f.err = fmt.Errorf("panic: %v", p)
		}
	}()
	if f.err = l.slots.Acquire(f.ctx, whose); f.err != nil {
		return
	}
	defer l.slots.Release()
	l.mu.Lock()
	l.begun(f, key)
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(f.ctx, liveTimeout)
	defer cancel()
	if q.Name != "" {
		f.found, f.err = get(ctx, l.client, q)
	} else {
		f.found, f.err = l.list(ctx, q)
	}
	if apierrors.IsForbidden(f.err) {
		l.refused(schema.FromAPIVersionAndKind(q.APIVersion, q.Kind))
	}
}

// may asks the API server whether the requester may do what access says; never whether we may.
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
	if err := l.client.Create(fair.For(ctx, whose), review); err != nil {
		return false, err
	}
	if review.Status.EvaluationError != "" && !review.Status.Allowed {
		return false, fmt.Errorf("the authorizer could not decide: %s", review.Status.EvaluationError)
	}
	return review.Status.Allowed, nil
}

// Extra is what else is known of a user, in another type of the API.
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
