package audit

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/audit/reports"
)

// firstRetry and lastRetry bound the wait after an error. patience limits the turns of one audit together; the objects that remain
// are reported as missing.
const (
	firstRetry, lastRetry = time.Second, 5 * time.Minute
	patience              = 10 * time.Minute
)

// forbiddenRetry is the wait after the API server denied a list that the policy may read: Helm writes the list of what policies may read
// before it grants the right.
const forbiddenRetry = 10 * time.Second

// askedPause is the minimum time between the start of an audit and the start of the next requested one.
const askedPause = 5 * time.Second

// Violation is one denial of an object.
type Violation struct{ Reason, Message string }

// Evaluation is the result of a policy for an object.
type Evaluation struct {
	// Asked is false if the policy does not match the object.
	Asked bool
	// Mode is the policy's mode in the object's namespace.
	Mode v1alpha1.PolicyMode
	// Violations are the denials of the object.
	Violations []Violation
}

// Evaluator evaluates policies.
type Evaluator interface {
	// Evaluate returns the policy's result for the object. It fails if the policy cannot be evaluated.
	Evaluate(ctx context.Context, policy string, resource schema.GroupVersionResource, object *unstructured.Unstructured) (Evaluation, error)
	// Revision returns the active revision of the policy, "" if there is none.
	Revision(policy string) string
}

// Reconciler audits existing objects.
type Reconciler struct {
	// Live reads policies and objects without a cache, page by page.
	Live client.Reader
	// Mapper finds the kinds of resources.
	Mapper meta.RESTMapper
	// Evaluator evaluates the policies.
	Evaluator Evaluator
	// MayRead reports whether a policy may read a resource, because its messages can reveal the objects. If nil, every policy may.
	MayRead func(policy, group, resource string) bool
	// Exempt are the namespaces in which only Sallyport's own kinds are audited.
	Exempt []string
	// Reports writes reports in addition to the status. It may be nil.
	Reports *reports.Writer
	// Look is the time between checks for the report kinds while the cluster does not serve them.
	Look time.Duration
	// Changed receives the name of a RegoPolicy whenever its active revision changes. It may be nil.
	Changed <-chan event.GenericEvent
	// Interval is the time between audits of a policy. If 0, only a change of the policy or a request starts one.
	Interval time.Duration
	// Notify is called with the name of a policy when Violations or Reported has changed.
	Notify func(policy string)
	// Nameless omits the names and namespaces of objects from the status, whose readers may have no access to them.
	Nameless bool
	Now      func() time.Time

	turns *semaphore.Weighted // nil if audits do not wait for each other
	due   chan event.GenericEvent

	mu       sync.Mutex
	results  map[string]result // by the policy's name
	awaiting map[string]bool   // policies whose reports wait for the report kinds to be served
	auditing map[string]*v1alpha1.PolicyAudit
}

type result struct {
	violations *v1alpha1.PolicyViolations
	reported   *Finding
	requested  string    // the annotation that requested the audit
	began      time.Time // the audit
	barred     bool      // a right was missing
}

// SetupWithManager registers the reconciler. It runs in the leader.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	r.due = make(chan event.GenericEvent)
	r.turns = semaphore.NewWeighted(atOnce)
	b := ctrl.NewControllerManagedBy(mgr).Named("policy-audit").
		For(&v1alpha1.RegoPolicy{}, builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, asked))).
		WatchesRawSource(source.Channel(r.due, &handler.EnqueueRequestForObject{})).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: underWay,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
		})
	if r.Changed != nil {
		b = b.WatchesRawSource(source.Channel(r.Changed, &handler.EnqueueRequestForObject{}))
	}
	if r.Reports != nil {
		if err := mgr.Add(manager.RunnableFunc(func(ctx context.Context) error { return r.await(ctx) })); err != nil {
			return err
		}
	}
	return b.Complete(r)
}

// asked selects changes of the annotation that requests an audit.
var asked = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	return e.ObjectOld.GetAnnotations()[v1alpha1.AnnotationAudit] != e.ObjectNew.GetAnnotations()[v1alpha1.AnnotationAudit]
}}

