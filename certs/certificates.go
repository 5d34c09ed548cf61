// Package certs maintains the certificate of the webhooks, and the caBundle by which the API server trusts it.
//
// A [Mode] selects the source of the next certificate: Sallyport, cert-manager, or a Secret that another client maintains. Everything else is
// the same in every mode, so a change of the mode is a rotation:
//
//  1. The Secret of a source gets another certificate. Nothing else changes yet.
//  2. The leader adds the CA of that certificate to the caBundle of the webhook configurations, beside those that are trusted already.
//  3. A replica that has observed the CA there for [Options.Settle], so that every API server trusts it, serves the certificate and
//     reports that.
//  4. When every live replica has reported it for as long, the leader removes the other authorities from the webhook configurations.
//
// The state of a rotation is in the Secrets, the webhook configurations and the reports of the replicas alone, so another leader can
// continue at any point. In addition, a replica that serves a certificate that is valid and trusted replaces it only by another one for which
// the same is true. A replica that serves none takes any.
//
// # Concurrent writes
//
// Two replicas may both believe that they lead, and one that has served nothing for some time acts as if it did. Every write therefore
// names the resourceVersion that it was derived from, and a leader reads the webhook configurations before the Secrets: if its Secret is
// outdated, its configurations are, too, and the API server rejects the write.
package certs

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/cert"
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

// Mode selects the source of the certificate.
type Mode string

// The modes.
const (
	// Auto prefers CertManager, and uses SelfSigned while the cluster has no cert-manager or cert-manager does not renew its certificate.
	Auto Mode = "auto"
	// CertManager has cert-manager issue certificates.
	CertManager Mode = "cert-manager"
	// SelfSigned has Sallyport create a certificate that is its own authority.
	SelfSigned Mode = "self-signed"
	// Existing reads a Secret that another client maintains.
	Existing Mode = "existing"
)

const (
	day24, year = 24 * time.Hour, 365 * 24 * time.Hour
	// renewAt is the part of its validity after which Sallyport replaces its certificate; lateAt that after which a source counts as late.
	renewAt, lateAt = 2.0 / 3, 5.0 / 6
	// backdate is how far in the past certificates of Sallyport begin, for clocks that are behind. A certificate of another source replaces a
	// usable one only after fresh.
	backdate, fresh = time.Hour, 5 * time.Minute
	// resync is the longest time between two checks without an event, and glance that while no certificate can be served. again is the wait
	// after a conflict.
	resync, glance, again = time.Hour, 10 * time.Second, time.Second
	// patience is the time after which a problem is recorded as an event, and the time between two checks meanwhile.
	patience = time.Minute
	// maxOlder limits the CAs in the caBundle that come from elsewhere than the Secret.
	maxOlder = 8
)

// Options configure the sources, the certificate and the webhook configurations.
type Options struct {
	// Mode is the source of the certificate. Default Auto. Until it has a certificate, one that another mode has left in a Secret is served.
	Mode Mode
	// Secret has Sallyport's own certificate. Issued and Existing name the Secrets of those modes in the same namespace; Issued
	// also names the Certificate. Existing may be empty in other modes.
	Secret           types.NamespacedName
	Issued, Existing string
	// Issuer issues cert-manager's certificate; it has a kind and a group. Default: an Issuer that the leader creates, with a CA.
	Issuer *Issuer
	// Authorities are CA certificates in PEM for a Secret of another source that has no ca.crt.
	Authorities []byte
	// Injected means that cert-manager's cainjector writes the caBundle, and not the leader.
	Injected bool
	// DNSNames are the names in the serving certificate. The API server uses the first, <name>.<namespace>.svc.
	DNSNames []string
	// Configurations are the names of the mutating and validating webhook configurations. They may be created later.
	Configurations []string

	// OwnValidity (default 1 year) is that of Sallyport's own certificate, IssuedValidity (90 days) that of cert-manager's, which renews it
	// after two thirds of that.
	OwnValidity, IssuedValidity time.Duration
	// Settle is the time after which every API server has observed a change of a webhook configuration (30 s), and Poll the interval at which
	// the leader checks whether replicas serve a new certificate (5 s).
	Settle, Poll time.Duration
	// Metrics registers the metrics. It may be nil.
	Metrics prometheus.Registerer
	// Now is the clock. Default time.Now.
	Now func() time.Time
}

