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
	// A suffix follows the policy's name in the name of an entry. A policy may have further entries, for Namespaces and for Sallyport's kinds.
	suffix             = ".policies." + v1alpha1.GroupName
	suffixOnNamespaces = ".namespaces." + v1alpha1.GroupName
	suffixOnOwn        = ".own." + v1alpha1.GroupName
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
	// wanted is the entry without what other clients have added; nil if it is not derived from the policy.
	wanted *admissionregistrationv1.ValidatingWebhook
}

// suffixes are those of a policy's entries.
var suffixes = []string{suffix, suffixOnNamespaces, suffixOnOwn}

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

func (e *entry) mutating() admissionregistrationv1.MutatingWebhook {
	return admissionregistrationv1.MutatingWebhook{
		Name: e.Name, ClientConfig: e.ClientConfig, Rules: e.Rules, FailurePolicy: e.FailurePolicy, MatchPolicy: e.MatchPolicy,
		NamespaceSelector: e.NamespaceSelector, ObjectSelector: e.ObjectSelector, SideEffects: e.SideEffects, TimeoutSeconds: e.TimeoutSeconds,
		AdmissionReviewVersions: e.AdmissionReviewVersions, MatchConditions: e.MatchConditions, ReinvocationPolicy: &neverReinvoked,
	}
}

// entryOf converts a webhook, and reports whether it is an entry of a policy.
func entryOf(w *admissionregistrationv1.ValidatingWebhook) (*entry, bool) {
	policy, is := PolicyOf(w.Name)
	e := &entry{ValidatingWebhook: *w, policy: policy}
	return e.fixed(), is
}

// PolicyOf returns the policy of an entry of that name, and whether it is one.
func PolicyOf(entry string) (policy string, is bool) {
	for _, s := range suffixes {
		if policy, is := strings.CutSuffix(entry, s); is {
			return policy, true
		}
	}
	return entry, false
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

// newEntries returns the entries of a policy. If it matches all groups, Sallyport's own has an entry of its own, which stays closed when the
// gate is open.
func newEntries(
	p *Policy, targets []target, mutating bool, client admissionregistrationv1.WebhookClientConfig, home string,
) []*entry {
	all := entriesOnAny(p, targets, mutating, client, home)
	own := ofGroup(targets, v1alpha1.GroupName)
	if len(own) == 0 {
		return all
	}
	for _, e := range all {
		if e.Name != p.Name+suffixOnNamespaces {
			e.MatchConditions = append(e.MatchConditions, admissionregistrationv1.MatchCondition{Name: "is-not-about-sallyports-kinds", Expression: isNotOwn})
		}
	}
	e := newEntry(p, own, client, home)
	e.Name = p.Name + suffixOnOwn
	return append(all, e)
}

// entriesOnAny returns one entry, or two if the policy also matches Namespaces and is mutating or has a namespaceSelector.
// For a Namespace, the API server applies namespaceSelector to the new labels only, so a user could escape the policy by removing a label.
// The entry for Namespaces therefore has the policy's namespaceSelector as objectSelector, which is applied to the old and the new object.
// A mutating webhook needs its own entry without a namespaceSelector, because before the name is generated (generateName) a new Namespace
// can have any value of the name label.
func entriesOnAny(
	p *Policy, targets []target, mutating bool, client admissionregistrationv1.WebhookClientConfig, home string,
) (all []*entry) {
	others, own := split(targets)
	if len(own) == 0 || !mutating && len(requirementsOf(p.Match.NamespaceSelector)) == 0 {
		return []*entry{newEntry(p, targets, client, home)}
	}
	if others {
		e := newEntry(p, targets, client, home)
		e.MatchConditions = append(e.MatchConditions, admissionregistrationv1.MatchCondition{Name: "is-not-about-a-namespace", Expression: isNoNamespace})
		all = append(all, e)
	}
	e := newEntry(p, own, client, home)
	e.Name, e.NamespaceSelector = p.Name+suffixOnNamespaces, &metav1.LabelSelector{}
	e.ObjectSelector = selectorOf(append(requirementsOf(p.Match.NamespaceSelector), e.ObjectSelector.MatchExpressions...))
	e.MatchConditions = append(e.MatchConditions, admissionregistrationv1.MatchCondition{
		Name: notExcluded, Expression: `!(request.?name.orValue("") in ` + listed(excludedNamespaces(&p.Match, home)) + ")",
	})
	return append(all, e)
}

func newEntry(p *Policy, targets []target, client admissionregistrationv1.WebhookClientConfig, home string) *entry {
	e := &entry{policy: p.Name, ValidatingWebhook: admissionregistrationv1.ValidatingWebhook{
		Name: p.Name + suffix, ClientConfig: client, FailurePolicy: ptr.To(ignore), TimeoutSeconds: ptr.To(timeoutOf(p.Timeout)),
		NamespaceSelector: namespacesOf(&p.Match, home), ObjectSelector: selectorOf(requirementsOf(p.Match.ObjectSelector)),
		MatchConditions: annotated(p.Name, conditionsOf(&p.Match, targets)),
	}}
	if p.DeniesUnasked {
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
func namespacesOf(match *v1alpha1.PolicyMatch, home string) *metav1.LabelSelector {
	return selectorOf(append(requirementsOf(match.NamespaceSelector), metav1.LabelSelectorRequirement{
		Key: namespaceName, Operator: metav1.LabelSelectorOpNotIn, Values: sorted(excludedNamespaces(match, home)),
	}))
}

// excludedNamespaces returns the names of the namespaces that a policy does not match.
func excludedNamespaces(match *v1alpha1.PolicyMatch, home string) []string {
	return append([]string{systemNamespace, home}, match.ExcludeNamespaces...)
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
