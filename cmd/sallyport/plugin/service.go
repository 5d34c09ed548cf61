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

// service is what the replicas' Leases say.
type service struct {
	// policies is which policies each replica that runs has reported, by its name; "" for one that has none yet.
	policies map[string]string
	// versions is what each of them says it is.
	versions map[string]string
	// err is why that is not known.
	err error
}

// service looks at the Leases of all namespaces.
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

// none tells whether it is certain that no replica serves. One without policies is starting, and refuses to judge.
func (s *service) none() bool {
	for _, hash := range s.policies {
		if hash != "" {
			return false
		}
	}
	return s.err == nil
}

// trouble says why none of the policies decides at the moment, in their status if the Leases are not known; "" if nothing says so.
func (s *service) trouble(policies []v1alpha1.RegoPolicy, now time.Time) string {
	const end = "no policy decides at the moment"
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
		return "the last replica of Sallyport has ended: " + end
	case !last.IsZero() && now.Sub(last) > overdue:
		return "Sallyport last confirmed the status of its policies " + (&page{now: now}).ago(last) + " ago: probably no replica is serving"
	}
	return ""
}

func are(n int) string {
	if n == 1 {
		return "1 is"
	}
	return fmt.Sprintf("%d are", n)
}

// warnUnserved says on the error output that no policy decides, where what was asked for needs one that does.
func (p *plugin) warnUnserved(ctx context.Context, c *cluster) {
	s := c.service(ctx, p)
	if text := s.trouble(nil, p.now()); text != "" {
		fmt.Fprintln(p.ErrOut, "Warning:", text)
	}
}
