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
	"sallyport.dev/sallyport/webhooks/server"
)

// hook is a webhook of a configuration.
type hook struct {
	name                string
	policy              string // of the webhook; "" if it is for all
	rules               []admissionregistrationv1.RuleWithOperations
	namespaces, objects labels.Selector
	conditions          matchconditions.Matcher
}

// Hooks are the webhooks of the gate.
type Hooks struct {
	mutating, validating []hook
	// never has the parts of a policy that are never registered, by its name.
	never map[string][]string
}

// NewHooks returns Sallyport's webhooks in the configurations of a cluster. never has the parts of policies that are never
// registered, by policy name, if known.
func NewHooks(
	mutating []admissionregistrationv1.MutatingWebhookConfiguration, validating []admissionregistrationv1.ValidatingWebhookConfiguration,
	never map[string][]string,
) (*Hooks, error) {
	var changing, judging []admissionregistrationv1.MutatingWebhook
	for _, c := range mutating {
		changing = append(changing, c.Webhooks...)
	}
	for _, c := range validating {
		for _, w := range c.Webhooks { // its fields are a subset
			judging = append(judging, admissionregistrationv1.MutatingWebhook{
				Name: w.Name, ClientConfig: w.ClientConfig, Rules: w.Rules, NamespaceSelector: w.NamespaceSelector, ObjectSelector: w.ObjectSelector,
				MatchConditions: w.MatchConditions, FailurePolicy: w.FailurePolicy,
			})
		}
	}
	h := &Hooks{never: never}
	compiler := cel.NewConditionCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	var err error
	if h.mutating, err = servedHooks(changing, server.MutatePath, compiler); err != nil {
		return nil, err
	}
	h.validating, err = servedHooks(judging, server.ValidatePath, compiler)
	return h, err
}

// servedHooks returns the webhooks of the gate at a path, or at a policy's path below it.
func servedHooks(all []admissionregistrationv1.MutatingWebhook, path string, compiler cel.ConditionCompiler) (hooks []hook, err error) {
	for _, w := range all {
		to := w.ClientConfig.Service
		if to == nil || to.Path == nil || !strings.HasSuffix(w.Name, "."+v1alpha1.GroupName) {
			continue
		}
		policy, one := strings.CutPrefix(*to.Path, path)
		if one && policy != "" {
			policy, one = strings.CutPrefix(policy, "/policies/")
		}
		if !one {
			continue
		}
		h := hook{name: w.Name, policy: policy, rules: w.Rules, conditions: matcher(compiler, &w)}
		if h.namespaces, err = labelSelector(w.NamespaceSelector); err != nil {
			return nil, fmt.Errorf("webhook %s: namespaceSelector: %w", w.Name, err)
		}
		if h.objects, err = labelSelector(w.ObjectSelector); err != nil {
			return nil, fmt.Errorf("webhook %s: objectSelector: %w", w.Name, err)
		}
		hooks = append(hooks, h)
	}
	return hooks, nil
}

// labelSelector returns a selector; nil selects everything, as the API server defaults it.
func labelSelector(s *metav1.LabelSelector) (labels.Selector, error) {
	if s == nil {
		return labels.Everything(), nil
	}
	return metav1.LabelSelectorAsSelector(s)
}

func matcher(compiler cel.ConditionCompiler, w *admissionregistrationv1.MutatingWebhook) matchconditions.Matcher {
	expressions := make([]cel.ExpressionAccessor, len(w.MatchConditions))
	for i, c := range w.MatchConditions {
		expressions[i] = (*matchconditions.MatchCondition)(&c)
	}
	declared := cel.OptionalVariableDeclarations{HasAuthorizer: true}
	return matchconditions.NewMatcher(
		compiler.CompileCondition(expressions, declared, environment.StoredExpressions), w.FailurePolicy, "webhook", "review", w.Name)
}

// skip is why the API server does not call a webhook whose rules match.
type skip struct {
	policy string // of the webhook; "" if it is for all
	why    string
	// unmarked reports whether the object lacks the labels that the webhook selects.
	unmarked bool
}

// matching returns the webhooks that the API server would call, and why it would not call others whose rules match.
func (h *Hooks) matching(
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
				why: fmt.Sprintf("webhook %s is not called: its objectSelector is %s, which the object's labels do not match", one.name, one.objects)})
			continue
		}
		if !one.namespaces.Empty() && attributes.GetNamespace() != "" {
			set, err := home()
			if err != nil {
				return nil, nil, err
			}
			if !one.namespaces.Matches(set) {
				skipped = append(skipped, skip{policy: one.policy, why: fmt.Sprintf("webhook %s is not called: its namespaceSelector is %s, but namespace %s has the labels %s",
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
				why: fmt.Sprintf("webhook %s is not called: its matchCondition %s excludes this request", one.name, result.FailedConditionName)})
		}
	}
	return asked, skipped, nil
}

// selects reports whether a selector selects the old or the new object. The options of a connection are no object with labels, so
// that no selector selects them.
func selects(s labels.Selector, attributes *admission.VersionedAttributes) bool {
	if s.Empty() || attributes.GetOperation() == admission.Connect {
		return s.Empty()
	}
	return slices.ContainsFunc([]runtime.Object{attributes.GetObject(), attributes.GetOldObject()}, func(o runtime.Object) bool {
		labelled, err := meta.Accessor(o)
		return err == nil && s.Matches(labels.Set(labelled.GetLabels()))
	})
}
