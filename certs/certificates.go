// Package certs maintains the certificate of the webhooks, and the caBundle by which the API server trusts it.
//
// A [Mode] selects the source of the next certificate: a CA of Sallyport's own, cert-manager, or a Secret that another client maintains.
// Everything else is the same in every mode, so a change of the mode is a rotation:
//
//  1. The Secret of a source gets another certificate. Nothing else changes yet.
//  2. The leader adds the CA of that certificate to the caBundle of the webhook configurations, beside those that are trusted already.
//  3. A replica that has observed the CA there for [Options.Settle], so that every API server trusts it, serves the certificate and
//     reports that.
//  4. When every live replica has reported it for as long, the leader removes the other authorities from the webhook configurations.
//
// The state of a rotation is in the Secrets, the webhook configurations and the reports of the replicas alone, so another leader can
// continue at any point. Two rules hold in addition:
//
//   - The leader removes an authority from the webhook configurations only when every live replica has reported that it serves the
//     certificate of the preferred source.
//   - A replica that serves a certificate that is valid and trusted replaces it only by another one for which the same is true. A replica
//     that serves none takes any.
//
// # Concurrent writes
//
// Two replicas may both believe that they lead, and one that has served nothing for some time acts as if it did. Every write therefore
// names the resourceVersion that it was derived from, and a leader reads the webhook configurations before the Secrets: if its Secret is
// outdated, its configurations are, too, and the API server rejects the write.
package certs

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	watches "sigs.k8s.io/controller-runtime/pkg/source"
)

// Certificates maintains and serves the certificate of a webhook server.
type Certificates struct {
	*Options
	from    []*source
	state   atomic.Pointer[status]
	metrics *metrics

	// These are set before the manager starts.
	live     client.Reader
	writer   client.Writer
	events   events.EventRecorder
	replicas Replicas
	elected  <-chan struct{} // closed when this replica leads

	// Fields of serve.
	settled   lasting // the authorities of the preferred certificate are trusted
	proven    lasting // the served certificate is trusted
	confirmed string  // the hash of the certificate that every API server trusts
	replaced  string  // the hash of the certificate that was replaced last
	reported  string  // the hash that was reported last
	idle      lasting // nothing is served

	// Fields of lead.
	taken     lasting // every live replica serves the preferred certificate
	preferred Mode    // the source of the certificate that replicas should serve
	hint      error   // what is wrong with the sources
	warnings  map[string]*warning
}

// New prepares the certificate. Nothing happens before SetupWithManager and the start of the manager.
func New(o Options) (*Certificates, error) {
	o.setDefaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	return prepare(&o), nil
}

func prepare(o *Options) *Certificates {
	return &Certificates{Options: o, from: o.sources(), metrics: newMetrics(o.Metrics), warnings: map[string]*warning{}}
}

// TLS makes a server serve the current certificate. It is one of the TLSOpts of a webhook server.
func (c *Certificates) TLS(config *tls.Config) {
	config.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		if now := c.now(); now.served != nil {
			return &now.served.leaf.Certificate, nil
		}
		return nil, c.Ready(nil)
	}
}

// Ready is a readiness probe: the served certificate is valid and the webhook configurations trust it. It must not be a liveness probe,
// because a restart would lose the certificate while the API server is unavailable.
func (c *Certificates) Ready(*http.Request) error {
	now := c.now()
	if now.served != nil && c.Now().After(now.served.leaf.Leaf.NotAfter) {
		return fmt.Errorf("the serving certificate expired at %s", day(now.served.leaf.Leaf.NotAfter))
	}
	return now.trouble
}

// SetupWithManager adds the reconciler. It watches the Secrets and webhook configurations by name, so that Sallyport needs no right to read
// others.
func (c *Certificates) SetupWithManager(mgr ctrl.Manager, replicas Replicas) error {
	c.live, c.writer, c.events, c.replicas, c.elected = mgr.GetAPIReader(), mgr.GetClient(), mgr.GetEventRecorder("sallyport"), replicas, mgr.Elected()
	b := ctrl.NewControllerManagedBy(mgr).Named("certificates").WithOptions(controller.Options{
		NeedLeaderElection: ptr.To(false),
		RateLimiter:        workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](again, 3*glance),
	}).WatchesRawSource(watches.Func(c.begin))
	objects := c.configurations()
	for _, s := range c.from {
		objects = append(objects, s.object())
	}
	for _, o := range objects {
		only, err := cluster.New(mgr.GetConfig(), func(options *cluster.Options) {
			options.HTTPClient, options.Scheme = mgr.GetHTTPClient(), mgr.GetScheme()
			options.MapperProvider = func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return mgr.GetRESTMapper(), nil }
			options.Cache.DefaultFieldSelector = fields.OneTermEqualSelector("metadata.name", o.GetName())
			if o.GetNamespace() != "" {
				options.Cache.DefaultNamespaces = map[string]cache.Config{o.GetNamespace(): {}}
			}
		})
		if err == nil {
			err = mgr.Add(only)
		}
		if err != nil {
			return fmt.Errorf("adding a watch for %s: %w", keyOf(o), err)
		}
		b = b.WatchesRawSource(watches.Kind(only.GetCache(), o, handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
			return []reconcile.Request{{}}
		})))
	}
	return b.Complete(c)
}

// begin enqueues the only request at the start, when none of the objects may exist, and when this replica leads.
func (c *Certificates) begin(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	queue.Add(reconcile.Request{})
	go func() {
		select {
		case <-c.elected:
			queue.Add(reconcile.Request{})
		case <-ctx.Done():
		}
	}()
	return nil
}

// Reconcile serves the preferred certificate and, if this replica leads, takes at most one step of a rotation. A replica without a
// certificate acts as leader after a while: after a change of the mode, the actual leader may have the old mode and no certificate, while the
// rollout waits for this replica.
func (c *Certificates) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	next, err := c.serve(ctx)
	leads := c.idle.so("nothing", c.now().served == nil, c.Now(), patience)
	select {
	case <-c.elected:
		leads = true
	default:
	}
	if leads {
		soon, failed := c.lead(ctx)
		next, err = min(next, soon), errors.Join(err, failed)
	}
	return ctrl.Result{RequeueAfter: next}, err
}

func keyOf(o client.Object) string { return fmt.Sprintf("%T/%s", o, o.GetName()) }
