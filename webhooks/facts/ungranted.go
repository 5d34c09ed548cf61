package facts

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"sallyport.dev/sallyport/webhooks/engine"
)

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
