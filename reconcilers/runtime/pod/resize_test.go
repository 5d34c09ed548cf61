package pod_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sallyport.dev/sallyport/reconcilers/runtime/pod"
	"sallyport.dev/sallyport/test/support/double/apiserver"
	"sallyport.dev/sallyport/test/support/nodeagent"
)

// A resize changes the requests of the container, and drops nothing that a newer Kubernetes has there, or in containers of others.
func TestResizeDropsNothing(t *testing.T) {
	api := newAPI()
	r, m, nodes := &pod.Runtime{Client: api, Live: api}, machine("web"), nodeagent.New(apiserver.ForNodes(api), "node-1")
	m.Spec.CPU = new(int32(1))
	_, err := r.Ensure(t.Context(), m)
	for range 2 { // a node takes it, and makes it
		err = errors.Join(err, nodes.Step(t.Context()))
	}
	there := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: pod.NameOf(m)}}
	if err := errors.Join(err, api.Get(t.Context(), client.ObjectKeyFromObject(there), there)); err != nil {
		t.Fatal(err)
	}
	name, version := there.Spec.Containers[0].Name, there.ResourceVersion
	stored := map[string]any{"spec": map[string]any{"containers": []any{
		map[string]any{"name": name, "newer": "a", "resources": map[string]any{"newer": "b", "requests": map[string]any{"cpu": "1"}}},
		map[string]any{"name": "of-others", "newer": "c"},
	}}}
	text, err := json.Marshal(stored)
	if err != nil {
		t.Fatal(err)
	}
	var resized []byte
	r.Client = interceptor.NewClient(api, interceptor.Funcs{SubResourcePatch: func(
		_ context.Context, _ client.Client, sub string, o client.Object, patch client.Patch, _ ...client.SubResourcePatchOption,
	) error {
		data, err := patch.Data(o)
		if sub != "resize" || patch.Type() != types.StrategicMergePatchType || err != nil {
			t.Errorf("a patch %s of %s, %v", patch.Type(), sub, err)
			return nil
		}
		resized, err = strategicpatch.StrategicMergePatch(text, data, corev1.Pod{})
		return err
	}})
	m.Spec.CPU = new(int32(2))
	if err := r.PowerOn(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(resized, &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"metadata": map[string]any{"resourceVersion": version}, "spec": map[string]any{"containers": []any{
		map[string]any{"name": name, "newer": "a", "resources": map[string]any{"newer": "b", "requests": map[string]any{"cpu": "2"}}},
		map[string]any{"name": "of-others", "newer": "c"},
	}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
