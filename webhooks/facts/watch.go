package facts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	toolscache "k8s.io/client-go/tools/cache"

	"sallyport.dev/sallyport/webhooks/engine"
)

// Lack is a read that cannot be answered yet. Err is [ErrNotSynced] while the cache syncs, a [*ForbiddenError], [ErrNotServed], or
// another error; then the store retries.
type Lack struct {
	Read engine.Read
	Err  error
}

// reading is a kind and how policies read it: from a cache, or live.
type reading struct {
	schema.GroupVersionKind
	live bool
}

func readingOf(r engine.Read) reading { return reading{kindOf(r), r.Live} }

// kind is the state of a reading. It is guarded by the store's lock.
type kind struct {
	readers  []string             // policies that read it
	unwanted time.Time            // since when no policy reads it
	resource schema.GroupResource // empty until it is known
	wake     chan struct{}        // has it checked now; nil if nothing checks it
	wait     time.Duration        // before the last attempt
	answers  bool                 // at the last check
	problem  error                // why it cannot be read, if known
	doubted  time.Time            // when a right was first missing

	// Of a kind that is cached.
	informer informer // nil while nothing is watched
	indexes  []string // of the informer
	wanted   []string // that reads need
	failed   error    // why its list fails before it has synced
	lasting  error    // why its list fails for long, although it has synced
	failing  time.Time
	seen     string    // the resource version when it began to fail
	heard    string    // the resource version at the last scrape
	heardAt  time.Time // when it was new
}

// rouse has a kind checked now.
func (k *kind) rouse() {
	select {
	case k.wake <- struct{}{}:
	default: // that is due already, or nothing checks it
	}
}

// synced reports whether a cache has all objects.
func (k *kind) synced() bool { return k.informer != nil && k.informer.HasSynced() }

// canAnswer reports whether a read can be answered.
func (k *kind) canAnswer(r engine.Read) bool {
	if r.Live {
		return k.answers
	}
	return k.problem == nil && k.synced() && len(difference(r.Indexes, k.indexes)) == 0
}

// pace has the store's intervals.
type pace struct {
	first, longest time.Duration // backoff
	recheck        time.Duration // between checks of a kind: no watch reports a revoked right of one that is read live
	grace          time.Duration // for which an unwanted kind stays watched: undoing an edit reads nothing anew
	doubt          time.Duration // for which a right may be missing, or the list of a kind fail: API servers that start deny what is granted
}

// next returns the time before the next attempt, given the previous one. It doubles from first to longest, also while a right or a
// kind is missing: every replica retries, and a policy may read a kind that is never installed.
func (p pace) next(wait time.Duration) time.Duration { return max(p.first, min(2*wait, p.longest)) }

// errUnlisted is the problem of a kind that none of its readers may read.
var errUnlisted = errors.New("no policy that reads this kind may read it")

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
	var lacks []Lack
	for _, r := range reads {
		if err := s.watch(ctx, policy, r); err != nil {
			lacks = append(lacks, Lack{Read: r, Err: fmt.Errorf("%s %s: %w", r.APIVersion, r.Kind, err)})
		}
	}
	return lacks
}

// watch returns why a read cannot be answered; nil if it can. The caller holds s.mu.
func (s *Store) watch(ctx context.Context, policy string, r engine.Read) error {
	k := s.entryFor(r)
	if !slices.Contains(k.readers, policy) {
		k.readers = append(k.readers, policy)
		k.rouse()
	}
	if k.wake == nil {
		k.wake = make(chan struct{}, 1)
		go s.keep(ctx, readingOf(r), k)
	} else if len(difference(k.wanted, k.indexes)) > 0 && k.synced() {
		k.rouse()
	}
	if err := s.checkListed(policy, k.resource, verbsOf(r.Live)); err != nil {
		return err
	}
	switch {
	case k.canAnswer(r):
		return nil
	case errors.Is(k.problem, errUnlisted): // so far, none of its readers was allowed to read it
		return ErrNotSynced
	}
	return cmp.Or(k.problem, k.failure(), ErrNotSynced)
}

// failure returns why a cache does not sync, if its list fails.
func (k *kind) failure() error {
	switch {
	case k.failed == nil || k.synced():
		return nil
	case apierrors.IsForbidden(k.failed):
		return &ForbiddenError{GroupResource: k.resource, Verbs: verbsOf(false)}
	}
	return classified(k.failed)
}

// Use sets the reads of active policies, for Synced, and all wanted reads. A kind that is not wanted any more stays watched for a
// while if it has synced; otherwise its watch ends at once.
func (s *Store) Use(used, wanted []engine.Read) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used = cached(used)
	all := slices.Concat(used, wanted)
	for of, k := range s.kinds {
		switch asked := slices.ContainsFunc(all, func(r engine.Read) bool { return readingOf(r) == of }); {
		case asked || k.wake == nil:
			k.unwanted = time.Time{}
		case k.unwanted.IsZero():
			k.unwanted = time.Now()
			k.rouse()
		}
	}
}

