package shipping

import (
	"context"
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// Shipped reports whether Sallyport ships a policy: it has the label, or fields that we applied. The object must have
// its managedFields, which caches may drop.
func Shipped(object client.Object) bool {
	return object.GetLabels()[Label] == "true" || applied(object)
}

// applied reports whether we applied fields of the spec. A copy of a shipped policy has the label, but no such
// fields.
func applied(object client.Object) bool {
	o, err := ownersOf(object.GetManagedFields())
	if err != nil {
		return false
	}
	_, spec := below(o.ours, fieldpath.MakePathOrDie("spec"))
	return !spec.Empty()
}

// Retiring reports whether a policy that is no longer shipped was shipped by an earlier release. A copy of a shipped
// policy was not, although it has the label.
func Retiring(object client.Object) bool {
	return object.GetLabels()[Label] == "true" && applied(object)
}

// Untouched reports whether a policy is exactly as last shipped, and no other field manager owns a part of its spec.
func Untouched(live *unstructured.Unstructured) (bool, error) {
	f, err := fieldsOf(live.Object)
	if err != nil {
		return false, err
	}
	o, err := ownersOf(live.GetManagedFields())
	if err != nil {
		return false, err
	}
	last := lastShipped(live.GetAnnotations(), o.ours)
	if last == nil {
		return false, nil
	}
	spec := fieldpath.MakePathOrDie("spec")
	_, was := below(last, spec)
	_, is := below(f.set, spec)
	_, ours := below(o.ours, spec)
	_, others := below(o.others, spec)
	return was.Equals(is) && is.Equals(ours) && others.Empty(), nil
}

// Delete deletes a policy that is unchanged since it was read.
func Delete(ctx context.Context, c client.Client, live *unstructured.Unstructured) error {
	return c.Delete(ctx, live, client.Preconditions{UID: ptr.To(live.GetUID()), ResourceVersion: ptr.To(live.GetResourceVersion())})
}

// Disown removes Sallyport's label and field ownership from a policy that is unchanged since it was read. Its spec
// stays.
func Disown(ctx context.Context, c client.Client, live *unstructured.Unstructured) error {
	entries := live.GetManagedFields()
	kept := entries[:0:0]
	for i := range entries {
		if !ours(&entries[i]) {
			kept = append(kept, entries[i])
		}
	}
	labels, annotations := maps.Clone(live.GetLabels()), maps.Clone(live.GetAnnotations())
	delete(labels, Label)
	maps.DeleteFunc(annotations, func(key, _ string) bool { return key == ReleaseAnnotation || strings.HasPrefix(key, recordPrefix) })
	return patch(ctx, c, live, map[string]any{"managedFields": kept, "labels": labels, "annotations": annotations})
}
