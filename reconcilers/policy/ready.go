package policy

import (
	"context"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// soonest and latest bound the wait while replicas do not serve a policy yet.
const soonest, latest = 500 * time.Millisecond, 5 * time.Second

// setReady sets condition Ready: whether every replica evaluates the policy for every request that it matches, and
// otherwise the first obstacle. The other conditions must be set. It returns when to reconcile again, 0 for never.
func (r *Reconciler) setReady(ctx context.Context, before, policy *v1alpha1.RegoPolicy, state State) (again time.Duration, err error) {
	was := v1alpha1.ConditionReady.In(before.Status.Conditions)
	// Ready was true for this text: replicas swap whole sets, so one that is behind is so because of another policy.
	stays := was != nil && was.Status == metav1.ConditionTrue && was.ObservedGeneration == policy.Generation &&
		before.Status.ActiveRevision == policy.Status.ActiveRevision
	is, ready := metav1.ConditionTrue, activity(policy, state)
	missing, status := r.missing(policy, state, stays)
	switch {
	case ready.Reason != v1alpha1.ReasonCurrentRevision:
		is = metav1.ConditionFalse
	case missing != nil:
		is, ready = status, *missing
	case stays || state.Library || r.Behind == nil:
	default:
		var behind []string
		if behind, err = r.Behind(ctx); len(behind) > 0 {
			is = metav1.ConditionFalse
			ready = Finding{v1alpha1.ReasonWaitingForReplicas, fmt.Sprintf("These replicas do not serve this revision yet: %s.", strings.Join(behind, ", "))}
			again = soonest
			if was != nil && was.Reason == string(ready.Reason) {
				again = min(max(r.Now().Sub(was.LastTransitionTime.Time)/4, soonest), latest)
			}
		}
	}
	r.set(policy, v1alpha1.ConditionReady, is, ready)
	return again, err
}

// missing returns the first condition beside Active that is not true of the current object, or nil.
func (r *Reconciler) missing(policy *v1alpha1.RegoPolicy, state State, stays bool) (*Finding, metav1.ConditionStatus) {
	tests, registered := v1alpha1.ConditionTestsPassed.In(policy.Status.Conditions), v1alpha1.ConditionRegistered.In(policy.Status.Conditions)
	current := func(c *metav1.Condition) bool { return c != nil && c.ObservedGeneration == policy.Generation }
	switch {
	case r.Tester == nil:
	case !current(tests):
		return &Finding{v1alpha1.ReasonTestsNotRun, "The tests have not run yet. See condition TestsPassed."}, metav1.ConditionUnknown
	case tests.Status != metav1.ConditionTrue:
		return &Finding{v1alpha1.ConditionReason(tests.Reason), "The tests fail. See condition TestsPassed."}, metav1.ConditionFalse
	}
	switch {
	case state.Library:
	case current(registered) && registered.Status != metav1.ConditionTrue:
		return &Finding{
			v1alpha1.ConditionReason(registered.Reason), "The policy is not registered for everything that it matches. See condition Registered.",
		}, metav1.ConditionFalse
	case state.Registered == nil && !stays && !current(registered):
		return &Finding{v1alpha1.ReasonWaitingForReplicas, "The registration of the policy is not known yet."}, metav1.ConditionUnknown
	}
	return nil, ""
}
