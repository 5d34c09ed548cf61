package shipping

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// Step is a change to one policy. It can be dry-run first, and fails with a conflict if the policy changes in
// between.
type Step struct {
	// Name is the name of the policy.
	Name string
	// Live is the policy as read, nil if there is none.
	Live *unstructured.Unstructured

	plan *plan
	set  *unstructured.Unstructured
}

// Next returns the step that brings a policy to what is shipped, nil if there is nothing to do. Users' edits stay.
func Next(live *unstructured.Unstructured, shipped *v1alpha1.RegoPolicy) (*Step, error) {
	p, err := newPlan(live, shipped)
	if err != nil {
		return nil, err
	}
	wanted := p.wanted()
	if p.done() || !p.changes(wanted) {
		return nil, nil
	}
	return &Step{Name: shipped.Name, Live: live, plan: p, set: p.configuration(live, shipped.Name, wanted)}, nil
}

// Try returns the result of the step by a dry run.
func (s *Step) Try(ctx context.Context, c client.Client) (*v1alpha1.RegoPolicy, error) {
	return s.apply(ctx, c, client.DryRunAll)
}

// Do makes the change.
func (s *Step) Do(ctx context.Context, c client.Client) (*v1alpha1.RegoPolicy, error) {
	return s.apply(ctx, c)
}

func (s *Step) apply(ctx context.Context, c client.Client, options ...client.ApplyOption) (*v1alpha1.RegoPolicy, error) {
	options = append(options, client.FieldOwner(FieldOwner))
	for range 5 { // each time with fewer fields
		result := s.set.DeepCopy()
		err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(result), options...)
		if err == nil {
			policy := &v1alpha1.RegoPolicy{}
			return policy, runtime.DefaultUnstructuredConverter.FromUnstructured(result.Object, policy)
		}
		mine, ferr := fieldsOf(s.set.Object)
		if ferr != nil {
			return nil, ferr
		}
		fewer, ok := without(mine.set, err)
		if !apierrors.IsConflict(err) || !ok {
			return nil, fmt.Errorf("applying RegoPolicy %s: %w", s.Name, err)
		}
		s.set = s.plan.configuration(s.Live, s.Name, fewer)
	}
	return nil, fmt.Errorf("applying RegoPolicy %s: every attempt has new field conflicts", s.Name)
}
