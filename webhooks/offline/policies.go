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

// TestRunner returns a runner of the tests of RegoPolicies. stored returns the existing RegoPolicies.
type TestRunner func(stored func(context.Context) ([]v1alpha1.RegoPolicy, error)) facts.TestRunner

// policies returns the RegoPolicies that a request sees: those of the world, and the active ones.
func (w *World) policies(beside []v1alpha1.RegoPolicy) ([]v1alpha1.RegoPolicy, error) {
	var all []v1alpha1.RegoPolicy
	for i := range beside {
		if w.get(identity{GroupKind: policyKind, name: beside[i].Name}) == nil {
			all = append(all, beside[i])
		}
	}
	for _, t := range w.all(func(t *storedObject) bool { return t.GroupVersionKind().GroupKind() == policyKind }) {
		var p v1alpha1.RegoPolicy
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(t.Object, &p); err != nil {
			return nil, fmt.Errorf("%s: %w", t.place, err)
		}
		all = append(all, p)
	}
	return all, nil
}

// rights answers access checks of matchConditions from the SubjectAccessReviews of the world. A right without an answer is not
// allowed.
type rights struct{ world *World }

// Authorize implements authorizer.Authorizer.
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
