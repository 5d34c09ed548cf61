package webhooks

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/engine"
)

// Audited is what a policy says of an object that exists.
type Audited struct {
	// Asked is false if the policy does not decide, or not about such an object.
	Asked bool
	// Mode is that of the object's namespace.
	Mode v1alpha1.PolicyMode
	// Denials are what it has against the object, whatever the mode.
	Denials []engine.Denial
}

// Audit asks one policy about an object that exists, as if it were created at this moment by ourselves. No request is answered
// here: nothing is recorded or counted as a decision. An error means that the policy could not judge.
func (g *Gate) Audit(ctx context.Context, policy string, resource schema.GroupVersionResource, object *unstructured.Unstructured) (Audited, error) {
	o := object.DeepCopy()
	o.SetManagedFields(nil)
	review, err := reviewOfCreation(o, resource.Resource, authenticationv1.UserInfo{Username: ourselves})
	if err != nil {
		return Audited{}, fmt.Errorf("building the request for %s %s: %w", o.GetKind(), o.GetName(), err)
	}
	d, err := g.Decide(ctx, &Question{Endpoint: Auditing, Review: review, Only: policy})
	switch {
	case err != nil:
		return Audited{}, err
	case len(d.verdicts) == 0:
		return Audited{}, nil
	}
	v := &d.verdicts[0]
	if v.err != nil {
		return Audited{Asked: true, Mode: v.mode}, v.err
	}
	return Audited{true, v.mode, v.decision.Denials}, nil
}
