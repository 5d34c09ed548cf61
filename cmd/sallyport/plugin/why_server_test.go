package plugin

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
)

func TestWhyAServer(t *testing.T) {
	w := newWorld(t)
	name := w.namespace() // which no other test has
	server := &v1alpha1.VSphereServer{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.VSphereServerSpec{
		URL: "https://vc.example.org", CredentialsSecretRef: v1alpha1.CredentialsSecretReference{Name: "vc"},
		Trust: v1alpha1.VSphereTrust{CABundle: "-----BEGIN CERTIFICATE-----"},
	}}
	w.make(server)
	server.Status = v1alpha1.VSphereServerStatus{ObservedGeneration: server.Generation, OrphanCount: 1, Orphans: []v1alpha1.VSphereOrphan{
		{Path: "/dc/vm/shop/web-1", UID: "0f0e", VirtualMachine: "shop/web-1"},
	}}
	w.Must(w.Status().Update(w.Context(), server))
	shows(t, w.plugin("why svsrv "+name, 0).stdout, "VSphereServer "+name, "Waiting for: +nothing",
		"Orphans: +/dc/vm/shop/web-1: VirtualMachine shop/web-1 \\(UID 0f0e\\) does not exist", "Next step: +to manage a machine again, create its VirtualMachine, and then: kubectl sallyport take-over svm web-1 -n shop")
}
