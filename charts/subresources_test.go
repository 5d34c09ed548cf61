package charts_test

import (
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// unasked are the resources of ours that no webhook of the chart is asked about when they are written, and why not.
var unasked = map[string]string{
	"vsphereservers": "who may write one is an administrator; policies are about who uses it",
	"status":         "reconcilers write it while nothing serves the webhook; people have no right to it (TestRolesForPeople)",
}

// "Subresource and kind gaps": what can be written of our kinds in any way is what policies are asked about, or is listed here. A kind or a
// subresource that comes later is not forgotten.
func TestSubresourceAndKindGaps(t *testing.T) {
	mutating, validating := configurations(t)
	var asked []admissionregistrationv1.RuleWithOperations
	for _, w := range validating.Webhooks {
		asked = append(asked, w.Rules...)
	}
	for _, w := range mutating.Webhooks {
		for _, r := range w.Rules {
			for _, resource := range r.Resources {
				if !covered(asked, resource) {
					t.Errorf("%s is changed, and not validated afterwards", resource)
				}
			}
		}
	}
	crds := definitions(t)
	for _, crd := range crds {
		plural := crd.Spec.Names.Plural
		for _, version := range crd.Spec.Versions {
			if version.Served && !slices.ContainsFunc(asked, func(r admissionregistrationv1.RuleWithOperations) bool {
				return slices.Contains(r.APIVersions, version.Name)
			}) {
				t.Errorf("no webhook is asked about version %s", version.Name)
			}
			resources := []string{plural}
			if s := version.Subresources; s != nil && s.Status != nil {
				resources = append(resources, plural+"/status")
			}
			if s := version.Subresources; s != nil && s.Scale != nil {
				resources = append(resources, plural+"/scale")
			}
			for _, resource := range resources {
				_, sub, _ := strings.Cut(resource, "/")
				if is, listed := covered(asked, resource), unasked[resource] != "" || unasked[sub] != ""; is == listed {
					t.Errorf("%s: a webhook is asked: %t, and it is listed as one that is not: %t", resource, is, listed)
				}
			}
		}
	}
}

// covered tells whether rules are about the creation and the change of a resource.
func covered(rules []admissionregistrationv1.RuleWithOperations, resource string) bool {
	return slices.ContainsFunc(rules, func(r admissionregistrationv1.RuleWithOperations) bool {
		return slices.Contains(r.Resources, resource) && subset([]admissionregistrationv1.OperationType{"CREATE", "UPDATE"}, r.Operations...)
	})
}

// subset tells whether all of a list is among others.
func subset[T comparable](list []T, others ...T) bool {
	return !slices.ContainsFunc(list, func(one T) bool { return !slices.Contains(others, one) })
}
