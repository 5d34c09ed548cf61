package registration

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// Served has the resources that a cluster serves.
type Served struct {
	resources map[schema.GroupResource]*served // with subresources, such as deployments/scale
	groups    map[string]bool
	unknown   func(group string) bool // reports groups whose resources are unknown
}

type served struct {
	versions []string
	verbs    []string // empty if unknown
	names    []string // other names: the kind, the singular, the short ones
}

// Resource is a served resource, or a subresource if Plural has a slash.
type Resource struct {
	schema.GroupVersion
	// Plural is its name. Names are the kind, the singular and the short names. Verbs are empty if unknown.
	Plural       string
	Names, Verbs []string
}

// NewServed returns the Served of known resources. Every resource of an unknown group counts as served.
func NewServed(resources []Resource, unknown func(group string) bool) *Served {
	s := &Served{resources: map[schema.GroupResource]*served{}, groups: map[string]bool{}, unknown: unknown}
	for _, r := range resources {
		key := schema.GroupResource{Group: r.Group, Resource: r.Plural}
		if s.resources[key] == nil {
			s.resources[key] = &served{}
		}
		is := s.resources[key]
		is.versions, is.verbs, is.names = append(is.versions, r.Version), append(is.verbs, r.Verbs...), append(is.names, r.Names...)
		s.groups[r.Group] = true
	}
	return s
}

// Discover reads the resources from the API server. The groups whose discovery fails are unknown.
func Discover(api discovery.ServerResourcesInterface) (*Served, error) {
	_, lists, err := api.ServerGroupsAndResources()
	silent := map[string]bool{}
	var partly *discovery.ErrGroupDiscoveryFailed
	switch {
	case errors.As(err, &partly):
		for version := range partly.Groups {
			silent[version.Group] = true
		}
	case err != nil:
		return nil, fmt.Errorf("asking which resources the cluster has: %w", err)
	}
	var all []Resource
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, fmt.Errorf("asking which resources the cluster has: %w", err)
		}
		for i := range list.APIResources {
			r := &list.APIResources[i]
			all = append(all, Resource{version, r.Name, append([]string{r.Kind, r.SingularName}, r.ShortNames...), r.Verbs})
		}
	}
	return NewServed(all, func(group string) bool { return silent[group] }), nil
}

// Lacking returns which resources, versions and operations of spec.match are not served, one line each, which begins with the field and
// may suggest similar names. Wildcards are skipped.
func (s *Served) Lacking(match *v1alpha1.PolicyMatch) (lacking []string) {
	if s == nil || match == nil {
		return nil
	}
	for i := range match.Resources {
		r := &match.Resources[i]
		for j, resource := range r.Resources {
			for _, group := range r.APIGroups {
				if group == all || strings.Contains(resource, all) || s.unknown(group) {
					continue
				}
				if why := s.lacks(group, resource, r, len(lacking) < mostGuessed); why != "" {
					lacking = append(lacking, fmt.Sprintf("spec.match.resources[%d].resources[%d]: %s", i, j, why))
				}
			}
		}
	}
	return lacking
}

// mostGuessed limits the suggestions of one policy, since each compares a name with all resources.
const mostGuessed = 16

// lacks returns why an entry of spec.match.resources can match no request for a resource, "" if it can. With guess it suggests names.
func (s *Served) lacks(group, resource string, r *v1alpha1.PolicyResources, guess bool) string {
	is := s.resources[schema.GroupResource{Group: group, Resource: resource}]
	name := called(group, resource)
	switch {
	case is == nil:
		why := fmt.Sprintf("there is no %s", name)
		if !guess {
			return why
		}
		if meant := s.Meant(group, resource); len(meant) > 0 {
			why += fmt.Sprintf("; did you mean %s?", strings.Join(meant, " or "))
		}
		return why
	case !slices.Contains(r.APIVersions, all) && !slices.ContainsFunc(r.APIVersions, func(v string) bool { return slices.Contains(is.versions, v) }):
		return fmt.Sprintf("version %s of %s is not served; served: %s", strings.Join(r.APIVersions, ", "), name, strings.Join(unique(is.versions), ", "))
	case len(is.verbs) > 0 && unasked(group, resource, r.Operations) == "": // targets reports the other case
		can := slices.DeleteFunc(operationsOf(group, resource), func(o v1alpha1.MatchOperation) bool { return !is.can(o) })
		if slices.ContainsFunc(r.Operations, func(o v1alpha1.MatchOperation) bool { return slices.Contains(can, o) }) {
			return ""
		}
		return fmt.Sprintf("operation %s is not supported by %s; supported: %s", strings.Join(texts(r.Operations), " or "), name, cmp.Or(strings.Join(texts(can), ", "), "none of these"))
	}
	return ""
}

// verbs has the verbs of each operation. CONNECT is missing, because its verbs differ between resources.
var verbs = map[v1alpha1.MatchOperation][]string{
	v1alpha1.MatchCreate: {"create"}, v1alpha1.MatchUpdate: {"update", "patch"}, v1alpha1.MatchDelete: {"delete", "deletecollection"},
}

// can reports whether a resource supports an operation. It is true if that is unknown.
func (r *served) can(o v1alpha1.MatchOperation) bool {
	return verbs[o] == nil || slices.ContainsFunc(verbs[o], func(verb string) bool { return slices.Contains(r.verbs, verb) })
}

// mostMeant limits the suggestions for one name.
const mostMeant = 3

// Meant suggests resources for a name that is not served: with that name as kind or short name, with a similar spelling, or in another
// group.
func (s *Served) Meant(group, resource string) (names []string) {
	name, part, _ := strings.Cut(resource, "/")
	nearest := 2*farthest(name) + 1
	for key, is := range s.resources {
		plural, sub, _ := strings.Cut(key.Resource, "/")
		if (sub == "") != (part == "") || !s.near(group, key.Group) {
			continue
		}
		distance := 2 * (is.distance(plural, name) + levenshtein.ComputeDistance(part, sub))
		if key.Group != group {
			distance++
		}
		switch {
		case distance > nearest:
			continue
		case distance < nearest:
			names = nil
		}
		nearest, names = distance, append(names, called(key.Group, key.Resource))
	}
	slices.Sort(names)
	return names[:min(len(names), mostMeant)]
}

// near reports whether written may stand for group. A group that the cluster lacks is more often not installed than misspelt.
func (s *Served) near(written, group string) bool {
	return written == group || s.groups[written] || !strings.Contains(written, ".") || levenshtein.ComputeDistance(written, group) <= farthest(written)
}

// distance returns the edit distance to the plural, and 0 for any name of the resource.
func (r *served) distance(plural, written string) int {
	if strings.EqualFold(plural, written) || slices.ContainsFunc(r.names, func(n string) bool { return strings.EqualFold(n, written) }) {
		return 0
	}
	return levenshtein.ComputeDistance(plural, strings.ToLower(written))
}

// farthest returns the largest edit distance at which a name is suggested.
func farthest(name string) int {
	if len(name) < 5 {
		return 1
	}
	return 2
}
