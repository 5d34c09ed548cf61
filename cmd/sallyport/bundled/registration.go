// Package bundled connects policies with the registration of webhooks, which does not depend on them, and supplies the webhooks and kinds
// of the release to reviews without a cluster.
package bundled

import (
	"fmt"
	"slices"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/charts"
	"sallyport.dev/sallyport/reconcilers/policy/registration"
	"sallyport.dev/sallyport/webhooks/catalog"
	"sallyport.dev/sallyport/webhooks/server"
)

// About returns how a policy is registered with the API server, with the API's default timeout.
func About(p *catalog.Policy) registration.Policy {
	return registration.Policy{
		Name: p.Name(), Match: p.Match(), Validates: p.Validates(), Mutates: p.Mutates(),
		DeniesUnasked: p.DeniesUnasked(), Broken: p.Broken() != nil, Timeout: new(v1alpha1.RegoPolicySpec).Timeout(),
		MayNotPatch: p.MayNotPatch, NeverEvaluated: p.NeverEvaluated(),
	}
}

// Check returns what in spec.match keeps the API server from calling a policy's webhook: one line each, which begins with the field.
func Check(object *v1alpha1.RegoPolicy) []string {
	chart, err := webhooksOfChart()
	if err != nil {
		return []string{err.Error()}
	}
	if object.Spec.Match == nil {
		return nil
	}
	p := registration.Policy{
		Name: object.Name, Match: *object.Spec.Match, DeniesUnasked: true, NeverEvaluated: catalog.NeverEvaluated(object),
		Validates: catalog.Defines(object, "deny", "warn", "outcome"), Mutates: catalog.Patches(object),
	}
	if !p.Mutates { // even if its Rego has errors
		p.Validates = true
	}
	return Registration().Check(chart.mutating, chart.validating, &p)
}

// Remarks returns the parts of a valid spec.match that have no effect: one line each, which begins with the field.
func Remarks(object *v1alpha1.RegoPolicy) (lines []string) {
	match := object.Spec.Match
	if match == nil {
		return nil
	}
	created := func(r v1alpha1.PolicyResources) bool { return slices.Contains(r.Operations, v1alpha1.MatchCreate) }
	if object.Spec.BackgroundAudit == v1alpha1.AuditEnabled && !slices.ContainsFunc(match.Resources, created) {
		lines = append(lines, "spec.backgroundAudit: must be Disabled, because spec.match selects no resource with CREATE and the audit would evaluate no object")
	}
	if !catalog.Patches(object) {
		return lines
	}
	for i, r := range match.Resources {
		if slices.Contains(r.Operations, v1alpha1.MatchConnect) {
			lines = append(lines, fmt.Sprintf("spec.match.resources[%d].operations: patch rules are not evaluated for CONNECT; only deny and warn rules are", i))
		}
	}
	return lines
}

// Registration is the registration of the release, as far as it needs no cluster.
func Registration() *registration.Reconciler {
	return &registration.Reconciler{Namespace: "sallyport-system", ValidatePath: server.ValidatePolicyPath, MutatePath: server.MutatePolicyPath}
}

type configurations struct {
	mutating   *admissionregistrationv1.MutatingWebhookConfiguration
	validating *admissionregistrationv1.ValidatingWebhookConfiguration
}

// webhooksOfChart are the webhooks of the chart. They are built in, so an error means that the build is broken.
var webhooksOfChart = sync.OnceValues(func() (c configurations, err error) {
	c.mutating, c.validating, err = charts.Webhooks()
	if err != nil {
		err = fmt.Errorf("reading the webhooks of the chart: %w", err)
	}
	return c, err
})
