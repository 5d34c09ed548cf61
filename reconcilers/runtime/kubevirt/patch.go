package kubevirt

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// patchOf returns the merge patch, with its resourceVersion, that changes a KubeVirt VirtualMachine as was was changed to is. A merge patch
// replaces lists, and a newer KubeVirt can have fields that these types lack. The patch is therefore one of the object with all its fields.
func (r *Runtime) patchOf(ctx context.Context, was, is *virtv1.VirtualMachine) (client.Patch, error) {
	whole := &unstructured.Unstructured{}
	whole.SetGroupVersionKind(virtv1.VirtualMachineGroupVersionKind)
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(was), whole); err != nil {
		return nil, err
	}
	if whole.GetResourceVersion() != was.ResourceVersion {
		return nil, apierrors.NewConflict(virtv1.Resource(machines), was.Name, errors.New("it has changed since it was read"))
	}
	before, err := kruntime.DefaultUnstructuredConverter.ToUnstructured(was)
	after, failed := kruntime.DefaultUnstructuredConverter.ToUnstructured(is)
	if err := errors.Join(err, failed); err != nil {
		return nil, fmt.Errorf("encoding KubeVirt VirtualMachine %s: %w", was.Name, err)
	}
	changed := &unstructured.Unstructured{Object: carryFields(whole.Object, before, after)}
	data, err := client.MergeFromWithOptions(whole, client.MergeFromWithOptimisticLock{}).Data(changed)
	return client.RawPatch(types.MergePatchType, data), err
}

// carry returns whole with what differs between was and is. These are what the types know of it, before and after a change.
func carry(whole, was, is any) any {
	if equality.Semantic.DeepEqual(was, is) {
		return whole
	}
	switch is := is.(type) {
	case map[string]any:
		whole, _ := whole.(map[string]any)
		was, _ := was.(map[string]any)
		return carryFields(whole, was, is)
	case []any:
		whole, _ := whole.([]any)
		was, _ := was.([]any)
		return carryEntries(whole, was, is)
	}
	return is
}

func carryFields(whole, was, is map[string]any) map[string]any {
	all := map[string]any{}
	maps.Copy(all, whole)
	maps.DeleteFunc(all, func(key string, _ any) bool { return was[key] != nil && is[key] == nil })
	for key := range is {
		if value := carry(whole[key], was[key], is[key]); value != nil { // the types have empty fields that whole lacks
			all[key] = value
		}
	}
	return all
}

// carryEntries carries entries of the same name, and those that are the same.
func carryEntries(whole, was, is []any) (all []any) {
	was = slices.Clone(was)
	for _, entry := range is {
		name := nameIn(entry)
		i := slices.IndexFunc(was, func(e any) bool { return name != "" && nameIn(e) == name || equality.Semantic.DeepEqual(e, entry) })
		if i >= 0 && i < len(whole) {
			entry, was[i] = carry(whole[i], was[i], entry), nil
		}
		all = append(all, entry)
	}
	return all
}
