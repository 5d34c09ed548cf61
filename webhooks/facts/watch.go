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

// verbs are the rights that watching a kind, and reading it live, needs.
var verbs = []string{"get", "list", "watch"}

// Lack is a read that cannot be answered yet. Err is [ErrNotSynced] while the cache syncs, a [*ForbiddenError], [ErrNotServed], or
// another error; then the store retries.
type Lack struct {
	Read engine.Read
	Err  error
}

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

// errUnlisted ends an attempt to watch a kind that none of its readers may read.
var errUnlisted = errors.New("no policy that reads this kind may read it")

// Restrict limits what policies read to a list, even if the API server allows more: may reports whether a policy may read a
// resource, and whether that is known yet. Call it before the first Watch.
func (s *Store) Restrict(may func(policy, group, resource string) (allowed, known bool)) { s.may = may }

// Relisted makes the store use the changed list of Restrict.
func (s *Store) Relisted() {
	s.mu.Lock()
	close(s.relisted)
	s.relisted = make(chan struct{})
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

// pace has the store's timeouts and intervals.
type pace struct {
	patience       time.Duration // before a cache that does not sync is examined
	first, longest time.Duration // backoff
	grace          time.Duration // for which an unwanted kind stays watched: undoing an edit reads nothing anew
	recheck        time.Duration // between checks of a kind that is read live
	doubt          time.Duration // for which a watch may be denied: API servers that start may deny what is granted
	stale          time.Duration // for which the list of a kind may fail
}

// errUnwanted ends the attempts to watch a kind.
var errUnwanted = errors.New("nobody asks for it any more")

// Notify sets the function that is called when the result of Watch may have changed. Call it before the first Watch.
func (s *Store) Notify(changed func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed = changed
}

// Watch starts watching the kinds that the reads of a policy need, unless they are watched already, and returns without waiting
// what cannot be answered yet, from the cache or live. The watches end with ctx.
func (s *Store) Watch(ctx context.Context, policy string, reads []engine.Read) []Lack {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watchContext = ctx
	var lacks []Lack
	for _, r := range reads {
		begin := s.watch
		if r.Live {
			begin = s.liveProblem
		}
		if err := begin(ctx, policy, r); err != nil {
			lacks = append(lacks, Lack{Read: r, Err: fmt.Errorf("%s %s: %w", r.APIVersion, r.Kind, err)})
		}
	}
	return lacks
}

// watch returns why a read cannot be answered from the cache; nil if it can. The caller holds s.mu.
func (s *Store) watch(ctx context.Context, policy string, r engine.Read) error {
	if k := s.kinds[kindOf(r)]; k != nil && k.informer != nil {
		if err := s.checkListed(policy, k.resource, verbs); err != nil {
			return err
		}
	}
	k := s.entryFor(r)
	if !slices.Contains(k.readers, policy) {
		k.readers = append(k.readers, policy)
	}
	if k.canAnswer(r) {
		return nil
	}
	if !k.watching {
		k.watching = true
		go s.watchKind(ctx, kindOf(r), k)
	}
	if err := s.checkListed(policy, k.resource, verbs); err != nil {
		return err
	}
	if errors.Is(k.problem, errUnlisted) { // so far, none of its readers was allowed to read it
		return ErrNotSynced
	}
	return cmp.Or(k.problem, ErrNotSynced)
}

// Use sets the reads of active policies, for Synced, and all wanted reads. A kind that is not wanted any more stays watched for a
// while if it has synced; otherwise its watch ends at once.
func (s *Store) Use(used, wanted []engine.Read) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used = slices.DeleteFunc(slices.Clone(used), func(r engine.Read) bool { return r.Live })
	all := slices.Concat(used, wanted)
	s.dropRoutes(all)
	for gvk, k := range s.kinds {
		switch asked := slices.ContainsFunc(all, func(r engine.Read) bool { return !r.Live && kindOf(r) == gvk }); {
		case asked || k.declared:
			k.unwanted = time.Time{}
		case k.unwanted.IsZero():
			k.unwanted = time.Now()
			s.scheduleRemoval(gvk, k)
		}
	}
}

// scheduleRemoval removes a kind after the grace period, unless it is wanted again.
func (s *Store) scheduleRemoval(gvk schema.GroupVersionKind, k *kind) {
	time.AfterFunc(s.pace.grace, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.removeUnwanted(gvk, k)
	})
}

func (s *Store) removeUnwanted(gvk schema.GroupVersionKind, k *kind) {
	if s.kinds[gvk] == k && !k.watching && !k.unwanted.IsZero() && time.Since(k.unwanted) >= s.pace.grace {
		s.removeInformer(context.Background(), gvk, k)
		delete(s.kinds, gvk)
	}
}

