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
	// suffix follows the policy's name in the name of an entry; suffixOnNamespaces in that of its entry for Namespaces.
	suffix             = ".policies." + v1alpha1.GroupName
	suffixOnNamespaces = ".namespaces." + v1alpha1.GroupName
	// namespaceName is a label of every Namespace, which has its name and is immutable.
	namespaceName = "kubernetes.io/metadata.name"
	// systemNamespace is the namespace of the cluster's own components.
	systemNamespace = "kube-system"
	// longest is the longest timeoutSeconds of an entry.
	longest = 5
)

// entry is the webhook of one policy, as a validating one. A mutating webhook has one more field, which is the same in all entries.
type entry struct {
	admissionregistrationv1.ValidatingWebhook
	policy string
	// onNamespaces is set for an entry that matches only Namespaces.
	onNamespaces bool
}

// Values that are the same in every entry.
var (
	equivalent      = admissionregistrationv1.Equivalent
	noneOnDryRun    = admissionregistrationv1.SideEffectClassNoneOnDryRun
	neverReinvoked  = admissionregistrationv1.NeverReinvocationPolicy
	reviewVersions  = []string{"v1"}
	ignore          = admissionregistrationv1.Ignore
	possibleChanges = []operation{admissionregistrationv1.Create, admissionregistrationv1.Update}
	possible        = append(slices.Clone(possibleChanges), admissionregistrationv1.Delete, admissionregistrationv1.Connect)
)

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

// entryOf converts a webhook, and reports whether it is an entry of a policy.
func entryOf(w *admissionregistrationv1.ValidatingWebhook) (*entry, bool) {
	policy, onNamespaces := strings.CutSuffix(w.Name, suffixOnNamespaces)
	ours := onNamespaces
	if !ours {
		policy, ours = strings.CutSuffix(w.Name, suffix)
	}
	e := &entry{ValidatingWebhook: *w, policy: policy, onNamespaces: onNamespaces}
	return e.fixed(), ours
}

// fixed sets the fields that are the same in every entry.
func (e *entry) fixed() *entry {
	e.MatchPolicy, e.SideEffects, e.AdmissionReviewVersions = &equivalent, &noneOnDryRun, reviewVersions
	return e
}

// same reports whether two entries have the same effect.
func (e *entry) same(other *entry) bool {
	return other != nil && equality.Semantic.DeepEqual(e.ValidatingWebhook, other.ValidatingWebhook)
}

// newEntries returns the entries of a policy: one, or two if it also matches Namespaces and is mutating or has a namespaceSelector.
// For a Namespace, the API server applies namespaceSelector to the new labels only, so a user could escape the policy by removing a label.
// The entry for Namespaces therefore has the policy's namespaceSelector as objectSelector, which is applied to the old and the new object.
// A mutating webhook needs its own entry without a namespaceSelector, because before the name is generated (generateName) a new Namespace
// can have any value of the name label.
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

func newEntry(p *Policy, targets []target, client admissionregistrationv1.WebhookClientConfig, home string) *entry {
	e := &entry{policy: p.Name, ValidatingWebhook: admissionregistrationv1.ValidatingWebhook{
		Name: nameOf(p.Name, false), ClientConfig: client, FailurePolicy: ptr.To(ignore), TimeoutSeconds: ptr.To(timeoutOf(p.Timeout)),
		NamespaceSelector: namespacesOf(p.Matches, home), ObjectSelector: objectsOf(p.Matches), MatchConditions: annotated(p.Name, conditionsOf(p.Matches, targets)),
	}}
	if p.DeniesOnError {
		e.FailurePolicy = ptr.To(admissionregistrationv1.Fail)
	}
	for i := range targets {
		e.Rules = append(e.Rules, targets[i].rule())
	}
	return e.fixed()
}

// timeoutOf returns the timeout of an entry: the policy's, rounded up, and a second for the connection, at most longest.
func timeoutOf(policy time.Duration) int32 {
	seconds := int32((policy+time.Second-1)/time.Second) + 1
	return min(seconds, longest)
}

// namespacesOf returns the namespaceSelector, which also excludes kube-system and the namespace of Sallyport.
func namespacesOf(matches []v1alpha1.PolicyMatch, home string) *metav1.LabelSelector {
	return selectorOf(append(namespaceRequirements(matches), metav1.LabelSelectorRequirement{
		Key: namespaceName, Operator: metav1.LabelSelectorOpNotIn, Values: sorted(excludedNamespaces(matches, home)),
	}))
}

// excludedNamespaces returns the names of the namespaces that a policy does not match.
func excludedNamespaces(matches []v1alpha1.PolicyMatch, home string) []string {
	without := []string{systemNamespace, home}
	for i := range matches {
		without = append(without, matches[i].ExcludeNamespaces...)
	}
	return without
}

func namespaceRequirements(matches []v1alpha1.PolicyMatch) (requirements []metav1.LabelSelectorRequirement) {
	for i := range matches {
		requirements = append(requirements, requirementsOf(matches[i].NamespaceSelector)...)
	}
	return requirements
}

func selectsNamespaces(matches []v1alpha1.PolicyMatch) bool {
	return len(namespaceRequirements(matches)) > 0
}

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

// selectorOf returns a selector with all requirements, sorted, so that equal sets give equal entries.
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
