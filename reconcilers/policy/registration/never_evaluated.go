package registration

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// neverEvaluated returns which operations of spec.match no rule of the policy handles, and which of its rules handle none of them, one line
// each, which begins with the field.
func (p *Policy) neverEvaluated(sides []*side) (lines []string) {
	applicable := slices.DeleteFunc(slices.Clone(sides), func(s *side) bool { return !s.applies(p) })
	if len(p.Match.Resources) == 0 || len(applicable) == 0 {
		return p.NeverEvaluated
	}
	used := map[*side]bool{}
	for i := range p.Match.Resources {
		r := &p.Match.Resources[i]
		var never []string
		for _, o := range r.Operations {
			asks := false
			for _, s := range applicable {
				if slices.Contains(s.possible, operation(o)) {
					asks, used[s] = true, true
				}
			}
			if !asks {
				never = append(never, string(o))
			}
		}
		if len(never) > 0 {
			lines = append(lines, fmt.Sprintf("%s: no rule of the policy is asked about %s: it has only %s; leave %[2]s out, or write deny or warn rules",
				matchPath.Child("resources").Index(i).Child("operations"), strings.Join(never, ", "), applicable[len(applicable)-1].rules()))
		}
		lines = append(lines, p.unlabelled(i)...)
	}
	for _, s := range applicable {
		if !used[s] && len(applicable) > 1 { // with one side, the lines of the resources say it
			lines = append(lines, fmt.Sprintf("%s: the policy has %s, and no resource has one of these operations: add one, or leave the rules out",
				matchPath.Child("resources"), s.rules()))
		}
	}
	return append(lines, p.NeverEvaluated...)
}

func (s *side) rules() string {
	name := "deny and warn rules"
	if s.mutating {
		name = "patch rules"
	}
	return fmt.Sprintf("%s, which are asked about %s", name, strings.Join(texts(s.possible), " and "))
}

// unlabelled returns which resources spec.match.objectSelector can never select: the API server applies it to the object in the request,
// and a Scale has no labels.
func (p *Policy) unlabelled(i int) (lines []string) {
	selector, err := metav1.LabelSelectorAsSelector(p.Match.ObjectSelector)
	excludes := p.Match.ObjectSelector != nil && err == nil && !selector.Matches(labels.Set{})
	r := &p.Match.Resources[i]
	for j, resource := range r.Resources {
		if excludes && strings.HasSuffix(resource, "/scale") && !strings.HasPrefix(resource, all) {
			lines = append(lines, fmt.Sprintf("%s: a Scale has no labels, so spec.match.objectSelector never matches: match %s in a policy without objectSelector",
				matchPath.Child("resources").Index(i).Child("resources").Index(j), resource))
		}
	}
	return lines
}