// Granted repeats the audits that lacked the right to list a resource. It is called when the rights may have changed.
func (r *Reconciler) Granted(ctx context.Context) {
	r.mu.Lock()
	var names []string
	for name, last := range r.results {
		if last.barred {
			names = append(names, name)
		}
	}
	r.mu.Unlock()
	r.repeat(ctx, names)
}

// repeat enqueues policies.
func (r *Reconciler) repeat(ctx context.Context, policies []string) {
	for _, name := range policies {
		select {
		case <-ctx.Done():
		case r.due <- event.GenericEvent{Object: &v1alpha1.RegoPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}}:
		}
	}
}

// Auditing returns the progress of the audit of a policy, nil if none is running.
func (r *Reconciler) Auditing(policy string) *v1alpha1.PolicyAudit {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.auditing[policy].DeepCopy()
}

// progress records the progress of an audit, nil at its end.
func (r *Reconciler) progress(policy string, is *v1alpha1.PolicyAudit) {
	r.mu.Lock()
	was := r.auditing[policy]
	if r.auditing == nil {
		r.auditing = map[string]*v1alpha1.PolicyAudit{}
	}
	if r.auditing[policy] = is; is == nil {
		delete(r.auditing, policy)
	}
	r.mu.Unlock()
	if r.Notify != nil && (was != nil || is != nil) {
		r.Notify(policy)
	}
}

// Violations returns the result of the last audit of a policy, nil if this process has made none.
func (r *Reconciler) Violations(policy string) *v1alpha1.PolicyViolations {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.redact(r.results[policy].violations.DeepCopy())
}

// Reported returns the state of the reports about a policy, nil if this process has made no audit of it.
func (r *Reconciler) Reported(policy string) *Finding {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.redactFinding(r.results[policy].reported)
}

// Reconcile audits one policy if its spec enables it.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	policy := &v1alpha1.RegoPolicy{}
	err := r.Live.Get(ctx, request.NamespacedName, policy)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("reading RegoPolicy %s: %w", request.Name, err)
	}
	if err != nil || !policy.DeletionTimestamp.IsZero() || policy.Spec.BackgroundAudit != v1alpha1.AuditEnabled || policy.Spec.Match == nil {
		r.record(request.Name, result{})
		return r.unreport(ctx, request.Name)
	}
	revision := r.Evaluator.Revision(policy.Name)
	if revision == "" {
		r.record(policy.Name, result{}) // Changed reports the next active revision
		return ctrl.Result{}, nil
	}
	of := stateOf(policy, revision)
	if wait := r.tooSoon(policy.Name, of.requested); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	book, unserved := r.open(ctx, policy.Name)
	if unserved != nil && !errors.Is(unserved, reports.ErrNotServed) {
		return ctrl.Result{}, unserved
	}
	found, err := r.audit(ctx, policy, of)
	if err != nil {
		return ctrl.Result{}, err
	}
	violations, page := found.result()
	reported, err := r.report(ctx, policy, found, violations.Incomplete, book, page, unserved)
	r.record(policy.Name, result{violations, reported, of.requested, found.began, found.barred})
	if err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: found.wait()}, nil
}

// tooSoon returns how long a requested audit has to wait, so that frequent requests do not keep the API server busy.
func (r *Reconciler) tooSoon(policy, requested string) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := r.results[policy]
	if last.violations == nil || last.requested == requested {
		return 0
	}
	return max(0, askedPause-r.Now().Sub(last.began))
}

func (r *Reconciler) record(policy string, of result) {
	r.mu.Lock()
	_, was := r.results[policy]
	switch {
	case of.violations == nil:
		delete(r.results, policy)
	case r.results == nil:
		r.results = map[string]result{policy: of}
	default:
		r.results[policy] = of
	}
	r.mu.Unlock()
	if r.Notify != nil && (was || of.violations != nil) {
		r.Notify(policy)
	}
}
