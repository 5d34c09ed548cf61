package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/replicas"
	"sallyport.dev/sallyport/webhooks/record"
)

// overdue is how old the status of policies may be: Sallyport confirms it every five minutes.
const overdue = 15 * time.Minute

// defaultLease is the duration in seconds of a Lease without spec.leaseDurationSeconds.
const defaultLease = 15

// Service is the state of the replicas according to their Leases.
type Service struct {
	// Policies is the hash of the policies of each running replica, by name. It is "" if the replica has none yet.
	Policies map[string]string
	// Versions is the version of each replica.
	Versions map[string]string
	// Denials are the denials of all running replicas since they started, by policy; nil if
	// none has reported any.
	Denials map[string]record.Denials
	// Err is why the state is unknown.
	Err error
}

// Service reads the Leases of all namespaces.
func (c *Cluster) Service(ctx context.Context, p *Plugin) Service {
	leases := &coordinationv1.LeaseList{}
	if err := c.List(ctx, leases, client.MatchingLabels{replicas.Label: "true"}); err != nil {
		return Service{Err: err}
	}
	s, seen := Service{Policies: map[string]string{}, Versions: map[string]string{}}, NewSigns(p.Now)
	for i := range leases.Items {
		if lease := &leases.Items[i]; seen.Held(lease) {
			name := lease.Namespace + "/" + lease.Name
			s.Policies[name] = lease.Annotations[replicas.PoliciesAnnotation]
			s.Versions[name] = cmp.Or(lease.Annotations[replicas.VersionAnnotation], "unknown")
			s.addDenials(lease.Annotations[replicas.DenialsAnnotation])
		}
	}
	return s
}

// addDenials adds the denials that a replica reports as JSON. Those of an older replica, which reports none, are left out.
func (s *Service) addDenials(report string) {
	var all map[string]record.Denials
	if err := json.Unmarshal([]byte(report), &all); err != nil {
		return
	}
	if s.Denials == nil {
		s.Denials = map[string]record.Denials{}
	}
	for policy, more := range all {
		s.Denials[policy] = s.Denials[policy].Plus(more)
	}
}

// DenialsOf returns the denials of a policy, or nil if they are unknown.
func (s *Service) DenialsOf(policy string) *record.Denials {
	if s.Denials == nil {
		return nil
	}
	return new(s.Denials[policy])
}

// None reports whether no replica is serving for certain. A replica without policies is starting.
func (s *Service) None() bool {
	for _, hash := range s.Policies {
		if hash != "" {
			return false
		}
	}
	return s.Err == nil
}

// Trouble returns why no policy is evaluated at the moment, or "". If the Leases are unknown, it uses the status of the policies.
func (s *Service) Trouble(policies []v1alpha1.RegoPolicy, now time.Time) string {
	const end = "no policy is evaluated at the moment"
	switch {
	case s.None() && len(s.Policies) > 0:
		return fmt.Sprintf("no replica of Sallyport is serving, %s starting: %s", are(len(s.Policies)), end)
	case s.None():
		return "no replica of Sallyport is serving: " + end
	case s.Err == nil:
		return ""
	}
	marked, last := len(policies) > 0, time.Time{}
	for i := range policies {
		c, at := v1alpha1.ConditionActive.In(policies[i].Status.Conditions), policies[i].Status.ReportedAt
		marked = marked && c != nil && c.Reason == string(v1alpha1.ReasonNobodyDecides)
		if at != nil && at.After(last) {
			last = at.Time
		}
	}
	switch {
	case marked:
		return "the last replica of Sallyport has shut down: " + end
	case !last.IsZero() && now.Sub(last) > overdue:
		return "Sallyport last confirmed the status of its policies " + (&Page{Now: now}).Ago(last) + " ago; probably no replica is serving"
	}
	return ""
}

func are(n int) string {
	if n == 1 {
		return "1 is"
	}
	return fmt.Sprintf("%d are", n)
}

// WarnUnserved prints a warning if no policy is evaluated.
func (p *Plugin) WarnUnserved(ctx context.Context, c *Cluster) {
	s := c.Service(ctx, p)
	if text := s.Trouble(nil, p.Now()); text != "" {
		fmt.Fprintln(p.ErrOut, "Warning:", text)
	}
}

// Signs determines which Leases are held. Because clocks differ, it observes renewals instead of comparing times, as leader election does.
type Signs struct {
	now    func() time.Time
	leases map[types.UID]replicas.Sighting
}

// NewSigns returns signs without any observation.
func NewSigns(now func() time.Time) *Signs {
	return &Signs{now: now, leases: map[types.UID]replicas.Sighting{}}
}

// Held reports whether a Lease is held.
func (s *Signs) Held(lease *coordinationv1.Lease) bool {
	if HolderOf(lease) == "" {
		return false
	}
	lasts, now := time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, defaultLease))*time.Second, s.now()
	seen := s.leases[lease.UID].Next(lease, lasts, now)
	s.leases[lease.UID] = seen
	return seen.Age(now) <= lasts
}

// HolderOf returns the holder of a Lease, "" if it has none.
func HolderOf(lease *coordinationv1.Lease) string { return ptr.Deref(lease.Spec.HolderIdentity, "") }
