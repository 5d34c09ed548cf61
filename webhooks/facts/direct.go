package facts

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"sallyport.dev/sallyport/webhooks/engine"
)

// directVerbs are the rights that reading an unwatched kind needs.
var directVerbs = []string{"get", "list"}

// route is the state of a kind that is only read live: whether it can be read.
type route struct {
	open     bool
	problem  error                // why it is not open, if known
	resource schema.GroupResource // empty until it is known
	recheck  chan struct{}        // requests a new check after a denied read
}

// liveProblem returns why a read cannot be answered live; nil if it can. The caller holds s.mu.
func (s *Store) liveProblem(ctx context.Context, policy string, r engine.Read) error {
	way := s.routes[kindOf(r)]
	if way == nil {
		way = &route{problem: ErrNotSynced, recheck: make(chan struct{}, 1)}
		s.routes[kindOf(r)] = way
		go s.checkRoute(ctx, kindOf(r), way)
	}
	if err := s.checkListed(policy, way.resource, directVerbs); err != nil {
		return err
	}
	if way.open {
		return nil
	}
	return way.problem
}

// checkRoute checks repeatedly whether a kind can be read: with backoff while it cannot; at long intervals, or after a denied read, while
// it can, because no watch would report a revoked right. It ends when no policy reads the kind any more.
func (s *Store) checkRoute(ctx context.Context, gvk schema.GroupVersionKind, way *route) {
	for wait := time.Duration(0); ; {
		resource, err := s.readable(ctx, gvk, directVerbs)
		asked, changed := s.setRoute(gvk, way, resource, err)
		switch {
		case !asked:
			return
		case changed:
			s.changed()
		}
		var doubt <-chan struct{}
		pause := s.pace.recheck
		if err == nil {
			doubt, wait = way.recheck, 0
		} else {
			wait = s.pace.next(wait)
			pause = wait
		}
		select {
		case <-ctx.Done():
			return
		case <-doubt:
		case <-time.After(pause):
		}
	}
}

// setRoute stores the result of a check. It returns whether the kind is still wanted and whether the result changed. An error that
// is neither missing rights nor a missing kind does not close an open route: reads return such errors themselves.
func (s *Store) setRoute(gvk schema.GroupVersionKind, way *route, resource schema.GroupResource, err error) (asked, changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.routes[gvk] != way {
		return false, false
	}
	if !resource.Empty() {
		way.resource = resource
	}
	var forbidden *ForbiddenError
	if way.open && !errors.As(err, &forbidden) && !errors.Is(err, ErrNotServed) {
		return true, false
	}
	changed = way.open != (err == nil) || err != nil && err.Error() != way.problem.Error()
	way.open, way.problem = err == nil, err
	return true, changed
}

// requestRecheck requests a check of a kind after a denied read.
func (s *Store) requestRecheck(gvk schema.GroupVersionKind) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if way := s.routes[gvk]; way != nil && way.open {
		select {
		case way.recheck <- struct{}{}:
		default:
		}
	}
}

// readable returns why a kind cannot be read or is not served; nil if it can be read. The resource is empty if it is unknown.
func (s *Store) readable(ctx context.Context, gvk schema.GroupVersionKind, verbs []string) (schema.GroupResource, error) {
	mapping, err := s.live.client.RESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return schema.GroupResource{}, classified(err)
	}
	return mapping.Resource.GroupResource(), s.missingRights(ctx, mapping.Resource, verbs)
}

// dropRoutes removes the routes to kinds that no policy reads any more, so that they are checked anew if they are wanted again.
func (s *Store) dropRoutes(wanted []engine.Read) {
	for gvk := range s.routes {
		if !slices.ContainsFunc(wanted, func(r engine.Read) bool { return r.Live && kindOf(r) == gvk }) {
			delete(s.routes, gvk)
		}
	}
}

// Ungranted returns the rights that the reads of a policy lack. It checks all reads concurrently, until ctx ends; reads without an
// answer by then, and other errors, are left out.
func (s *Store) Ungranted(ctx context.Context, policy string, reads []engine.Read) (lacking []*ForbiddenError) {
	answers := make(chan *ForbiddenError, len(reads))
	for _, r := range reads {
		go func() { answers <- s.forbidden(ctx, policy, r) }()
	}
	for range reads {
		select {
		case <-ctx.Done():
			return lacking
		case e := <-answers:
			if e != nil && !slices.ContainsFunc(lacking, func(l *ForbiddenError) bool { return l.GroupResource == e.GroupResource }) {
				lacking = append(lacking, e)
			}
		}
	}
	slices.SortFunc(lacking, func(a, b *ForbiddenError) int { return cmp.Compare(a.String(), b.String()) })
	return lacking
}

// forbidden returns the rights that one read lacks, or nil.
func (s *Store) forbidden(ctx context.Context, policy string, r engine.Read) *ForbiddenError {
	wanted := verbs
	if r.Live {
		wanted = directVerbs
	}
	resource, err := s.readable(ctx, kindOf(r), wanted)
	var lacking *ForbiddenError
	errors.As(cmp.Or(s.checkListed(policy, resource, wanted), err), &lacking)
	return lacking
}
