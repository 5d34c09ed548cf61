package shipping

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// Reset gives all fields of a policy back to the release: after it the spec is what is shipped, and nobody else's. The policy
// is made if there is none, and taken over if it is somebody's own. It needs the rights to get and patch it, and to create it
// if it is missing. (An empty list that somebody left stays, which the API server does not take for a field: it means the same
// as none.)
//
// The fields change hands first, in one request that leaves every value as it is; then the shipped content is applied, in one
// more. So the policy decides as it did until it decides as shipped. Between the two its release says "reset": whoever finds
// that finishes.
func Reset(ctx context.Context, c client.Client, shipped *v1alpha1.RegoPolicy) error {
	return retry.RetryOnConflict(patience, func() error { return reset(ctx, c, shipped) })
}

// patience is 20 attempts over 5 to 10 seconds. After an upgrade each replica writes the policy's status, and a write of ours conflicts with
// every one that comes while the webhook still tests it, which takes up to a second.
var patience = wait.Backoff{Duration: 250 * time.Millisecond, Factor: 1, Jitter: 1, Steps: 20}

func reset(ctx context.Context, c client.Client, shipped *v1alpha1.RegoPolicy) error {
	live := empty()
	err := c.Get(ctx, types.NamespacedName{Name: shipped.Name}, live)
	switch {
	case apierrors.IsNotFound(err):
		live = nil
	case err != nil:
		return fmt.Errorf("reading RegoPolicy %s: %w", shipped.Name, err)
	default:
		if err := takeOver(ctx, c, live); err != nil {
			return fmt.Errorf("taking over the fields of RegoPolicy %s: %w", shipped.Name, err)
		}
	}
	p, err := newPlan(live, shipped)
	if err != nil {
		return err
	}
	result := p.configuration(live, shipped.Name, p.shipped.set)
	err = c.Apply(ctx, client.ApplyConfigurationFromUnstructured(result), client.FieldOwner(FieldOwner), client.ForceOwnership)
	if err != nil {
		return fmt.Errorf("applying RegoPolicy %s: %w", shipped.Name, err)
	}
	return nil
}

func empty() *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
	return u
}

// ResetWanted reports whether a reset was asked for, or has begun.
func ResetWanted(object client.Object) bool {
	return object.GetAnnotations()[ReleaseAnnotation] == ResetAsked
}

// takeOver makes everything in the spec ours, without changing it, and marks the policy as being reset.
func takeOver(ctx context.Context, c client.Client, live *unstructured.Unstructured) error {
	f, err := fieldsOf(live.Object)
	if err != nil {
		return err
	}
	spec := fieldpath.MakePathOrDie("spec")
	_, parts := below(f.set, spec)
	mine := fieldpath.NewSet()
	for rest := range parts.All() {
		mine.Insert(slices.Concat(spec, rest))
	}
	for _, key := range bookkeeping(live) {
		mine.Insert(key)
	}
	entries, err := handOver(live.GetManagedFields(), mine)
	if err != nil {
		return err
	}
	annotations := maps.Clone(live.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[ReleaseAnnotation] = ResetAsked
	return patch(ctx, c, live, map[string]any{"managedFields": entries, "annotations": annotations})
}

// bookkeeping gives the paths of the labels and annotations of a policy that are ours to write.
func bookkeeping(live *unstructured.Unstructured) []fieldpath.Path {
	var paths []fieldpath.Path
	if _, ok := live.GetLabels()[Label]; ok {
		paths = append(paths, fieldpath.MakePathOrDie("metadata", "labels", Label))
	}
	for key := range live.GetAnnotations() {
		if strings.HasPrefix(key, recordPrefix) {
			paths = append(paths, fieldpath.MakePathOrDie("metadata", "annotations", key))
		}
	}
	return paths
}

// handOver makes fields ours alone. Fields of the spec that are not among them become nobody's.
func handOver(entries []metav1.ManagedFieldsEntry, mine *fieldpath.Set) ([]metav1.ManagedFieldsEntry, error) {
	now := metav1.Now()
	own := metav1.ManagedFieldsEntry{
		Manager: FieldOwner, Operation: metav1.ManagedFieldsOperationApply, APIVersion: v1alpha1.GroupVersion.String(),
		Time: &now, FieldsType: "FieldsV1",
	}
	var kept []metav1.ManagedFieldsEntry
	for i := range entries {
		e := entries[i]
		set, err := decode(&e)
		if err != nil {
			return nil, err
		}
		if ours(&e) {
			mine = mine.Union(withoutSpec(set)) // labels and annotations of the chart
			continue
		}
		if left := withoutSpec(set).Difference(mine); !left.Empty() {
			if e.FieldsV1, err = encode(left); err != nil {
				return nil, err
			}
			kept = append(kept, e)
		}
	}
	if mine.Empty() {
		return kept, nil
	}
	var err error
	own.FieldsV1, err = encode(mine)
	return append(kept, own), err
}

func encode(set *fieldpath.Set) (*metav1.FieldsV1, error) {
	raw, err := set.ToJSON()
	return metav1.NewFieldsV1(string(raw)), err
}

func withoutSpec(set *fieldpath.Set) *fieldpath.Set {
	return set.RecursiveDifference(fieldpath.NewSet(fieldpath.MakePathOrDie("spec")))
}

// patch changes parts of the metadata, if the object is still as it was.
func patch(ctx context.Context, c client.Client, live *unstructured.Unstructured, parts map[string]any) error {
	parts["resourceVersion"] = live.GetResourceVersion()
	var steps []map[string]any
	for name, part := range parts {
		steps = append(steps, map[string]any{"op": "add", "path": "/metadata/" + name, "value": part})
	}
	text, err := json.Marshal(steps)
	if err != nil {
		return err
	}
	return c.Patch(ctx, live, client.RawPatch(types.JSONPatchType, text), client.FieldOwner(FieldOwner))
}
