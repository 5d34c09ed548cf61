package describe

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// style formats names and values in text, such as Code.
type style func(string) string

// Facts returns the settings of a policy as rows of a label and a value, which may have several lines. For omitted fields it returns the
// defaults of the API. The function writes formats names and values.
func Facts(spec *v1alpha1.RegoPolicySpec, writes func(string) string) (rows [][]string) {
	code := style(writes)
	add := func(what, is string) {
		if is != "" {
			rows = append(rows, []string{what, is})
		}
	}
	if spec.Library {
		add("library", "not evaluated itself; policies import "+code(spec.Package))
		return rows
	}
	add("matches", code.matched(spec.Match))
	add("excludes", code.excluded(spec.Match))
	add("mode", code.modes(spec))
	add("on error", code.onError(cmp.Or(spec.OnError, v1alpha1.OnErrorDeny)))
	if spec.FailurePolicy == v1alpha1.FailureIgnore {
		add("no replica", "while none answers, requests on kinds that are not Sallyport's are allowed ("+code("failurePolicy: Ignore")+")")
	}
	add("override", code.overridable(cmp.Or(spec.Override, v1alpha1.OverrideUsers)))
	add("timeout", fmt.Sprintf("%d ms", spec.Timeout().Milliseconds()))
	if spec.BackgroundAudit == v1alpha1.AuditEnabled {
		add("background audit", "existing objects are evaluated, too")
	}
	add("reads", code.reads(spec.Reads))
	return rows
}

// facts returns the rows of Facts with links to the Rego and to related resources, as table cells.
func (w *writer) facts(policy *v1alpha1.RegoPolicy, a *about) [][]string {
	rows := Facts(&policy.Spec, Code)
	for _, row := range rows {
		row[1] = strings.ReplaceAll(row[1], "\n", "<br>")
	}
	for _, more := range [][]string{{"Rego", w.modules(policy)}, {"see also", strings.Join(a.seeAlso, ", ")}} {
		if more[1] != "" {
			rows = append(rows, more)
		}
	}
	return rows
}

// all formats words as a comma-separated list.
func (code style) all(words []string) string {
	all := make([]string, 0, len(words))
	for _, word := range words {
		all = append(all, code(word))
	}
	return strings.Join(all, ", ")
}

// matched describes the requests that a policy matches.
func (code style) matched(match *v1alpha1.PolicyMatch) string {
	if match == nil {
		return ""
	}
	var lines []string
	for _, entry := range match.Resources {
		var operations, resources []string
		for _, operation := range entry.Operations {
			operations = append(operations, string(operation))
		}
		for _, resource := range entry.Resources {
			for _, group := range entry.APIGroups {
				name, subresource, _ := strings.Cut(resource, "/")
				if group != "" {
					name += "." + group
				}
				if subresource != "" {
					name += "/" + subresource
				}
				resources = append(resources, name)
			}
		}
		text := strings.Join(operations, ", ") + " of " + code.all(resources)
		if !slices.Equal(entry.APIVersions, []string{"*"}) {
			text += " in " + code.all(entry.APIVersions)
		}
		lines = append(lines, text)
	}
	if selected := code.selector(match.NamespaceSelector); selected != "" {
		lines = append(lines, "in namespaces with "+selected)
	}
	if selected := code.selector(match.ObjectSelector); selected != "" {
		lines = append(lines, "objects with "+selected)
	}
	if len(match.Conditions) > 0 {
		var names []string // without their expressions, which are long
		for _, condition := range match.Conditions {
			names = append(names, condition.Name)
		}
		lines = append(lines, fmt.Sprintf("only if %s (%s)", code.all(names), code("spec.match.conditions")))
	}
	return strings.Join(lines, "\n")
}

func (code style) excluded(match *v1alpha1.PolicyMatch) string {
	if match == nil {
		return ""
	}
	var all []string
	for _, list := range []struct {
		what  string
		names []string
	}{{"namespaces", match.ExcludeNamespaces}, {"users", match.ExcludeUsers}, {"groups", match.ExcludeGroups}} {
		if len(list.names) > 0 {
			all = append(all, list.what+" "+code.all(list.names))
		}
	}
	return strings.Join(all, "\n")
}

// selector formats a label selector, or returns "" if it selects everything.
func (code style) selector(labels *metav1.LabelSelector) string {
	if labels == nil || len(labels.MatchLabels)+len(labels.MatchExpressions) == 0 {
		return ""
	}
	return code(metav1.FormatLabelSelector(labels))
}

func (code style) modes(spec *v1alpha1.RegoPolicySpec) string {
	text := code(string(cmp.Or(spec.Mode, v1alpha1.ModeEnforce)))
	for _, entry := range spec.NamespaceModes {
		text += fmt.Sprintf("\n%s in namespaces with %s", code(string(entry.Mode)),
			cmp.Or(code.selector(&entry.NamespaceSelector), "any labels"))
	}
	return text
}

func (code style) onError(action v1alpha1.PolicyErrorAction) string {
	text := map[v1alpha1.PolicyErrorAction]string{
		v1alpha1.OnErrorDeny:  "the request is denied",
		v1alpha1.OnErrorAllow: "the request is allowed",
	}[action]
	return strings.TrimSpace(fmt.Sprintf("%s (%s)", text, code("onError: "+string(action))))
}

func (code style) overridable(override v1alpha1.PolicyOverride) string {
	text := map[v1alpha1.PolicyOverride]string{
		v1alpha1.OverrideUsers:     "users with the verb " + code("override") + " on the RegoPolicy, except service accounts",
		v1alpha1.OverrideEverybody: "users and service accounts with the verb " + code("override") + " on the RegoPolicy",
		v1alpha1.OverrideNobody:    "not possible",
	}[override]
	return strings.TrimSpace(fmt.Sprintf("%s (%s)", text, code("override: "+string(override))))
}

func (code style) reads(kinds []v1alpha1.PolicyRead) string {
	var all []string
	for _, read := range kinds {
		text := fmt.Sprintf("%s of %s", code(read.Kind), code(read.APIVersion))
		if len(read.Indexes) > 0 {
			text += ", by " + code.all(read.Indexes)
		}
		if read.Freshness == v1alpha1.ReadLive {
			text += ", read live"
		}
		all = append(all, text)
	}
	return strings.Join(all, "\n")
}

func (w *writer) modules(policy *v1alpha1.RegoPolicy) string {
	var all []string
	for _, m := range policy.Spec.Modules {
		text := Code(m.Name)
		if w.page.Modules != nil {
			if target := w.page.Modules(policy, m.Name); target != "" {
				text = fmt.Sprintf("[%s](%s)", text, target)
			}
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}
