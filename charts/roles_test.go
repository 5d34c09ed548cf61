package charts_test

import (
	"context"
	"fmt"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Who may view, edit or administer a namespace may do so with its machines; nobody of them with status, servers and policies.
func TestRolesForPeople(t *testing.T) {
	c := newCluster(t)
	c.install(t)
	for _, role := range []string{"view", "edit", "admin", "sallyport-policy-editor"} {
		c.bind(t, role, role, false)
	}
	c.bind(t, "view", "everywhere", true)
	may := func(ctx context.Context, user, verb, resource, subresource string) bool {
		namespace := metav1.NamespaceDefault
		if user == "everywhere" {
			namespace = ""
		}
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: namespace, Group: "sallyport.dev", Resource: resource, Subresource: subresource, Verb: verb,
			},
		}}
		if err := c.Create(ctx, review); err != nil {
			t.Fatal(err)
		}
		return review.Status.Allowed
	}
	eventually(t, "the roles to be put together", func(ctx context.Context) error {
		if !may(ctx, "view", "get", "virtualmachines", "") || !may(ctx, "admin", "create", "virtualmachineoperations", "") {
			return fmt.Errorf("not yet")
		}
		return nil
	})
	for _, test := range []struct {
		user, verb, resource, subresource string
		want                              bool
	}{
		{"view", "list", "virtualmachineoperations", "", true},
		{"view", "create", "virtualmachineoperations", "", false},
		{"view", "update", "virtualmachines", "", false},
		{"edit", "get", "virtualmachines", "", true},
		{"edit", "create", "virtualmachines", "", true},
		{"edit", "create", "virtualmachineoperations", "", true},
		{"edit", "deletecollection", "virtualmachineoperations", "", true},
		{"edit", "update", "virtualmachines", "status", false},
		{"view", "get", "virtualmachinepools", "scale", true},
		{"view", "update", "virtualmachinepools", "scale", false},
		{"view", "patch", "virtualmachinepools", "scale", false},
		{"edit", "get", "virtualmachinepools", "scale", true},
		{"edit", "update", "virtualmachinepools", "scale", true},
		{"edit", "patch", "virtualmachinepools", "scale", true},
		{"edit", "update", "virtualmachinepools", "status", false},
		{"admin", "patch", "virtualmachineoperations", "status", false},
		{"admin", "watch", "virtualmachines", "", true},
		{"admin", "delete", "virtualmachines", "", true},
		{"admin", "get", "vsphereservers", "", false},
		{"admin", "update", "regopolicies", "", false},
		{"everywhere", "list", "regopolicies", "", true},
		{"everywhere", "update", "regopolicies", "", false},
		{"sallyport-policy-editor", "update", "regopolicies", "", true},
		{"sallyport-policy-editor", "update", "regopolicies", "status", false},
		{"sallyport-policy-editor", "create", "virtualmachines", "", false},
	} {
		if got := may(t.Context(), test.user, test.verb, test.resource, test.subresource); got != test.want {
			t.Errorf("%s may %s %s/%s: %t, want %t", test.user, test.verb, test.resource, test.subresource, got, test.want)
		}
	}
}
