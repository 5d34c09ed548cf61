package review

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
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
	policy     string // that it is about; "" if it is about all
	rules      []admissionregistrationv1.RuleWithOperations
	namespaces labels.Selector // nil: every namespace
	conditions matchconditions.Matcher
}

// Hooks are the webhooks that the gate serves.
type Hooks struct {
	mutating, validating []hook
	// assumed tells that there are none of kinds that are not ours, and that policies are taken to be asked about them.
	assumed bool
}

// foreignHook stands for the entries that are made in a cluster for kinds that are not ours, of what active policies match.
const foreignHook = "policies.sallyport.dev"

// chartHooks are those of the chart's configurations.
var chartHooks = sync.OnceValues(func() (*Hooks, error) {
	mutating, validating, err := charts.Webhooks()
	if err != nil {
		return nil, err
	}
	h, err := NewHooks(
		[]admissionregistrationv1.MutatingWebhookConfiguration{*mutating}, []admissionregistrationv1.ValidatingWebhookConfiguration{*validating})
	if err == nil {
		h.assumed = true
	}
	return h, err
})

// NewHooks are the webhooks of Sallyport in configurations as a cluster has them.
func NewHooks(
	mutating []admissionregistrationv1.MutatingWebhookConfiguration, validating []admissionregistrationv1.ValidatingWebhookConfiguration,
) (*Hooks, error) {
	compiler := cel.NewConditionCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	h := &Hooks{}
	for i := range mutating {
		for j := range mutating[i].Webhooks {
			w := &mutating[i].Webhooks[j]
			one, err := newHook(w.Name, w.ClientConfig, webhooks.MutatePath, w.Rules, w.NamespaceSelector)
			if err != nil {
				return nil, err
			}
			if one != nil {
				one.conditions = matcher(compiler, w.MatchConditions, w.FailurePolicy, w.Name)
				h.mutating = append(h.mutating, *one)
			}
		}
	}
	for i := range validating {
		for j := range validating[i].Webhooks {
			w := &validating[i].Webhooks[j]
			one, err := newHook(w.Name, w.ClientConfig, webhooks.ValidatePath, w.Rules, w.NamespaceSelector)
			if err != nil {
				return nil, err
			}
			if one != nil {
				one.conditions = matcher(compiler, w.MatchConditions, w.FailurePolicy, w.Name)
				h.validating = append(h.validating, *one)
			}
		}
	}
	return h, nil
}

// newHook gives nil for a webhook that the gate does not serve.
func newHook(
	name string, to admissionregistrationv1.WebhookClientConfig, path string,
	rules []admissionregistrationv1.RuleWithOperations, namespaces *metav1.LabelSelector,
) (*hook, error) {
	if to.Service == nil || to.Service.Path == nil || !strings.HasSuffix(name, "."+v1alpha1.GroupName) {
		return nil, nil
	}
	policy, one := strings.CutPrefix(*to.Service.Path, path+"/policies/")
	if !one && *to.Service.Path != path {
		return nil, nil
	}
	h := &hook{name: name, rules: rules}
	if one {
		h.policy = policy
	}
	if namespaces != nil {
		selector, err := metav1.LabelSelectorAsSelector(namespaces)
		if err != nil {
			return nil, fmt.Errorf("webhook %s: namespaceSelector: %w", name, err)
		}
		if !selector.Empty() {
			h.namespaces = selector
		}
	}
	return h, nil
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

// skip is why the API server does not ask a webhook whose rules are met.
type skip struct {
	policy string // that the webhook is about; "" if it is about all
	why    string
}

// meeting gives the hooks that the API server would ask, and why it would not ask the others whose rules are met.
func (h *Hooks) meeting(
	ctx context.Context, all []hook, attributes *admission.VersionedAttributes, home func() (labels.Set, error), may rights,
) (asked []hook, skipped []skip, err error) {
	if h.assumed && attributes.GetResource().Group != v1alpha1.GroupName {
		return []hook{{name: foreignHook}}, nil, nil
	}
	for _, one := range all {
		met := slices.ContainsFunc(one.rules, func(r admissionregistrationv1.RuleWithOperations) bool {
			return (&rules.Matcher{Rule: r, Attr: attributes.Attributes}).Matches()
		})
		if !met {
			continue
		}
		if one.namespaces != nil && attributes.GetNamespace() != "" {
			set, err := home()
			if err != nil {
				return nil, nil, err
			}
			if !one.namespaces.Matches(set) {
				skipped = append(skipped, skip{one.policy, fmt.Sprintf("webhook %s is not asked: its namespaceSelector is %s, and namespace %s has the labels %s",
					one.name, one.namespaces, attributes.GetNamespace(), set)})
				continue
			}
		}
		result := one.conditions.Match(ctx, attributes, nil, may)
		switch {
		case result.Error != nil:
			return nil, nil, result.Error
		case result.Matches:
			asked = append(asked, one)
		default:
			skipped = append(skipped, skip{one.policy,
				fmt.Sprintf("webhook %s is not asked: its matchCondition %s leaves this request out", one.name, result.FailedConditionName)})
		}
	}
	return asked, skipped, nil
}
