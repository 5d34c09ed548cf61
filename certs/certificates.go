package certs

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	watches "sigs.k8s.io/controller-runtime/pkg/source"
)

// Certificates keeps the certificate of a webhook server.
type Certificates struct {
	options Options
	server  *server
}

// New prepares the certificate. Nothing happens before SetupWithManager and the start of the manager.
func New(o Options) (*Certificates, error) {
	o.setDefaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	c := &Certificates{options: o}
	c.server = &server{Options: &c.options, from: o.sources(), metrics: newMetrics(o.Metrics)}
	return c, nil
}

// TLS makes a server serve the current certificate. It is one of the TLSOpts of a webhook server.
func (c *Certificates) TLS(config *tls.Config) { config.GetCertificate = c.server.getCertificate }

// Ready is a readiness probe: the served certificate is valid and the webhook configurations trust it. It must not be a liveness probe,
// because a restart would lose the certificate while the API server is unavailable.
func (c *Certificates) Ready(*http.Request) error { return c.server.ready() }

// SetupWithManager adds the reconcilers of every replica and of the leader. They watch the Secrets and webhook configurations by name, so
// that others are neither read nor need to be allowed.
func (c *Certificates) SetupWithManager(mgr ctrl.Manager, replicas Replicas) error {
	objects := c.options.configurations()
	for _, s := range c.server.from {
		objects = append(objects, s.object())
	}
	caches := map[string]cache.Cache{}
	for _, o := range objects {
		only, err := newCache(mgr, o)
		if err != nil {
			return fmt.Errorf("adding a cache for %T %s: %w", o, o.GetName(), err)
		}
		caches[keyOf(o)] = only
	}
	c.server.replicas = replicas
	c.server.read = func(o client.Object) client.Reader { return caches[keyOf(o)] }
	lead := &leader{
		Options: &c.options, from: c.server.from, live: mgr.GetAPIReader(), writer: mgr.GetClient(), replicas: replicas,
		events: mgr.GetEventRecorder("sallyport"), self: c.server,
	}
	add := func(name string, leads bool, does reconcile.Reconciler) error {
		b := ctrl.NewControllerManagedBy(mgr).Named(name).WithOptions(controller.Options{
			NeedLeaderElection: ptr.To(leads),
			RateLimiter:        workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](again, 3*glance),
		}).WatchesRawSource(once)
		for _, o := range objects {
			b = b.WatchesRawSource(watches.Kind(caches[keyOf(o)], o, one))
		}
		return b.Complete(does)
	}
	return errors.Join(add("certificate-serving", false, c.server), add("certificate-rotation", true, lead))
}

var (
	// one enqueues the only request.
	one = handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{}}
	})
	// once enqueues it at the start, when none of the objects may exist.
	once = watches.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		queue.Add(reconcile.Request{})
		return nil
	})
)

// newCache adds a cache to the manager that has no other object.
func newCache(mgr ctrl.Manager, o client.Object) (cache.Cache, error) {
	options := cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		DefaultFieldSelector: fields.OneTermEqualSelector("metadata.name", o.GetName()), DefaultTransform: cache.TransformStripManagedFields(),
	}
	if o.GetNamespace() != "" {
		options.DefaultNamespaces = map[string]cache.Config{o.GetNamespace(): {}}
	}
	only, err := cache.New(mgr.GetConfig(), options)
	if err != nil {
		return nil, err
	}
	return only, mgr.Add(inEveryReplica{only})
}

// inEveryReplica is a cache that runs without leader election.
type inEveryReplica struct{ cache.Cache }

// NeedLeaderElection is for the manager.
func (inEveryReplica) NeedLeaderElection() bool { return false }

func keyOf(o client.Object) string { return fmt.Sprintf("%T/%s", o, o.GetName()) }
