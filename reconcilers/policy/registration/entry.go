package registration

import (
	"cmp"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"sallyport.dev/sallyport/api/v1alpha1"
)

const (
	// suffix of the entries' names, which begin with the policy's; suffixOnNamespaces that of those about Namespaces alone.
	suffix             = ".policies." + v1alpha1.GroupName
	suffixOnNamespaces = ".namespaces." + v1alpha1.GroupName
	// namespaceName is the label that every Namespace has, with its name, and nobody can change.
	namespaceName = "kubernetes.io/metadata.name"
	// systemNamespace is where what a cluster is made of runs.
	systemNamespace = "kube-system"
	// longest is how long the API server waits at most.
	longest = 5
)

// entry is what the API server asks about one policy, as a validating webhook. A mutating one has the same fields, but for one that is
// always the same here.
type entry struct {
	admissionregistrationv1.ValidatingWebhook
	policy string
	// onNamespaces tells that it is about Namespaces alone, and the policy's other entry about all else.
	onNamespaces bool
}

// What is the same in every entry.
var (
	equivalent      = admissionregistrationv1.Equivalent
	noneOnDryRun    = admissionregistrationv1.SideEffectClassNoneOnDryRun
	neverReinvoked  = admissionregistrationv1.NeverReinvocationPolicy
	reviewVersions  = []string{"v1"}
	ignore          = admissionregistrationv1.Ignore
	possibleChanges = []operation{admissionregistrationv1.Create, admissionregistrationv1.Update}
	possible        = append(slices.Clone(possibleChanges), admissionregistrationv1.Delete, admissionregistrationv1.Connect)
)

// nameOf is that of the webhook.
func nameOf(policy string, onNamespaces bool) string {
	if onNamespaces {
		return policy + suffixOnNamespaces
	}
	return policy + suffix
}

func (e *entry) mutating() admissionregistrationv1.MutatingWebhook {
	return admissionregistrationv1.MutatingWebhook{
		Name: e.Name, ClientConfig: e.ClientConfig, Rules: e.Rules, FailurePolicy: e.FailurePolicy, MatchPolicy: e.MatchPolicy,
		NamespaceSelector: e.NamespaceSelector, ObjectSelector: e.ObjectSelector, SideEffects: e.SideEffects, TimeoutSeconds: e.TimeoutSeconds,
		AdmissionReviewVersions: e.AdmissionReviewVersions, MatchConditions: e.MatchConditions, ReinvocationPolicy: &neverReinvoked,
	}
}

// entryOf reads one; false if it is none of ours.
func entryOf(w *admissionregistrationv1.ValidatingWebhook) (*entry, bool) {
	policy, onNamespaces := strings.CutSuffix(w.Name, suffixOnNamespaces)
	ours := onNamespaces
	if !ours {
		policy, ours = strings.CutSuffix(w.Name, suffix)
	}
	e := &entry{ValidatingWebhook: *w, policy: policy, onNamespaces: onNamespaces}
	return e.fixed(), ours
}

// fixed gives an entry what is the same in all.
func (e *entry) fixed() *entry {
	e.MatchPolicy, e.SideEffects, e.AdmissionReviewVersions = &equivalent, &noneOnDryRun, reviewVersions
	return e
}

// same reports whether the API server does the same by two entries.
func (e *entry) same(other *entry) bool {
	return other != nil && equality.Semantic.DeepEqual(e.ValidatingWebhook, other.ValidatingWebhook)
}

// newEntries makes those of a policy: one, or two if it selects namespaces by their labels and is about Namespaces itself. About
// a Namespace the API server looks at the labels that it would have, so whoever takes the label off would not be judged: there the
// policy's selector is one of the object, which selects it as it is or as it would be. So is a mutating one, because a Namespace
// whose name is not made yet says what it likes of it.
func newEntries(
	p *Policy, targets []target, mutating bool, client admissionregistrationv1.WebhookClientConfig, home string,
) (all []*entry) {
	others, own := split(targets)
	if len(own) == 0 || !mutating && !selectsNamespaces(p.Matches) {
		return []*entry{newEntry(p, targets, client, home)}
	}
	if others {
		e := newEntry(p, targets, client, home)
		e.MatchConditions = append(e.MatchConditions, admissionregistrationv1.MatchCondition{Name: "is-not-about-a-namespace", Expression: isNoNamespace})
		all = append(all, e)
	}
	e := newEntry(p, own, client, home)
	e.onNamespaces, e.Name, e.NamespaceSelector = true, nameOf(p.Name, true), &metav1.LabelSelector{}
	e.ObjectSelector = selectorOf(append(namespaceRequirements(p.Matches), e.ObjectSelector.MatchExpressions...))
	e.MatchConditions = append(e.MatchConditions, admissionregistrationv1.MatchCondition{
		Name: notExcluded, Expression: `!(request.?name.orValue("") in ` + listed(excludedNamespaces(p.Matches, home)) + ")",
	})
	return append(all, e)
}

