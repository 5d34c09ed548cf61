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

// Step is a change to one policy that a release brings. It can be tried before it is done, and is refused as a conflict if the
// policy changes between the two.
type Step struct {
	// Name is the policy's.
	Name string
	// Live is the policy as it is, nil if there is none.
	Live *unstructured.Unstructured

	plan *plan
	set  *unstructured.Unstructured
}

// Next returns the step that takes a policy to what is shipped, and nil if it is there. Edits stay as they are.
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

// Try returns the policy as it would be after the step.
func (s *Step) Try(ctx context.Context, c client.Client) (*v1alpha1.RegoPolicy, error) {
	return s.apply(ctx, c, client.DryRunAll)
}

// Do takes the step.
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
