package manager

import (
	"context"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/test/support/env"
	"sallyport.dev/sallyport/test/support/step"
)

// Machines of a runtime that is disabled or not installed say why, and what an administrator can do.
func TestRuntimesThatAreNotThere(t *testing.T) {
	kubeVirt := v1alpha1.VirtualMachineRuntime{KubeVirt: &v1alpha1.KubeVirtRuntime{}}
	for what, tc := range map[string]struct {
		of       v1alpha1.VirtualMachineRuntime
		machines machines
		want     string
	}{
		"kubevirt, disabled":      {kubeVirt, machines{}, "runtimes.kubevirt.enabled=true"},
		"kubevirt, not installed": {kubeVirt, machines{kubeVirt: kubeVirtMachines{client: &runtime.Client{}}}, "install KubeVirt"},
		"vsphere, disabled":       {v1alpha1.VirtualMachineRuntime{VSphere: &v1alpha1.VSphereRuntime{}}, machines{}, "runtimes.vsphere.enabled=true"},
		"pod, disabled":           {v1alpha1.VirtualMachineRuntime{Pod: &v1alpha1.PodRuntime{}}, machines{}, "runtimes.pod.enabled=true"},
	} {
		if _, err := tc.machines.runtime(t.Context(), machineOn(tc.of)); !runtime.IsNotSupported(err) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v", what, err)
		}
	}
	disk := &v1alpha1.VirtualDisk{Spec: v1alpha1.VirtualDiskSpec{Runtime: v1alpha1.VirtualDiskRuntime{VSphere: &v1alpha1.VSphereDisk{}}}}
	if _, err := (machines{}).diskRuntime(t.Context(), disk); !runtime.IsNotSupported(err) {
		t.Errorf("a disk on vsphere: got %v", err)
	}
}

// KubeVirt that is installed after Sallyport is noticed without a restart.
func TestKubeVirtComesLater(t *testing.T) {
	s := step.T{T: t}
	plane := env.Shared(t)
	mgr, err := ctrl.NewManager(plane.Config, ctrl.Options{Metrics: metricsserver.Options{BindAddress: "0"}})
	s.Must(err)
	served, err := awaitKubeVirt(mgr)
	s.Must(err)
	m := kubeVirtMachines{client: &runtime.Client{}, served: served}
	go func() { _ = mgr.Start(t.Context()) }()
	if _, err := m.runtime(); !runtime.IsNotSupported(err) {
		t.Fatalf("without KubeVirt: got %v", err)
	}
	s.Must(apiextensionsv1.AddToScheme(mgr.GetScheme()))
	api, err := client.New(plane.Config, client.Options{Scheme: mgr.GetScheme()})
	s.Must(err)
	crd := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "virtualmachines.kubevirt.io"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "kubevirt.io", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "virtualmachines", Kind: "VirtualMachine"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}}}},
		},
	}
	s.Must(api.Create(t.Context(), crd))
	t.Cleanup(func() { _ = api.Delete(context.Background(), crd) })
	s.Eventually("KubeVirt is noticed", func() bool {
		_, err := m.runtime()
		return err == nil
	})
	if now, err := awaitKubeVirt(mgr); err != nil || len(now) > 0 {
		t.Fatal(err)
	} else if _, err := (kubeVirtMachines{m.client, now}).runtime(); err != nil {
		t.Errorf("a new leader: got %v", err)
	}
}
