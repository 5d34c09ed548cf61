package pod_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/pod"
	"sallyport.dev/sallyport/test/support/double/apiserver"
	"sallyport.dev/sallyport/test/support/nodeagent"
)

// made returns a machine that a node has made, off, and its Pod.
func made(t *testing.T, cpu *int32) (client.WithWatch, *pod.Runtime, runtime.Machine, *corev1.Pod) {
	t.Helper()
	api := newAPI()
	r, m, nodes := &pod.Runtime{Client: api, Live: api}, machine("web"), nodeagent.New(apiserver.ForNodes(api), "node-1")
	m.Spec.CPU = cpu
	_, err := r.Ensure(t.Context(), m)
	for range 2 { // a node takes it, and makes it
		err = errors.Join(err, nodes.Step(t.Context()))
	}
	there := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: pod.NameOf(m)}}
	if err := errors.Join(err, api.Get(t.Context(), client.ObjectKeyFromObject(there), there)); err != nil {
		t.Fatal(err)
	}
	return api, r, m, there
}

// A resize changes the requests of the container, and drops nothing that a newer Kubernetes has there, or in containers of others.
func TestResizeDropsNothing(t *testing.T) {
	api, r, m, there := made(t, new(int32(1)))
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

// Only what the spec sets changes. Limits, such as those of a LimitRange, follow where a request would exceed them, or was equal to them.
func TestResizeFollows(t *testing.T) {
	for name, tc := range map[string]struct {
		cpu        *int32
		memory     string
		has, wants corev1.ResourceRequirements
	}{
		"a size for a Pod without one": {new(int32(2)), "4Gi", sized("1m", ""), sized("2", "4Gi")},
		"what is no longer set stays":  {nil, "4Gi", sized("2", "2Gi"), sized("2", "4Gi")},
		"a lower limit":                {new(int32(2)), "", limited(sized("100m", "128Mi"), "500m", "512Mi"), limited(sized("2", "128Mi"), "2", "512Mi")},
		"a higher limit":               {new(int32(2)), "", limited(sized("1", "1Gi"), "8", "16Gi"), limited(sized("2", "1Gi"), "8", "16Gi")},
		"limits that are the requests": {new(int32(1)), "1Gi", limited(sized("2", "2Gi"), "2", "2Gi"), limited(sized("1", "1Gi"), "1", "1Gi")},
	} {
		t.Run(name, func(t *testing.T) {
			api, r, m, there := made(t, nil)
			sidecar := corev1.Container{Name: "sidecar", Image: "x"} // which a webhook may have put first
			there.Spec.Containers[0].Resources = tc.has
			there.Spec.Containers = []corev1.Container{sidecar, there.Spec.Containers[0]}
			if err := api.Update(t.Context(), there); err != nil {
				t.Fatal(err)
			}
			var resized *corev1.Pod
			r.Client = interceptor.NewClient(api, interceptor.Funcs{SubResourcePatch: func(
				_ context.Context, _ client.Client, _ string, o client.Object, _ client.Patch, _ ...client.SubResourcePatchOption,
			) error {
				resized = o.(*corev1.Pod)
				return nil
			}})
			if m.Spec.CPU = tc.cpu; tc.memory != "" {
				m.Spec.Memory = new(resource.MustParse(tc.memory))
			}
			if err := r.PowerOn(t.Context(), m); err != nil || resized == nil {
				t.Fatal(err, resized)
			}
			want := []corev1.Container{sidecar, resized.Spec.Containers[1]}
			want[1].Resources = tc.wants
			if !equality.Semantic.DeepEqual(want, resized.Spec.Containers) {
				t.Errorf("(-want +got):\n%s", cmp.Diff(want, resized.Spec.Containers))
			}
		})
	}
}

func sized(cpu, memory string) (r corev1.ResourceRequirements) {
	r.Requests = list(cpu, memory)
	return r
}

func limited(r corev1.ResourceRequirements, cpu, memory string) corev1.ResourceRequirements {
	r.Limits = list(cpu, memory)
	return r
}

func list(cpu, memory string) corev1.ResourceList {
	all := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
	if memory != "" {
		all[corev1.ResourceMemory] = resource.MustParse(memory)
	}
	return all
}

// A Pod that was made without requests, as by an earlier release, cannot be given a size.
func TestResizeOfBestEffort(t *testing.T) {
	api, r, m, there := made(t, nil)
	there.Status.QOSClass = corev1.PodQOSBestEffort
	if err := api.Status().Update(t.Context(), there); err != nil {
		t.Fatal(err)
	}
	m.Spec.CPU = new(int32(2))
	if err := r.PowerOn(t.Context(), m); !runtime.IsInvalidSpec(err) || !strings.Contains(err.Error(), "was created without a size") {
		t.Errorf("got error %v", err)
	}
}
