package runtime

import (
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

func TestQuiet(t *testing.T) {
	if !(Observation{Exists: true}).Quiet() {
		t.Error("a machine with nothing in flight is not quiet")
	}
	if (Observation{InFlight: []Task{{ID: "1", Kind: TaskOther}}}).Quiet() {
		t.Error("a machine with a task in flight is quiet")
	}
}
