package certs

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Reasons of the events.
const (
	// reasonBroken: something in the Secret could not be used. It is being replaced.
	reasonBroken = "CertificateBroken"
	// reasonAuthorityReplaced: there is a new certificate authority.
	reasonAuthorityReplaced = "CertificateAuthorityReplaced"
	// reasonIssued: there is a new serving certificate.
	reasonIssued = "CertificateIssued"
	// reasonAuthorityDropped: older authorities are not trusted any more.
	reasonAuthorityDropped = "CertificateAuthorityDropped"
	// reasonBundleWritten: the authorities were written into a webhook configuration.
	reasonBundleWritten = "CABundleWritten"
)

// sight is what the leader sees beside the Secret.
type sight struct {
	// announced: the authority that signs has been in every webhook configuration for so long that all API servers know.
	announced bool
	// served: some replica serves a certificate that the API servers may take.
	served bool
	// takenUp: every live replica has served the certificate in the Secret for that long.
	takenUp bool
}

// news is an event to be.
type news struct{ kind, reason, action, note string }

func told(reason, action, format string, args ...any) news {
	return news{corev1.EventTypeNormal, reason, action, fmt.Sprintf(format, args...)}
}

// advance takes the contents of the Secret one step further, if it is time.
func (o *Options) advance(c *contents, s sight, now time.Time) ([]news, error) {
	// Where nobody can serve anything there is nothing to lose by haste.
	urgent := c.leaf == nil && (c.expired || !s.served)
	switch {
	case c.ca != nil && urgent:
		return o.reissue(c, now)
	case c.ca == nil || !now.Before(due(c.ca.cert)):
		return o.renewAuthority(c, urgent, now)
	case s.announced && (!c.current() || !now.Before(due(c.leaf.Leaf))):
		return o.reissue(c, now)
	case s.takenUp && c.current() && len(c.trusted) > 0:
		n := len(c.trusted)
		c.trusted = nil
		return []news{told(reasonAuthorityDropped, "Drop", "Every replica serves the new certificate: older authorities (%d) are no longer trusted", n)}, nil
	}
	return nil, nil
}

func (o *Options) renewAuthority(c *contents, urgent bool, now time.Time) ([]news, error) {
	ca, err := o.newAuthority(now)
	if err != nil {
		return nil, err
	}
	c.replace(ca)
	older := ""
	if n := len(c.trusted); n > 0 {
		older = fmt.Sprintf("; older ones (%d) stay trusted until every replica serves its certificate", n)
	}
	all := []news{told(reasonAuthorityReplaced, "Rotate", "New certificate authority %s, valid until %s%s",
		ca.cert.Subject.CommonName, day(ca.cert.NotAfter), older)}
	if !urgent {
		return all, nil
	}
	issued, err := o.reissue(c, now)
	return append(all, issued...), err
}

func (o *Options) reissue(c *contents, now time.Time) ([]news, error) {
	leaf, err := o.issue(c.ca, now)
	if err != nil {
		return nil, err
	}
	c.leaf = leaf
	return []news{told(reasonIssued, "Issue", "New serving certificate for %s, valid until %s", strings.Join(o.DNSNames, ", "), day(leaf.Leaf.NotAfter))}, nil
}

// next is how long nothing of this needs to be looked at.
func (o *Options) next(c *contents, now time.Time) time.Duration {
	if !c.current() || len(c.trusted) > 0 {
		return o.Poll
	}
	return min(max(min(due(c.ca.cert).Sub(now), due(c.leaf.Leaf).Sub(now)), o.Poll), resync)
}

func day(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// lasting tells how long something has been so without a break, as far as this process has seen.
type lasting struct {
	what  string
	since time.Time
}

// so notes whether it is so now, of what, and tells whether it has been for long enough.
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
