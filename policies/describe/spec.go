package describe

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// facts are what is to be known of a policy, a row each. What a RegoPolicy leaves out is what the API fills in.
func (w *writer) facts(policy *v1alpha1.RegoPolicy, a *about) (rows [][]string) {
	add := func(what, is string) {
		if is != "" {
			rows = append(rows, []string{what, is})
		}
	}
	spec := &policy.Spec
	if spec.Library {
		add("library", "is asked nothing itself: policies import "+Code(spec.Package))
	} else {
		add("asked about", matched(spec.Match))
		add("but not about", excluded(spec.Match))
		add("mode", modes(spec))
		add("what it cannot judge", onError(cmp.Or(spec.OnError, v1alpha1.OnErrorDeny)))
		add("can be overridden", overridable(cmp.Or(spec.Override, v1alpha1.OverrideUsers)))
		add("decides within", fmt.Sprintf("%d ms", cmp.Or(spec.TimeoutMilliseconds, 500)))
		if spec.BackgroundAudit == v1alpha1.AuditEnabled {
			add("background audit", "objects that exist are held against it, too")
		}
		add("reads", reads(spec.Reads))
	}
	add("Rego", w.modules(policy))
	add("see also", strings.Join(a.seeAlso, ", "))
	return rows
}

// matched are the requests that a policy is asked about.
func matched(match *v1alpha1.PolicyMatch) string {
	if match == nil {
		return ""
	}
	var entries []string
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
		text := strings.Join(operations, ", ") + " of " + Codes(resources)
		if !slices.Equal(entry.APIVersions, []string{"*"}) {
			text += " in " + Codes(entry.APIVersions)
		}
		entries = append(entries, text)
	}
	text := strings.Join(entries, "<br>")
	if selected := selector(match.NamespaceSelector); selected != "" {
		text += "<br>in namespaces with " + selected
	}
	if selected := selector(match.ObjectSelector); selected != "" {
		text += "<br>of objects with " + selected
	}
	if len(match.Conditions) > 0 {
		var names []string // whose expressions are long, and for the API server
		for _, condition := range match.Conditions {
			names = append(names, condition.Name)
		}
		text += "<br>only if " + Codes(names) + " (`spec.match.conditions`)"
	}
	return text
}

func excluded(match *v1alpha1.PolicyMatch) string {
	if match == nil {
		return ""
	}
	var all []string
	for _, list := range []struct {
		what  string
		names []string
	}{{"namespaces", match.ExcludeNamespaces}, {"users", match.ExcludeUsers}, {"groups", match.ExcludeGroups}} {
		if len(list.names) > 0 {
			all = append(all, list.what+" "+Codes(list.names))
		}
	}
	return strings.Join(all, "<br>")
}

// selector writes labels, "" for those that select all.
func selector(labels *metav1.LabelSelector) string {
	if labels == nil || len(labels.MatchLabels)+len(labels.MatchExpressions) == 0 {
		return ""
	}
	return Code(metav1.FormatLabelSelector(labels))
}

func modes(spec *v1alpha1.RegoPolicySpec) string {
	text := Code(string(cmp.Or(spec.Mode, v1alpha1.ModeEnforce)))
	for _, entry := range spec.NamespaceModes {
		text += fmt.Sprintf("<br>%s in namespaces with %s", Code(string(entry.Mode)),
			cmp.Or(selector(&entry.NamespaceSelector), "any labels"))
	}
	return text
}

func onError(action v1alpha1.PolicyErrorAction) string {
	text := map[v1alpha1.PolicyErrorAction]string{v1alpha1.OnErrorDeny: "is refused", v1alpha1.OnErrorAllow: "passes"}[action]
	return strings.TrimSpace(fmt.Sprintf("%s (`onError: %s`)", text, action))
}

func overridable(override v1alpha1.PolicyOverride) string {
	text := map[v1alpha1.PolicyOverride]string{
		v1alpha1.OverrideUsers:     "by people who hold the verb `override` on it",
		v1alpha1.OverrideEverybody: "by everybody who holds the verb `override` on it",
		v1alpha1.OverrideNobody:    "by nobody",
	}[override]
	return strings.TrimSpace(fmt.Sprintf("%s (`override: %s`)", text, override))
}

func reads(kinds []v1alpha1.PolicyRead) string {
	var all []string
	for _, read := range kinds {
		text := fmt.Sprintf("%s of %s", Code(read.Kind), Code(read.APIVersion))
		if len(read.Indexes) > 0 {
			text += ", by " + Codes(read.Indexes)
		}
		all = append(all, text)
	}
	return strings.Join(all, "<br>")
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
