package registration

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// unheard says what of spec.match no rule of a policy is asked about, and which of its rules are asked about nothing of it. A line
// begins with the field.
func (p *Policy) unheard(sides []*side) (lines []string) {
	speaking := slices.DeleteFunc(slices.Clone(sides), func(s *side) bool { return !s.speaks(p) })
	if len(p.Matches) == 0 || len(speaking) == 0 {
		return p.Unheard
	}
	heard := map[*side]bool{}
	for i := range p.Matches[0].Resources {
		r := &p.Matches[0].Resources[i]
		var never []string
		for _, o := range r.Operations {
			asks := false
			for _, s := range speaking {
				if slices.Contains(s.possible, operation(o)) {
					asks, heard[s] = true, true
				}
			}
			if !asks {
				never = append(never, string(o))
			}
		}
		if len(never) > 0 {
			lines = append(lines, fmt.Sprintf("%s: no rule of the policy is asked about %s: it has only %s; leave %[2]s out, or write deny or warn rules",
				matchPath.Child("resources").Index(i).Child("operations"), strings.Join(never, ", "), speaking[0].rules()))
		}
		lines = append(lines, p.unlabelled(i)...)
	}
	for _, s := range speaking {
		if !heard[s] && len(speaking) > 1 { // else it is told of each resource
			lines = append(lines, fmt.Sprintf("%s: the policy has %s, and no resource has one of these operations: add one, or leave the rules out",
				matchPath.Child("resources"), s.rules()))
		}
	}
	return append(lines, p.Unheard...)
}

// rules names those that are asked here, with what they are asked about.
func (s *side) rules() string {
	name := "deny and warn rules"
	if s.mutating {
		name = "patch rules"
	}
	return fmt.Sprintf("%s, which are asked about %s", name, strings.Join(texts(s.possible), " and "))
}

// unlabelled says which resources of an entry spec.match.objectSelector can never select: the API server looks at the labels of what
// is sent, and a Scale has none.
func (p *Policy) unlabelled(i int) (lines []string) {
	excludes := slices.ContainsFunc(p.Matches, func(m v1alpha1.PolicyMatch) bool {
		selector, err := metav1.LabelSelectorAsSelector(m.ObjectSelector)
		return m.ObjectSelector != nil && err == nil && !selector.Matches(labels.Set{})
	})
	r := &p.Matches[0].Resources[i]
	for j, resource := range r.Resources {
		if excludes && strings.HasSuffix(resource, "/scale") && !strings.HasPrefix(resource, all) {
			lines = append(lines, fmt.Sprintf("%s: a Scale has no labels, so spec.match.objectSelector never matches: match %s in a policy without objectSelector",
				matchPath.Child("resources").Index(i).Child("resources").Index(j), resource))
		}
	}
	return lines
}
