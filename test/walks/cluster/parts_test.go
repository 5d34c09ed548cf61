package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
