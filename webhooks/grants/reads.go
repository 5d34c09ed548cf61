package grants

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// Reads maps the resources that policies may read in addition to Sallyport's own kinds, named as in kubectl, to the names of the
// policies that may read them; an empty list means all policies.
type Reads map[string][]string

// ParseReads parses the chart's format: RESOURCE for all policies or RESOURCE=POLICY+POLICY for some, separated by commas.
func ParseReads(text string) (Reads, error) {
	reads := Reads{}
	for entry := range strings.SplitSeq(text, ",") {
		if entry == "" {
			continue
		}
		name, list, limited := strings.Cut(entry, "=")
		var policies []string
		if limited {
			policies = strings.Split(list, "+")
		}
		if name == "" || strings.Contains(name, "*") || slices.Contains(policies, "") {
			return nil, fmt.Errorf("invalid entry %q: must be RESOURCE or RESOURCE=POLICY+POLICY", entry)
		}
		if known, is := reads[name]; is && limited && len(known) > 0 {
			policies = append(known, policies...)
		} else if is {
			policies = nil // one of the entries allows all
		}
		reads[name] = policies
	}
	return reads, nil
}

// Allow reports whether a policy may read a resource.
func (r Reads) Allow(policy, group, resource string) bool {
	if group == v1alpha1.GroupName {
		return true
	}
	policies, granted := r[Named(group, resource)]
	return granted && (len(policies) == 0 || slices.Contains(policies, policy))
}

// String returns what ParseReads accepts.
func (r Reads) String() string {
	entries := make([]string, 0, len(r))
	for _, name := range slices.Sorted(maps.Keys(r)) {
		entry := name
		if policies := r[name]; len(policies) > 0 {
			entry += "=" + strings.Join(policies, "+")
		}
		entries = append(entries, entry)
	}
	return strings.Join(entries, ",")
}
