package offline

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Parse reads what stands in a file.
var Parse = parse

// Stored is an object of the world; nil if it is not there.
func (r *Reviewer) Stored(kind schema.GroupKind, namespace, name string) *unstructured.Unstructured {
	return r.world.get(identity{kind, namespace, name})
}
