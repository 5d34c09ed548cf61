package certs

import (
	"context"
	"crypto/tls"
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

// The bounds of the wait after an error.
const (
	firstRetry = again
	lastRetry  = 3 * glance
)

// Certificates keeps the certificate of a webhook server.
type Certificates struct {
	options Options
	server  *server
}

// New prepares it. Nothing happens before SetupWithManager, and the manager's start.
func New(o Options) (*Certificates, error) {
	o.setDefaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	c := &Certificates{options: o}
	c.server = &server{Options: &c.options, from: o.sources(), metrics: newMetrics(o.Metrics)}
	return c, nil
}

// TLS makes a server serve the certificate, whichever it is at the moment. It is one of the TLSOpts of a webhook server.
func (c *Certificates) TLS(config *tls.Config) { config.GetCertificate = c.server.getCertificate }

// Ready is a readiness probe: a certificate is served that is valid and that the webhook configurations trust. It must not be
// a liveness probe, because a restart would lose what is served while the API server is away.
func (c *Certificates) Ready(*http.Request) error { return c.server.ready() }

// SetupWithManager registers what every replica does and what the one that leads does. It watches the Secret and the webhook
// configurations by their names, so that nothing else of their kinds is read, or needs to be allowed.
func (c *Certificates) SetupWithManager(mgr ctrl.Manager, replicas Replicas) error {
	watched, err := c.watch(mgr)
	if err != nil {
		return err
	}
	c.server.replicas = replicas
	c.server.read = func(o client.Object) client.Reader { return watched[keyOf(o)].cache }
	lead := &leader{
		Options: &c.options, from: c.server.from, live: mgr.GetAPIReader(), writer: mgr.GetClient(), replicas: replicas,
		events: mgr.GetEventRecorder("sallyport"), self: c.server,
	}
	for _, part := range []struct {
		name  string
		leads bool
		does  reconcile.Reconciler
	}{{"certificate-serving", false, c.server}, {"certificate-rotation", true, lead}} {
		options := controller.Options{
			NeedLeaderElection: ptr.To(part.leads),
			RateLimiter:        workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
		}
		b := ctrl.NewControllerManagedBy(mgr).Named(part.name).WithOptions(options).WatchesRawSource(once)
		for _, w := range watched {
			b = b.WatchesRawSource(watches.Kind(w.cache, w.object, one))
		}
		if err := b.Complete(part.does); err != nil {
			return fmt.Errorf("setting up controller %s: %w", part.name, err)
		}
	}
	return nil
}

var (
	// one asks for the one thing that there is to reconcile.
	one = handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{}}
	})
	// once asks for it in the beginning, when none of the objects may be there.
	once = watches.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		queue.Add(reconcile.Request{})
		return nil
	})
)

// watched is one object, with a cache that holds nothing else.
type watched struct {
	object client.Object
	cache  cache.Cache
}

func (c *Certificates) watch(mgr ctrl.Manager) (map[string]watched, error) {
	all := map[string]watched{}
	objects := c.options.configurations()
	for _, s := range c.server.from {
		objects = append(objects, s.object())
	}
	for _, o := range objects {
		options := cache.Options{
			HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
			DefaultFieldSelector: fields.OneTermEqualSelector("metadata.name", o.GetName()), DefaultTransform: cache.TransformStripManagedFields(),
		}
		if o.GetNamespace() != "" {
			options.DefaultNamespaces = map[string]cache.Config{o.GetNamespace(): {}}
		}
		only, err := cache.New(mgr.GetConfig(), options)
		if err != nil {
			return nil, fmt.Errorf("making a cache for %T %s: %w", o, o.GetName(), err)
		}
		if err := mgr.Add(inEveryReplica{only}); err != nil {
			return nil, fmt.Errorf("adding a cache for %T %s: %w", o, o.GetName(), err)
		}
		all[keyOf(o)] = watched{o, only}
	}
	return all, nil
}

// inEveryReplica is a cache that is not only for the one that leads, as one for a namespace would be by itself.
type inEveryReplica struct{ cache.Cache }

// NeedLeaderElection is for the manager.
func (inEveryReplica) NeedLeaderElection() bool { return false }

func keyOf(o client.Object) string { return fmt.Sprintf("%T/%s", o, o.GetName()) }
