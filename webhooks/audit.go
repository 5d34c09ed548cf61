package webhooks

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"sallyport.dev/sallyport/webhooks/catalog"
	"sallyport.dev/sallyport/webhooks/engine"
)

// auditing is the endpoint of questions about objects that exist.
const auditing = "audit"

// Audit asks one policy about an object that exists, as if it were created at this moment by ourselves, and gives what the policy
// has against it, whatever its mode. Asked is false if the policy does not decide, or not about such an object. No request is
// answered here: nothing is recorded or counted as a decision. An error means that the policy could not judge.
func (g *Gate) Audit(
	ctx context.Context, policy string, resource schema.GroupVersionResource, object *unstructured.Unstructured,
) (denials []engine.Denial, asked bool, err error) {
	o := object.DeepCopy()
	o.SetManagedFields(nil)
	review, err := reviewOfCreation(o, o.GroupVersionKind(), resource.Resource, authenticationv1.UserInfo{Username: ourselves})
	if err != nil {
		return nil, false, fmt.Errorf("putting %s %s as a request: %w", o.GetKind(), o.GetName(), err)
	}
	alone := func(p *catalog.Policy) bool { return p.Name() == policy && speaksOnValidation(p) }
	j := g.judge(ctx, auditing, review, g.reader(review), alone, (*engine.Policy).Decide)
	switch {
	case j == nil:
		return nil, false, errNoSet
	case len(j.verdicts) == 0:
		return nil, false, nil
	case j.verdicts[0].err != nil:
		return nil, true, j.verdicts[0].err
	}
	return j.verdicts[0].decision.Denials, true, nil
}
