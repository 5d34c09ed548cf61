package webhooks

import (
	"context"

	admissionv1 "k8s.io/api/admission/v1"
)

// Answer decides about a request that the API server asks about, keeps a record, and gives the response; nil as long as there is no set.
//
// Kinds that are not Sallyport's have an entry for each policy in the webhook configurations, and the API server asks about each
// policy by itself. So every entry has the failurePolicy, the timeout and the selectors of its policy, and none is asked twice.
//
// What keeps a request out where objects are changed is that a policy failed, and no override helps: an object without what the policy
// would have put there, such as who asked for it, is not what others take it for.
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
