package webhooks

import (
	"context"

	admissionv1 "k8s.io/api/admission/v1"
)

// Validate asks every policy that the request meets whether it is admitted.
func (g *Gate) Validate(ctx context.Context, review *Review) *admissionv1.AdmissionResponse {
	return g.Answer(ctx, &Question{Endpoint: Validating, Review: review})
}

// Mutate asks every policy that the request meets what to change in the object.
func (g *Gate) Mutate(ctx context.Context, review *Review) *admissionv1.AdmissionResponse {
	return g.Answer(ctx, &Question{Endpoint: Mutating, Review: review})
}
