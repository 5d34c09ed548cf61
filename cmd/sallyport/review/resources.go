package review

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// Kind is the kind of a resource.
type Kind struct {
	Version, Kind string
	Namespaced    bool
}

// KindOf gives the kind of a resource: ours and Kubernetes' own are known, others are called as is usual. The error says that
// a group which is known has no such resource, and what may be meant.
func KindOf(resource schema.GroupResource) (Kind, error) {
	known, err := ourKinds()
	if err != nil {
		return Kind{}, err
	}
	for _, k := range known.known {
		if k.resource.GroupResource() == resource {
			return Kind{k.Version, k.Kind, k.namespaced}, nil
		}
	}
	if gvk := kubernetesKind(resource); !gvk.Empty() {
		return Kind{gvk.Version, gvk.Kind, !slices.Contains(clusterScoped, gvk.Kind)}, nil
	}
	if resource.Group == v1alpha1.GroupName || clientgoscheme.Scheme.IsGroupRegistered(resource.Group) {
		return Kind{}, fmt.Errorf("there is no such resource%s", meant(resource))
	}
	singular := strings.TrimSuffix(resource.Resource, "s")
	return Kind{"v1", strings.ToUpper(singular[:1]) + singular[1:], true}, nil
}

// kubernetesKind is the kind of a resource of Kubernetes, in the version that it prefers; empty if there is none.
func kubernetesKind(resource schema.GroupResource) schema.GroupVersionKind {
	for _, version := range clientgoscheme.Scheme.PrioritizedVersionsForGroup(resource.Group) {
		for name := range clientgoscheme.Scheme.KnownTypes(version) {
			gvk := version.WithKind(name)
			if plural, _ := meta.UnsafeGuessKindToResource(gvk); plural.GroupResource() == resource {
				return gvk
			}
		}
	}
	return schema.GroupVersionKind{}
}

// meant guesses at resources of the same name in other groups, and at the plural.
func meant(resource schema.GroupResource) string {
	var found []string
	for gvk := range clientgoscheme.Scheme.AllKnownTypes() {
		if gvk.Group == "extensions" { // what was in it has long moved to other groups
			continue
		}
		plural, singular := meta.UnsafeGuessKindToResource(gvk)
		name := plural.GroupResource().String()
		if (plural.Resource == resource.Resource || singular.Resource == resource.Resource) && !slices.Contains(found, name) {
			found = append(found, name)
		}
	}
	slices.Sort(found)
	if len(found) == 0 {
		return ""
	}
	return "; is it " + strings.Join(found, " or ") + "?"
}
