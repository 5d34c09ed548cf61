package certs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
)

var errUnsettled = errors.New("waiting until every API server trusts the certificate")

// status is the certificate that a replica serves, nil if none, and why API servers may reject it.
type status struct {
	served  *offer
	trouble error
}

// serve serves the preferred certificate once API servers trust it, and reports it. It returns when to check again.
func (c *Certificates) serve(ctx context.Context, v *view) (time.Duration, error) {
	was := c.state.Load().served
	c.assess(append(slices.Clone(v.all), was), v)
	served, held := c.selectOffer(was, v)
	trouble := held
	if served != nil {
		trouble = c.check(served, v)
	}
	c.state.Store(&status{served, trouble})
	c.show(served, v)
	if now := served.hash(); trouble == nil && now != c.reported {
		if err := c.replicas.Report(ctx, now); err != nil {
			return 0, fmt.Errorf("reporting which certificate is served: %w", err)
		}
		c.reported = now
	}
	if wrong := cmp.Or(trouble, held); wrong != nil {
		ctrl.LoggerFrom(ctx).Info("not serving the certificate in the Secret", "because", wrong.Error())
		return c.pause(), nil
	}
	return next(v.all), nil
}

// pause returns the time between checks while the preferred certificate is not served.
func (c *Certificates) pause() time.Duration { return min(glance, c.Settle) }

// assess sets whether the webhook configurations trust each certificate, and whether they have for as long as API servers take to observe it.
func (c *Certificates) assess(offers []*offer, v *view) {
	trusted := map[string]lasting{}
	for _, o := range offers {
		if o == nil || o.certificate == nil {
			continue
		}
		o.distrust = nil
		for _, authorities := range v.bundles {
			if _, err := o.verify(c.DNSNames[:1], authorities, v.now); err != nil {
				o.distrust = fmt.Errorf("a webhook configuration does not trust the serving certificate: %w", err)
			}
		}
		roots := string(encoded(o.roots...))
		since := c.trusted[roots]
		if o.settled = since.so(roots, o.distrust == nil, v.now, c.Settle); o.distrust == nil {
			trusted[roots] = since
		}
	}
	c.trusted = trusted
}

// selectOffer returns the offer to serve, and why that is not the preferred one. A certificate that is valid and trusted is replaced only by
// another one for which the same is true.
func (c *Certificates) selectOffer(was *offer, v *view) (*offer, error) {
	want := v.want
	valid := was != nil && !v.now.After(was.Leaf.NotAfter)
	switch useful := valid && was.distrust == nil; {
	case want != nil && was.hash() == want.hash():
		return was, nil
	case want == nil || useful && !want.ofMode:
		return was, v.faults
	case useful && want.distrust != nil:
		return was, want.distrust
	case useful && !want.settled:
		return was, errUnsettled
	case useful && v.now.Before(want.ripe()) && v.now.Add(2*c.pause()).Before(was.Leaf.NotAfter): // it does not wait within the last two checks before the expiry
		return was, fmt.Errorf("the certificate was issued at %s: waiting for API servers whose clocks are behind", day(want.Leaf.NotBefore))
	case want.distrust != nil: // any trusted offer, otherwise any
		if i := slices.IndexFunc(v.all, func(o *offer) bool { return o.certificate != nil && o.distrust == nil }); i >= 0 {
			want = v.all[i]
		} else if valid {
			return was, want.distrust
		}
	}
	return want, nil
}

// check returns why API servers may reject the served certificate. If it is served before every API server can trust it, because there was
// no other, replicas that still serve an earlier one are preferable until then.
func (c *Certificates) check(served *offer, v *view) error {
	useful := func(other string) bool { return other != "" && other != c.reported }
	if served.distrust == nil && !served.settled && slices.ContainsFunc(v.reports, useful) && !slices.Contains(v.reports, served.hash()) {
		return errUnsettled
	}
	return served.distrust
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

// show sets the metrics. A replica without a certificate has none of those about it.
func (c *Certificates) show(served *offer, v *view) {
	unfinished := v.want != nil && (served.hash() != v.want.hash() || !c.Injected && len(v.older()) > 0)
	c.rotation.so("a rotation", unfinished, v.now, 0)
	c.rotating.Set(0)
	if unfinished {
		c.rotating.Set(float64(c.rotation.since.Unix()))
	}
	c.accepted.Set(0)
	if served == nil {
		return
	}
	if c.state.Load().trouble == nil {
		c.accepted.Set(1)
	}
	c.expiry.WithLabelValues("serving").Set(float64(served.Leaf.NotAfter.Unix()))
	c.expiry.WithLabelValues("ca").Set(float64(served.ca.NotAfter.Unix()))
	c.renewal.Set(float64(part(served.Leaf, lateAt).Unix()))
	c.source.Reset()
	c.source.WithLabelValues(string(served.mode)).Set(1)
}
