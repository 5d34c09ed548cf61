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
)

// The bounds of the wait after an error.
const firstRetry, lastRetry = time.Second, 30 * time.Second

// Finding is what was found out about one side of a policy.
type Finding struct {
	// Reason is one of the condition's. Empty says that nothing is known.
	Reason v1alpha1.ConditionReason
	// Message is for users. It stays the same as long as nothing changes.
	Message string
}

// State is what became of a RegoPolicy.
type State struct {
	// UID and Generation are of the object that this is about.
	UID        types.UID
	Generation int64
	// Library tells modules for other policies from a policy.
	Library bool
	// Compiled is about the object itself, also if an older revision decides.
	Compiled Finding
	// Reads is about what it asks for.
	Reads Finding
	// Active is the revision that decides, "" if nothing does. Libraries have none.
	Active string
	// Data is the revision that decides, as it is stored: an object with the fields policy and libraries.
	Data json.RawMessage
	// LastGood is set if what decides is older than the object.
	LastGood bool
	// Text identifies what the object was compiled from, with the libraries that it reaches.
	Text string
	// Registered is about whether the API server asks it about kinds that are not ours. Without a reason there are none; nil says
	// that nothing is known about this generation.
	Registered *Finding
	// Violations is what the last audit of existing objects found; nil says that nothing is known.
	Violations *v1alpha1.PolicyViolations
	// Auditing is how far the audit is that is under way; nil if none is.
	Auditing *v1alpha1.PolicyAudit
	// Reported is the state of the reports of that audit. Without a reason, there must be none; nil means unknown.
	Reported *Finding
}

// Catalog knows what became of policies.
type Catalog interface {
	// State gives the state of a policy, and false if it has not been seen.
	State(name string) (State, bool)
}

// Checker tries policies.
type Checker interface {
	// Check compiles policies, each with the libraries among them, and gives the errors by the policies' names.
	Check(ctx context.Context, world []v1alpha1.RegoPolicy) map[string]error
	// RunTests runs the tests of a policy among others. Refused is what speaks against it, err why nothing is known.
	RunTests(ctx context.Context, world []v1alpha1.RegoPolicy, name string) (refused, err error)
}

// Reconciler is the reconciler of RegoPolicies.
type Reconciler struct {
	// Client writes.
	Client client.Client
	// Live reads past every cache.
	Live client.Reader
	// Namespace is the one that Sallyport is installed in: the ConfigMap is there, and revisions are stored there.
	Namespace string
	// ConfigMap is the name of the ConfigMap with the shipped policies. If it is empty nothing is shipped.
	ConfigMap string
	// Release is the version of this release. A ConfigMap of another one is left alone.
	Release string
	// Sources are the Rego files in the program, to which the ConfigMap refers.
	Sources shipping.Sources
	// Catalog knows what became of policies.
	Catalog Catalog
	// Changed has a RegoPolicy with its name whenever the catalog's State of it changes. It may be nil.
	Changed <-chan event.GenericEvent
	// Checker tries policies before they are applied.
	Checker Checker
	// Tester runs the tests of what is stored. Without one they are not run.
	Tester Tester
	// Behind returns the names of the live replicas that serve other policies than this one. On an error, the names say that they are
	// unknown. If it is nil, there are no other replicas.
	Behind func(context.Context) ([]string, error)
	// Events tells people.
	Events events.EventRecorder
	// Now is the clock.
	Now func() time.Time

	// trying is held by whoever tries what is shipped: it takes a while, and who comes second has less to try.
	trying sync.Mutex
	// passed identifies the changes that last passed the check.
	passed string

	mu        sync.Mutex
	shipments map[string]shipment // by the policy's name, nil until the first look at the ConfigMap
	queue     workqueue.TypedRateLimitingInterface[reconcile.Request]
	seen      map[string]bool // shipped policies that have been there
	untested  workqueue.TypedRateLimitingInterface[reconcile.Request]
	verdicts  map[string]verdict // by the policy's name
}

// Look has a policy looked at again, because something else is known of it.
func (r *Reconciler) Look(name string) {
	r.mu.Lock()
	queue := r.queue
	r.mu.Unlock()
	if queue != nil {
		queue.Add(request(name))
	}
}

// SetupWithManager registers the reconciler, for the replica that leads. The ConfigMap is watched by its name, and of the
// stored revisions only metadata is kept.
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
	stored, err := r.watch(mgr, cache.Options{DefaultLabelSelector: labelled})
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
	configMaps, err := r.watch(mgr, cache.Options{DefaultFieldSelector: fields.OneTermEqualSelector("metadata.name", r.ConfigMap)})
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

// watch makes a cache for the namespace.
func (r *Reconciler) watch(mgr ctrl.Manager, o cache.Options) (cache.Cache, error) {
	o.HTTPClient, o.Scheme, o.Mapper = mgr.GetHTTPClient(), mgr.GetScheme(), mgr.GetRESTMapper()
	o.DefaultTransform = cache.TransformStripManagedFields()
	o.DefaultNamespaces = map[string]cache.Config{r.Namespace: {}}
	c, err := cache.New(mgr.GetConfig(), o)
	if err != nil {
		return nil, err
	}
	return c, mgr.Add(c)
}

func options() controller.Options {
	return controller.Options{
		RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
	}
}

// changed leaves out what only changes a status.
var changed = predicate.Or[client.Object](
	predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{},
)

var labelled = func() labels.Selector {
	has, err := labels.Parse(policyLabel)
	if err != nil {
		panic(err) // a constant text
	}
	return has
}()

// policyOf gives the policy that a revision is stored of.
func policyOf(_ context.Context, revision *metav1.PartialObjectMetadata) []reconcile.Request {
	return []reconcile.Request{request(revision.Labels[policyLabel])}
}

func request(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}
}
