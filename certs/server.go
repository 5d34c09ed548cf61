package certs

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// glance is how often to look again while there is no certificate that can be served.
const glance = 10 * time.Second

var errUnsettled = errors.New("waiting until every API server trusts the certificate")

// server is the part of every replica: it reads the Secrets and serves the preferred certificate when API servers trust it.
type server struct {
	*Options
	from    []*source
	served  atomic.Pointer[offer]
	trouble atomic.Pointer[error] // why API servers do not trust what is served, or what is wrong if nothing is
	hinted  atomic.Pointer[error] // what the leader knows of the sources, if this replica leads
	metrics *metrics

	// These are set before the replica starts.
	read     func(client.Object) client.Reader
	replicas Replicas

	// These are of Reconcile.
	settled   lasting // the authorities of the preferred certificate are trusted
	proven    lasting // what is served is trusted
	confirmed string  // the hash of the certificate that every API server trusts
	replaced  string  // the hash of the certificate that was of no use any more
	reported  string  // the hash that was reported last
}

// getCertificate is for [tls.Config].
func (s *server) getCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if served := s.served.Load(); served != nil {
		return &served.leaf.Certificate, nil
	}
	return nil, s.ready()
}

// ready returns why API servers cannot call this replica.
func (s *server) ready() error {
	served, trouble, hinted := s.served.Load(), s.trouble.Load(), s.hinted.Load()
	switch {
	case served != nil && s.Now().After(served.leaf.Leaf.NotAfter):
		return fmt.Errorf("the serving certificate expired at %s", day(served.leaf.Leaf.NotAfter))
	case served == nil && hinted != nil:
		return *hinted
	case trouble != nil:
		return *trouble
	case served == nil:
		return errors.New("no certificate yet: the Secrets have not been read")
	}
	return nil
}

// hash returns the hash of what is served, or nothing.
func (s *server) hash() string {
	if served := s.served.Load(); served != nil {
		return hashOf(served.leaf.Leaf)
	}
	return ""
}

// Reconcile serves the preferred certificate and reports it. A served certificate is only replaced by a better one.
func (s *server) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	now := s.Now()
	configurations, all, err := s.look(ctx, s.from, s.read, now, nil)
	if err != nil {
		return ctrl.Result{}, err
	}
	held := s.take(all, configurations, now)
	trouble := s.check(ctx, configurations, now)
	if s.served.Load() == nil {
		trouble = held
	}
	note(&s.trouble, trouble)
	if hash := s.hash(); trouble == nil && hash != s.reported {
		if err := s.replicas.Report(ctx, hash); err != nil {
			return ctrl.Result{}, fmt.Errorf("reporting which certificate is served: %w", err)
		}
		s.reported = hash
	}
	if held != nil || trouble != nil {
		ctrl.LoggerFrom(ctx).Info("not serving the certificate in the Secret", "because", errors.Join(held, trouble).Error())
		return ctrl.Result{RequeueAfter: s.pause()}, nil
	}
	return ctrl.Result{RequeueAfter: s.served.Load().next()}, nil
}

// pause returns how long to wait before the next look while a certificate is not served.
func (s *server) pause() time.Duration { return min(glance, s.Settle) }

// take serves the preferred certificate, or says why not.
func (s *server) take(all []*offer, configurations []client.Object, now time.Time) error {
	want, was := choose(all), s.served.Load()
	if want == nil {
		return faults(all)
	}
	distrust := s.trusted(want, configurations, now)
	settled := s.settled.so(string(encoded(want.roots...)), distrust == nil, now, s.Settle)
	if hash := hashOf(want.leaf.Leaf); hash == s.hash() {
		return nil
	}
	switch useful := was != nil && !now.After(was.leaf.Leaf.NotAfter) && s.trusted(was, configurations, now) == nil; {
	case useful && distrust != nil:
		return distrust
	case useful && !settled:
		return errUnsettled
	case useful && now.Before(want.ripe()) && now.Add(2*s.pause()).Before(was.leaf.Leaf.NotAfter): // two looks before its end it waits no longer
		return fmt.Errorf("the certificate was issued at %s: waiting for API servers whose clocks are behind", day(want.leaf.Leaf.NotBefore))
	case !useful && distrust != nil: // anything that is trusted, else anything
		if i := slices.IndexFunc(all, func(o *offer) bool { return o.leaf != nil && s.trusted(o, configurations, now) == nil }); i >= 0 {
			want, settled = all[i], false
		} else if was != nil && !now.After(was.leaf.Leaf.NotAfter) {
			return distrust
		}
	}
	if s.replaced = s.hash(); settled {
		s.confirmed = hashOf(want.leaf.Leaf)
	}
	if distrust == nil && !settled {
		distrust = errUnsettled
	}
	note(&s.trouble, distrust) // first, or a probe would find it ready
	s.served.Store(want)
	s.metrics.show(want)
	return nil
}

// check says why API servers may reject what is served.
func (s *server) check(ctx context.Context, configurations []client.Object, now time.Time) error {
	served, hash := s.served.Load(), s.hash()
	if served == nil {
		return nil
	}
	err := s.trusted(served, configurations, now)
	proven := s.proven.so(hash, err == nil, now, s.Settle)
	if err != nil || hash == s.confirmed {
		return err
	}
	// It was taken in haste, as there was nothing else. Others that still serve something else are of more use until every API server has
	// observed that this one is trusted.
	reports, err := s.replicas.Serving(ctx)
	if err != nil {
		return fmt.Errorf("reading which certificates the replicas serve: %w", err)
	}
	all := slices.Collect(maps.Values(reports))
	useful := func(other string) bool { return other != "" && other != s.replaced }
	if !proven && slices.ContainsFunc(all, useful) && !slices.Contains(all, hash) {
		return errUnsettled
	}
	s.confirmed = hash
	return nil
}

// note stores an error, or nil.
func note(where *atomic.Pointer[error], err error) {
	if err == nil {
		where.Store(nil)
		return
	}
	where.Store(&err)
}

// trusted says which webhook of these configurations does not trust a certificate.
func (s *server) trusted(o *offer, configurations []client.Object, now time.Time) error {
	for _, authorities := range bundles(configurations, now) {
		if _, err := o.leaf.verify(s.DNSNames[:1], authorities, now); err != nil {
			return fmt.Errorf("a webhook configuration does not trust the serving certificate: %w", err)
		}
	}
	return nil
}

// metrics show what is served. A replica that serves nothing has none.
type metrics struct{ expiry, source *prometheus.GaugeVec }

func newMetrics(registry prometheus.Registerer) *metrics {
	with := promauto.With(registry)
	return &metrics{
		with.NewGaugeVec(prometheus.GaugeOpts{
			Name: "sallyport_certificate_expiry_timestamp_seconds",
			Help: "Expiry time, in seconds since the epoch, of the certificate that this replica serves (serving) and of the authority that signed it (ca).",
		}, []string{"which"}),
		with.NewGaugeVec(prometheus.GaugeOpts{
			Name: "sallyport_certificate_source",
			Help: "1 for the source of the certificate that this replica serves.",
		}, []string{"source"}),
	}
}

func (m *metrics) show(served *offer) {
	m.expiry.WithLabelValues("serving").Set(float64(served.leaf.Leaf.NotAfter.Unix()))
	m.expiry.WithLabelValues("ca").Set(float64(served.ca.NotAfter.Unix()))
	m.source.Reset()
	m.source.WithLabelValues(string(served.mode)).Set(1)
}
