package pod_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/agent"
	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// The Pod of a machine has no labels by which a tool would prune it.
func TestLabelsThatAreNotCopied(t *testing.T) {
	r, api := newRuntime()
	r.Uncopied = runtime.DefaultUncopied()
	m := runtime.Machine{
		NamespacedName: types.NamespacedName{Namespace: "ns", Name: "web"}, UID: "uid",
		Labels: map[string]string{"app": "web", "app.kubernetes.io/instance": "fleet", "kapp.k14s.io/app": "1"},
		Spec:   &v1alpha1.VirtualMachineSpec{Runtime: v1alpha1.VirtualMachineRuntime{Pod: &v1alpha1.PodRuntime{}}},
	}
	if _, err := r.Ensure(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	var pods corev1.PodList
	if err := api.List(t.Context(), &pods); err != nil || len(pods.Items) != 1 {
		t.Fatalf("got %d Pods, %v", len(pods.Items), err)
	}
	if diff := cmp.Diff(map[string]string{"app": "web", agent.LabelMachine: "uid"}, pods.Items[0].Labels); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
