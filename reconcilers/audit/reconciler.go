package audit

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// The bounds of the wait after an error, and how long one audit may take: what it has not got to by then it says.
const (
	firstRetry, lastRetry = time.Second, 5 * time.Minute
	patience              = 10 * time.Minute
)

// Objection is what a policy has against an object.
type Objection struct{ Reason, Message string }

// Judge asks a policy about an object.
type Judge interface {
	// Judge gives what the policy has against the object, nil if nothing. Asked is false if it is not asked about such an object.
	Judge(ctx context.Context, policy string, resource schema.GroupVersionResource, object *unstructured.Unstructured) (against *Objection, asked bool, err error)
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
	// Changed has a RegoPolicy with its name whenever another revision of it decides. It may be nil.
	Changed <-chan event.GenericEvent
	// Interval is how long after an audit the next one begins; 0 leaves it at those that changes of the policy bring.
	Interval time.Duration
	// Found is told the name of a policy when Violations has something new.
	Found func(policy string)
	// Now is the clock.
	Now func() time.Time

	mu      sync.Mutex
	results map[string]*v1alpha1.PolicyViolations // by the policy's name
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
	return b.Complete(r)
}

// Violations gives the result of the last audit of a policy, nil if this process has made none.
func (r *Reconciler) Violations(policy string) *v1alpha1.PolicyViolations {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.results[policy].DeepCopy()
}

// Reconcile audits one policy, if it wants that.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	policy := &v1alpha1.RegoPolicy{}
	err := r.Live.Get(ctx, request.NamespacedName, policy)
	if apierrors.IsNotFound(err) {
		r.keep(request.Name, nil)
		return ctrl.Result{}, nil
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("reading RegoPolicy %s: %w", request.Name, err)
	}
	revision := r.Judge.Revision(policy.Name)
	if policy.Spec.BackgroundAudit != v1alpha1.AuditEnabled || policy.Spec.Match == nil || revision == "" {
		r.keep(policy.Name, nil) // the one that decides next is told of
		return ctrl.Result{}, nil
	}
	found, err := r.audit(ctx, policy, revision)
	if err != nil {
		return ctrl.Result{}, err
	}
	r.keep(policy.Name, found)
	return ctrl.Result{RequeueAfter: r.Interval}, nil
}

func (r *Reconciler) keep(policy string, found *v1alpha1.PolicyViolations) {
	r.mu.Lock()
	_, was := r.results[policy]
	switch {
	case found == nil:
		delete(r.results, policy)
	case r.results == nil:
		r.results = map[string]*v1alpha1.PolicyViolations{policy: found}
	default:
		r.results[policy] = found
	}
	r.mu.Unlock()
	if r.Found != nil && (was || found != nil) {
		r.Found(policy)
	}
}
