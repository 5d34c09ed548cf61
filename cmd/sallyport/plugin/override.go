package plugin

import (
	"context"
	"fmt"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
)

const (
	// overrideLasts is how long an override is valid by default. It is half of the maximum, because clocks can differ either way.
	overrideLasts = 30 * time.Minute
	// overrideAtMost is the longest validity that Sallyport accepts.
	overrideAtMost = time.Hour
)

// overrideOf parses the flag --override, "POLICY: REASON", for a new object.
func overrideOf(flag string, now time.Time) (*v1alpha1.Override, error) {
	policy, reason, both := strings.Cut(flag, ":")
	o := &v1alpha1.Override{Policy: strings.TrimSpace(policy), Until: now.Add(overrideLasts), Reason: strings.TrimSpace(reason)}
	if !both || o.Policy == "" || o.Reason == "" || strings.ContainsAny(o.Policy, "; ") {
		return nil, fmt.Errorf(`invalid --override %q: must be "POLICY: REASON", such as "operations-applicability: the guest hangs, ticket 42"`, flag)
	}
	return o, nil
}

// wayPast prints how to override the only policy that denied an operation, if the user may override it. An override does not help if
// the object does not exist or the request is invalid.
func (p *plugin) wayPast(ctx context.Context, c *cluster, err error) {
	said, reasons := parseResponse(err)
	if said != refused || apierrors.IsNotFound(err) || apierrors.IsInvalid(err) {
		return
	}
	policy := reasons[0].Policy
	for _, o := range reasons {
		if o.Policy != policy {
			return // an override is for one
		}
	}
	if policy != "" && c.mayOverride(ctx, policy) {
		fmt.Fprintf(p.ErrOut, "To override %s once (recorded as an event): --override %q\n", policy, policy+": REASON")
	}
}

// mayOverride reports whether the user may override a policy, as far as the user can read.
func (c *cluster) mayOverride(ctx context.Context, name string) bool {
	allowed, err := c.may(ctx, &authorizationv1.ResourceAttributes{
		Verb: "override", Group: v1alpha1.GroupName, Resource: "regopolicies", Name: name,
	})
	if err != nil || !allowed {
		return false
	}
	policy := &v1alpha1.RegoPolicy{}
	switch err := c.Get(ctx, client.ObjectKey{Name: name}, policy); {
	case err != nil && !apierrors.IsForbidden(err), policy.Spec.Override == v1alpha1.OverrideNobody:
		return false
	case policy.Spec.Override == v1alpha1.OverrideEverybody:
		return true
	}
	who, err := c.whoami(ctx)
	return err == nil && !strings.HasPrefix(who.Username, "system:serviceaccount:")
}

// whoami returns the user as the API server authenticates them.
func (c *cluster) whoami(ctx context.Context) (authenticationv1.UserInfo, error) {
	who := &authenticationv1.SelfSubjectReview{}
	if err := c.Create(ctx, who); err != nil {
		return authenticationv1.UserInfo{}, fmt.Errorf("reading your user name from the API server: %w", err)
	}
	return who.Status.UserInfo, nil
}
