package offline

import (
	"context"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules"
	"k8s.io/apiserver/pkg/cel/environment"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks"
)

// hook is a webhook of a configuration: whom the API server asks, and about which requests.
type hook struct {
	name       string
	policy     string // that it is about; "" if it is about all
	rules      []admissionregistrationv1.RuleWithOperations
	namespaces labels.Selector // nil: every namespace
	objects    labels.Selector // nil: every object
	conditions matchconditions.Matcher
}

// Hooks are the webhooks that the gate serves.
type Hooks struct {
	mutating, validating []hook
	// never is what of a policy is never registered, by its name.
	never map[string][]string
}

// NewHooks are the webhooks of Sallyport in configurations as a cluster has them. What of a policy is never registered is told by its name, as
// far as that is known.
func NewHooks(
	mutating []admissionregistrationv1.MutatingWebhookConfiguration, validating []admissionregistrationv1.ValidatingWebhookConfiguration,
	never map[string][]string,
) (*Hooks, error) {
	compiler := cel.NewConditionCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	h := &Hooks{never: never}
	for i := range mutating {
		for j := range mutating[i].Webhooks {
			w := &mutating[i].Webhooks[j]
			one, err := newHook(w.Name, w.ClientConfig, webhooks.MutatePath, w.Rules, w.NamespaceSelector, w.ObjectSelector)
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
			one, err := newHook(w.Name, w.ClientConfig, webhooks.ValidatePath, w.Rules, w.NamespaceSelector, w.ObjectSelector)
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
	rules []admissionregistrationv1.RuleWithOperations, namespaces, objects *metav1.LabelSelector,
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
	var err error
	if h.namespaces, err = labelSelector(namespaces); err != nil {
		return nil, fmt.Errorf("webhook %s: namespaceSelector: %w", name, err)
	}
	if h.objects, err = labelSelector(objects); err != nil {
		return nil, fmt.Errorf("webhook %s: objectSelector: %w", name, err)
	}
	return h, nil
}

// labelSelector gives nil for one that selects everything.
func labelSelector(s *metav1.LabelSelector) (labels.Selector, error) {
	if s == nil || len(s.MatchLabels)+len(s.MatchExpressions) == 0 {
		return nil, nil
	}
	return metav1.LabelSelectorAsSelector(s)
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
	// unmarked tells that the object does not have the labels that the webhook is for.
	unmarked bool
}

// meeting gives the hooks that the API server would ask, and why it would not ask the others whose rules are met.
func (h *Hooks) meeting(
	ctx context.Context, all []hook, attributes *admission.VersionedAttributes, home func() (labels.Set, error), may rights,
) (asked []hook, skipped []skip, err error) {
	for _, one := range all {
		met := slices.ContainsFunc(one.rules, func(r admissionregistrationv1.RuleWithOperations) bool {
			return (&rules.Matcher{Rule: r, Attr: attributes.Attributes}).Matches()
		})
		if !met {
			continue
		}
		if !selects(one.objects, attributes) {
			skipped = append(skipped, skip{policy: one.policy, unmarked: true,
				why: fmt.Sprintf("webhook %s is not asked: its objectSelector is %s, which the object's labels are not", one.name, one.objects)})
			continue
		}
		if one.namespaces != nil && attributes.GetNamespace() != "" {
			set, err := home()
			if err != nil {
				return nil, nil, err
			}
			if !one.namespaces.Matches(set) {
				skipped = append(skipped, skip{policy: one.policy, why: fmt.Sprintf("webhook %s is not asked: its namespaceSelector is %s, and namespace %s has the labels %s",
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
			skipped = append(skipped, skip{policy: one.policy,
				why: fmt.Sprintf("webhook %s is not asked: its matchCondition %s leaves this request out", one.name, result.FailedConditionName)})
		}
	}
	return asked, skipped, nil
}

// selects tells whether a selector selects the object as it is or as it would be. What a connection carries has no labels, which is
// not to have none: no selector selects it.
func selects(s labels.Selector, attributes *admission.VersionedAttributes) bool {
	if s == nil || attributes.GetOperation() == admission.Connect {
		return s == nil
	}
	return slices.ContainsFunc([]runtime.Object{attributes.GetObject(), attributes.GetOldObject()}, func(o runtime.Object) bool {
		labelled, err := meta.Accessor(o)
		return err == nil && s.Matches(labels.Set(labelled.GetLabels()))
	})
}