// newEntry makes the one of a policy about some targets.
func newEntry(p *Policy, targets []target, client admissionregistrationv1.WebhookClientConfig, home string) *entry {
	e := &entry{policy: p.Name, ValidatingWebhook: admissionregistrationv1.ValidatingWebhook{
		Name: nameOf(p.Name, false), ClientConfig: client, FailurePolicy: ptr.To(ignore), TimeoutSeconds: ptr.To(timeoutOf(p.Timeout)),
		NamespaceSelector: namespacesOf(p.Matches, home), ObjectSelector: objectsOf(p.Matches), MatchConditions: saying(p.Name, conditionsOf(p.Matches, targets)),
	}}
	if p.Refuses {
		e.FailurePolicy = ptr.To(admissionregistrationv1.Fail)
	}
	for i := range targets {
		e.Rules = append(e.Rules, targets[i].rule())
	}
	return e.fixed()
}

// timeoutOf leaves a policy its time, and what lies between the API server and it a second.
func timeoutOf(policy time.Duration) int32 {
	seconds := int32((policy+time.Second-1)/time.Second) + 1
	return min(seconds, longest)
}

// namespacesOf are those whose requests are judged, which never are kube-system and Sallyport's own.
func namespacesOf(matches []v1alpha1.PolicyMatch, home string) *metav1.LabelSelector {
	return selectorOf(append(namespaceRequirements(matches), metav1.LabelSelectorRequirement{
		Key: namespaceName, Operator: metav1.LabelSelectorOpNotIn, Values: sorted(excludedNamespaces(matches, home)),
	}))
}

// excludedNamespaces are those that a policy is never asked about, by name.
func excludedNamespaces(matches []v1alpha1.PolicyMatch, home string) []string {
	without := []string{systemNamespace, home}
	for i := range matches {
		without = append(without, matches[i].ExcludeNamespaces...)
	}
	return without
}

// namespaceRequirements are what policies want of the labels of a namespace.
func namespaceRequirements(matches []v1alpha1.PolicyMatch) (requirements []metav1.LabelSelectorRequirement) {
	for i := range matches {
		requirements = append(requirements, requirementsOf(matches[i].NamespaceSelector)...)
	}
	return requirements
}

func selectsNamespaces(matches []v1alpha1.PolicyMatch) bool {
	return len(namespaceRequirements(matches)) > 0
}

// objectsOf are those whose requests are judged.
func objectsOf(matches []v1alpha1.PolicyMatch) *metav1.LabelSelector {
	var requirements []metav1.LabelSelectorRequirement
	for i := range matches {
		requirements = append(requirements, requirementsOf(matches[i].ObjectSelector)...)
	}
	return selectorOf(requirements)
}

func requirementsOf(s *metav1.LabelSelector) (all []metav1.LabelSelectorRequirement) {
	if s == nil {
		return nil
	}
	for key, value := range s.MatchLabels {
		all = append(all, metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpIn, Values: []string{value}})
	}
	return append(all, s.MatchExpressions...)
}

// selectorOf is one selector with all of them, in an order of its own.
func selectorOf(requirements []metav1.LabelSelectorRequirement) *metav1.LabelSelector {
	slices.SortFunc(requirements, func(a, b metav1.LabelSelectorRequirement) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Operator, b.Operator), slices.Compare(a.Values, b.Values))
	})
	return &metav1.LabelSelector{MatchExpressions: slices.CompactFunc(requirements, func(a, b metav1.LabelSelectorRequirement) bool {
		return equality.Semantic.DeepEqual(a, b)
	})}
}

func sorted(texts []string) []string {
	all := slices.Clone(texts)
	slices.Sort(all)
	return slices.Compact(all)
}
