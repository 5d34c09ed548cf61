package facts

import (
	"context"
	"errors"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"sallyport.dev/sallyport/webhooks/engine"
)

// directVerbs are the rights that it takes to read a kind that is not watched.
var directVerbs = []string{"get", "list"}

// route is the way to a kind that is only read live: nothing is kept of it but whether it can be read.
type route struct {
	open     bool
	trouble  error                // why not, as far as that is known
	resource schema.GroupResource // empty until it is known
	doubt    chan struct{}        // that it is still open: a read was refused
}

// reach tells what keeps a read from being answered live. Whoever holds the store's lock may call it.
func (s *Store) reach(ctx context.Context, policy string, r engine.Read) error {
	way := s.routes[kindOf(r)]
	if way == nil {
		way = &route{trouble: ErrNotSynced, doubt: make(chan struct{}, 1)}
		s.routes[kindOf(r)] = way
		go s.pave(ctx, kindOf(r), way)
	}
	if err := s.unlisted(policy, way.resource, directVerbs); err != nil {
		return err
	}
	if way.open {
		return nil
	}
	return way.trouble
}

// pave finds out whether a kind can be read, again and again while it cannot, and from time to time, or when a read is refused,
// while it can: no watch would tell that a right was taken away. It ends when nobody asks for the kind any more.
func (s *Store) pave(ctx context.Context, gvk schema.GroupVersionKind, way *route) {
	for wait := time.Duration(0); ; {
		resource, err := s.readable(ctx, gvk, directVerbs)
		asked, changed := s.passable(gvk, way, resource, err)
		switch {
		case !asked:
			return
		case changed:
			s.changed()
		}
		var doubt <-chan struct{}
		pause := s.pace.recheck
		if err == nil {
			doubt, wait = way.doubt, 0
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

// passable keeps what was found out about a way, and tells whether anybody asks for it still and whether that is new. What is
// neither a lack of rights nor of the kind does not close a way: reads would fail by themselves.
func (s *Store) passable(gvk schema.GroupVersionKind, way *route, resource schema.GroupResource, err error) (asked, changed bool) {
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
	changed = way.open != (err == nil) || err != nil && err.Error() != way.trouble.Error()
	way.open, way.trouble = err == nil, err
	return true, changed
}

// doubted has it looked into whether a kind can still be read live, of which a read was refused.
func (s *Store) doubted(gvk schema.GroupVersionKind) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if way := s.routes[gvk]; way != nil && way.open {
		select {
		case way.doubt <- struct{}{}:
		default:
		}
	}
}

// readable tells why a kind cannot be read, or is not served; nil if it can. The resource is empty if it cannot be found out.
func (s *Store) readable(ctx context.Context, gvk schema.GroupVersionKind, verbs []string) (schema.GroupResource, error) {
	mapping, err := s.live.client.RESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return schema.GroupResource{}, classified(err)
	}
	return mapping.Resource.GroupResource(), s.allowed(ctx, mapping.Resource, verbs)
}

// block forgets the ways to kinds that nobody asks for any more. What is wanted anew is looked into anew.
func (s *Store) block(wanted []engine.Read) {
	for gvk := range s.routes {
		if !slices.ContainsFunc(wanted, func(r engine.Read) bool { return r.Live && kindOf(r) == gvk }) {
			delete(s.routes, gvk)
		}
	}
}
