package registration

import (
	"strings"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/cel/environment"
)

// mostConditions is the API server's limit of matchConditions per webhook.
const mostConditions = 64

var matchPath = field.NewPath("spec", "match")

// Check returns why parts of spec.match cannot be registered: errors that the API server would return for expressions and selectors, and
// targets that are never registered. Each line begins with the field. It uses only the namespace and the paths of the Reconciler, and no cluster.
func (r *Reconciler) Check(
	mutating *admissionregistrationv1.MutatingWebhookConfiguration, validating *admissionregistrationv1.ValidatingWebhookConfiguration,
	p *Policy,
) []string {
	var wrong field.ErrorList
	for i, c := range p.Match.Conditions {
		if err := checkExpression(c.Expression, matchPath.Child("conditions").Index(i).Child("expression")); err != nil {
			wrong = append(wrong, err)
		}
	}
	changes, validates, never := r.Preview(mutating, validating, []Policy{*p})
	if len(wrong) == 0 {
		for _, w := range append(webhooksOf(validates), webhooksOf(changes)...) {
			wrong = append(wrong, checkEntry(&w)...)
		}
	}
	var lines []string
	for _, err := range wrong {
		lines = append(lines, err.Error())
	}
	return unique(append(lines, never[p.Name]...))
}

var celCompiler = sync.OnceValue(func() cel.Compiler {
	return cel.NewCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
})

func checkExpression(text string, path *field.Path) *field.Error {
	trimmed := strings.TrimSpace(text)
	if trimmed == "" {
		return field.Required(path, "write a CEL expression that is true for the requests to evaluate")
	}
	result := celCompiler().CompileCELExpression(
		&matchconditions.MatchCondition{Expression: trimmed}, cel.OptionalVariableDeclarations{HasAuthorizer: true}, environment.NewExpressions,
	)
	if result.Error != nil {
		return field.Invalid(path, field.OmitValueType{}, result.Error.Detail)
	}
	return nil
}

// checkEntry checks an entry as a whole. Its errors name the fields of spec.match.
func checkEntry(w *admissionregistrationv1.ValidatingWebhook) (wrong field.ErrorList) {
	options := metav1validation.LabelSelectorValidationOptions{}
	wrong = append(wrong, metav1validation.ValidateLabelSelector(w.NamespaceSelector, options, matchPath.Child("namespaceSelector"))...)
	wrong = append(wrong, metav1validation.ValidateLabelSelector(w.ObjectSelector, options, matchPath.Child("objectSelector"))...)
	if n := len(w.MatchConditions); n > mostConditions {
		wrong = append(wrong, field.TooMany(matchPath.Child("conditions"), n, mostConditions))
	}
	return wrong
}
