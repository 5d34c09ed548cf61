package facts

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/webhooks/engine"
)

const (
	// liveReads is how many live reads run at once; more wait, and those that ask the same wait together.
	liveReads = 16
	// liveTimeout ends a live read that nobody waits for any more; requests leave earlier, at their policy's deadline.
	liveTimeout = 5 * time.Second
	// pageSize of live lists, as kubectl's.
	pageSize = 500
	// maxObjects bounds the answer to one question. More than that is not a question a policy can decide by.
	maxObjects = 10_000
)

// live reads past every cache. Requests that ask the same share one read, as long as it has not begun: a read that began
// earlier may miss what the later request's author has just seen.
type live struct {
	client client.Client
	slots  chan struct{}

	refused func(gvk schema.GroupVersionKind) // is told of a kind that may not be read

	mu      sync.Mutex
	waiting map[string]*flight
}

type flight struct {
	done  chan struct{}
	found found
	err   error
}

func newLive(c client.Client) *live {
	return &live{client: c, slots: make(chan struct{}, liveReads), waiting: map[string]*flight{}}
}

func (l *live) read(ctx context.Context, q engine.Query) (found, error) {
	f, err := l.join(q)
	if err != nil {
		return found{}, err
	}
	select {
	case <-f.done:
		return f.found, f.err
	case <-ctx.Done():
		return found{}, context.Cause(ctx)
	}
}

// join gives the waiting flight for the same question, or starts one.
func (l *live) join(q engine.Query) (*flight, error) {
	text, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	key := string(text)
	l.mu.Lock()
	defer l.mu.Unlock()
	if f := l.waiting[key]; f != nil {
		return f, nil
	}
	f := &flight{done: make(chan struct{})}
	l.waiting[key] = f
	go l.fly(f, key, q)
	return f, nil
}

func (l *live) fly(f *flight, key string, q engine.Query) {
	defer close(f.done)
	defer func() { // nobody else could catch it here, and it would end the process
		if p := recover(); p != nil {
			f.err = fmt.Errorf("panic: %v", p)
		}
	}()
	l.slots <- struct{}{}
	defer func() { <-l.slots }()
	l.mu.Lock()
	delete(l.waiting, key)
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), liveTimeout)
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

// list pages through the objects. The API server does all of the selection, so fields and except must be selectable there.
func (l *live) list(ctx context.Context, q engine.Query) (found, error) {
	if _, err := labels.ValidatedSelectorFromSet(q.Labels); err != nil { // written out, one could select by more than one label
		return found{}, fmt.Errorf("no object has such labels: %w", err)
	}
	options := append(selection(q), client.Limit(pageSize), client.MatchingFieldsSelector{Selector: selector(q)})
	var f found
	for token := ""; ; {
		page := listOf(schema.FromAPIVersionAndKind(q.APIVersion, q.Kind))
		if err := l.client.List(ctx, page, append(options, client.Continue(token))...); err != nil {
			return found{}, err
		}
		f.resourceVersion = page.GetResourceVersion()
		for i := range page.Items {
			f.objects = append(f.objects, newObject(&page.Items[i]))
		}
		if token = page.GetContinue(); token == "" {
			return f, nil
		}
		if len(f.objects) >= maxObjects {
			return found{}, fmt.Errorf("more than %d objects of kind %s match", maxObjects, q.Kind)
		}
	}
}

func selector(q engine.Query) fields.Selector {
	var terms []fields.Selector
	for field, value := range q.Fields {
		terms = append(terms, fields.OneTermEqualSelector(field, value))
	}
	for field, values := range q.Except {
		for _, value := range values {
			terms = append(terms, fields.OneTermNotEqualSelector(field, value))
		}
	}
	return fields.AndSelectors(terms...)
}

// may asks the API server whether the requester may do what access says; never whether we may.
func (l *live) may(ctx context.Context, who requester, access *engine.Access) (bool, error) {
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: who.Username, UID: who.UID, Groups: who.Groups, Extra: extra(who),
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: access.Verb, Group: access.Group, Resource: access.Resource, Namespace: access.Namespace, Name: access.Name,
		},
	}}
	if err := l.client.Create(ctx, review); err != nil {
		return false, err
	}
	if review.Status.EvaluationError != "" && !review.Status.Allowed {
		return false, fmt.Errorf("the authorizer could not decide: %s", review.Status.EvaluationError)
	}
	return review.Status.Allowed, nil
}

func extra(who requester) map[string]authorizationv1.ExtraValue {
	converted := make(map[string]authorizationv1.ExtraValue, len(who.Extra))
	for key, values := range who.Extra {
		converted[key] = authorizationv1.ExtraValue(values)
	}
	return converted
}
