package webhooks

import (
	"context"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"sallyport.dev/sallyport/webhooks/catalog"
	"sallyport.dev/sallyport/webhooks/engine"
)

// The endpoints are what policies are asked for: it decides which of their rules answer. Metrics and decision records name them.
const (
	// Validating asks whether a request is admitted.
	Validating = "validate"
	// Mutating asks what to change in the object of a request.
	Mutating = "mutate"
	// Arbitrating asks on behalf of a reconciler, at the moment at which it would act.
	Arbitrating = "arbitrate"
	// Auditing asks about an object that exists.
	Auditing = "audit"
)

// Opening has requests about kinds that are not Sallyport's admitted, with a warning, whatever policies say. Policies change nothing in their
// objects.
type Opening struct {
	Until  time.Time `json:"until"`
	Reason string    `json:"reason"`
}

// Question is what the policies are asked. All of it but Facts is in the record of its decision.
type Question struct {
	// Endpoint is what for.
	Endpoint string
	// Review is the request: who does what to which object, and whether it is a dry run.
	Review *Review
	// Only is the one policy that is asked; empty asks every policy that the request meets.
	Only string
	// Open is set if the gate is open for the request.
	Open *Opening
	// At is the time of the decision; zero is the time at which the gate is asked.
	At time.Time
	// Facts gives the reader that answers the policy of that name, and for "" the one that answers what is asked beside the policies;
	// nil has the gate's own source answer.
	Facts func(policy string) engine.Reader
}

// asks tells whether the policy is to answer, if the request meets it. A policy that is not there has nothing against any request: its
// webhook is about to be removed, or this replica is about to learn of it.
func (q *Question) asks(p *catalog.Policy) bool {
	switch {
	case q.Only != "" && q.Only != p.Name():
		return false
	case q.Endpoint == Arbitrating && !q.about(operations):
		return (readsServers(p) || q.moves() && len(p.Reads()) > 0) && q.Speaks(p) // see Admits and AdmitsMove
	}
	return q.Speaks(p)
}

// Speaks tells whether the policy has rules that answer at the endpoint.
func (q *Question) Speaks(p *catalog.Policy) bool {
	if q.Endpoint == Mutating {
		return p.Mutates()
	}
	return p.Validates()
}

// moves reports whether the question is about the move of a machine.
func (q *Question) moves() bool {
	return q.about(machines) && q.Review.Request.Operation == admissionv1.Update
}

func readsServers(p *catalog.Policy) bool {
	return slices.ContainsFunc(p.Reads(), func(r engine.Read) bool {
		return schema.FromAPIVersionAndKind(r.APIVersion, r.Kind).GroupKind() == servers
	})
}

func (q *Question) about(kind schema.GroupKind) bool {
	return schema.GroupVersionKind(q.Review.Request.Kind).GroupKind() == kind
}

// put has a policy answer.
func (q *Question) put(ctx context.Context, p *engine.Policy, in engine.Input, r engine.Reader) (*engine.Decision, error) {
	if q.Endpoint == Mutating {
		return p.Patch(ctx, in, r)
	}
	return p.Decide(ctx, in, r)
}
