package policy

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// Tested is the result of a policy's tests. Its reason is one of condition TestsPassed.
type Tested struct {
	Finding
	Passed, Failed int32
}

// Tester runs the tests of policies.
type Tester interface {
	// Test runs the tests of a policy with the current libraries. The error says why they could not be run.
	Test(ctx context.Context, policy *v1alpha1.RegoPolicy) (Tested, error)
}

// text identifies what was tested: an object and its compiled text.
type text struct {
	uid        types.UID
	generation int64
	compiled   string
}

func textOf(state State) text { return text{state.UID, state.Generation, state.Text} }

type testResult struct {
	text
	Tested
}

// setupTests registers a separate controller that runs tests, one policy at a time, so that tests do not delay the
// rest of the status.
func (r *Reconciler) setupTests(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("policy-tests").
		WatchesRawSource(source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.untested = queue
			return nil
		})).
		WithOptions(options()).
		Complete(reconcile.Func(func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
			return reconcile.Result{}, r.test(ctx, request.Name)
		}))
}

// test runs the tests of a policy, once per text, and enqueues the policy.
func (r *Reconciler) test(ctx context.Context, name string) error {
	policy := &v1alpha1.RegoPolicy{}
	if err := r.Live.Get(ctx, types.NamespacedName{Name: name}, policy); err != nil {
		if apierrors.IsNotFound(err) {
			r.forget(name)
			return nil
		}
		return fmt.Errorf("reading RegoPolicy %s: %w", name, err)
	}
	state, ok := r.Catalog.State(name)
	if !ok || state.UID != policy.UID || state.Generation != policy.Generation {
		return nil // requeued when the catalog has observed it
	}
	if _, known := r.result(name, textOf(state)); known {
		return nil
	}
	tested, err := r.Tester.Test(ctx, policy)
	if err != nil {
		err = fmt.Errorf("running the tests of RegoPolicy %s: %w", name, err)
		tested.Finding = Finding{v1alpha1.ReasonTestsNotRun, "The tests could not be run, retrying: " + err.Error()}
	}
	r.mu.Lock()
	if r.testResults == nil {
		r.testResults = map[string]testResult{}
	}
	r.testResults[name] = testResult{textOf(state), tested}
	r.mu.Unlock()
	r.Look(name)
	if err != nil && errors.Is(ctx.Err(), context.Canceled) {
		return nil
	}
	return err
}

func (r *Reconciler) result(name string, of text) (Tested, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	v, known := r.testResults[name]
	return v.Tested, known && v.text == of && v.Reason != v1alpha1.ReasonTestsNotRun
}

func (r *Reconciler) forget(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.testResults, name)
}

// setTests sets condition TestsPassed, or enqueues the tests. Until they have run the old condition stays: a new
// leader usually gets the same result.
func (r *Reconciler) setTests(policy *v1alpha1.RegoPolicy, state State) {
	if r.Tester == nil {
		return
	}
	tested, known := r.result(policy.Name, textOf(state))
	r.mu.Lock()
	unsure := r.testResults[policy.Name]
	untested := r.untested
	r.mu.Unlock()
	switch {
	case state.Compiled.Reason != v1alpha1.ReasonCompiled:
		tested = Tested{Finding: Finding{v1alpha1.ReasonTestsNotRun, "The policy does not compile. See condition Compiled."}}
	case !known && unsure.text == textOf(state):
		tested = unsure.Tested // it is being retried
	case !known:
		if untested != nil {
			untested.Add(request(policy.Name))
		}
		return
	}
	status := metav1.ConditionFalse
	switch tested.Reason {
	case v1alpha1.ReasonTestsPassed:
		status = metav1.ConditionTrue
	case v1alpha1.ReasonTestsNotRun:
		status = metav1.ConditionUnknown
	}
	r.set(policy, v1alpha1.ConditionTestsPassed, status, tested.Finding)
	policy.Status.Tests = nil
	if tested.Passed+tested.Failed > 0 {
		policy.Status.Tests = &v1alpha1.PolicyTestResult{Passed: tested.Passed, Failed: tested.Failed}
	}
}

// recordTests records failing tests, and tests that pass again. was may be nil.
func (r *Reconciler) recordTests(policy *v1alpha1.RegoPolicy, was, is *metav1.Condition) {
	switch {
	case is.Status == metav1.ConditionFalse:
		r.recordEvent(policy, corev1.EventTypeWarning, is.Reason, "Test", is.Message)
	case is.Status == metav1.ConditionTrue && was != nil && was.Status == metav1.ConditionFalse:
		r.recordEvent(policy, corev1.EventTypeNormal, is.Reason, "Test", is.Message)
	}
}
