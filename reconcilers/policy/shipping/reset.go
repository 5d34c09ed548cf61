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

// Reset sets all fields of a policy to the shipped content: afterwards only Sallyport owns fields of the spec. It
// creates a missing policy, and takes over one of a user. It needs the rights to get, patch and, if the policy is
// missing, create it. (An empty list set by a user stays, because the API server does not track it as a field; it means
// the same as none.)
//
// First one request changes the owner of all fields without changing their values, then a second one applies the
// shipped content. So requests are decided by the earlier content until the shipped content applies. In between, the
// release annotation is "reset", and a replica that finds it completes the reset.
func Reset(ctx context.Context, c client.Client, shipped *v1alpha1.RegoPolicy) error {
	return retry.RetryOnConflict(patience, func() error { return reset(ctx, c, shipped) })
}

// Complete resets a policy if that is still wanted, and reports whether it is: who asked may have completed it since, and the policy may have been
// edited after that.
func Complete(ctx context.Context, c client.Client, shipped *v1alpha1.RegoPolicy) (wanted bool, err error) {
	err = retry.RetryOnConflict(patience, func() error {
		live := empty()
		if err := c.Get(ctx, types.NamespacedName{Name: shipped.Name}, live); err != nil {
			return client.IgnoreNotFound(err)
		}
		if wanted = ResetWanted(live); !wanted {
			return nil
		}
		return resetLive(ctx, c, live, shipped)
	})
	return wanted, err
}

// patience allows 20 attempts over 5 to 10 seconds. After an upgrade each replica writes the policy's status, and our
// write conflicts with every such write that arrives while the webhook still tests it, which takes up to a second.
var patience = wait.Backoff{Duration: 250 * time.Millisecond, Factor: 1, Jitter: 1, Steps: 20}

func reset(ctx context.Context, c client.Client, shipped *v1alpha1.RegoPolicy) error {
	live := empty()
	err := c.Get(ctx, types.NamespacedName{Name: shipped.Name}, live)
	switch {
	case apierrors.IsNotFound(err):
		live = nil
	case err != nil:
		return fmt.Errorf("reading RegoPolicy %s: %w", shipped.Name, err)
	}
	return resetLive(ctx, c, live, shipped)
}

// resetLive resets a policy as it was read; nil creates it.
func resetLive(ctx context.Context, c client.Client, live *unstructured.Unstructured, shipped *v1alpha1.RegoPolicy) error {
	if live != nil {
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

// ResetWanted reports whether a reset was requested or has begun.
func ResetWanted(object client.Object) bool {
	return object.GetAnnotations()[ReleaseAnnotation] == ResetAsked
}

// takeOver makes us the owner of the whole spec without changing it, and marks the policy as being reset.
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

// bookkeeping returns the paths of our labels and annotations of a policy.
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

// handOver makes us the only owner of fields. Other fields of the spec lose their owner.
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

// patch changes parts of the metadata with the object's resourceVersion.
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
