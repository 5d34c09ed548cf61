package facts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/webhooks/engine"
)

// verbs are the rights that it takes to watch a kind, and to read it live.
var verbs = []string{"get", "list", "watch"}

// Lack is a read that cannot be answered from the cache. Err is [ErrNotSynced] while that is only a matter of time, a
// [*ForbiddenError], [ErrNotServed], or what else is in the way; then it is tried again and again.
type Lack struct {
	Read engine.Read
	Err  error
}

// ErrNotServed means that the API server does not have a kind.
var ErrNotServed = errors.New("the API server does not serve this kind")

// ForbiddenError means that Sallyport lacks rights to read a kind, or may not read it for a policy.
type ForbiddenError struct {
	schema.GroupResource
	// Verbs that are missing, in all namespaces.
	Verbs []string
	// Policy is set if only the list of [Store.Restrict] is in the way: other policies, or Sallyport for itself, may read the kind.
	Policy string
}

// Error names what is not allowed.
func (e *ForbiddenError) Error() string {
	text := fmt.Sprintf("Sallyport may not %s %s", strings.Join(e.Verbs, ", "), e.GroupResource)
	if e.Policy != "" {
		text += " for policy " + e.Policy
	}
	return text
}

// errUnlisted ends an attempt to watch a kind that none of the policies that ask for it may read.
var errUnlisted = errors.New("no policy that reads this kind may read it")

// Restrict limits what policies read to a list, even if the API server allows more: may reports whether a policy may read a resource, and
// whether that is known yet. It is for before the first Watch.
func (s *Store) Restrict(may func(policy, group, resource string) (allowed, known bool)) { s.may = may }

// Relisted has the list asked again, because it has changed.
func (s *Store) Relisted() {
	s.mu.Lock()
	close(s.relisted)
	s.relisted = make(chan struct{})
	changed := s.changed
	s.mu.Unlock()
	changed()
}

// unlisted returns an error if a policy may not read a resource. An empty resource is not known yet.
func (s *Store) unlisted(policy string, resource schema.GroupResource, verbs []string) error {
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

// pace is how patient the store is.
type pace struct {
	patience       time.Duration // with a cache that does not sync, before asking why
	first, longest time.Duration // before trying again what failed
	grace          time.Duration // with what nobody wants any more: an edit that is taken back reads nothing anew
	recheck        time.Duration // before asking again whether a kind that is read live still can be
	doubt          time.Duration // with a watch that is refused: API servers that start may refuse what is granted
	stale          time.Duration // with a kind whose list goes on failing
}

// errUnwanted ends the pursuit of a kind.
var errUnwanted = errors.New("nobody asks for it any more")

// Notify has a function called whenever another answer of Watch is to be expected. It is to be set before the first Watch.
func (s *Store) Notify(changed func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed = changed
}

// Watch begins to watch what the reads of a policy need, as far as that is not so already, and tells at once what cannot be answered yet:
// from the cache, or live where a read is to be. What it began goes on until ctx ends.
func (s *Store) Watch(ctx context.Context, policy string, reads []engine.Read) []Lack {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.life = ctx
	var lacks []Lack
	for _, r := range reads {
		begin := s.watch
		if r.Live {
			begin = s.reach
		}
		if err := begin(ctx, policy, r); err != nil {
			lacks = append(lacks, Lack{Read: r, Err: fmt.Errorf("%s %s: %w", r.APIVersion, r.Kind, err)})
		}
	}
	return lacks
}

// watch tells what keeps a read from being answered from the cache. Whoever holds the store's lock may call it.
func (s *Store) watch(ctx context.Context, policy string, r engine.Read) error {
	if k := s.kinds[kindOf(r)]; k != nil && k.informer != nil {
		if err := s.unlisted(policy, k.resource, verbs); err != nil {
			return err
		}
	}
	k := s.want(r)
	if !slices.Contains(k.readers, policy) {
		k.readers = append(k.readers, policy)
	}
	if k.answers(r) {
		return nil
	}
	if !k.pursued {
		k.pursued = true
		go s.pursue(ctx, kindOf(r), k)
	}
	if err := s.unlisted(policy, k.resource, verbs); err != nil {
		return err
	}
	if errors.Is(k.trouble, errUnlisted) { // so far, none of its readers was allowed to read it
		return ErrNotSynced
	}
	return cmp.Or(k.trouble, ErrNotSynced)
}

// Use tells which reads decide from here on, for Synced, and which are wanted at all. What is not wanted, and was never seen
// as a whole, is given up at once; what was stays watched for a while.
func (s *Store) Use(used, wanted []engine.Read) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used = slices.DeleteFunc(slices.Clone(used), func(r engine.Read) bool { return r.Live })
	all := slices.Concat(used, wanted)
	s.block(all)
	for gvk, k := range s.kinds {
		switch asked := slices.ContainsFunc(all, func(r engine.Read) bool { return !r.Live && kindOf(r) == gvk }); {
		case asked || k.declared:
			k.unwanted = time.Time{}
		case k.unwanted.IsZero():
			k.unwanted = time.Now()
			s.leave(gvk, k)
		}
	}
}