// watchKind starts the watch of a kind with all wanted indexes, and retries until it succeeds or the kind is unwanted.
func (s *Store) watchKind(ctx context.Context, gvk schema.GroupVersionKind, k *kind) {
	for wait := time.Duration(0); ; {
		relisted := s.relistedChannel()
		err := s.startInformer(ctx, gvk, k)
		if err == nil {
			err = s.sync(ctx, gvk, k)
		}
		done := s.finishAttempt(ctx, gvk, k, err)
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

func (s *Store) relistedChannel() <-chan struct{} {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.relisted
}

// next returns the time before the next attempt, given the previous one. It doubles from first to longest, also while a right or a
// kind is missing: every replica retries, and a policy may read a kind that is never installed.
func (p pace) next(wait time.Duration) time.Duration { return max(p.first, min(2*wait, p.longest)) }

// startInformer creates the informer and its indexes. It makes no call that may block while it holds s.mu.
func (s *Store) startInformer(ctx context.Context, gvk schema.GroupVersionKind, k *kind) error {
	if s.isUnwanted(k) {
		return errUnwanted
	}
	mapping, err := s.live.client.RESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return classified(err)
	}
	s.mu.Lock()
	k.resource = mapping.Resource.GroupResource()
	informer, missing := k.informer, difference(k.wanted, k.indexes)
	listed := slices.ContainsFunc(k.readers, func(policy string) bool { return s.checkListed(policy, k.resource, verbs) == nil })
	s.mu.Unlock()
	if informer == nil && !listed {
		return errUnlisted
	}
	if informer == nil {
		if err := s.missingRights(ctx, mapping.Resource, verbs); err != nil {
			return err
		}
	}
	if informer, err = s.ensureInformer(ctx, gvk, informer, missing); err != nil {
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

// missingRights returns an error that lists the missing rights. Without the right to watch, a cache would sync and then stay stale
// unnoticed.
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

// sync waits for the informer to sync while the kind can be read.
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
		if err := s.failure(k); err != nil { // one object can be read, but the list fails
			return err
		}
	}
}

// failure returns why the list of a kind failed; nil if it did not.
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

// probe reads one object of a kind, live, to find out why a cache does not sync.
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

// finishAttempt stores the result of an attempt and reports whether no other is needed. An informer that cannot sync is removed: its own
// retries would be far apart by the time the cause is gone, and would go on for an unwanted kind.
func (s *Store) finishAttempt(ctx context.Context, gvk schema.GroupVersionKind, k *kind, err error) (done bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k.problem = err
	if err == nil {
		done = len(difference(k.wanted, k.indexes)) == 0
		k.watching = !done
		if done && !k.unwanted.IsZero() {
			s.scheduleRemoval(gvk, k)
		}
		return done
	}
	if k.informer != nil && !k.informer.HasSynced() {
		s.removeInformer(ctx, gvk, k)
	}
	if !k.unwanted.IsZero() && k.informer == nil {
		delete(s.kinds, gvk)
		return true
	}
	return false
}

func (s *Store) removeInformer(ctx context.Context, gvk schema.GroupVersionKind, k *kind) {
	if err := s.cache.RemoveInformer(ctx, emptyOf(gvk)); err == nil {
		k.informer, k.indexes = nil, nil
	}
}

// WatchFailed reports an error of a list or watch of the store's cache, with the kind as its reflector describes it. A cache keeps
// its objects when it is not updated any more, and would become stale unnoticed. So if the watch of a kind is denied repeatedly and
// the right is missing, or its list fails repeatedly, the kind counts as one that cannot be read.
func (s *Store) WatchFailed(kind string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for gvk, k := range s.kinds {
		switch {
		case gvk.String() != kind || k.informer == nil:
		case k.watching:
			k.failed = err // see sync
		case apierrors.IsForbidden(err):
			if k.persists(&k.refused, s.pace.doubt) {
				go s.recheckRights(s.watchContext, gvk, k)
			}
		case isLasting(err) && k.persists(&k.failing, s.pace.stale):
			s.restart(gvk, k, err)
		}
	}
}

// persists records a failure and reports whether failures have continued for the given time without a success.
func (k *kind) persists(since *time.Time, long time.Duration) bool {
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

// isLasting reports whether a list will fail again. Errors of the network and of an overloaded API server pass.
func isLasting(err error) bool {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return status.Status().Code != http.StatusTooManyRequests && status.Status().Code != http.StatusServiceUnavailable &&
			!apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) && !apierrors.IsTimeout(err) && !apierrors.IsServerTimeout(err)
	}
	var network net.Error
	var short *toolscache.VeryShortWatchError
	return !errors.As(err, &network) && !errors.As(err, &short) && !utilnet.IsProbableEOF(err)
}

// recheckRights checks whether a kind may still be read.
func (s *Store) recheckRights(ctx context.Context, gvk schema.GroupVersionKind, k *kind) {
	err := s.missingRights(ctx, k.resource.WithVersion(gvk.Version), verbs)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil || s.kinds[gvk] != k || k.watching {
		return
	}
	s.restart(gvk, k, err)
}

// restart drops the cache of a kind and starts over, which reports the error, and detects when the kind can be read again.
func (s *Store) restart(gvk schema.GroupVersionKind, k *kind, trouble error) {
	s.removeInformer(s.watchContext, gvk, k)
	k.problem, k.watching = trouble, true
	go s.watchKind(s.watchContext, gvk, k)
}
