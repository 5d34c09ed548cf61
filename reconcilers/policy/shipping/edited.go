package shipping

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// Edited returns the fields of a policy's spec that users changed, added or removed, as users write them, in order.
// Fields that differ only because the release has not been applied yet are not included. The object must have its
// managedFields, which caches may drop.
func Edited(object, shipped *v1alpha1.RegoPolicy) []string {
	live, err := fieldsOfPolicy(object)
	if err != nil {
		return nil
	}
	u := &unstructured.Unstructured{Object: live.content}
	u.SetName(object.Name)
	u.SetManagedFields(object.ManagedFields)
	p, err := newPlan(u, shipped)
	if err != nil {
		return nil
	}
	return p.edited()
}

func (p *plan) edited() []string {
	var paths []string
	for path := range p.shipped.set.All() {
		if *path[0].FieldName == "spec" && !p.follows(path) {
			paths = append(paths, spelled(top(p.live.content, path)))
		}
	}
	for path := range p.live.set.All() {
		if _, shipped := find(p.shipped.content, path); *path[0].FieldName == "spec" && !shipped && !p.alone(path) {
			paths = append(paths, spelled(top(p.shipped.content, path)))
		}
	}
	slices.Sort(paths)
	var tops []string // each without its descendants
	for _, path := range paths {
		if !slices.ContainsFunc(tops, func(t string) bool {
			rest, is := strings.CutPrefix(path, t)
			return is && (rest == "" || rest[0] == '.' || rest[0] == '[')
		}) {
			tops = append(tops, path)
		}
	}
	return tops
}

// top returns the highest ancestor of a path that is empty or missing in the content, or else the path.
func top(content any, path fieldpath.Path) fieldpath.Path {
	for n := 1; n < len(path); n++ {
		if v, there := find(content, path[:n]); !there || nothingIn(v) {
			return path[:n]
		}
	}
	return path
}
