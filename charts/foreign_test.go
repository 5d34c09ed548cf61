package charts_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const policiesConfiguration = "sallyport-policies"

// The configurations for policies on other kinds are the chart's, and nothing in them is.
func TestConfigurationsForPoliciesAreEmpty(t *testing.T) {
	for _, kind := range []string{"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"} {
		o := find(render(t, everything), kind, policiesConfiguration)
		if o == nil {
			t.Fatalf("there is no %s %s", kind, policiesConfiguration)
		}
		if _, said := o.Object["webhooks"]; said {
			t.Errorf("%s has webhooks, which Helm would keep as they are there", kind)
		}
		if o.GetAnnotations()["a"] != "b" {
			t.Errorf("%s lacks the annotation of webhook.annotations", kind)
		}
	}
}

// registration is what the manager has written for policies on other kinds.
type registration struct {
	validating *admissionregistrationv1.ValidatingWebhookConfiguration
	mutating   *admissionregistrationv1.MutatingWebhookConfiguration
}

func (c *cluster) registration(t *testing.T) registration {
	t.Helper()
	r := registration{&admissionregistrationv1.ValidatingWebhookConfiguration{}, &admissionregistrationv1.MutatingWebhookConfiguration{}}
	c.get(t, r.validating, "", policiesConfiguration)
	c.get(t, r.mutating, "", policiesConfiguration)
	return r
}

// register writes webhooks as the manager does.
func (c *cluster) register(t *testing.T) registration {
	t.Helper()
	r := c.registration(t)
	before := []client.Object{r.validating.DeepCopy(), r.mutating.DeepCopy()}
	endpoint := admissionregistrationv1.WebhookClientConfig{
		CABundle: []byte(certificate(t)),
		Service:  &admissionregistrationv1.ServiceReference{Namespace: namespace, Name: "sallyport-webhook", Path: ptr.To("/validate/policies/a")},
	}
	rules := []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{"charts.test"}, APIVersions: []string{"v1"}, Resources: []string{"nothings"}},
	}}
	none := ptr.To(admissionregistrationv1.SideEffectClassNone)
	r.validating.Webhooks = []admissionregistrationv1.ValidatingWebhook{{
		Name: "a.policies.sallyport.dev", ClientConfig: endpoint, Rules: rules, SideEffects: none, AdmissionReviewVersions: []string{"v1"},
	}}
	r.mutating.Webhooks = []admissionregistrationv1.MutatingWebhook{{
		Name: "a.policies.sallyport.dev", ClientConfig: endpoint, Rules: rules, SideEffects: none, AdmissionReviewVersions: []string{"v1"},
	}}
	for i, o := range []client.Object{r.validating, r.mutating} {
		patch := client.MergeFromWithOptions(before[i], client.MergeFromWithOptimisticLock{})
		if err := c.Patch(t.Context(), o, patch, client.FieldOwner("sallyport-registration")); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// check compares with what is there now.
func (r registration) check(c *cluster, t *testing.T, after, annotation string) {
	t.Helper()
	now := c.registration(t)
	if diff := cmp.Diff(r.validating.Webhooks, now.validating.Webhooks); diff != "" {
		t.Errorf("after %s (-before +after):\n%s", after, diff)
	}
	if diff := cmp.Diff(r.mutating.Webhooks, now.mutating.Webhooks); diff != "" {
		t.Errorf("after %s (-before +after):\n%s", after, diff)
	}
	if got := now.validating.Annotations["example.com/a"]; got != annotation {
		t.Errorf("after %s the annotation is %q, want %q", after, got, annotation)
	}
}

// gone says what of it an uninstall has left.
func (r registration) gone(c *cluster, t *testing.T) {
	t.Helper()
	for _, o := range []client.Object{r.validating, r.mutating} {
		if err := c.Get(t.Context(), client.ObjectKey{Name: policiesConfiguration}, o); !apierrors.IsNotFound(err) {
			t.Errorf("after the uninstall: %T %v", o, err)
		}
	}
}

// What condition ReadsGranted tells people to do grants what is missing, and takes nothing away that was granted before.
func TestReadsAreGranted(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-all")
	}
	c := newCluster(t)
	c.install(t, "--set-json", `rbac.reads={"pods":true,"deployments.apps":true}`)
	granted := func() []string {
		t.Helper()
		role := &rbacv1.ClusterRole{}
		c.get(t, role, "", "sallyport")
		var all []string
		for _, r := range role.Rules {
			own := slices.Equal(r.APIGroups, []string{"sallyport.dev"})
			if slices.Equal(r.Verbs, []string{"get", "list", "watch"}) && len(r.ResourceNames) == 0 && !own {
				all = append(all, strings.Join(r.Resources, ",")+"."+strings.Join(r.APIGroups, ","))
			}
		}
		slices.Sort(all)
		return all
	}
	c.upgrade(t, "--reuse-values", "--set-json", `rbac.reads={"pods":false,"virtualmachines.kubevirt.io":true}`)
	want := []string{"deployments.apps", "namespaces.", "virtualmachines.kubevirt.io"}
	if got := granted(); !slices.Equal(got, want) {
		t.Errorf("may be read: %q, want %q", got, want)
	}
}
