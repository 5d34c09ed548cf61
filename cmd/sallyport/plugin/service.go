package plugin

import (
	"cmp"
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/replicas"
)

// overdue is how old the status of policies may be: Sallyport confirms it every five minutes.
const overdue = 15 * time.Minute

// service is the state of the replicas according to their Leases.
type service struct {
	// policies is the hash of the policies of each running replica, by name. It is "" if the replica has none yet.
	policies map[string]string
	// versions is the version of each replica.
	versions map[string]string
	// err is why the state is unknown.
	err error
}

// service reads the Leases of all namespaces.
func (c *cluster) service(ctx context.Context, p *plugin) service {
	leases := &coordinationv1.LeaseList{}
	if err := c.List(ctx, leases, client.MatchingLabels{replicas.Label: "true"}); err != nil {
		return service{err: err}
	}
	s, seen := service{policies: map[string]string{}, versions: map[string]string{}}, newSigns(p.now)
	for i := range leases.Items {
		if lease := &leases.Items[i]; seen.held(lease) {
			name := lease.Namespace + "/" + lease.Name
			s.policies[name] = lease.Annotations[replicas.PoliciesAnnotation]
			s.versions[name] = cmp.Or(lease.Annotations[replicas.VersionAnnotation], "unknown")
		}
	}
	return s
}

// none reports whether no replica is serving for certain. A replica without policies is starting.
func (s *service) none() bool {
	for _, hash := range s.policies {
		if hash != "" {
			return false
		}
	}
	return s.err == nil
}

// trouble returns why no policy is evaluated at the moment, or "". If the Leases are unknown, it uses the status of the policies.
func (s *service) trouble(policies []v1alpha1.RegoPolicy, now time.Time) string {
	const end = "no policy is evaluated at the moment"
	switch {
	case s.none() && len(s.policies) > 0:
		return fmt.Sprintf("no replica of Sallyport is serving, %s starting: %s", are(len(s.policies)), end)
	case s.none():
		return "no replica of Sallyport is serving: " + end
	case s.err == nil:
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
		return "Sallyport last confirmed the status of its policies " + (&page{now: now}).ago(last) + " ago; probably no replica is serving"
	}
	return ""
}

func are(n int) string {
	if n == 1 {
		return "1 is"
	}
	return fmt.Sprintf("%d are", n)
}

// warnUnserved prints a warning if no policy is evaluated.
func (p *plugin) warnUnserved(ctx context.Context, c *cluster) {
	s := c.service(ctx, p)
	if text := s.trouble(nil, p.now()); text != "" {
		fmt.Fprintln(p.ErrOut, "Warning:", text)
	}
}
