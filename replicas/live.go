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
	// skew is by how much the clocks of two machines may differ, for a Lease that is seen for the first time.
	skew = time.Minute
	// longGone is for how many times its duration a Lease is kept that nobody renews.
	longGone = 10
)

// renewal tells one renewal of a Lease from another.
type renewal struct {
	holder string
	at     metav1.MicroTime
}

// Sighting is what a process has seen of a Lease. The zero value is that of one that it has not seen yet.
type Sighting struct {
	renewal renewal
	since   time.Time // when this renewal was seen first
	counts  time.Time // from when on it counts
}

// Next is the sighting of the Lease now, where a renewal counts for as long as it lasts.
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

// Age is for how long the Lease was not renewed, as far as the process has seen.
func (s Sighting) Age(now time.Time) time.Duration { return now.Sub(s.counts) }

// sighted is a Lease with what this process has seen of it.
type sighted struct {
	*coordinationv1.Lease
	Sighting
}

// Serving returns the hash of the certificate that each live replica has reported, by a name of its process; empty for one that has
// reported none. This replica is among them, whether others can see it or not.
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

// Others are the names of the processes of all other replicas that are live, in no order. It may be asked after Leave, too.
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

// process names who holds a Lease. Its own name would not do: for a moment this process may not know that another has its Lease.
func (s sighted) process() string {
	if s.renewal.holder == "" {
		return s.Name
	}
	return s.renewal.holder
}

// isLive reports whether a Lease was renewed lately. Of a time in which this process could not renew its own it says nothing that
// others were silent too.
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

// list reads the Leases of all replicas, past every cache, and notes what it sees.
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

// durationOf is how long a renewal counts, within reason.
func (r *Replica) durationOf(lease *coordinationv1.Lease) time.Duration {
	seconds := ptr.Deref(lease.Spec.LeaseDurationSeconds, 0)
	if seconds <= 0 {
		return r.options.Duration
	}
	return min(time.Duration(seconds)*time.Second, longGone*r.options.Duration)
}

// sweep removes the Leases of replicas that are long gone. Its own clock alone says so: it has looked at them for that long.
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
