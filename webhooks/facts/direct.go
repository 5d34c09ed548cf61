package facts

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"sallyport.dev/sallyport/webhooks/engine"
)

// directVerbs are the rights that it takes to read a kind that is not watched.
var directVerbs = []string{"get", "list"}

// route is the way to a kind that is only read live: nothing is kept of it but whether it can be read.
type route struct {
	open    bool
	trouble error // why not, as far as that is known
}

// reach tells what keeps a read from being answered live. Whoever holds the store's lock may call it.
func (s *Store) reach(ctx context.Context, r engine.Read) error {
	way := s.routes[kindOf(r)]
	if way == nil {
		way = &route{trouble: ErrNotSynced}
		s.routes[kindOf(r)] = way
		go s.pave(ctx, kindOf(r), way)
	}
	if way.open {
		return nil
	}
	return way.trouble
}

// pave finds out whether a kind can be read, until it can or nobody asks for it any more.
func (s *Store) pave(ctx context.Context, gvk schema.GroupVersionKind, way *route) {
	for wait := s.pace.first; ; wait = min(2*wait, s.pace.longest) {
		err := s.readable(ctx, gvk)
		s.mu.Lock()
		way.open, way.trouble = err == nil, err
		gone := s.routes[gvk] != way
		s.mu.Unlock()
		if gone {
			return
		}
		s.changed()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// readable tells why a kind cannot be read live, nil if it can.
func (s *Store) readable(ctx context.Context, gvk schema.GroupVersionKind) error {
	mapping, err := s.live.client.RESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return classified(err)
	}
	return s.allowed(ctx, mapping.Resource, directVerbs)
}

// block forgets the ways to kinds that nobody asks for any more. What is wanted anew is looked into anew.
func (s *Store) block(wanted []engine.Read) {
	for gvk := range s.routes {
		if !slices.ContainsFunc(wanted, func(r engine.Read) bool { return r.Live && kindOf(r) == gvk }) {
			delete(s.routes, gvk)
		}
	}
}
