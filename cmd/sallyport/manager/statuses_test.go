package manager

import (
	"context"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/claim"
	"sallyport.dev/sallyport/test/support/env"
	"sallyport.dev/sallyport/test/support/env/install"
)

// The status of a policy is written although the audit has found an object whose name is longer than the schema of the status admits:
// Roles have names of any length.
func TestStatusesFitTheSchema(t *testing.T) {
	config := env.Shared(t).Config
	api, err := install.Client(config) // with the definitions
	if err != nil {
		t.Fatal(err)
	}
	o := &Options{MetricsAddress: "0", HealthAddress: "0"}
	mgr, _, err := o.newManager(config, "default", &claim.Locks{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	policy := &v1alpha1.RegoPolicy{ObjectMeta: metav1.ObjectMeta{Name: "audited"}, Spec: v1alpha1.RegoPolicySpec{
		Package: "x", Modules: []v1alpha1.PolicyModule{{Name: "x.rego", Source: "package x"}},
		Match: &v1alpha1.PolicyMatch{Resources: []v1alpha1.PolicyResources{{
			APIGroups: []string{"rbac.authorization.k8s.io"}, APIVersions: []string{"v1"}, Resources: []string{"roles"}, Operations: []v1alpha1.MatchOperation{"CREATE"},
		}}},
	}}
	if err := api.Create(t.Context(), policy); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := api.Delete(context.Background(), policy); err != nil {
			t.Error(err)
		}
	})
	policy.Status.Violations = &v1alpha1.PolicyViolations{AuditedAt: metav1.NewTime(time.Now()), Count: ptr.To(int32(1)), First: []v1alpha1.PolicyViolation{{
		APIVersion: "rbac.authorization.k8s.io/v1", Kind: "Role", Namespace: "default", Name: strings.Repeat("r", 300), Reason: "NotAllowed",
	}}}
	if err := mgr.GetClient().Status().Update(t.Context(), policy); err != nil {
		t.Fatal(err)
	}
	if got := policy.Status.Violations.First[0].Name; got != strings.Repeat("r", 253) {
		t.Errorf("the name is %q", got)
	}
}
