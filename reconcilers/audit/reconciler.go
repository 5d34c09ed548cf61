package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
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

// The bounds of the wait after an error, and how long one audit may take: what it has not got to by then it says.
const (
	firstRetry, lastRetry = time.Second, 5 * time.Minute
	patience              = 10 * time.Minute
)

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
	// Found is told the name of a policy when Violations or Reported has something new.
	Found func(policy string)
	// Nameless has the status count objects and name none, and no namespace: people read it who may not see them.
	Nameless bool
	// Now is the clock.
	Now func() time.Time

	mu       sync.Mutex
	results  map[string]result // by the policy's name
	awaiting map[string]bool   // policies for whose reports the cluster has no kind
	edits    map[string]*edits // by the policy's name
}

// result is that of the last audit of a policy.
type result struct {
	violations *v1alpha1.PolicyViolations
	reported   *Finding
}

// SetupWithManager registers the reconciler, for the replica that leads.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	b := ctrl.NewControllerManagedBy(mgr).Named("policy-audit").
		For(&v1alpha1.RegoPolicy{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WithOptions(controller.Options{
			NeedLeaderElection: ptr.To(true),
			RateLimiter:        workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
		})
	if r.Changed != nil {
		b = b.WatchesRawSource(source.Channel(r.Changed, &handler.EnqueueRequestForObject{}))
	}
	if r.Reports != nil {
		appeared := make(chan event.GenericEvent)
		b = b.WatchesRawSource(source.Channel(appeared, &handler.EnqueueRequestForObject{}))
		if err := mgr.Add(manager.RunnableFunc(func(ctx context.Context) error { return r.await(ctx, appeared) })); err != nil {
			return err
		}
	}
	return b.Complete(r)
}

// Violations gives the result of the last audit of a policy, nil if this process has made none.
func (r *Reconciler) Violations(policy string) *v1alpha1.PolicyViolations {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.told(r.results[policy].violations.DeepCopy())
}

// Reported gives what became of the reports about a policy, nil if this process has made no audit of it.
func (r *Reconciler) Reported(policy string) *Finding {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.toldOf(r.results[policy].reported)
}

// Reconcile audits one policy, if it wants that.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	r.attends(request.Name)
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
	book, unserved := r.open(ctx, policy.Name)
	if unserved != nil && !errors.Is(unserved, reports.ErrNotServed) {
		return ctrl.Result{}, unserved
	}
	found, err := r.audit(ctx, policy, revision, book)
	if err != nil {
		return ctrl.Result{}, err
	}
	reported, err := r.report(ctx, policy, found, unserved)
	r.keep(policy.Name, result{found.found, reported})
	switch {
	case errors.Is(err, reports.ErrChanged): // somebody was faster: look again
		wait, _ := r.edited(reports.Edit{Policy: policy.Name})
		return ctrl.Result{RequeueAfter: max(firstRetry, wait)}, nil
	case err != nil:
		return ctrl.Result{}, err
	case found.ended, found.barred: // which may be over soon
		return ctrl.Result{RequeueAfter: min(r.Interval, lastRetry)}, nil
	case reported.Reason == v1alpha1.ReasonReportsEdited: // which may be over by then
		return ctrl.Result{RequeueAfter: min(cmp.Or(r.Interval, peace), peace) + firstRetry}, nil
	}
	return ctrl.Result{RequeueAfter: r.Interval}, nil
}

func (r *Reconciler) keep(policy string, of result) {
	r.mu.Lock()
	_, was := r.results[policy]
	switch {
	case of.violations == nil:
		delete(r.results, policy)
		delete(r.edits, policy)
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
