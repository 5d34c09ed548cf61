package runtime

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/v1alpha1"
)

func TestMachineOf(t *testing.T) {
	vm := &v1alpha1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "vm", UID: "uid"},
		Spec:       v1alpha1.VirtualMachineSpec{NodeName: "node"},
		Status:     v1alpha1.VirtualMachineStatus{InstanceID: "i"},
	}
	want := Machine{
		NamespacedName: types.NamespacedName{Namespace: "ns", Name: "vm"}, UID: "uid", InstanceID: "i",
		Spec: &v1alpha1.VirtualMachineSpec{NodeName: "node"},
	}
	if diff := cmp.Diff(want, MachineOf(vm)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// What is created for a machine has the labels of its user, and none that says something to Sallyport or to its policies.
func TestLabelsOfMachines(t *testing.T) {
	labels := map[string]string{
		"app": "web", "example.com/sallyport.dev": "a", "notsallyport.dev/a": "b", v1alpha1.LabelDeletionProtection: v1alpha1.DeletionProtectionEnabled,
		"agent.sallyport.dev/a": "b", v1alpha1.LabelPoolUID: "pool", v1alpha1.LabelPool: "ci", v1alpha1.LabelTemplateHash: "h",
	}
	own := map[string]string{"app": "web", "example.com/sallyport.dev": "a", "notsallyport.dev/a": "b"}
	member := map[string]string{"app": "web", "example.com/sallyport.dev": "a", "notsallyport.dev/a": "b", v1alpha1.LabelPoolUID: "pool", v1alpha1.LabelPool: "ci"}
	owner := func(kind string, uid types.UID) []metav1.OwnerReference {
		return []metav1.OwnerReference{{Kind: kind, UID: uid, Controller: new(true)}}
	}
	for what, tc := range map[string]struct {
		owners []metav1.OwnerReference
		want   map[string]string
	}{
		"of nobody":        {nil, own},
		"of its pool":      {owner("VirtualMachinePool", "pool"), member},
		"of another pool":  {owner("VirtualMachinePool", "other"), own},
		"of another owner": {owner("ConfigMap", "pool"), own},
	} {
		vm := &v1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Labels: labels, OwnerReferences: tc.owners}}
		if diff := cmp.Diff(tc.want, MachineOf(vm).Labels); diff != "" {
			t.Errorf("a machine %s (-want +got):\n%s", what, diff)
		}
		if len(vm.Labels) != len(labels) {
			t.Errorf("the labels of the VirtualMachine have changed: %v", vm.Labels)
		}
	}
}

// A tool would prune what has its label and is not in what it deploys.
func TestUncopiedLabels(t *testing.T) {
	labels := map[string]string{"app": "web", "app.kubernetes.io/name": "web", "kapp.k14s.io.example.com/app": "a"}
	given := maps.Clone(labels)
	for _, key := range []string{
		"app.kubernetes.io/instance", "app.kubernetes.io/managed-by", "argocd.argoproj.io/instance", "kapp.k14s.io/app", "objectset.rio.cattle.io/hash",
		"applyset.kubernetes.io/part-of", "helm.sh/chart", "kustomize.toolkit.fluxcd.io/name", "tanka.dev/environment", "velero.io/restore-name",
	} {
		given[key] = "a"
	}
	all := maps.Clone(given)
	if diff := cmp.Diff(labels, DefaultUncopied().Rest(given)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(all, Uncopied{"other", "app/*"}.Rest(given)); diff != "" {
		t.Errorf("others (-want +got):\n%s", diff)
	}
}

func TestQuiet(t *testing.T) {
	if !(Observation{Exists: true}).Quiet() {
		t.Error("a machine with nothing in flight is not quiet")
	}
	if (Observation{InFlight: []Task{{ID: "1", Kind: TaskOther}}}).Quiet() {
		t.Error("a machine with a task in flight is quiet")
	}
}
