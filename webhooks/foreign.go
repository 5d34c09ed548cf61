package webhooks

import (
	"context"

	admissionv1 "k8s.io/api/admission/v1"

	"sallyport.dev/sallyport/webhooks/catalog"
)

// Kinds that are not Sallyport's have an entry for each policy in the webhook configurations, and the API server asks about each
// policy by itself. So every entry has the failurePolicy, the timeout and the selectors of its policy, and none is asked twice.

// ValidateBy asks one policy whether the request is admitted, if it meets it. A policy that is not there has nothing against any
// request: its entry is about to be removed, or this replica is about to learn of it. It gives nil as long as there is no set.
func (g *Gate) ValidateBy(ctx context.Context, policy string, review *Review) *admissionv1.AdmissionResponse {
	return g.validate(ctx, review, policy, func(p *catalog.Policy) bool { return p.Name() == policy && speaksOnValidation(p) })
}

// MutateBy asks one policy what to change in the object, as ValidateBy does.
func (g *Gate) MutateBy(ctx context.Context, policy string, review *Review) *admissionv1.AdmissionResponse {
	return g.mutate(ctx, review, policy, func(p *catalog.Policy) bool { return p.Name() == policy && speaksOnMutation(p) })
}
