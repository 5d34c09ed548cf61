package registration

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/cel/environment"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// mostConditions is the API server's limit of matchConditions per webhook.
const mostConditions = 64

var matchPath = field.NewPath("spec", "match")

// Check returns why parts of spec.match cannot be registered: errors that the API server would return for the entries, and targets that
// are never registered. Each line begins with the field. It uses only the namespace and the paths of the Reconciler, and no cluster.
func (r *Reconciler) Check(
	mutating *admissionregistrationv1.MutatingWebhookConfiguration, validating *admissionregistrationv1.ValidatingWebhookConfiguration,
	p *Policy,
) []string {
	wrong := checkMatch(&p.Match)
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

// checkMatch checks the fields of spec.match except the label selectors, which checkEntry checks.
func checkMatch(match *v1alpha1.PolicyMatch) (wrong field.ErrorList) {
	for i := range match.Resources {
		wrong = append(wrong, checkResources(&match.Resources[i], matchPath.Child("resources").Index(i))...)
	}
	for i, name := range match.ExcludeNamespaces {
		if len(validation.IsDNS1123Label(name)) > 0 {
			wrong = append(wrong, field.Invalid(matchPath.Child("excludeNamespaces").Index(i), name,
				"not the name of a namespace: write each name in full, or select namespaces by their labels with spec.match.namespaceSelector"))
		}
	}
	for i, c := range match.Conditions {
		if err := checkExpression(c.Expression, matchPath.Child("conditions").Index(i).Child("expression")); err != nil {
			wrong = append(wrong, err)
		}
	}
	return wrong
}

// checkResources applies the API server's validation of rules, and also checks the syntax of groups and versions.
func checkResources(r *v1alpha1.PolicyResources, path *field.Path) (wrong field.ErrorList) {
	for i, group := range r.APIGroups {
		switch {
		case group == "" || group == all || len(validation.IsDNS1123Subdomain(group)) == 0:
		case strings.Contains(group, "/"):
			wrong = append(wrong, field.Invalid(path.Child("apiGroups").Index(i), group, "not an API group: put the version into apiVersions"))
		default:
			wrong = append(wrong, field.Invalid(path.Child("apiGroups").Index(i), group, "not an API group: write it in lowercase, such as apps, or \"\" for the core group"))
		}
	}
	if len(r.APIGroups) > 1 && slices.Contains(r.APIGroups, all) {
		wrong = append(wrong, field.Invalid(path.Child("apiGroups"), strings.Join(r.APIGroups, ", "), "\"*\" means all groups: leave out the others"))
	}
	for i, version := range r.APIVersions {
		if version != all && len(validation.IsDNS1035Label(version)) > 0 {
			wrong = append(wrong, field.Invalid(path.Child("apiVersions").Index(i), version, "not an API version: write it as v1 or v1beta1, without the group, or \"*\" for all"))
		}
	}
	for i, resource := range r.Resources {
		for j, o := range r.Resources {
			if (j > i || j < i && resource == "*/*") && swallows(resource, o) { // in the order that the API server checks
				wrong = append(wrong, field.Invalid(path.Child("resources").Index(i), resource, fmt.Sprintf("it includes %q, which the API server does not accept beside it: remove that", o)))
			}
		}
	}
	return wrong
}

// swallows reports whether the API server rejects other beside the wildcard, because that includes it.
func swallows(wild, other string) bool {
	name, part, is := strings.Cut(wild, "/")
	otherName, otherPart, otherIs := strings.Cut(other, "/")
	switch {
	case wild == "*/*":
		return true
	case wild == all:
		return !otherIs
	case is && part == all:
		return otherIs && otherName == name
	case is && name == all:
		return otherIs && otherPart == part
	}
	return false
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