// keep checks a kind until it is dropped: with backoff while it cannot be read, and then at long intervals, or when it is roused.
func (s *Store) keep(ctx context.Context, of reading, k *kind) {
	for {
		news, err := s.check(ctx, of, k)
		pause, synced, changed := s.settle(ctx, of, k, err)
		if changed || news {
			s.notify()
		}
		if pause <= 0 {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-k.wake:
		case <-time.After(pause):
		case <-synced:
		}
	}
}

func (s *Store) notify() {
	s.mu.RLock()
	changed := s.changed
	s.mu.RUnlock()
	changed()
}

// check returns why a kind cannot be read. It starts the informer of one that can be and is to be cached, and reports whether its
// resource or further indexes are known now. It makes no call that may block while it holds s.mu.
func (s *Store) check(ctx context.Context, of reading, k *kind) (news bool, err error) {
	resource, err := s.readable(ctx, of)
	s.mu.Lock()
	if !resource.Empty() {
		news = k.resource.Empty()
		k.resource = resource
	}
	informer, missing := k.informer, difference(k.wanted, k.indexes)
	listed := slices.ContainsFunc(k.readers, func(policy string) bool { return s.checkListed(policy, k.resource, nil) == nil })
	unwanted, lasting := !k.unwanted.IsZero(), k.lasting
	s.mu.Unlock()
	switch {
	case err != nil || unwanted || of.live:
		return news, err
	case informer == nil && !listed:
		return news, errUnlisted
	case lasting != nil:
		return news, lasting
	}
	if informer, err = s.ensureInformer(ctx, of.GroupVersionKind, informer, missing); err != nil {
		return news, classified(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	k.informer, k.indexes = informer, append(k.indexes, missing...)
	return news || len(missing) > 0, nil
}

// settle stores the result of a check. It returns when the next one is due, 0 if the kind was dropped, and what is closed when its cache
// has synced, nil if that is not awaited. An informer of what cannot be read is removed: a cache keeps its objects when it is not updated any
// more, and would become stale unnoticed.
func (s *Store) settle(ctx context.Context, of reading, k *kind, err error) (pause time.Duration, synced <-chan struct{}, changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !k.unwanted.IsZero() {
		if pause = s.pace.grace - time.Since(k.unwanted); pause <= 0 || !k.synced() {
			s.removeInformer(ctx, of, k)
			delete(s.kinds, of)
			return 0, nil, false
		}
		return pause, nil, false
	}
	if err == nil && !of.live && k.informer == nil { // it is wanted again since the check
		return s.pace.first, nil, false
	}
	switch {
	case err == nil:
		answers := of.live || k.synced()
		changed = answers != k.answers || k.problem != nil
		k.problem, k.doubted, k.wait, k.answers = nil, time.Time{}, 0, answers
		if !answers {
			synced = k.informer.HasSyncedChecker().Done()
		}
		return s.pace.recheck, synced, changed
	case k.answers && (passes(err, k) || s.doubts(of, k)):
	default:
		changed = k.problem == nil || k.problem.Error() != err.Error()
		k.problem, k.answers = err, false
		s.removeInformer(ctx, of, k)
	}
	k.wait = s.pace.next(k.wait)
	return k.wait, nil, changed
}

// passes reports whether an error of a check says nothing about the kind, such as that the API server cannot be reached.
func passes(err error, k *kind) bool {
	var forbidden *ForbiddenError
	return !errors.As(err, &forbidden) && !errors.Is(err, ErrNotServed) && !errors.Is(err, k.lasting)
}

// doubts reports whether the cache of a kind is still used although a right is missing.
func (s *Store) doubts(of reading, k *kind) bool {
	if of.live || k.lasting != nil {
		return false
	}
	if k.doubted.IsZero() {
		k.doubted = time.Now()
	}
	return time.Since(k.doubted) < s.pace.doubt
}

func (s *Store) removeInformer(ctx context.Context, of reading, k *kind) {
	if k.informer == nil {
		return
	}
	if err := s.cache.RemoveInformer(ctx, emptyOf(of.GroupVersionKind)); err == nil {
		k.informer, k.indexes, k.failed, k.lasting, k.failing = nil, nil, nil, nil, time.Time{}
	}
}

// WatchFailed reports an error of a list or watch of the store's cache, with the kind as its reflector describes it. If the right is missing,
// or the list of a kind that has synced fails for long, the kind counts as one that cannot be read.
func (s *Store) WatchFailed(described string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for of, k := range s.kinds {
		if of.live || of.String() != described || k.informer == nil {
			continue
		}
		now, seen := time.Now(), k.informer.LastSyncResourceVersion()
		if k.failing.IsZero() || seen != k.seen {
			k.failing, k.seen = now, seen
		}
		switch {
		case !k.synced():
			k.failed = err
			go s.changed()
		case apierrors.IsForbidden(err):
			k.rouse()
		case isLasting(err) && now.Sub(k.failing) >= s.pace.doubt:
			k.lasting = err
			k.rouse()
		}
	}
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

// requestRecheck has a kind checked after a denied live read.
func (s *Store) requestRecheck(gvk schema.GroupVersionKind) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if k := s.kinds[reading{gvk, true}]; k != nil && k.problem == nil {
		k.rouse()
	}
}
