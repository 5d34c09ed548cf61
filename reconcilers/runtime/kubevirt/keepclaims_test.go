package kubevirt_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/kubevirt"
)

// ownedBy returns a claim that KubeVirt has restored in place for a machine.
func ownedBy(name string, labels map[string]string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: labels, OwnerReferences: []metav1.OwnerReference{
		{APIVersion: virtv1.GroupVersion.String(), Kind: "VirtualMachine", Name: "web", UID: "vm-uid"},
	}}}
}

// The claims that a created machine names outlive it, also when KubeVirt has made the machine their owner.
func TestClaimsOutliveTheMachine(t *testing.T) {
	vm := withVolumes("web", volumeOf("root", "root", false))
	vm.Labels = map[string]string{kubevirt.LabelMachine: "uid-web"}
	vm.Spec.RunStrategy = new(virtv1.RunStrategyManual)
	r, _ := withDisks(t, nil, vm, ownedBy("root", nil))
	m := runtime.Machine{NamespacedName: types.NamespacedName{Namespace: "ns", Name: "web"}, UID: "uid-web", Spec: &v1alpha1.VirtualMachineSpec{
		Runtime: v1alpha1.VirtualMachineRuntime{KubeVirt: &v1alpha1.KubeVirtRuntime{Create: &v1alpha1.KubeVirtMachine{}}},
	}}
	if err := r.Delete(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	c := &corev1.PersistentVolumeClaim{}
	if err := r.Live.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "root"}, c); err != nil || len(c.OwnerReferences) > 0 {
		t.Errorf("the owners of the claim are %+v, %v", c.OwnerReferences, err)
	}
}

// A claim of an earlier VirtualDisk is taken over when it has to change beyond that, too: it is KubeVirt's, or too small.
func TestTakeOverOfAClaimThatChanges(t *testing.T) {
	labels := map[string]string{"sallyport.dev/virtual-disk-uid": "former"}
	small := ownedBy("data-former", labels)
	small.OwnerReferences = nil
	for what, claim := range map[string]*corev1.PersistentVolumeClaim{"owned by KubeVirt": ownedBy("data-former", labels), "too small": small} {
		r, _ := withDisks(t, nil, claim)
		id, err := r.EnsureDisk(t.Context(), runtime.Disk{
			NamespacedName: types.NamespacedName{Namespace: "ns", Name: "data"}, UID: "uid-data", Earlier: runtime.TakeOver,
			Spec: &v1alpha1.VirtualDiskSpec{Size: resource.MustParse("1Gi"), Runtime: v1alpha1.VirtualDiskRuntime{KubeVirt: &v1alpha1.VolumeDisk{}}},
		})
		if err != nil || id != "data-former" {
			t.Errorf("%s: %q, %v", what, id, err)
		}
	}
}
