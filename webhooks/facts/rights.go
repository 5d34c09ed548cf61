package facts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"sallyport.dev/sallyport/webhooks/engine"
)

// ErrNotServed means that the API server does not have a kind.
var ErrNotServed = errors.New("the API server does not serve this kind")

// ForbiddenError means that Sallyport lacks rights to read a kind, or may not read it for a policy.
type ForbiddenError struct {
	schema.GroupResource
	// Verbs are the missing rights, in all namespaces.
	Verbs []string
	// Policy is set if only the list of [Store.Restrict] forbids the read: Sallyport itself, and other policies, may read the kind.
	Policy string
}

// Error names the missing rights.
func (e *ForbiddenError) Error() string {
	text := fmt.Sprintf("Sallyport may not %s %s", strings.Join(e.Verbs, ", "), e.GroupResource)
	if e.Policy != "" {
		text += " for policy " + e.Policy
	}
	return text
}

// verbsOf returns the rights that reading a kind needs: a cache without the right to watch would sync and then stay as it is, unnoticed.
func verbsOf(live bool) []string {
	if live {
		return []string{"get", "list"}
	}
	return []string{"get", "list", "watch"}
}

// Restrict limits what policies read to a list, even if the API server allows more: may reports whether a policy may read a
// resource, and whether that is known yet. Call it before the first Watch.
func (s *Store) Restrict(may func(policy, group, resource string) (allowed, known bool)) { s.may = may }

// Relisted makes the store use the changed list of Restrict.
func (s *Store) Relisted() {
	s.mu.Lock()
	for _, k := range s.kinds {
		k.rouse()
	}
	changed := s.changed
	s.mu.Unlock()
	changed()
}

// checkListed returns an error if a policy may not read a resource. An empty resource is not known yet.
func (s *Store) checkListed(policy string, resource schema.GroupResource, verbs []string) error {
	if resource.Empty() {
		return nil
	}
	switch allowed, known := s.may(policy, resource.Group, resource.Resource); {
	case allowed:
		return nil
	case !known:
		return ErrNotSynced
	}
	return &ForbiddenError{GroupResource: resource, Verbs: verbs, Policy: policy}
}

// readable returns why a kind cannot be read or is not served; nil if it can be read. The resource is empty if it is unknown.
func (s *Store) readable(ctx context.Context, of reading) (schema.GroupResource, error) {
	mapping, err := s.live.client.RESTMapper().RESTMapping(of.GroupKind(), of.Version)
	if err != nil {
		return schema.GroupResource{}, classified(err)
	}
	return mapping.Resource.GroupResource(), s.missingRights(ctx, mapping.Resource, verbsOf(of.live))
}

// missingRights returns an error that lists the missing rights.
func (s *Store) missingRights(ctx context.Context, resource schema.GroupVersionResource, verbs []string) error {
	var missing []string
	for _, verb := range verbs {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: verb, Group: resource.Group, Version: resource.Version, Resource: resource.Resource,
			},
		}}
		ctx, cancel := context.WithTimeout(ctx, liveTimeout)
		err := s.live.client.Create(ctx, review)
		cancel()
		if err == nil && !review.Status.Allowed {
			missing = append(missing, verb)
		} // if the review is not permitted either, the reads will report it
	}
	if len(missing) > 0 {
		return &ForbiddenError{GroupResource: resource.GroupResource(), Verbs: missing}
	}
	return nil
}

func classified(err error) error {
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return ErrNotServed
	}
	return err
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
	resource, err := s.readable(ctx, readingOf(r))
	var lacking *ForbiddenError
	errors.As(cmp.Or(s.checkListed(policy, resource, verbsOf(r.Live)), err), &lacking)
	return lacking
}