// Replicas are the processes that serve the webhooks.
type Replicas interface {
	// Report publishes the hash of the certificate that this replica serves. It is called when the hash changes, and again after an error.
	Report(ctx context.Context, hash string) error
	// Serving returns the hash that each live replica has reported, by replica and including this one; "" for one that has reported none. It
	// must not use a cache.
	Serving(ctx context.Context) (map[string]string, error)
}

func (o *Options) setDefaults() {
	o.Mode = cmp.Or(o.Mode, Auto)
	o.OwnValidity, o.IssuedValidity = cmp.Or(o.OwnValidity, year), cmp.Or(o.IssuedValidity, 90*day24)
	o.Settle, o.Poll = cmp.Or(o.Settle, 30*time.Second), cmp.Or(o.Poll, 5*time.Second)
	if o.Now == nil {
		o.Now = time.Now
	}
}

// Validate returns an error if options are missing or contradictory.
func (o Options) Validate() error {
	o.setDefaults()
	var all []error
	must := func(holds bool, format string, args ...any) {
		if !holds {
			all = append(all, fmt.Errorf(format, args...))
		}
	}
	modes := []Mode{Auto, CertManager, SelfSigned, Existing}
	must(slices.Contains(modes, o.Mode), "invalid mode %q: must be one of %q", o.Mode, modes)
	must(o.Secret.Namespace != "" && o.Secret.Name != "", "the Secret for the certificate needs a namespace and a name")
	must(o.Issued != "" && o.Issued != o.Secret.Name && o.Existing != o.Secret.Name && o.Existing != o.Issued,
		"the Secrets of Sallyport's own certificate, of cert-manager's and the existing one need names that differ")
	must(o.Existing != "" || o.Mode != Existing, "mode %s needs the name of the existing Secret", Existing)
	must(len(o.DNSNames) > 0, "the certificate needs a DNS name")
	must(o.IssuedValidity > 0 && o.IssuedValidity <= year, "the validity of a certificate of cert-manager must be positive and at most %s", year)
	must(o.OwnValidity > 0 && o.Settle > 0 && o.Poll > 0,
		"the validity of Sallyport's own certificate, the wait for the API servers and the interval between two checks must be positive")
	if len(o.Authorities) > 0 {
		_, err := cert.ParseCertsPEM(o.Authorities)
		must(err == nil, "reading the authorities: %w", err)
	}
	return errors.Join(all...)
}

// Certificates maintains and serves the certificate of a webhook server.
type Certificates struct {
	*Options
	from           []*source
	state          atomic.Pointer[status]
	expiry, source *prometheus.GaugeVec
	renewal        prometheus.Gauge // when the served certificate counts as late
	accepted       prometheus.Gauge
	rotating       prometheus.Gauge

	// These are set before the manager starts.
	live     client.Reader
	writer   client.Writer
	events   events.EventRecorder
	replicas Replicas
	elected  <-chan struct{} // closed when this replica leads

	// What serve remembers.
	trusted  map[string]lasting // the CAs of a certificate are trusted, by their PEM
	reported string             // the hash that was reported last
	idle     lasting            // nothing is served
	rotation lasting            // a rotation is unfinished

	// What lead remembers.
	taken     lasting            // every live replica serves the preferred certificate
	preferred Mode               // the source of the preferred certificate
	warnings  map[string]warning // by object
	wrote     map[string]*wroteBundle
}

// New prepares the certificate, and sets the defaults of its options. Nothing happens before SetupWithManager and the start of the manager.
func New(o *Options) (*Certificates, error) {
	o.setDefaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	c, metrics := &Certificates{Options: o, from: o.sources(), warnings: map[string]warning{}, wrote: map[string]*wroteBundle{}}, promauto.With(o.Metrics)
	c.expiry = metrics.NewGaugeVec(prometheus.GaugeOpts{
		Name: "sallyport_certificate_expiry_timestamp_seconds",
		Help: "Expiry time, in seconds since the epoch, of the certificate that this replica serves (serving) and of the authority that signed it (ca).",
	}, []string{"which"})
	c.source = metrics.NewGaugeVec(prometheus.GaugeOpts{
		Name: "sallyport_certificate_source", Help: "1 for the source of the certificate that this replica serves.",
	}, []string{"source"})
	c.renewal = metrics.NewGauge(prometheus.GaugeOpts{
		Name: "sallyport_certificate_renewal_timestamp_seconds",
		Help: "When the certificate that this replica serves must have been renewed at the latest, in seconds since the epoch.",
	})
	c.accepted = metrics.NewGauge(prometheus.GaugeOpts{
		Name: "sallyport_certificate_trusted",
		Help: "1 if the webhook configurations trust the certificate that this replica serves, otherwise 0.",
	})
	c.rotating = metrics.NewGauge(prometheus.GaugeOpts{
		Name: "sallyport_certificate_rotation_since_timestamp_seconds",
		Help: "Since when this replica does not serve the preferred certificate, or older authorities are still trusted, in seconds since the epoch; 0 if neither.",
	})
	c.state.Store(&status{trouble: errors.New("no certificate yet: the Secrets have not been read")})
	return c, nil
}

