package certs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/cert"
)

// Mode selects the source of the certificate.
type Mode string

// The modes.
const (
	// Auto prefers CertManager, and uses SelfSigned while the cluster has no cert-manager or cert-manager does not renew its certificate.
	Auto Mode = "auto"
	// CertManager has cert-manager issue certificates.
	CertManager Mode = "cert-manager"
	// SelfSigned issues certificates from a CA of Sallyport's own.
	SelfSigned Mode = "self-signed"
	// Existing reads a Secret that another client maintains.
	Existing Mode = "existing"
)

// modes are all modes.
var modes = []Mode{Auto, CertManager, SelfSigned, Existing}

const (
	day24, year = 24 * time.Hour, 365 * 24 * time.Hour
	// resync is the longest time between two checks without an event.
	resync = time.Hour
	// renewAt is the part of its validity after which Sallyport replaces a CA or certificate; lateAt that after which a source counts as late.
	renewAt, lateAt = 2.0 / 3, 5.0 / 6
	// backdate is how far in the past certificates of Sallyport begin, for clocks that are behind. A certificate of another source replaces a
	// usable one only after fresh.
	backdate, fresh = time.Hour, 5 * time.Minute
)

// Options configure the sources, the certificate and the webhook configurations.
type Options struct {
	// Mode is the source of the certificate. Default Auto. Until it has a certificate, one that another mode has left in a Secret is served.
	Mode Mode
	// Secret has Sallyport's own CA and its certificate. Issued and Existing name the Secrets of those modes in the same namespace; Issued
	// also names the Certificate. Existing may be empty in other modes.
	Secret           types.NamespacedName
	Issued, Existing string
	// Issuer issues cert-manager's certificate. Default: an Issuer that the leader creates, with a CA.
	Issuer *Issuer
	// Authorities are CA certificates in PEM for a Secret of another source that has no ca.crt.
	Authorities []byte
	// Injected means that cert-manager's cainjector writes the caBundle, and not the leader.
	Injected bool
	// DNSNames are the names in the serving certificate. The API server uses the first, <name>.<namespace>.svc.
	DNSNames []string
	// Configurations are the names of the mutating and validating webhook configurations. They may be created later.
	Configurations []string

	// CAValidity (default 10 years) and ServingValidity (1 year) are for Sallyport's own CA and certificate, IssuedValidity (90 days) is for
	// cert-manager's, which renews it after two thirds of that.
	CAValidity, ServingValidity, IssuedValidity time.Duration
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
	o.CAValidity = cmp.Or(o.CAValidity, 10*year)
	o.ServingValidity, o.IssuedValidity = cmp.Or(o.ServingValidity, year), cmp.Or(o.IssuedValidity, 90*day24)
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
	must(slices.Contains(modes, o.Mode), "invalid mode %q: must be one of %q", o.Mode, modes)
	must(o.Secret.Namespace != "" && o.Secret.Name != "", "the Secret for the certificate needs a namespace and a name")
	must(o.Issued != "" && o.Issued != o.Secret.Name && o.Existing != o.Secret.Name && o.Existing != o.Issued,
		"the Secrets of Sallyport's own certificate, of cert-manager's and the existing one need names that differ")
	must(o.Existing != "" || o.Mode != Existing, "mode %s needs the name of the existing Secret", Existing)
	must(len(o.DNSNames) > 0, "the certificate needs a DNS name")
	must(o.ServingValidity > 0 && o.CAValidity >= 2*o.ServingValidity, "the validity of a serving certificate must be positive, and that of an authority twice as long")
	must(o.IssuedValidity > 0 && o.IssuedValidity <= maxIssuedValidity, "the validity of a certificate of cert-manager must be positive and at most %s", maxIssuedValidity)
	must(o.Settle > 0 && o.Poll > 0, "the wait for the API servers and the interval between two checks must be positive")
	if len(o.Authorities) > 0 {
		_, err := cert.ParseCertsPEM(o.Authorities)
		must(err == nil, "reading the authorities: %w", err)
	}
	return errors.Join(all...)
}
