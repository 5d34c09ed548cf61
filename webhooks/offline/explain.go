package offline

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"sallyport.dev/sallyport/webhooks/catalog"
	"sallyport.dev/sallyport/webhooks/decision"
	"sallyport.dev/sallyport/webhooks/engine"
	"sallyport.dev/sallyport/webhooks/explain"
)

// Explaining has the policies to explain and the facts for it.
type Explaining = explain.Explainer

// explain adds the explanation of each policy for the current request.
func (r *Reviewer) explain(ctx context.Context, p *pending, endpoint string, asked []hook, skipped []skip) error {
	if r.explaining == nil {
		return nil
	}
	review, err := p.review()
	if err != nil {
		return err
	}
	x := *r.explaining
	x.Set, x.Facts = r.set, r.facts
	found, err := x.Explain(ctx, &decision.Question{Endpoint: endpoint, Review: review, At: r.now()})
	if err != nil {
		return err
	}
	for _, e := range found {
		if slices.ContainsFunc(asked, func(h hook) bool { return h.policy == "" || h.policy == e.Policy }) {
			continue
		}
		why := fmt.Sprintf("no webhook configuration sends %s of %s to it", p.result.Operation, r.named(p))
		for _, s := range skipped {
			if s.policy == "" || s.policy == e.Policy {
				why = s.why
			}
		}
		e.LeftOut(why)
	}
	p.result.Explanations = append(p.result.Explanations, found...)
	return nil
}

func (r *Reviewer) named(p *pending) string {
	if p.result.Subresource == "" {
		return p.result.Resource
	}
	return p.result.Resource + "/" + p.result.Subresource
}

// homeOf returns the labels of the request's namespace as the API server knows them: for a Namespace that is created or updated,
// the new ones.
func (r *Reviewer) homeOf(ctx context.Context, p *pending) func() (labels.Set, error) {
	return func() (labels.Set, error) {
		if p.aboutNamespace() && p.result.Subresource == "" && p.object != nil {
			return labels.Merge(p.object.GetLabels(), labels.Set{corev1.LabelMetadataName: p.id.name}), nil
		}
		review, err := p.review()
		if err != nil {
			return nil, err
		}
		answer, err := r.facts.For(review.Request, review.Subject()).Read(ctx, engine.Query{
			Fact: "namespace", APIVersion: "v1", Kind: "Namespace", Name: p.namespace(), Live: true,
		})
		if err != nil {
			return nil, fmt.Errorf("reading the labels of namespace %s, which select webhooks: %w", p.namespace(), err)
		}
		return catalog.LabelsOf(answer.Value), nil
	}
}
