package webhooks

import (
	"context"

	admissionv1 "k8s.io/api/admission/v1"
)

// Answer evaluates a request of the API server, records the decision and returns the response; nil if no policies are loaded.
//
// Kinds that are not Sallyport's have a webhook entry for each policy, and the API server calls each entry by itself. So each
// entry has the failurePolicy, timeout and selectors of its policy, and no policy is evaluated twice.
//
// At the mutating endpoint a request is denied only because a policy failed, and no override applies: an object without what the
// policy would have added, such as the requester, would be misread by others.
func (g *Gate) Answer(ctx context.Context, q *Question) *admissionv1.AdmissionResponse {
	q.Open = g.opening(q)
	d, err := g.Decide(ctx, q)
	if err != nil {
		return nil
	}
	response := d.Response()
	g.recorder.record(d, response)
	return response
}
