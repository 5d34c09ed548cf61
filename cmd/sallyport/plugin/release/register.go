package release

import (
	"context"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/cmd/sallyport/plugin/cli"
	entries "sallyport.dev/sallyport/reconcilers/policy/registration"
	"sallyport.dev/sallyport/reconcilers/policy/unattended"
)

type registration struct {
	resource string
	object   client.Object
	policies []string
}

// findRegistrations returns the configurations that have policies. One that the user cannot read is skipped, because uninstalling the chart
// deletes it anyway.
func findRegistrations(ctx context.Context, c *cli.Cluster) ([]registration, error) {
	meta := metav1.ObjectMeta{Name: cli.PoliciesConfiguration}
	mutating := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: meta}
	validating := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: meta}
	found := []registration{
		{resource: "mutatingwebhookconfigurations", object: mutating}, {resource: "validatingwebhookconfigurations", object: validating},
	}
	for _, r := range found {
		err := c.Get(ctx, client.ObjectKeyFromObject(r.object), r.object)
		if client.IgnoreNotFound(err) != nil && !apierrors.IsForbidden(err) {
			return nil, fmt.Errorf("finding where policies are registered: %w", err)
		}
	}
	for i := range mutating.Webhooks {
		found[0].policies = append(found[0].policies, policyOf(mutating.Webhooks[i].Name))
	}
	for i := range validating.Webhooks {
		found[1].policies = append(found[1].policies, policyOf(validating.Webhooks[i].Name))
	}
	return slices.DeleteFunc(found, func(r registration) bool { return len(r.policies) == 0 }), nil
}

// policyOf returns the policy of an entry, or its name.
func policyOf(entry string) string {
	policy, _ := entries.PolicyOf(entry)
	return policy
}

func (j *releasing) registeredPolicies() string {
	var names []string
	for _, r := range j.registrations {
		names = append(names, r.policies...)
	}
	slices.Sort(names)
	return cli.SomeOf(slices.Compact(names), shownNames)
}

// unregistering are the permissions that unregister needs.
func (j *releasing) unregistering() (all []authorizationv1.ResourceAttributes) {
	for _, r := range j.registrations {
		all = append(all, authorizationv1.ResourceAttributes{
			Verb: "patch", Group: admissionregistrationv1.GroupName, Resource: r.resource, Name: cli.PoliciesConfiguration,
		})
	}
	return all
}

// unregister removes the registration of policies on kinds that are not Sallyport's. Without a manager, the API server would deny these
// requests until the uninstallation. A manager that starts again registers the policies.
func (j *releasing) unregister(ctx context.Context) error {
	names := j.registeredPolicies()
	for _, r := range j.registrations {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"webhooks":null}`))
		err := cli.Writer(j, j.dryRun).Patch(ctx, r.object, patch, client.FieldOwner(cli.FieldManager))
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("unregistering policies on other kinds: %w", err)
		}
	}
	if names != "" {
		fmt.Fprintf(j.Out, "Unregistered on other kinds: %s%s\n", names, cli.DryRunSuffix[j.dryRun])
	}
	return nil
}

// marking is the permission that mark needs, if there are policies.
func (j *releasing) marking() (all []authorizationv1.ResourceAttributes) {
	for i := range j.kinds {
		if k := &j.kinds[i]; k.Resource == "regopolicies" && k.total > 0 {
			all = append(all, authorizationv1.ResourceAttributes{Verb: "update", Group: k.Group, Version: k.Version, Resource: k.Resource, Subresource: "status"})
		}
	}
	return all
}

// mark marks all policies as not evaluated in their status. The last replica does the same at a graceful shutdown, and a replica that
// starts removes the marks.
func (j *releasing) mark(ctx context.Context) error {
	if len(j.marking()) == 0 {
		return nil
	}
	stopped := func(context.Context) (bool, error) { return true, nil }
	if err := unattended.Mark(ctx, j, cli.Writer(j, j.dryRun).Status(), j.Now(), stopped); err != nil {
		return fmt.Errorf("marking the policies as not evaluated: %w", err)
	}
	fmt.Fprintf(j.Out, "Marked as not evaluated: all RegoPolicies%s\n", cli.DryRunSuffix[j.dryRun])
	return nil
}
