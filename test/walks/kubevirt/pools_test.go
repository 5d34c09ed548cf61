//go:build kubevirt

package kubevirt

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// shrunk is the scale-down of a pool of KubeVirt with a protected member, in the way that docs/kubevirt-guards.md describes: the pool
// removes the member that the user selects, and creates no other.
func (s *site) shrunk(namespace string) {
	ctx := context.WithoutCancel(s.Context())
	pool := s.pool(namespace, 3)
	names := s.members(pool, 3)
	change := func(o client.Object, patch string, opts ...client.PatchOption) error {
		return s.Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(patch)), opts...)
	}
	member := func(name string) *virtv1.VirtualMachine {
		return &virtv1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	}
	s.Must(change(member(names[0]), `{"metadata": {"labels": {"`+v1alpha1.LabelDeletionProtection+`": "enabled"}}}`))

	s.denied("kubevirt-pools/MembersProtected", func() error { return change(pool, `{"spec": {"replicas": 2}}`, client.DryRunAll) })
	scale := client.RawPatch(types.MergePatchType, []byte(`{"spec": {"replicas": 2}}`))
	s.denied("kubevirt-pools/MembersProtected", func() error { return s.SubResource("scale").Patch(ctx, pool, scale, client.DryRunAll) })
	s.denied("kubevirt-pools/SelectorsTooNarrow", func() error {
		return change(pool, `{"spec": {"replicas": 2, "scaleInStrategy": {"proactive": {"selectionPolicy": {"selectors": {"labelSelector": {"matchLabels": {"no": "such"}}}}}}}}`, client.DryRunAll)
	})
	s.Must(change(pool, `{"spec": {"replicas": 2, "scaleInStrategy": {"opportunistic": {}, "proactive": null, "unmanaged": null}}}`))
	gone := member(names[1])
	s.Must(change(gone, `{"metadata": {"finalizers": null, "ownerReferences": null}}`))
	s.Must(s.Delete(ctx, gone))
	s.gone(gone)
	if got, want := s.members(pool, 2), []string{names[0], names[2]}; !slices.Equal(got, want) {
		s.Errorf("the members are %q, want %q", got, want)
	}
}

// pool creates a pool of machines that are off.
func (s *site) pool(namespace string, replicas int64) *unstructured.Unstructured {
	s.Helper()
	template, err := kruntime.DefaultUnstructuredConverter.ToUnstructured(&foreignVM(namespace, "").Spec)
	s.Must(err)
	labels := map[string]any{"pool": "ci"}
	pool := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"replicas": replicas, "selector": map[string]any{"matchLabels": labels},
		"virtualMachineTemplate": map[string]any{"metadata": map[string]any{"labels": labels}, "spec": template},
	}}}
	pool.SetAPIVersion("pool.kubevirt.io/v1beta1")
	pool.SetKind("VirtualMachinePool")
	pool.SetNamespace(namespace)
	pool.SetName("ci")
	s.Must(s.Create(s.Context(), pool))
	return pool
}

// members waits until a pool shows that it has as many members, and returns their names.
func (s *site) members(pool *unstructured.Unstructured, count int) (names []string) {
	s.Helper()
	s.Until(fmt.Sprintf("the pool has %d members", count), func() (string, bool) {
		list := &virtv1.VirtualMachineList{}
		s.Must(s.List(s.Context(), list, client.InNamespace(pool.GetNamespace()), client.MatchingLabels{"pool": "ci"}))
		names = nil
		for i := range list.Items {
			if metav1.IsControlledBy(&list.Items[i], pool) {
				names = append(names, list.Items[i].Name)
			}
		}
		s.Must(s.Get(s.Context(), client.ObjectKeyFromObject(pool), pool))
		shown, _, _ := unstructured.NestedInt64(pool.Object, "status", "replicas")
		return fmt.Sprintf("%q, and status.replicas is %d", names, shown), len(names) == count && shown == int64(count)
	})
	slices.Sort(names)
	return names
}