// TLS makes a server serve the current certificate. It is one of the TLSOpts of a webhook server.
func (c *Certificates) TLS(config *tls.Config) {
	config.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		if now := c.state.Load(); now.served != nil {
			return &now.served.Certificate, nil
		}
		return nil, c.Ready(nil)
	}
}

// Ready is a readiness probe: the served certificate is valid and the webhook configurations trust it. It must not be a liveness probe,
// because a restart would lose the certificate while the API server is unavailable.
func (c *Certificates) Ready(*http.Request) error {
	now := c.state.Load()
	if now.served != nil && c.Now().After(now.served.Leaf.NotAfter) {
		return fmt.Errorf("the serving certificate expired at %s", day(now.served.Leaf.NotAfter))
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
		objects = append(objects, s.empty())
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
	leads := c.idle.so("nothing", c.state.Load().served == nil, c.Now(), patience)
	select {
	case <-c.elected:
		leads = true
	default:
	}
	next, err := c.look(ctx, leads)
	if apierrors.IsConflict(err) { // another client wrote first
		return ctrl.Result{RequeueAfter: again}, nil
	}
	return ctrl.Result{RequeueAfter: next}, err
}

// look does what Reconcile does, and returns when to look again.
func (c *Certificates) look(ctx context.Context, leads bool) (time.Duration, error) {
	v, err := c.read(ctx, leads)
	if err != nil {
		return 0, err
	}
	next, err := c.serve(ctx, v)
	if leads {
		soon, failed := c.lead(ctx, v)
		next, err = min(next, soon), errors.Join(err, failed)
	}
	return next, err
}

// view is the state of the cluster, as read from the API server.
type view struct {
	now            time.Time
	configurations []client.Object                // those webhook configurations that exist
	bundles        map[string][]*x509.Certificate // their caBundles, with the CAs in each
	all            []*offer                       // in the order of preference
	reports        []string                       // the different hashes that replicas have reported, sorted
	want           *offer                         // the one of them that replicas should serve, or nil
	faults         error                          // what is wrong with them
}

// read reads the webhook configurations and then the Secrets, which a leader maintains first. The order matters: see "Concurrent writes" in
// the package documentation. It uses no cache: the objects are few, and it runs rarely.
func (c *Certificates) read(ctx context.Context, leads bool) (*view, error) {
	v := &view{now: c.Now()}
	for _, o := range c.configurations() {
		if err := c.live.Get(ctx, client.ObjectKeyFromObject(o), o); err == nil {
			v.configurations = append(v.configurations, o)
		} else if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("reading webhook configuration %s: %w", o.GetName(), err)
		}
	}
	v.bundles = bundles(v.configurations, v.now)
	reports, err := c.replicas.Serving(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading which certificates the replicas serve: %w", err)
	}
	v.reports = slices.Compact(slices.Sorted(maps.Values(reports)))
	for _, s := range c.from {
		secret := s.empty()
		if err := c.live.Get(ctx, s.secret, secret); client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("reading Secret %s: %w", s.secret, err)
		}
		var problem error
		if leads && s.maintain != nil {
			problem = s.maintain(c, ctx, secret, v.now)
		}
		found := c.offer(s, secret, problem, v.now)
		v.all, v.faults = append(v.all, found), oneLine(v.faults, found.wrong)
	}
	v.want = choose(v.all)
	return v, nil
}

func keyOf(o client.Object) string { return fmt.Sprintf("%T/%s", o, o.GetName()) }
