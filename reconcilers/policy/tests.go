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

// Tested is how the tests of a policy went. Its reason is one of condition TestsPassed.
type Tested struct {
	Finding
	Passed, Failed int32
}

// Tester runs the tests of policies.
type Tester interface {
	// Test runs those of a policy, with the libraries that there are. The error says why nothing is known.
	Test(ctx context.Context, policy *v1alpha1.RegoPolicy) (Tested, error)
}

// text identifies what was tested: an object, and what it is compiled with.
type text struct {
	uid        types.UID
	generation int64
	compiled   string
}

func textOf(state State) text { return text{state.UID, state.Generation, state.Text} }

// verdict is what is known of the tests of a policy.
type verdict struct {
	text
	Tested
}

// setupTests has tests run by a worker of its own, one policy after another: what becomes of a policy otherwise is to be shown
// at once.
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

// test runs the tests of a policy, once for each text that it has, and has the result shown.
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
		return nil // somebody asks again when the catalog has seen it
	}
	if _, known := r.verdict(name, textOf(state)); known {
		return nil
	}
	tested, err := r.Tester.Test(ctx, policy)
	if err != nil {
		err = fmt.Errorf("running the tests of RegoPolicy %s: %w", name, err)
		tested.Finding = Finding{v1alpha1.ReasonTestsNotRun, "The tests could not be run, retrying: " + err.Error()}
	}
	r.mu.Lock()
	if r.verdicts == nil {
		r.verdicts = map[string]verdict{}
	}
	r.verdicts[name] = verdict{textOf(state), tested}
	r.mu.Unlock()
	r.Look(name)
	if err != nil && errors.Is(ctx.Err(), context.Canceled) {
		return nil
	}
	return err
}

// verdict gives what is known of a text, if it is final.
func (r *Reconciler) verdict(name string, of text) (Tested, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	v, known := r.verdicts[name]
	return v.Tested, known && v.text == of && v.Reason != v1alpha1.ReasonTestsNotRun
}

func (r *Reconciler) forget(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.verdicts, name)
}

// judgeTests shows how the tests went, or has them run. Until they have what is shown stays: a replica that has just begun to
// lead finds what is there, and most often finds the same.
func (r *Reconciler) judgeTests(policy *v1alpha1.RegoPolicy, state State) {
	if r.Tester == nil {
		return
	}
	tested, known := r.verdict(policy.Name, textOf(state))
	r.mu.Lock()
	unsure := r.verdicts[policy.Name]
	untested := r.untested
	r.mu.Unlock()
	switch {
	case state.Compiled.Reason != v1alpha1.ReasonCompiled:
		tested = Tested{Finding: Finding{v1alpha1.ReasonTestsNotRun, "The policy does not compile. See condition Compiled."}}
	case !known && unsure.text == textOf(state):
		tested = unsure.Tested // it is being tried again
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

// tellOfTests tells of tests that fail, and of those that do not any more. was may be nil.
func (r *Reconciler) tellOfTests(policy *v1alpha1.RegoPolicy, was, is *metav1.Condition) {
	switch {
	case is.Status == metav1.ConditionFalse:
		r.say(policy, corev1.EventTypeWarning, is.Reason, "Test", is.Message)
	case is.Status == metav1.ConditionTrue && was != nil && was.Status == metav1.ConditionFalse:
		r.say(policy, corev1.EventTypeNormal, is.Reason, "Test", is.Message)
	}
}
