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
	// Label is what the Lease of every replica carries, with the value "true".
	Label = "sallyport.dev/replica"
	// CertificateAnnotation says which certificate a replica serves, by its hash.
	CertificateAnnotation = "sallyport.dev/certificate"
	// PoliciesAnnotation says which policies decide in a replica, by a hash of all of them.
	PoliciesAnnotation = "sallyport.dev/policies"

	// VersionAnnotation says which version a replica is.
	VersionAnnotation = "sallyport.dev/version"

	namePrefix = "sallyport-replica-"
	// ownSuffix is how many characters tell the Leases of two processes of one name apart.
	ownSuffix = 8

	defaultDuration = 15 * time.Second
	defaultRenew    = 5 * time.Second
)

// Options say which replica this is.
type Options struct {
	// Namespace is where the Leases are: where Sallyport is installed.
	Namespace string
	// Name is that of the Pod, or another name that no other replica has.
	Name string
	// UID is that of the Pod, which must be in Namespace. The Lease goes with it. Empty outside of a pod.
	UID types.UID
	// Version is the version of this process, for users.
	Version string
	// Duration is how long a replica counts as live after a renewal. Default 15 s.
	Duration time.Duration
	// Renew is how often the Lease is renewed. Default 5 s.
	Renew time.Duration
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

// Replica is this process, as the others know it.
type Replica struct {
	options  Options
	identity string
	leases   coordinationv1client.LeaseInterface
	kick     chan struct{} // has the Lease written now

	// writing is held while the Lease is written, and protects what follows.
	writing sync.Mutex
	known   *coordinationv1.Lease // as it was last read or written; nil if it is not there, as far as this process knows
	held    bool                  // it has been ours
	left    bool

	// mu is never held during a request.
	mu      sync.Mutex
	name    string            // of the Lease
	reports map[string]string // by annotation
	seen    map[types.UID]Sighting
	renewed time.Time // when our Lease was written last
	resumed time.Time // when that was possible again after a time in which it was not
}

// New prepares a replica. Others know nothing of it before Start.
func New(config *rest.Config, o Options) (*Replica, error) {
	o.setDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	own := rest.CopyConfig(config)
	own.RateLimiter = nil        // nothing else that this process does keeps it from renewing its Lease
	own.Timeout = o.Duration / 3 // which leaves it another attempt
	rest.AddUserAgent(own, "replicas")
	leases, err := coordinationv1client.NewForConfig(own)
	if err != nil {
		return nil, fmt.Errorf("making a client for the Leases of replicas: %w", err)
	}
	return &Replica{
		options: o, leases: leases.Leases(o.Namespace), kick: make(chan struct{}, 1),
		// New with every start, so that a process that comes back under its old name is not taken for the one before.
		identity: o.Name + "_" + string(uuid.NewUUID()),
		name:     namePrefix + o.Name, reports: map[string]string{VersionAnnotation: o.Version}, seen: map[types.UID]Sighting{},
	}, nil
}

// NeedLeaderElection is for the manager: every replica does this.
func (r *Replica) NeedLeaderElection() bool { return false }

// Start renews the Lease until the context ends. Trouble is logged once, and tried again more often.
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
		if err != nil {
			wait /= 5
		}
		tell(log, failed, err)
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

// tell logs a change from success to failure or back.
func tell(log logr.Logger, before, now error) {
	switch {
	case now != nil && before == nil:
		log.Error(now, "renewing the Lease of this replica failed, retrying")
	case now == nil && before != nil:
		log.Info("the Lease of this replica is renewed again")
	}
}

// Report makes known which certificate this replica serves. It stands until the next call, also after an error: it is then
// written with the next renewal.
func (r *Replica) Report(ctx context.Context, hash string) error {
	r.note(CertificateAnnotation, hash)
	return r.write(ctx, ctrl.LoggerFrom(ctx))
}

// ReportPolicies makes known which policies decide in this replica. It returns at once; the report is written as soon as that is
// possible.
func (r *Replica) ReportPolicies(hash string) {
	if !r.note(PoliciesAnnotation, hash) {
		return
	}
	select {
	case r.kick <- struct{}{}:
	default: // which is to be written already
	}
}

// note reports whether a report is another than before.
func (r *Replica) note(annotation, hash string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.reports[annotation]
	r.reports[annotation] = hash
	return before != hash
}

// own gives the name of the Lease, and what is to be in it.
func (r *Replica) own() (name string, reports map[string]string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.name, maps.Clone(r.reports)
}

// succeeded notes that the Lease was written.
func (r *Replica) succeeded() {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.options.Now()
	if !r.renewed.IsZero() && now.Sub(r.renewed) > r.options.Duration {
		r.resumed = now
	}
	r.renewed = now
}
