package audit

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
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
	"sallyport.dev/sallyport/fair"
	"sallyport.dev/sallyport/reconcilers/audit/reports"
)

// The bounds of the wait after an error, and how long one audit may take, its turns together: what it has not got to by then it says.
const (
	firstRetry, lastRetry = time.Second, 5 * time.Minute
	patience              = 10 * time.Minute
)

// askedPause is how long it is at least from the beginning of one audit to that of the next that somebody asks for.
const askedPause = 5 * time.Second

// Objection is what a policy has against an object.
type Objection struct{ Reason, Message string }

// Judgement is what a policy says of an object.
type Judgement struct {
	// Asked is false if the policy is not asked about such an object.
	Asked bool
	// Mode is that of the object's namespace.
	Mode v1alpha1.PolicyMode
	// Against is what the policy has against the object.
	Against []Objection
}

// Judge asks a policy about an object.
type Judge interface {
	// Judge gives what the policy says of the object. An error means that it could not judge.
	Judge(ctx context.Context, policy string, resource schema.GroupVersionResource, object *unstructured.Unstructured) (Judgement, error)
	// Revision is what decides for the policy, "" if nothing does.
	Revision(policy string) string
}

// Reconciler holds objects against policies.
type Reconciler struct {
	// Live reads policies and objects past every cache, page by page.
	Live client.Reader
	// Mapper finds the kinds of resources.
	Mapper meta.RESTMapper
	// Judge asks the policies.
	Judge Judge
	// MayRead reports whether a policy may read a resource: its objections reveal the objects. It may be nil: every policy may.
	MayRead func(policy, group, resource string) bool
	// Exempt are the namespaces about which policies are not asked where the kind is not ours.
	Exempt []string
	// Reports writes what is found beside the status. It may be nil.
	Reports *reports.Writer
	// Look is how long it is at least from one look whether the cluster has the kinds of reports to the next, while it has not.
	Look time.Duration
	// Changed has a RegoPolicy with its name whenever another revision of it decides. It may be nil.
	Changed <-chan event.GenericEvent
	// Interval is how long after an audit the next one begins; 0 leaves it at those that changes of the policy bring.
	Interval time.Duration
	// Found is called with the name of a policy when Violations or Reported has changed.
	Found func(policy string)
	// Nameless has the status count objects and name none, and no namespace: people read it who may not see them.
	Nameless bool
	// Now is the clock.
	Now func() time.Time

	turns *fair.Slots // nil for one that has all turns

	mu       sync.Mutex
	results  map[string]result // by the policy's name
	awaiting map[string]bool   // policies for whose reports the cluster has no kind
	auditing map[string]*v1alpha1.PolicyAudit
}

// result is that of the last audit of a policy.
type result struct {
	violations *v1alpha1.PolicyViolations
	reported   *Finding
	requested  string    // the annotation that asked for it
	began      time.Time // the audit
}

// SetupWithManager registers the reconciler, for the replica that leads.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	due := make(chan event.GenericEvent)
	r.turns = fair.NewSlots(atOnce, underWay)
	b := ctrl.NewControllerManagedBy(mgr).Named("policy-audit").
		For(&v1alpha1.RegoPolicy{}, builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, asked))).
		WatchesRawSource(source.Channel(due, &handler.EnqueueRequestForObject{})).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: underWay,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
		})
	if r.Changed != nil {
		b = b.WatchesRawSource(source.Channel(r.Changed, &handler.EnqueueRequestForObject{}))
	}
	if r.Reports != nil {
		if err := mgr.Add(manager.RunnableFunc(func(ctx context.Context) error { return r.await(ctx, due) })); err != nil {
			return err
		}
	}
	return b.Complete(r)
}

// asked is for policies whose annotation asks for an audit.
var asked = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	return e.ObjectOld.GetAnnotations()[v1alpha1.AnnotationAudit] != e.ObjectNew.GetAnnotations()[v1alpha1.AnnotationAudit]
}}

// Auditing tells how far the audit of a policy is, nil if none is under way.
func (r *Reconciler) Auditing(policy string) *v1alpha1.PolicyAudit {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.auditing[policy].DeepCopy()
}

// progress notes how far an audit is, nil at its end.
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
	if r.Found != nil && (was != nil || is != nil) {
		r.Found(policy)
	}
}

// Violations returns the result of the last audit of a policy, nil if this process has made none.
func (r *Reconciler) Violations(policy string) *v1alpha1.PolicyViolations {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.told(r.results[policy].violations.DeepCopy())
}

// Reported returns the state of the reports about a policy, nil if this process has made no audit of it.
func (r *Reconciler) Reported(policy string) *Finding {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.toldOf(r.results[policy].reported)
}

// Reconcile audits one policy, if it wants that.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	policy := &v1alpha1.RegoPolicy{}
	err := r.Live.Get(ctx, request.NamespacedName, policy)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("reading RegoPolicy %s: %w", request.Name, err)
	}
	if err != nil || !policy.DeletionTimestamp.IsZero() || policy.Spec.BackgroundAudit != v1alpha1.AuditEnabled || policy.Spec.Match == nil {
		r.keep(request.Name, result{})
		return r.unreport(ctx, request.Name)
	}
	revision := r.Judge.Revision(policy.Name)
	if revision == "" {
		r.keep(policy.Name, result{}) // the one that decides next is told of
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
	r.keep(policy.Name, result{violations, reported, of.requested, found.began})
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

func (r *Reconciler) keep(policy string, of result) {
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
	if r.Found != nil && (was || of.violations != nil) {
		r.Found(policy)
	}
}
