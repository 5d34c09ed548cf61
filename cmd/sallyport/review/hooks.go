package review

import (
	"context"
	"fmt"
	"slices"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules"
	"k8s.io/apiserver/pkg/cel/environment"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/charts"
	"sallyport.dev/sallyport/webhooks"
)

// hook is a webhook of a configuration: whom the API server asks, and about which requests.
type hook struct {
	name       string
	rules      []admissionregistrationv1.RuleWithOperations
	conditions matchconditions.Matcher
}

// hooks are those that the gate serves.
type hooks struct {
	mutating, validating []hook
}

// foreignHook stands for the entries that are made in a cluster for kinds that are not ours, of what active policies match.
const foreignHook = "policies.sallyport.dev"

// chartHooks are those of the chart's configurations.
var chartHooks = sync.OnceValues(newHooks)

func newHooks() (*hooks, error) {
	mutating, validating, err := charts.Webhooks()
	if err != nil {
		return nil, err
	}
	compiler := cel.NewConditionCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	h := &hooks{}
	for i := range mutating.Webhooks {
		w := &mutating.Webhooks[i]
		if serves(w.ClientConfig, webhooks.MutatePath) {
			h.mutating = append(h.mutating, hook{w.Name, w.Rules, matcher(compiler, w.MatchConditions, w.FailurePolicy, w.Name)})
		}
	}
	for i := range validating.Webhooks {
		w := &validating.Webhooks[i]
		if serves(w.ClientConfig, webhooks.ValidatePath) {
			h.validating = append(h.validating, hook{w.Name, w.Rules, matcher(compiler, w.MatchConditions, w.FailurePolicy, w.Name)})
		}
	}
	return h, nil
}

func serves(to admissionregistrationv1.WebhookClientConfig, path string) bool {
	return to.Service != nil && to.Service.Path != nil && *to.Service.Path == path
}

func matcher(
	compiler cel.ConditionCompiler, conditions []admissionregistrationv1.MatchCondition,
	onFailure *admissionregistrationv1.FailurePolicyType, name string,
) matchconditions.Matcher {
	expressions := make([]cel.ExpressionAccessor, len(conditions))
	for i, c := range conditions {
		expressions[i] = &matchconditions.MatchCondition{Name: c.Name, Expression: c.Expression}
	}
	declared := cel.OptionalVariableDeclarations{HasAuthorizer: true}
	return matchconditions.NewMatcher(
		compiler.CompileCondition(expressions, declared, environment.StoredExpressions), onFailure, "webhook", "review", name)
}

// meeting gives the hooks that the API server would ask, and why it would not ask the others whose rules are met.
func (h *hooks) meeting(ctx context.Context, all []hook, attributes *admission.VersionedAttributes) (asked []string, skipped []string, err error) {
	if attributes.GetResource().Group != v1alpha1.GroupName {
		return []string{foreignHook}, nil, nil
	}
	for _, one := range all {
		met := slices.ContainsFunc(one.rules, func(r admissionregistrationv1.RuleWithOperations) bool {
			return (&rules.Matcher{Rule: r, Attr: attributes.Attributes}).Matches()
		})
		if !met {
			continue
		}
		result := one.conditions.Match(ctx, attributes, nil, nil)
		switch {
		case result.Error != nil:
			return nil, nil, result.Error
		case result.Matches:
			asked = append(asked, one.name)
		default:
			skipped = append(skipped, fmt.Sprintf("webhook %s is not asked: its matchCondition %s leaves this request out", one.name, result.FailedConditionName))
		}
	}
	return asked, skipped, nil
}
