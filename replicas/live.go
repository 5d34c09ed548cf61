package replicas

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

const (
	// skew is the tolerated difference of clocks when a Lease is observed for the first time.
	skew = time.Minute
	// longGone is the number of durations after which a Lease without renewal is deleted.
	longGone = 10
)

type renewal struct {
	holder string
	at     metav1.MicroTime
}

// Sighting is the last renewal of a Lease that a process has observed. The zero value means none.
type Sighting struct {
	renewal renewal
	since   time.Time // when this renewal was first observed
	counts  time.Time // start of its validity
}

// Next returns the sighting after an observation of the Lease, whose renewals are valid for lasts.
func (s Sighting) Next(lease *coordinationv1.Lease, lasts time.Duration, now time.Time) Sighting {
	is := renewal{holder: ptr.Deref(lease.Spec.HolderIdentity, ""), at: ptr.Deref(lease.Spec.RenewTime, metav1.MicroTime{})}
	switch first := s.since.IsZero(); {
	case first && now.Sub(is.at.Time) > lasts+skew:
		return Sighting{is, now, is.at.Time}
	case first, is.holder != s.renewal.holder, !is.at.Equal(&s.renewal.at):
		return Sighting{is, now, now}
	}
	return s
}

// Age returns the time since the last renewal, as observed by this process.
func (s Sighting) Age(now time.Time) time.Duration { return now.Sub(s.counts) }

type sighted struct {
	*coordinationv1.Lease
	Sighting
}

// Serving returns the hash of the certificate that each live replica has reported, by process; "" for a replica that has reported none. It
// always includes this replica.
func (r *Replica) Serving(ctx context.Context) (map[string]string, error) {
	return r.reported(ctx, CertificateAnnotation)
}

// Policies returns the hash of the policies that each live replica has reported, as Serving does.
func (r *Replica) Policies(ctx context.Context) (map[string]string, error) {
	return r.reported(ctx, PoliciesAnnotation)
}

// Versions returns the version of each live replica, as Serving does.
func (r *Replica) Versions(ctx context.Context) (map[string]string, error) {
	return r.reported(ctx, VersionAnnotation)
}

func (r *Replica) reported(ctx context.Context, annotation string) (map[string]string, error) {
	leases, err := r.list(ctx)
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for _, lease := range leases {
		if r.isLive(lease) {
			all[lease.process()] = lease.Annotations[annotation]
		}
	}
	_, reports := r.own()
	all[r.identity] = reports[annotation]
	return all, nil
}

// Others returns the names of the processes of all other live replicas, in no order. It may also be called after Leave.
func (r *Replica) Others(ctx context.Context) ([]string, error) {
	leases, err := r.list(ctx)
	if err != nil {
		return nil, err
	}
	var all []string
	for _, lease := range leases {
		if !r.isOurs(lease.Lease) && r.isLive(lease) {
			all = append(all, lease.process())
		}
	}
	return all, nil
}

// process returns the name of the process that holds a Lease. The Lease's name is not enough: two processes may use one for a moment.
func (s sighted) process() string {
	if s.renewal.holder == "" {
		return s.Name
	}
	return s.renewal.holder
}

// isLive reports whether a Lease was renewed in time. Time in which this process could not renew its own Lease does not count, because the
// API server may have been unavailable to the others, too.
func (r *Replica) isLive(lease sighted) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.options.Now()
	if !r.renewed.IsZero() && now.Sub(r.renewed) > r.options.Duration {
		return true
	}
	from := lease.counts
	if r.resumed.After(from) {
		from = r.resumed
	}
	return now.Sub(from) <= r.durationOf(lease.Lease)
}

// list reads the Leases of all replicas without a cache, and records their renewals.
func (r *Replica) list(ctx context.Context) ([]sighted, error) {
	leases, err := r.leases.List(ctx, metav1.ListOptions{LabelSelector: Label + "=true"})
	if err != nil {
		return nil, fmt.Errorf("listing the Leases of replicas in %s: %w", r.options.Namespace, err)
	}
	now := r.options.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	all, seen := make([]sighted, 0, len(leases.Items)), map[types.UID]Sighting{}
	for i := range leases.Items {
		lease := &leases.Items[i]
		seen[lease.UID] = r.seen[lease.UID].Next(lease, r.durationOf(lease), now)
		all = append(all, sighted{lease, seen[lease.UID]})
	}
	r.seen = seen
	return all, nil
}

// durationOf returns the duration in a Lease, limited in case another client has changed it.
func (r *Replica) durationOf(lease *coordinationv1.Lease) time.Duration {
	seconds := ptr.Deref(lease.Spec.LeaseDurationSeconds, 0)
	if seconds <= 0 {
		return r.options.Duration
	}
	return min(time.Duration(seconds)*time.Second, longGone*r.options.Duration)
}

// sweep deletes the Leases that this process has observed without renewal for longGone durations, by its own clock.
func (r *Replica) sweep(ctx context.Context, log logr.Logger) {
	leases, err := r.list(ctx)
	if err != nil {
		log.Error(err, "looking for the Leases of replicas that are gone")
		return
	}
	name, _ := r.own()
	for _, lease := range leases {
		if lease.Name == name || r.options.Now().Sub(lease.since) <= longGone*r.options.Duration {
			continue
		}
		switch err := r.remove(ctx, lease.Lease); {
		case err == nil:
			log.Info("removed the Lease of a replica that is gone", "lease", lease.Name, "renewed", lease.renewal.at.UTC().Format(time.RFC3339))
		case !apierrors.IsConflict(err) && !apierrors.IsNotFound(err):
			log.Error(err, "removing the Lease of a replica that is gone", "lease", lease.Name)
		}
	}
}
