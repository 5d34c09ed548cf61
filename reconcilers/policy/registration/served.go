package registration

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
)

// Served is what resources a cluster has.
type Served struct {
	resources map[schema.GroupResource]bool // subresources too, as deployments/scale
	unknown   map[string]bool               // groups that do not say what they have
}

// Discover asks the API server which resources there are. A group that does not answer is taken to have whatever is asked for.
func Discover(api discovery.ServerResourcesInterface) (*Served, error) {
	_, lists, err := api.ServerGroupsAndResources()
	s := &Served{resources: map[schema.GroupResource]bool{}, unknown: map[string]bool{}}
	var partly *discovery.ErrGroupDiscoveryFailed
	switch {
	case errors.As(err, &partly):
		for version := range partly.Groups {
			s.unknown[version.Group] = true
		}
	case err != nil:
		return nil, fmt.Errorf("asking which resources the cluster has: %w", err)
	}
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, fmt.Errorf("asking which resources the cluster has: %w", err)
		}
		s.add(version.Group, list.APIResources)
	}
	return s, nil
}

func (s *Served) add(group string, resources []metav1.APIResource) {
	for i := range resources {
		s.resources[schema.GroupResource{Group: group, Resource: resources[i].Name}] = true
	}
}

// lacking says what a policy names that the cluster does not have. Wildcards name nothing.
func (s *Served) lacking(p *Policy) (lacking []string) {
	if s == nil || len(p.Matches) == 0 {
		return nil
	}
	for i := range p.Matches[0].Resources {
		r := &p.Matches[0].Resources[i]
		for j, resource := range r.Resources {
			for _, group := range r.APIGroups {
				named := group != all && !strings.Contains(resource, all)
				if named && !s.unknown[group] && !s.resources[schema.GroupResource{Group: group, Resource: resource}] {
					lacking = append(lacking, fmt.Sprintf("spec.match.resources[%d].resources[%d], %s", i, j, called(group, resource)))
				}
			}
		}
	}
	return slices.Compact(lacking)
}
