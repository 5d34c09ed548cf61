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
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// The bounds of the wait after an error.
const (
	firstRetry = again
	lastRetry  = 3 * glance
)

// SelfSigned is the mode in which Sallyport is its own certificate authority.
type SelfSigned struct {
	options Options
	server  *server
}

// NewSelfSigned prepares it. Nothing happens before SetupWithManager, and the manager's start.
func NewSelfSigned(o Options) (*SelfSigned, error) {
	o.setDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	s := &SelfSigned{options: o}
	s.server = &server{Options: &s.options, metrics: newMetrics(o.Metrics)}
	return s, nil
}

// TLS makes a server serve the certificate, whichever it is at the moment. It is one of the TLSOpts of a webhook server.
func (s *SelfSigned) TLS(config *tls.Config) { config.GetCertificate = s.server.getCertificate }

// Ready is a readiness probe: a certificate is served that is valid and that the webhook configurations trust. It must not be
// a liveness probe, because a restart would lose what is served while the API server is away.
func (s *SelfSigned) Ready(*http.Request) error { return s.server.ready() }

// SetupWithManager registers what every replica does and what the one that leads does. It watches the Secret and the webhook
// configurations by their names, so that nothing else of their kinds is read, or needs to be allowed.
func (s *SelfSigned) SetupWithManager(mgr ctrl.Manager, replicas Replicas) error {
	watched, err := s.watch(mgr)
	if err != nil {
		return err
	}
	s.server.replicas = replicas
	s.server.read = func(o client.Object) client.Reader { return watched[keyOf(o)].cache }
	lead := &leader{
		Options: &s.options, live: mgr.GetAPIReader(), writer: mgr.GetClient(), replicas: replicas,
		events: mgr.GetEventRecorder("sallyport"), self: s.server,
	}
	for _, c := range []struct {
		name  string
		leads bool
		does  reconcile.Reconciler
	}{{"certificate-serving", false, s.server}, {"certificate-rotation", true, lead}} {
		options := controller.Options{
			NeedLeaderElection: ptr.To(c.leads),
			RateLimiter:        workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
		}
		b := ctrl.NewControllerManagedBy(mgr).Named(c.name).WithOptions(options).WatchesRawSource(once)
		for _, w := range watched {
			b = b.WatchesRawSource(source.Kind(w.cache, w.object, one))
		}
		if err := b.Complete(c.does); err != nil {
			return fmt.Errorf("setting up controller %s: %w", c.name, err)
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
	once = source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		queue.Add(reconcile.Request{})
		return nil
	})
)

// watched is one object, with a cache that holds nothing else.
type watched struct {
	object client.Object
	cache  cache.Cache
}

func (s *SelfSigned) watch(mgr ctrl.Manager) (map[string]watched, error) {
	all := map[string]watched{}
	for _, o := range append(s.options.configurations(), s.options.secret()) {
		options := cache.Options{
			HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
			DefaultFieldSelector: fields.OneTermEqualSelector("metadata.name", o.GetName()), DefaultTransform: cache.TransformStripManagedFields(),
		}
		if o.GetNamespace() != "" {
			options.DefaultNamespaces = map[string]cache.Config{o.GetNamespace(): {}}
		}
		c, err := cache.New(mgr.GetConfig(), options)
		if err != nil {
			return nil, fmt.Errorf("making a cache for %T %s: %w", o, o.GetName(), err)
		}
		if err := mgr.Add(inEveryReplica{c}); err != nil {
			return nil, fmt.Errorf("adding a cache for %T %s: %w", o, o.GetName(), err)
		}
		all[keyOf(o)] = watched{o, c}
	}
	return all, nil
}

// inEveryReplica is a cache that is not only for the one that leads, as one for a namespace would be by itself.
type inEveryReplica struct{ cache.Cache }

// NeedLeaderElection is for the manager.
func (inEveryReplica) NeedLeaderElection() bool { return false }

func keyOf(o client.Object) string { return fmt.Sprintf("%T/%s", o, o.GetName()) }
