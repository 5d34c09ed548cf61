package replicas

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
)

const (
	// Label has the value "true" on the Lease of every replica.
	Label = "sallyport.dev/replica"
	// CertificateAnnotation has the hash of the certificate that a replica serves.
	CertificateAnnotation = "sallyport.dev/certificate"
	// PoliciesAnnotation has a hash of all active policies of a replica.
	PoliciesAnnotation = "sallyport.dev/policies"

	// DenialsAnnotation has the counts of [Replica.CountDenials], as of the last renewal.
	DenialsAnnotation = "sallyport.dev/denials"
	// VersionAnnotation has the version of a replica.
	VersionAnnotation = "sallyport.dev/version"

	namePrefix = "sallyport-replica-"
	// ownSuffix is the number of characters that make a Lease's name unique.
	ownSuffix = 8

	defaultDuration = 15 * time.Second
	defaultRenew    = 5 * time.Second
)

// Options identify this replica.
type Options struct {
	// Namespace of the Leases: Sallyport's.
	Namespace string
	// Name of the Pod, or another name that is unique among the replicas.
	Name string
	// UID of the Pod, which must be in Namespace and owns the Lease. Empty outside of a pod.
	UID types.UID
	// Version is the version of this process, for users.
	Version string
	// Duration is the time for which a replica counts as live after a renewal. Default 15 s.
	Duration time.Duration
	// Renew is the interval between renewals. Default 5 s.
	Renew time.Duration
	// Restored is called until it succeeds if etcd was restored from a backup under this process, see the package. Start then returns
	// [ErrRestored]. It may be nil.
	Restored func(context.Context) error
	// Now is the clock. Default time.Now.
	Now func() time.Time
}

func (o *Options) setDefaults() {
	o.Duration, o.Renew = cmp.Or(o.Duration, defaultDuration), cmp.Or(o.Renew, defaultRenew)
	if o.Now == nil {
		o.Now = time.Now
	}
}

func (o *Options) validate() error {
	var all []error
	must := func(holds bool, what string) {
		if !holds {
			all = append(all, errors.New(what))
		}
	}
	must(o.Namespace != "", "the Lease of a replica needs a namespace")
	must(o.Duration%time.Second == 0, fmt.Sprintf("the duration of the Lease is %v, but must be in whole seconds", o.Duration))
	must(o.Renew > 0 && o.Renew <= o.Duration/2, fmt.Sprintf("the Lease is renewed every %v, but must be renewed at least twice in %v", o.Renew, o.Duration))
	if wrong := validation.IsDNS1123Subdomain(o.Name); len(wrong) > 0 {
		all = append(all, fmt.Errorf("%q cannot be the name of a replica: %s", o.Name, strings.Join(wrong, "; ")))
	}
	longest := validation.DNS1123SubdomainMaxLength - len(namePrefix) - 1 - ownSuffix
	must(len(o.Name) <= longest, fmt.Sprintf("the name of a replica cannot be longer than %d characters", longest))
	return errors.Join(all...)
}

// Replica renews the Lease of this process, and observes those of the others.
type Replica struct {
	options  Options
	identity string
	leases   coordinationv1client.LeaseInterface
	kick     chan struct{} // makes Start write the Lease immediately

	// writing is held while the Lease is written, and protects the following fields.
	writing  sync.Mutex
	known    *coordinationv1.Lease // last read or written; nil if the Lease is not known to exist
	held     bool                  // this process has owned the Lease
	left     bool
	restored error

	// mu is never held during a request.
	mu      sync.Mutex
	name    string            // of the Lease
	version string            // highest resourceVersion of the Lease
	reports map[string]string // by annotation
	denials func() string
	seen    map[types.UID]Sighting
	renewed time.Time // last write of our Lease
	resumed time.Time // first write after a time without
}

// New returns a replica that is not visible to others before Start.
func New(config *rest.Config, o Options) (*Replica, error) {
	o.setDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	own := rest.CopyConfig(config)
	own.RateLimiter = nil        // other requests of this process must not delay a renewal
	own.Timeout = o.Duration / 3 // leaves time for a second attempt
	rest.AddUserAgent(own, "replicas")
	leases, err := coordinationv1client.NewForConfig(own)
	if err != nil {
		return nil, fmt.Errorf("making a client for the Leases of replicas: %w", err)
	}
	return &Replica{
		options: o, leases: leases.Leases(o.Namespace), kick: make(chan struct{}, 1),
		// New with every start, to distinguish a restarted process from the one before.
		identity: o.Name + "_" + string(uuid.NewUUID()),
		name:     namePrefix + o.Name, reports: map[string]string{VersionAnnotation: o.Version}, seen: map[types.UID]Sighting{},
	}, nil
}

// NeedLeaderElection returns false, because every replica renews a Lease.
func (r *Replica) NeedLeaderElection() bool { return false }

// Start renews the Lease until the context ends, or etcd was restored. After an error it retries more often. It logs only the first error of a
// series.
func (r *Replica) Start(ctx context.Context) error {
	log := ctrl.LoggerFrom(ctx).WithName("replicas")
	var failed error
	var swept time.Time
	for {
		wait := r.options.Renew
		err := r.write(ctx, log)
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, ErrRestored) {
			return r.endRestored(ctx, log, err)
		}
		if err != nil {
			wait /= 5
		}
		logChange(log, failed, err)
		failed = err
		if now := r.options.Now(); err == nil && now.Sub(swept) >= 2*r.options.Duration {
			swept = now
			r.sweep(ctx, log)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-r.kick:
		case <-time.After(wait):
		}
	}
}

// logChange logs a change from success to failure or back.
func logChange(log logr.Logger, before, now error) {
	switch {
	case now != nil && before == nil:
		log.Error(now, "renewing the Lease of this replica failed, retrying")
	case now == nil && before != nil:
		log.Info("the Lease of this replica is renewed again")
	}
}

// Report publishes the hash of the certificate that this replica serves. After an error, the next renewal writes it.
func (r *Replica) Report(ctx context.Context, hash string) error {
	r.setReport(CertificateAnnotation, hash)
	return r.write(ctx, ctrl.LoggerFrom(ctx))
}

// ReportPolicies publishes the hash of the active policies. It does not wait for the write.
func (r *Replica) ReportPolicies(hash string) {
	if r.setReport(PoliciesAnnotation, hash) {
		r.renew()
	}
}

// renew makes Start write the Lease now.
func (r *Replica) renew() {
	select {
	case r.kick <- struct{}{}:
	default: // a write is requested already
	}
}

// CountDenials sets the function that returns what this replica has denied since it started, as JSON. Each renewal publishes it.
func (r *Replica) CountDenials(count func() string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.denials = count
}

// setReport sets a report, and reports whether it has changed.
func (r *Replica) setReport(annotation, hash string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.reports[annotation]
	r.reports[annotation] = hash
	return before != hash
}

func (r *Replica) own() (name string, reports map[string]string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	reports = maps.Clone(r.reports)
	if r.denials != nil {
		reports[DenialsAnnotation] = r.denials()
	}
	return r.name, reports
}

func (r *Replica) succeeded() {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.options.Now()
	if !r.renewed.IsZero() && now.Sub(r.renewed) > r.options.Duration {
		r.resumed = now
	}
	r.renewed = now
}
