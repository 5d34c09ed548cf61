package catalog

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// Matches are what a request must meet, each of them; the first has every resource that can be met. Requirements of a selector
// that cannot be used are left out, as they are for requests.
func (p *Policy) Matches() []v1alpha1.PolicyMatch {
	var all []v1alpha1.PolicyMatch
	for _, m := range p.match {
		if m.PolicyMatch == nil {
			continue
		}
		match := *m.PolicyMatch
		match.NamespaceSelector, match.ObjectSelector = asWritten(m.namespaces), asWritten(m.objects)
		all = append(all, match)
	}
	return all
}

// asWritten gives a selector as it is written.
func asWritten(s labels.Selector) *metav1.LabelSelector {
	if s == nil {
		return nil
	}
	written := &metav1.LabelSelector{}
	requirements, _ := s.Requirements()
	for _, r := range requirements {
		written.MatchExpressions = append(written.MatchExpressions, metav1.LabelSelectorRequirement{
			Key: r.Key(), Operator: operators[r.Operator()], Values: slices.Sorted(slices.Values(r.ValuesUnsorted())),
		})
	}
	return written
}

// operators are those that a LabelSelector is read into.
var operators = map[selection.Operator]metav1.LabelSelectorOperator{
	selection.In: metav1.LabelSelectorOpIn, selection.Equals: metav1.LabelSelectorOpIn, selection.NotIn: metav1.LabelSelectorOpNotIn,
	selection.Exists: metav1.LabelSelectorOpExists, selection.DoesNotExist: metav1.LabelSelectorOpDoesNotExist,
}

// RefusesUnasked tells whether there is a request that is to be refused if the policy cannot be asked about it.
func (p *Policy) RefusesUnasked() bool {
	mode := v1alpha1.ModeEnforce
	for _, r := range p.regimes {
		mode = looser(mode, r.strictest())
	}
	return mode == v1alpha1.ModeEnforce && p.OnError == v1alpha1.OnErrorDeny
}
