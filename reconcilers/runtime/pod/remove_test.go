package pod_test

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"sallyport.dev/sallyport/reconcilers/runtime/pod"
	"sallyport.dev/sallyport/test/support/double/apiserver"
	"sallyport.dev/sallyport/test/support/nodeagent"
)

// A Pod that was changed since it was looked at is not deleted: its agent may have powered the machine on.
func TestOnlyWhatWasSeenIsDeleted(t *testing.T) {
	api := fake.NewClientBuilder().Build()
	var reads, writes fault
	nodes, m := nodeagent.New(apiserver.ForNodes(api), "node-1"), machine("off")
	r := &pod.Runtime{Client: faulty(api, &reads, &writes, func() {}), Live: api}
	if _, err := r.Ensure(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	for range 2 { // a node takes it, and makes it
		if err := nodes.Step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if seen, err := r.Observe(t.Context(), m); err != nil || !seen.Exists {
		t.Fatalf("%+v, %v", seen, err)
	}
	there := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: pod.NameOf(m)}}
	writes.set(func(ctx context.Context, request func() error) error {
		before := there.DeepCopy()
		metav1.SetMetaDataAnnotation(&there.ObjectMeta, "example.com/changed", "meanwhile")
		if err := api.Patch(ctx, there, client.MergeFrom(before)); err != nil {
			t.Error(err)
		}
		return request()
	})
	if err := r.Delete(t.Context(), m); err == nil {
		t.Error("the Pod is deleted, and nobody has seen what became of it")
	}
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(there), there); err != nil || !there.DeletionTimestamp.IsZero() {
		t.Errorf("the Pod is deleted: %v", err)
	}
	if err := r.Delete(t.Context(), m); err != nil {
		t.Errorf("deleting it as it is: %v", err)
	}
}
