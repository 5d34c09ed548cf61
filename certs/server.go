package certs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// glance is the time between checks while no certificate can be served.
const glance = 10 * time.Second

var errUnsettled = errors.New("waiting until every API server trusts the certificate")

// status is the certificate that a replica serves, nil if none, and why API servers may reject it.
type status struct {
	served  *offer
	trouble error
}

func (c *Certificates) now() status {
	if now := c.state.Load(); now != nil {
		return *now
	}
	return status{trouble: errors.New("no certificate yet: the Secrets have not been read")}
}

// serve serves the preferred certificate once API servers trust it, and reports it. It returns when to check again.
func (c *Certificates) serve(ctx context.Context) (time.Duration, error) {
	now := c.Now()
	configurations, all, err := c.read(ctx, now, false)
	if err != nil {
		return 0, err
	}
	was := c.now().served
	served, held := c.selectOffer(was, all, configurations, now)
	trouble := held
	if served != nil {
		trouble = c.check(ctx, served, configurations, now)
	} else if held = nil; c.hint != nil {
		trouble = c.hint
	}
	c.state.Store(&status{served, trouble})
	if served != was {
		c.metrics.show(served)
	}
	if hash := served.hash(); trouble == nil && hash != c.reported {
		if err := c.replicas.Report(ctx, hash); err != nil {
			return 0, fmt.Errorf("reporting which certificate is served: %w", err)
		}
		c.reported = hash
	}
	if held != nil || trouble != nil {
		ctrl.LoggerFrom(ctx).Info("not serving the certificate in the Secret", "because", oneLine(held, trouble).Error())
		return c.pause(), nil
	}
	return next(all), nil
}

// pause returns the time between checks while the preferred certificate is not served.
func (c *Certificates) pause() time.Duration { return min(glance, c.Settle) }

// selectOffer returns the offer to serve, and why that is not the preferred one. A certificate that is valid and trusted is replaced only by
// another one for which the same is true.
func (c *Certificates) selectOffer(was *offer, all []*offer, configurations []client.Object, now time.Time) (*offer, error) {
	want := choose(all)
	if want == nil {
		return was, faults(all)
	}
	distrust := c.trusted(want, configurations, now)
	settled := c.settled.so(string(encoded(want.roots...)), distrust == nil, now, c.Settle)
	valid := was != nil && !now.After(was.leaf.Leaf.NotAfter)
	switch useful := valid && c.trusted(was, configurations, now) == nil; {
	case was.hash() == want.hash():
		return was, nil
	case useful && !want.ofMode():
		return was, faults(all)
	case useful && distrust != nil:
		return was, distrust
	case useful && !settled:
		return was, errUnsettled
	case useful && now.Before(want.ripe()) && now.Add(2*c.pause()).Before(was.leaf.Leaf.NotAfter): // it does not wait within the last two checks before the expiry
		return was, fmt.Errorf("the certificate was issued at %s: waiting for API servers whose clocks are behind", day(want.leaf.Leaf.NotBefore))
	case distrust != nil: // any trusted offer, otherwise any
		if i := slices.IndexFunc(all, func(o *offer) bool { return o.leaf != nil && c.trusted(o, configurations, now) == nil }); i >= 0 {
			want = all[i]
		} else if valid {
			return was, distrust
		}
	}
	if c.replaced = was.hash(); settled {
		c.confirmed = want.hash()
	}
	return want, nil
}

// check returns why API servers may reject the served certificate.
func (c *Certificates) check(ctx context.Context, served *offer, configurations []client.Object, now time.Time) error {
	hash, err := served.hash(), c.trusted(served, configurations, now)
	proven := c.proven.so(hash, err == nil, now, c.Settle)
	if err != nil || hash == c.confirmed {
		return err
	}
	// The certificate was served before every API server could trust it, because there was no other. Replicas that still serve an earlier
	// certificate are preferable until then.
	reports, err := c.replicas.Serving(ctx)
	if err != nil {
		return fmt.Errorf("reading which certificates the replicas serve: %w", err)
	}
	all := slices.Collect(maps.Values(reports))
	useful := func(other string) bool { return other != "" && other != c.replaced }
	if !proven && slices.ContainsFunc(all, useful) && !slices.Contains(all, hash) {
		return errUnsettled
	}
	c.confirmed = hash
	return nil
}

// trusted returns an error if a webhook of the configurations does not trust the certificate.
func (c *Certificates) trusted(o *offer, configurations []client.Object, now time.Time) error {
	for _, authorities := range bundles(configurations, now) {
		if _, err := o.leaf.verify(c.DNSNames[:1], authorities, now); err != nil {
			return fmt.Errorf("a webhook configuration does not trust the serving certificate: %w", err)
		}
	}
	return nil
}

// lasting measures for how long a condition has been true without interruption, as observed by this process.
type lasting struct {
	what  string
	since time.Time
}

// so records whether the condition is true now, and for what, and reports whether it has been true for long enough.
func (l *lasting) so(what string, is bool, now time.Time, enough time.Duration) bool {
	if !is {
		*l = lasting{}
		return false
	}
	if l.what != what || l.since.After(now) {
		l.what, l.since = what, now
	}
	return now.Sub(l.since) >= enough
}

// metrics describe the served certificate. A replica without one has none.
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
