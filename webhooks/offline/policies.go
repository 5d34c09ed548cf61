package offline

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/facts"
)

var policyKind = v1alpha1.KindOf(&v1alpha1.RegoPolicy{}).GroupKind()

// TestRunner makes what runs the tests of RegoPolicies among those that there are.
type TestRunner func(stored func(context.Context) ([]v1alpha1.RegoPolicy, error)) facts.TestRunner

// policies are the RegoPolicies that a request finds: those of the world, and those beside them that decide.
func (w *World) policies(beside []v1alpha1.RegoPolicy) ([]v1alpha1.RegoPolicy, error) {
	var all []v1alpha1.RegoPolicy
	for i := range beside {
		if w.get(identity{GroupKind: policyKind, name: beside[i].Name}) == nil {
			all = append(all, beside[i])
		}
	}
	for _, t := range w.all(func(t *thing) bool { return t.GroupVersionKind().GroupKind() == policyKind }) {
		var p v1alpha1.RegoPolicy
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(t.Object, &p); err != nil {
			return nil, fmt.Errorf("%s: %w", t.place, err)
		}
		all = append(all, p)
	}
	return all, nil
}

// rights answers what matchConditions ask about the requester, by the SubjectAccessReviews of the world. What they do not say is
// not allowed.
type rights struct{ world *World }

// Authorize tells whether somebody may do something.
func (r rights) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	who := authenticationv1.UserInfo{Username: a.GetUser().GetName(), UID: a.GetUser().GetUID(), Groups: a.GetUser().GetGroups()}
	asked := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: who.Username, UID: who.UID, Groups: who.Groups,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: a.GetVerb(), Group: a.GetAPIGroup(), Resource: a.GetResource(), Subresource: a.GetSubresource(),
			Namespace: a.GetNamespace(), Name: a.GetName(),
		},
	}}
	if err := (&worldClient{world: r.world}).Create(ctx, asked); err != nil {
		return authorizer.DecisionNoOpinion, "", err
	}
	if asked.Status.Allowed {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}
