package policy

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/policy/shipping"
	"sallyport.dev/sallyport/reconcilers/policy/unattended"
	"sallyport.dev/sallyport/reconcilers/watch"
)

// firstRetry and lastRetry bound the wait after an error.
const firstRetry, lastRetry = time.Second, 30 * time.Second

// Finding is the result of one check of a policy.
type Finding struct {
	// Reason is a condition reason. Empty means unknown.
	Reason v1alpha1.ConditionReason
	// Message is for users. It must stay the same while nothing changes.
	Message string
}

// State is the state of a RegoPolicy in the catalog.
type State struct {
	// UID and Generation identify the object that the state is about.
	UID        types.UID
	Generation int64
	// Library is set for a module library.
	Library bool
	// Compiled is the result for the object itself, even if an older revision is active.
	Compiled Finding
	// Reads is the result for the resources that it reads.
	Reads Finding
	// Active is the active revision, "" if there is none. Libraries have none.
	Active string
	// Data is the active revision as stored: an object with the fields policy and libraries.
	Data json.RawMessage
	// LastGood is set if the active revision is older than the object.
	LastGood bool
	// Text identifies the compiled text, with the libraries that it imports.
	Text string
	// Registered reports whether the API server calls the webhook for foreign kinds. Its reason is empty if the
	// policy matches none; nil means unknown for this generation.
	Registered *Finding
	// Violations is the result of the last audit of existing objects; nil means unknown.
	Violations *v1alpha1.PolicyViolations
	// Auditing is the progress of the running audit; nil if none runs.
	Auditing *v1alpha1.PolicyAudit
	// Reported is the state of the reports of that audit. Without a reason, there must be none; nil means unknown.
	Reported *Finding
}

// Catalog provides the state of policies.
type Catalog interface {
	// State returns the state of a policy, and false if the catalog has not observed it.
	State(name string) (State, bool)
}

// Checker checks policies before they are applied.
type Checker interface {
	// Check compiles policies, each with the libraries among them, and returns the errors by policy name.
	Check(ctx context.Context, world []v1alpha1.RegoPolicy) map[string]error
	// RunTests runs the tests of a policy in the given world. The first error is why the policy must not be applied,
	// the second why the tests could not run.
	RunTests(ctx context.Context, world []v1alpha1.RegoPolicy, name string) (refused, err error)
}

// Reconciler reconciles RegoPolicies.
type Reconciler struct {
	Client client.Client
	// Live reads from the API server, without a cache.
	Live client.Reader
	// Namespace is the namespace of the installation, with the ConfigMap and the stored revisions.
	Namespace string
	// ConfigMap is the name of the ConfigMap with the shipped policies. If it is empty, none are shipped.
	ConfigMap string
	// Release is the version of this release. A ConfigMap of another release is ignored.
	Release string
	// Sources are the embedded Rego files to which the ConfigMap refers.
	Sources shipping.Sources
	// Catalog provides the state of policies.
	Catalog Catalog
	// Changed receives a RegoPolicy by name whenever its State changes. It may be nil.
	Changed <-chan event.GenericEvent
	// Checker checks policies before they are applied.
	Checker Checker
	// Tester runs the tests of stored policies. If nil, they are not run.
	Tester Tester
	// Behind returns the names of the live replicas that serve other policies than this one. If it returns an error,
	// the names are those of replicas whose state is unknown. Nil means that there are no other replicas.
	Behind func(context.Context) ([]string, error)
	Events events.EventRecorder
	Now    func() time.Time

	// trying serializes checks of shipped policies, which take a while; the second one finds less to check.
	trying sync.Mutex
	// passed identifies the changes that passed the last check.
	passed string

	mu          sync.Mutex
	shipments   map[string]shipment // by policy name; nil until the ConfigMap was read
	queue       workqueue.TypedRateLimitingInterface[reconcile.Request]
	seen        map[string]bool // shipped policies that have existed
	untested    workqueue.TypedRateLimitingInterface[reconcile.Request]
	testResults map[string]testResult // by policy name
}

// Look enqueues a policy because something about it has changed.
func (r *Reconciler) Look(name string) {
	r.mu.Lock()
	queue := r.queue
	r.mu.Unlock()
	if queue != nil {
		queue.Add(request(name))
	}
}

// SetupWithManager registers the reconciler, which runs on the leader. It watches the ConfigMap by name, and only the
// metadata of stored revisions.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	if r.ConfigMap != "" {
		if err := r.setupShipping(mgr); err != nil {
			return fmt.Errorf("setting up the shipping of policies: %w", err)
		}
	}
	if r.Tester != nil {
		if err := r.setupTests(mgr); err != nil {
			return fmt.Errorf("setting up the tests of policies: %w", err)
		}
	}
	revision := &metav1.PartialObjectMetadata{}
	revision.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("ControllerRevision"))
	stored, err := watch.Cache(mgr, cache.Options{DefaultNamespaces: map[string]cache.Config{r.Namespace: {}}, DefaultLabelSelector: labelled})
	if err != nil {
		return fmt.Errorf("watching the stored revisions: %w", err)
	}
	b := ctrl.NewControllerManagedBy(mgr).Named("policy").
		For(&v1alpha1.RegoPolicy{}, builder.WithPredicates(predicate.Or(changed, unattended.Marked()))).
		WatchesRawSource(source.Kind(stored, revision, handler.TypedEnqueueRequestsFromMapFunc(policyOf))).
		WatchesRawSource(source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.queue = queue
			return nil
		})).
		WithOptions(options())
	if r.Changed != nil {
		b = b.WatchesRawSource(source.Channel(r.Changed, &handler.EnqueueRequestForObject{}))
	}
	return b.Complete(r)
}

func (r *Reconciler) setupShipping(mgr ctrl.Manager) error {
	configMaps, err := watch.Cache(mgr, cache.Options{
		DefaultNamespaces:    map[string]cache.Config{r.Namespace: {}},
		DefaultFieldSelector: fields.OneTermEqualSelector("metadata.name", r.ConfigMap),
	})
	if err != nil {
		return fmt.Errorf("watching ConfigMap %s/%s: %w", r.Namespace, r.ConfigMap, err)
	}
	one := func(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{{}} }
	return ctrl.NewControllerManagedBy(mgr).Named("policy-shipping").
		WatchesRawSource(source.Kind[client.Object](configMaps, &corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(one))).
		Watches(&v1alpha1.RegoPolicy{}, handler.EnqueueRequestsFromMapFunc(one), builder.WithPredicates(changed)).
		WithOptions(options()).
		Complete(reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) { return r.ship(ctx) }))
}

func options() controller.Options {
	return controller.Options{
		RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
	}
}

// changed drops updates of the status only.
var changed = predicate.Or[client.Object](
	predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{},
)

var labelled = func() labels.Selector {
	has, err := labels.Parse(policyLabel)
	if err != nil {
		panic(err) // a constant
	}
	return has
}()

func policyOf(_ context.Context, revision *metav1.PartialObjectMetadata) []reconcile.Request {
	return []reconcile.Request{request(revision.Labels[policyLabel])}
}

func request(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}
}
