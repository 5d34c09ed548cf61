package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/env/install"
	"sallyport.dev/sallyport/test/support/rbac"
	"sallyport.dev/sallyport/test/support/site"
	"sallyport.dev/sallyport/test/support/step"
)

// A release without some of its parts gets ready, asks for nothing that it has no right to, and says which value enables a runtime.
func TestReleaseWithoutSomeParts(t *testing.T) {
	t.Parallel()
	const vsphere = "runtimes.vsphere.enabled=false"
	parts := []string{vsphere, "pools.enabled=false", "templates.enabled=false", "runtimes.pod.drains.enabled=false"}
	cases := map[string][]string{"all of them": parts}
	if !testing.Short() {
		for _, part := range parts {
			cases[part] = []string{part}
		}
		cases["machines that are Pods"] = append([]string{"runtimes.pod.enabled=true"}, parts...)
	}
	for name, values := range cases {
		t.Run(name, func(t *testing.T) {
			// The policies about vCenters would deny the machine, because there is no VSphereServer.
			s := site.Start(t, site.Options{Values: append([]string{"policies.servers-tenancy.enabled=false,policies.servers-quota.enabled=false"}, values...)})
			machines := map[string]v1alpha1.VirtualMachineRuntime{}
			if slices.Contains(values, vsphere) {
				machines["vsphere"] = v1alpha1.VirtualMachineRuntime{VSphere: &v1alpha1.VSphereRuntime{
					ServerRef: v1alpha1.VSphereServerReference{Name: "vc"}, InventoryPath: "/dc/vm/a",
				}}
			}
			if !slices.Contains(values, "runtimes.pod.enabled=true") {
				machines["pod"] = v1alpha1.VirtualMachineRuntime{Pod: &v1alpha1.PodRuntime{}}
			}
			for _, kind := range slices.Sorted(maps.Keys(machines)) {
				notSupported(step.T{T: t}, s.Client, kind, machines[kind])
			}
			if machines["pod"].Pod == nil {
				comesAndGoes(step.T{T: t}, s.Client)
			}
			clientset, err := kubernetes.NewForConfig(s.Plane.Config)
			must := step.T{T: t}.Must
			must(err)
			grants, err := rbac.Granted(t.Context(), clientset, install.Namespace, install.Release)
			must(err)
			uses, err := rbac.UsedBy(s.Audit, s.Sallyport.User())
			must(err)
			if len(grants) == 0 || len(uses) == 0 {
				t.Fatalf("%d rights are granted, and %d used", len(grants), len(uses))
			}
			for _, finding := range rbac.Compare(grants, uses, install.Namespace) {
				if strings.HasPrefix(finding, "missing: ") {
					t.Error(finding)
				}
			}
		})
	}
}

// comesAndGoes has a machine and its disk created, as a Pod without a node and a claim, and deletes the machine. Its Pod is left to the garbage
// collector, which is not here.
func comesAndGoes(s step.T, api client.Client) {
	s.Helper()
	disk := &v1alpha1.VirtualDisk{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "data"},
		Spec:       v1alpha1.VirtualDiskSpec{Size: resource.MustParse("1Gi"), Runtime: v1alpha1.VirtualDiskRuntime{Pod: &v1alpha1.VolumeDisk{}}},
	}
	vm := &v1alpha1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "made"},
		Spec: v1alpha1.VirtualMachineSpec{
			Runtime:         v1alpha1.VirtualMachineRuntime{Pod: &v1alpha1.PodRuntime{}},
			BlockDeviceRefs: []v1alpha1.BlockDeviceRef{{Kind: v1alpha1.BlockDeviceVirtualDisk, Name: disk.Name}},
		},
	}
	s.Must(api.Create(s.Context(), disk))
	s.Must(api.Create(s.Context(), vm))
	var pods corev1.PodList
	s.Eventually("the Pod exists", func() bool {
		s.Must(api.List(s.Context(), &pods, client.InNamespace(metav1.NamespaceDefault)))
		return len(pods.Items) == 1
	})
	s.Must(api.Delete(s.Context(), vm))
	s.Eventually("the machine is deleted", func() bool { return apierrors.IsNotFound(api.Get(s.Context(), client.ObjectKeyFromObject(vm), vm)) })
}

// notSupported creates and deletes a machine whose runtime is disabled.
func notSupported(s step.T, api client.Client, kind string, of v1alpha1.VirtualMachineRuntime) {
	s.Helper()
	vm := &v1alpha1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: kind},
		Spec:       v1alpha1.VirtualMachineSpec{RunPolicy: v1alpha1.RunPolicyManual, Runtime: of},
	}
	s.Must(api.Create(s.Context(), vm))
	s.Until("condition Ready names the value that enables the runtime", func() (string, bool) {
		s.Must(api.Get(s.Context(), client.ObjectKeyFromObject(vm), vm))
		ready := v1alpha1.ConditionReady.In(vm.Status.Conditions)
		return fmt.Sprintf("%+v", vm.Status), ready != nil && ready.Reason == string(v1alpha1.ReasonRuntimeNotSupported) &&
			strings.Contains(ready.Message, "runtimes."+kind+".enabled=true")
	})
	s.Must(api.Delete(s.Context(), vm))
	s.Eventually("the machine is deleted", func() bool {
		return apierrors.IsNotFound(api.Get(s.Context(), client.ObjectKeyFromObject(vm), vm))
	})
}