// leave has a kind forgotten after a while, unless somebody wants it again before that.
func (s *Store) leave(gvk schema.GroupVersionKind, k *kind) {
	time.AfterFunc(s.pace.grace, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.forget(gvk, k)
	})
}

func (s *Store) forget(gvk schema.GroupVersionKind, k *kind) {
	if s.kinds[gvk] == k && !k.pursued && !k.unwanted.IsZero() && time.Since(k.unwanted) >= s.pace.grace {
		s.drop(context.Background(), gvk, k)
		delete(s.kinds, gvk)
	}
}

// pursue has a kind watched, with every index that is wanted, until it is or nobody wants it.
func (s *Store) pursue(ctx context.Context, gvk schema.GroupVersionKind, k *kind) {
	for wait := time.Duration(0); ; {
		relisted := s.untilRelisted()
		err := s.begin(ctx, gvk, k)
		if err == nil {
			err = s.sync(ctx, gvk, k)
		}
		done := s.note(ctx, gvk, k, err)
		s.changed()
		if done {
			return
		}
		if err == nil { // more indexes are wanted by now
			continue
		}
		wait = s.pace.next(wait)
		select {
		case <-ctx.Done():
			return
		case <-relisted:
		case <-time.After(wait):
		}
	}
}

func (s *Store) untilRelisted() <-chan struct{} {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.relisted
}

// next returns how long to wait before the next attempt after one that followed wait. It doubles from first to longest, also while a right or
// a kind is missing: every replica asks, and a policy may read a kind that nobody ever installs.
func (p pace) next(wait time.Duration) time.Duration { return max(p.first, min(2*wait, p.longest)) }

// begin makes the informer and its indexes. Nothing of it waits for anybody while the store is locked.
func (s *Store) begin(ctx context.Context, gvk schema.GroupVersionKind, k *kind) error {
	if s.isUnwanted(k) {
		return errUnwanted
	}
	mapping, err := s.live.client.RESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return classified(err)
	}
	s.mu.Lock()
	k.resource = mapping.Resource.GroupResource()
	informer, missing := k.informer, without(k.wanted, k.indexes)
	listed := slices.ContainsFunc(k.readers, func(policy string) bool { return s.unlisted(policy, k.resource, verbs) == nil })
	s.mu.Unlock()
	if informer == nil && !listed {
		return errUnlisted
	}
	if informer == nil {
		if err := s.allowed(ctx, mapping.Resource, verbs); err != nil {
			return err
		}
	}
	if informer, err = s.inform(ctx, gvk, informer, missing); err != nil {
		return classified(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if k.informer == nil {
		k.failed = nil
	}
	k.informer, k.indexes = informer, append(k.indexes, missing...)
	return nil
}

// allowed asks what of the rights to a kind is lacking. A cache that could be filled but not kept up to date would look like
// one that is: with the right to list alone it would never learn of a change.
func (s *Store) allowed(ctx context.Context, resource schema.GroupVersionResource, verbs []string) error {
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
		} // if even that may not be asked, trying will tell
	}
	if len(missing) > 0 {
		return &ForbiddenError{GroupResource: resource.GroupResource(), Verbs: missing}
	}
	return nil
}

// sync waits for the informer. One that takes its time is left to it as long as the kind can be read.
func (s *Store) sync(ctx context.Context, gvk schema.GroupVersionKind, k *kind) error {
	s.mu.RLock()
	synced := k.informer.HasSyncedChecker().Done()
	s.mu.RUnlock()
	for {
		select {
		case <-synced:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(s.pace.patience):
		}
		if s.isUnwanted(k) {
			return errUnwanted
		}
		if err := s.probe(ctx, gvk); err != nil {
			return err
		}
		if err := s.failure(k); err != nil { // one object can be read, and all cannot
			return err
		}
	}
}

