package decision

import (
	"context"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"sallyport.dev/sallyport/webhooks/catalog"
	"sallyport.dev/sallyport/webhooks/engine"
)

// Endpoints. An endpoint selects the rules that are evaluated; metrics and decision records name it.
const (
	// Validating decides whether a request is admitted.
	Validating = "validate"
	// Mutating decides how to change the object of a request.
	Mutating = "mutate"
	// Arbitrating decides for a reconciler that is about to act.
	Arbitrating = "arbitrate"
	// Auditing evaluates an existing object.
	Auditing = "audit"
)

// Opening is the time while requests about kinds that are not Sallyport's are admitted with a warning, whatever the policies
// decide. Policies do not change their objects.
type Opening struct {
	Until  time.Time `json:"until"`
	Reason string    `json:"reason"`
}

// Question is the input of a decision. The decision's record has all of it except Facts.
type Question struct {
	// Endpoint selects the rules to evaluate.
	Endpoint string
	// Review is the request: user, action, object, and whether it is a dry run.
	Review *Review
	// Only is the name of the only policy to evaluate; empty means every policy that matches.
	Only string
	// Open is set if the gate is open for the request.
	Open *Opening
	// At is the time of the decision; if zero, the gate uses the current time.
	At time.Time
	// Facts returns the reader for the policy of that name, and for "" the reader for queries that are not of policies. If nil, the
	// gate uses its FactSource.
	Facts func(policy string) engine.Reader
}

// selects reports whether the policy is evaluated if it matches. A policy that is missing admits every request: either its webhook is
// about to be removed, or this replica is about to load it.
func (q *Question) selects(p *catalog.Policy) bool {
	switch {
	case q.Only != "" && q.Only != p.Name():
		return false
	case q.Endpoint == Arbitrating && !q.about(operations):
		return (readsServers(p) || q.moves() && len(p.Reads()) > 0) && q.Speaks(p) // see Admits and AdmitsMove
	}
	return q.Speaks(p)
}

// Speaks reports whether the policy has rules for the endpoint.
func (q *Question) Speaks(p *catalog.Policy) bool {
	if q.Endpoint == Mutating {
		return p.Mutates()
	}
	return p.Validates()
}

// moves reports whether the question is about a change of a machine.
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

// evaluate evaluates one policy.
func (q *Question) evaluate(ctx context.Context, p *engine.Policy, in engine.Input, r engine.Reader) (*engine.Decision, error) {
	if q.Endpoint == Mutating {
		return p.Patch(ctx, in, r)
	}
	return p.Decide(ctx, in, r)
}
