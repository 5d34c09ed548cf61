package plugin

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
)

func TestWhyATemplate(t *testing.T) {
	w := newWorld(t)
	namespace := w.namespace()
	o := &v1alpha1.VSphereTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "ubuntu"}, Spec: v1alpha1.VSphereTemplateSpec{
		ServerRef: v1alpha1.VSphereServerReference{Name: "vc-1"}, Name: "ubuntu", Release: "1",
		Source:         v1alpha1.VSphereTemplateSource{URL: "https://images.example.org/1.ova", SHA256: strings.Repeat("a", 64)},
		FailureDomains: []v1alpha1.VSphereFailureDomain{{Name: "a", Folder: "/dc/vm/a", ResourcePool: "/dc/host/a", Datastore: "/dc/datastore/a", Network: "/dc/network/a"}},
	}}
	w.make(o)
	spec := v1alpha1.VirtualMachineSpec{Runtime: v1alpha1.VirtualMachineRuntime{VSphere: &v1alpha1.VSphereRuntime{
		ServerRef: v1alpha1.VSphereServerReference{Name: "vc-1"},
		Clone: &v1alpha1.VSphereClone{
			Template: v1alpha1.VSphereCloneSource{TemplateRef: &v1alpha1.VSphereTemplateReference{Name: "ubuntu"}},
			Folder:   "/dc/vm/a", ResourcePool: "/dc/host/a", Datastore: "/dc/datastore/a", Networks: []v1alpha1.InventoryPath{"/dc/network/a"},
		},
	}}}
	w.make(
		&v1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "waiting"}, Spec: spec},
		&v1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "made"}, Spec: spec, Status: v1alpha1.VirtualMachineStatus{InstanceID: "i"}},
	)
	w.make(&v1alpha1.VirtualMachinePool{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "ci"}, Spec: v1alpha1.VirtualMachinePoolSpec{
		ScaleDownPolicy: v1alpha1.ScaleDownNewestFirst, VirtualMachineTemplate: v1alpha1.VirtualMachineTemplate{Spec: spec},
	}})
	shows(t, w.plugin("why svst ubuntu -n "+namespace, 0).stdout, "VSphereTemplate ubuntu in namespace "+namespace,
		"Releases: +none", "Waiting for: +reconciliation of the latest change", "Used by: +svm/waiting, svmpool/ci")
}