// failure is why the list of a kind has failed, nil if it has not.
func (s *Store) failure(k *kind) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return k.failed
}

func (s *Store) isUnwanted(k *kind) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return !k.unwanted.IsZero()
}

// probe reads one object of a kind, live, to learn why a cache does not sync.
func (s *Store) probe(ctx context.Context, gvk schema.GroupVersionKind) error {
	ctx, cancel := context.WithTimeout(ctx, liveTimeout)
	defer cancel()
	err := s.live.client.List(ctx, listOf(gvk), client.Limit(1))
	if apierrors.IsForbidden(err) {
		mapping, unmapped := s.live.client.RESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version)
		if unmapped == nil {
			return &ForbiddenError{GroupResource: mapping.Resource.GroupResource(), Verbs: verbs}
		}
	}
	return classified(err)
}

func classified(err error) error {
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return ErrNotServed
	}
	return err
}

// note keeps what came of an attempt, and tells whether it was the last one. An informer that cannot be filled is ended: its
// own next attempts would be far apart when the reason is gone, and would fail for ever if nobody wants the kind.
func (s *Store) note(ctx context.Context, gvk schema.GroupVersionKind, k *kind, err error) (done bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k.trouble = err
	if err == nil {
		done = len(without(k.wanted, k.indexes)) == 0
		k.pursued = !done
		if done && !k.unwanted.IsZero() {
			s.leave(gvk, k)
		}
		return done
	}
	if k.informer != nil && !k.informer.HasSynced() {
		s.drop(ctx, gvk, k)
	}
	if !k.unwanted.IsZero() && k.informer == nil {
		delete(s.kinds, gvk)
		return true
	}
	return false
}

func (s *Store) drop(ctx context.Context, gvk schema.GroupVersionKind, k *kind) {
	if err := s.cache.RemoveInformer(ctx, emptyOf(gvk)); err == nil {
		k.informer, k.indexes = nil, nil
	}
}

// WatchFailed tells the store why a list or watch of its cache has failed, and of which kind it was, as its reflector describes it. What
// was read once stays in a cache that is not kept up to date, and grows old without anybody noticing: a kind whose watch goes on being
// refused, and which may really not be read, or whose list goes on failing, is as one that never could be read.
func (s *Store) WatchFailed(kind string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for gvk, k := range s.kinds {
		switch {
		case gvk.String() != kind || k.informer == nil:
		case k.pursued:
			k.failed = err // as sync tells
		case apierrors.IsForbidden(err):
			if k.goesOn(&k.refused, s.pace.doubt) {
				go s.review(s.life, gvk, k)
			}
		case lasting(err) && k.goesOn(&k.failing, s.pace.stale):
			s.again(gvk, k, err)
		}
	}
}

// goesOn notes that something happens to the watch of a kind, and tells whether it has for some time without a success.
func (k *kind) goesOn(since *time.Time, long time.Duration) bool {
	now, seen := time.Now(), k.informer.LastSyncResourceVersion()
	if since.IsZero() || seen != k.seen {
		*since, k.seen = now, seen
	}
	if now.Sub(*since) < long {
		return false
	}
	*since = time.Time{}
	return true
}

// lasting tells whether a list will fail again, unless the API server cannot be reached or is short of something.
func lasting(err error) bool {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return status.Status().Code != http.StatusTooManyRequests && status.Status().Code != http.StatusServiceUnavailable &&
			!apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) && !apierrors.IsTimeout(err) && !apierrors.IsServerTimeout(err)
	}
	var network net.Error
	var short *toolscache.VeryShortWatchError
	return !errors.As(err, &network) && !errors.As(err, &short) && !utilnet.IsProbableEOF(err)
}

// review finds out whether a kind may still be read.
func (s *Store) review(ctx context.Context, gvk schema.GroupVersionKind, k *kind) {
	err := s.allowed(ctx, k.resource.WithVersion(gvk.Version), verbs)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil || s.kinds[gvk] != k || k.pursued {
		return
	}
	s.again(gvk, k, err)
}

// again gives up what was read of a kind and begins anew, which tells of the trouble, and notices when the kind can be read again.
func (s *Store) again(gvk schema.GroupVersionKind, k *kind, trouble error) {
	s.drop(s.life, gvk, k)
	k.trouble, k.pursued = trouble, true
	go s.pursue(s.life, gvk, k)
}
