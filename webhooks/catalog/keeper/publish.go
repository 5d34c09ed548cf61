package keeper

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/catalog"
)

// publish stores the states, and logs and announces those that changed.
func (k *Keeper) publish(ctx context.Context, states []catalog.State, unusable error) {
	k.mu.Lock()
	before := k.states
	k.states, k.unusable = make(map[string]catalog.State, len(states)), unusable
	for _, s := range states {
		k.states[s.Name] = s
	}
	subscribers := k.subscribers
	k.mu.Unlock()

	var changed []string
	for _, s := range states {
		if old, ok := before[s.Name]; !ok || reportedParts(old) != reportedParts(s) {
			changed = append(changed, s.Name)
			k.report(ctx, s)
		}
	}
	for name := range before {
		if !slices.ContainsFunc(states, func(s catalog.State) bool { return s.Name == name }) {
			changed = append(changed, name)
			log.FromContext(ctx).Info("policy is gone", "policy", name)
		}
	}
	for _, s := range subscribers {
		for _, name := range changed {
			s.Add(name)
		}
	}
}

// reportedParts returns the parts of a state whose change is reported.
func reportedParts(s catalog.State) any {
	type essence struct {
		uid             types.UID
		generation      int64
		library, older  bool
		err, hash, word string
	}
	e := essence{uid: s.UID, generation: s.Generation, library: s.Library, older: s.LastGood, hash: s.ActiveHash, word: string(s.Problem)}
	if s.Err != nil {
		e.err = s.Err.Error()
	}
	return e
}

// report logs and counts a new state.
func (k *Keeper) report(ctx context.Context, s catalog.State) {
	logger := log.FromContext(ctx).WithValues("policy", s.Name, "generation", s.Generation)
	k.metrics.reloads.WithLabelValues(stage(s)).Inc()
	switch stage(s) {
	case stageCurrent:
		logger.Info("policy is active", "revision", s.ActiveHash, "mode", s.Active.Policy.Spec.Mode)
	case stageLibrary:
		logger.Info("library is available")
	case stagePending:
		logger.Info("policy is waiting for the objects that it reads", "reason", s.Err.Error(), "revision", s.ActiveHash)
	case stageLastGood:
		logger.Error(s.Err, "policy is broken; its last good revision stays active", "problem", s.Problem, "revision", s.ActiveHash)
	case stageBroken:
		logger.Error(s.Err, "policy is broken; requests that it matches follow its onError", "problem", s.Problem)
	default:
		logger.Error(s.Err, "library is broken", "problem", s.Problem)
	}
}

// Stages of a policy or library in metrics.
const (
	stageCurrent       = "current"
	stageLastGood      = "last_good"
	stagePending       = "pending"
	stageBroken        = "broken"
	stageLibrary       = "library"
	stageBrokenLibrary = "broken_library"
)

func stage(s catalog.State) string {
	switch {
	case s.Library && s.Err == nil:
		return stageLibrary
	case s.Library:
		return stageBrokenLibrary
	case s.Problem == v1alpha1.ReasonReadsNotSynced:
		return stagePending
	case s.LastGood:
		return stageLastGood
	case s.Active == nil:
		return stageBroken
	default:
		return stageCurrent
	}
}

// subscription delivers the names of changed policies. Pending names wait in a queue without duplicates, so that it is never longer
// than the list of policies, and a subscriber that starts late, such as the leader's controllers, misses none.
type subscription struct {
	workqueue.TypedInterface[string]
	out chan event.GenericEvent
}

// Subscribe returns the names of RegoPolicies whose state changed, as RegoPolicies with only a name.
func (k *Keeper) Subscribe() <-chan event.GenericEvent {
	s := &subscription{workqueue.NewTyped[string](), make(chan event.GenericEvent)}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.subscribers = append(k.subscribers, s)
	for name := range k.states {
		s.Add(name)
	}
	if k.ctx != nil {
		go s.run(k.ctx)
	}
	return s.out
}

func (s *subscription) run(ctx context.Context) {
	defer context.AfterFunc(ctx, s.ShutDown)()
	for name, ended := s.Get(); !ended; name, ended = s.Get() {
		select {
		case s.out <- event.GenericEvent{Object: &v1alpha1.RegoPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}}:
		case <-ctx.Done():
		}
		s.Done(name)
	}
}
