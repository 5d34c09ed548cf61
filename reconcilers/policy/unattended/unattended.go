// Package unattended marks RegoPolicies as inactive when no replica serves them any longer. The next leader removes
// the marks when it reconciles them.
package unattended

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/policy/shipping"
)

const message = "No replica of Sallyport is running: this policy evaluates no requests."

// Mark marks all policies if noReplica returns true. Policies that another client has written since the read stay
// unmarked: a replica that starts at the same time wins.
func Mark(ctx context.Context, from client.Reader, to client.SubResourceWriter, now time.Time, noReplica func(context.Context) (bool, error)) error {
	all := &v1alpha1.RegoPolicyList{}
	if err := from.List(ctx, all); err != nil {
		return fmt.Errorf("listing RegoPolicies: %w", err)
	}
	if is, err := noReplica(ctx); !is || err != nil {
		return err
	}
	var errs []error
	for i := range all.Items {
		policy := &all.Items[i]
		if is(policy) {
			continue
		}
		mark(policy, metav1.NewTime(now.Truncate(time.Second)))
		err := to.Update(ctx, policy, client.FieldOwner(shipping.FieldOwner))
		if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("writing the status of RegoPolicy %s: %w", policy.Name, err))
		}
	}
	return errors.Join(errs...)
}

func mark(policy *v1alpha1.RegoPolicy, now metav1.Time) {
	policy.Status.ReportedAt = &now
	for _, t := range []v1alpha1.ConditionType{v1alpha1.ConditionActive, v1alpha1.ConditionReady} {
		c := t.Condition(metav1.ConditionFalse, v1alpha1.ReasonNobodyDecides, policy.Generation, message)
		v1alpha1.SetCondition(&policy.Status.Conditions, c, now.Time)
	}
}

func is(policy *v1alpha1.RegoPolicy) bool {
	c := v1alpha1.ConditionReady.In(policy.Status.Conditions)
	return c != nil && c.Reason == string(v1alpha1.ReasonNobodyDecides)
}

// Marked selects the updates that leave a policy marked: a replica that serves the policy removes the mark.
func Marked() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			policy, ok := e.ObjectNew.(*v1alpha1.RegoPolicy)
			return ok && is(policy)
		},
	}
}
