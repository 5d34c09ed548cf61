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

// Served is what resources a cluster has.
type Served struct {
	resources map[schema.GroupResource]*served // subresources too, as deployments/scale
	groups    map[string]bool
	unknown   func(group string) bool // that does not say what it has
}

// served is one resource.
type served struct {
	versions []string
	verbs    []string // none: not known
	names    []string // other names: the kind, the singular, the short ones
}

// Resource is one that is known to be served. One with a slash in its plural is a subresource.
type Resource struct {
	schema.GroupVersion
	// Plural is its name, Names are others that people know it by, Verbs what can be done to it; none: not known.
	Plural       string
	Names, Verbs []string
}

// NewServed makes it of what is known. Of an unknown group everything is taken to be served.
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

// Discover asks the API server which resources there are. A group that does not answer is taken to have whatever is asked for.
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

// Lacking says what spec.match of a policy names that there is not, a line each, which begins with the field and names
// what may have been meant. Wildcards name nothing.
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

// mostGuessed is for how many resources that there are not it is guessed what was meant: each is compared with all that there are.
const mostGuessed = 16

// lacks says why there are no requests as an entry of spec.match.resources wants them, nothing if there can be. It may guess what was
// meant.
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
	case len(is.verbs) > 0 && unasked(group, resource, r.Operations) == "": // else it is refused with that
		can := slices.DeleteFunc(operationsOf(group, resource), func(o v1alpha1.MatchOperation) bool { return !is.can(o) })
		if slices.ContainsFunc(r.Operations, func(o v1alpha1.MatchOperation) bool { return slices.Contains(can, o) }) {
			return ""
		}
		return fmt.Sprintf("operation %s is not supported by %s; supported: %s", strings.Join(texts(r.Operations), " or "), name, cmp.Or(strings.Join(texts(can), ", "), "none of these"))
	}
	return ""
}

// verbs are those by which something is done, but for CONNECT, which each resource has others for.
var verbs = map[v1alpha1.MatchOperation][]string{
	v1alpha1.MatchCreate: {"create"}, v1alpha1.MatchUpdate: {"update", "patch"}, v1alpha1.MatchDelete: {"delete", "deletecollection"},
}

// can reports whether something can be done to a resource, as far as that is known.
func (r *served) can(o v1alpha1.MatchOperation) bool {
	return verbs[o] == nil || slices.ContainsFunc(verbs[o], func(verb string) bool { return slices.Contains(r.verbs, verb) })
}

// mostMeant is how many guesses are told.
const mostMeant = 3

// Meant guesses what was meant by a resource that there is not: one that is called so in another way, or written almost so, or that
// is in another group.
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

// near reports whether one group may be meant by another. One that the cluster does not have is most often not installed.
func (s *Served) near(written, group string) bool {
	return written == group || s.groups[written] || !strings.Contains(written, ".") || levenshtein.ComputeDistance(written, group) <= farthest(written)
}

// distance is 0 for each name of a resource.
func (r *served) distance(plural, written string) int {
	if strings.EqualFold(plural, written) || slices.ContainsFunc(r.names, func(n string) bool { return strings.EqualFold(n, written) }) {
		return 0
	}
	return levenshtein.ComputeDistance(plural, strings.ToLower(written))
}

// farthest is by how many letters a name may be misspelt.
func farthest(name string) int {
	if len(name) < 5 {
		return 1
	}
	return 2
}
