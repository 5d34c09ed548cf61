package plugin

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
)

func TestWhyAnImage(t *testing.T) {
	w := newWorld(t)
	namespace := w.namespace()
	w.make(&v1alpha1.VMDiskImage{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "ubuntu"}, Spec: v1alpha1.VMDiskImageSpec{
		URL: "https://images.example.org/ubuntu.qcow2", SourceType: v1alpha1.VMDiskImageHTTP, DiskSize: resource.MustParse("1Gi"),
		AllowedNamespaces: v1alpha1.VMDiskImageNamespaces{From: v1alpha1.VMDiskImageFromAll},
	}})
	disk := func(name, image, of string) *v1alpha1.VirtualDisk {
		return &v1alpha1.VirtualDisk{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Spec: v1alpha1.VirtualDiskSpec{
				Size: resource.MustParse("1Gi"), Runtime: v1alpha1.VirtualDiskRuntime{Pod: &v1alpha1.VolumeDisk{}},
				Source: &v1alpha1.VirtualDiskSource{Image: v1alpha1.VMDiskImageReference{Name: image, Namespace: of}},
			},
		}
	}
	uses := disk("e", "ubuntu", "")
	machine := func(name, image string) *v1alpha1.VirtualMachine {
		return &v1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: v1alpha1.VirtualMachineSpec{
			DiskImage: &v1alpha1.MachineDiskImage{Ref: v1alpha1.VMDiskImageReference{Name: image}}, Runtime: v1alpha1.VirtualMachineRuntime{Pod: &v1alpha1.PodRuntime{}},
		}}
	}
	waits, other, has := machine("web", "ubuntu"), machine("db", "debian"), machine("old", "ubuntu")
	w.make(waits, other, has)
	for _, vm := range []*v1alpha1.VirtualMachine{waits, other} {
		vm.Status.Phase = v1alpha1.VirtualMachineWaitingForImage
		w.Must(w.Status().Update(t.Context(), vm))
	}
	boot := disk("web-boot", "ubuntu", "")
	boot.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(waits, v1alpha1.GroupVersion.WithKind("VirtualMachine"))}
	w.make(
		uses, boot, disk("a", "ubuntu", ""), disk("b", "ubuntu", namespace), disk("c", "debian", ""), disk("d", "ubuntu", "elsewhere"),
	)
	uses.Status.Image = &v1alpha1.UsedDiskImage{Namespace: namespace, Name: "ubuntu", UID: "u"}
	w.Must(w.Status().Update(t.Context(), uses))
	shows(t, w.plugin("why vmdi ubuntu -n "+namespace, 0).stdout, "VMDiskImage ubuntu in namespace "+namespace,
		"Waiting for: +reconciliation of the latest change", "Used by: +none", "Needed by: +svm/web, svd/a, svd/b", "New users: +all namespaces", "When unused: +kept")

	// A message of an image that is being deleted is shown once, with its end, which is the way out.
	used := "used by disks " + strings.Repeat("of a long name, ", 30) + "to list them: kubectl get svd"
	gone := &v1alpha1.VMDiskImage{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "gone", Finalizers: []string{"example.org/keep"}},
		Spec:       v1alpha1.VMDiskImageSpec{URL: "https://images.example.org/gone.qcow2", SourceType: v1alpha1.VMDiskImageHTTP, DiskSize: resource.MustParse("1Gi")},
	}
	w.make(gone)
	w.Must(w.Delete(t.Context(), gone))
	w.Must(w.Get(t.Context(), client.ObjectKeyFromObject(gone), gone))
	for _, c := range []metav1.Condition{
		v1alpha1.ConditionReady.Condition(metav1.ConditionFalse, v1alpha1.ReasonTerminating, 1, used),
		v1alpha1.ConditionDeletionBlocked.Condition(metav1.ConditionTrue, v1alpha1.ReasonImageReferenced, 1, used),
	} {
		c.LastTransitionTime = metav1.NewTime(time.Now().Add(time.Minute))
		gone.Status.Conditions = append(gone.Status.Conditions, c)
	}
	w.Must(w.Status().Update(t.Context(), gone))
	if out := w.plugin("why vmdi gone -n "+namespace, 0).stdout; strings.Count(out, used) != 1 || strings.Contains(out, "Needed by") {
		t.Errorf("got\n%s", out)
	}
	gone.Finalizers = nil
	w.Must(w.Update(t.Context(), gone))
}
