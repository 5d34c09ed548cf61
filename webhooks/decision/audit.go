package decision

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/engine"
)

// Audited is the result of one policy for an existing object.
type Audited struct {
	// Asked is false if the policy has no validating rules or does not match the object.
	Asked bool
	// Mode is the enforcement mode in the object's namespace.
	Mode v1alpha1.PolicyMode
	// Denials are the policy's denials, whatever the mode.
	Denials []engine.Denial
}

// Audit evaluates one policy for an existing object, as if Sallyport created it now. Nothing is recorded or counted, because no
// request is answered. An error means that the policy could not be evaluated.
func (g *Decider) Audit(ctx context.Context, policy string, resource schema.GroupVersionResource, object *unstructured.Unstructured) (Audited, error) {
	o := object.DeepCopy()
	o.SetManagedFields(nil)
	review, err := reviewOfCreation(o, resource.Resource, authenticationv1.UserInfo{Username: sallyportUser})
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
	if v.Err != nil {
		return Audited{Asked: true, Mode: v.Mode}, v.Err
	}
	return Audited{true, v.Mode, v.Decision.Denials}, nil
}
