//go:build kubevirt

package kubevirt

import (
	"context"
	"fmt"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/kubevirt"
)

// guarded is the life of a machine that Sallyport does not run, under the policies on KubeVirt: virt-api passes on their denials, and
// KubeVirt's controllers go on.
func (s *site) guarded(namespace string) {
	ctx := context.WithoutCancel(s.Context())
	vm := foreignVM(namespace, "guarded")
	vm.Spec.RunStrategy = new(virtv1.RunStrategyManual)
	s.Must(s.Create(ctx, vm))
	key := client.ObjectKeyFromObject(vm)
	api, err := kubevirt.NewSubresources(s.Plane.Config)
	s.Must(err)
	put := func(subresource string, options any) func() error {
		return func() error { return api.Put(ctx, "virtualmachines", key, subresource, options) }
	}
	s.Must(put("start", &virtv1.StartOptions{})())
	vmi := s.running(key)

	remove := func(o client.Object) func() error {
		return func() error { return s.Delete(ctx, o, client.DryRunAll) }
	}
	s.denied("kubevirt-machines/MachineRunning", remove(vm))
	for _, name := range []string{"virtualmachines.kubevirt.io", "kubevirts.kubevirt.io"} {
		crd := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name}}
		crd.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
		s.denied("kubevirt-definitions/MachinesExist", remove(crd))
	}
	s.denied("kubevirt-definitions/MachinesExist", remove(s.kubevirtObject()))

	release := s.Agent.Hold(key, runtime.TaskRelocate)
	begin(s.T.T, s, runtime.Machine{NamespacedName: key}, runtime.TaskRelocate)
	s.Eventually("the machine is migrated", func() bool {
		s.Must(s.Get(ctx, key, vmi))
		return vmi.Status.MigrationState != nil && vmi.Status.MigrationState.StartTimestamp != nil
	})
	s.denied("kubevirt-machines/MigrationInProgress", put("stop", &virtv1.StopOptions{}))
	s.denied("kubevirt-machines/MigrationInProgress", put("restart", &virtv1.RestartOptions{}))
	s.denied("kubevirt-machines/MigrationInProgress", remove(vmi))
	release()
	s.Eventually("the migration ends", func() bool {
		s.Must(s.Get(ctx, key, vmi))
		return vmi.Status.MigrationState.Completed
	})

	s.snapshot(vm, "nightly")
	s.denied("kubevirt-machines/SnapshotInProgress", put("stop", &virtv1.StopOptions{}))
	s.snapshot(vm, "")

	first := vmi.UID
	s.Must(put("restart", &virtv1.RestartOptions{GracePeriodSeconds: new(int64(0))})())
	s.Eventually("the machine was restarted", func() bool { return s.running(key).UID != first })
	s.Must(put("stop", &virtv1.StopOptions{GracePeriod: new(int64(0))})())
	s.gone(vmi)
	s.Must(s.Delete(ctx, vm))
	s.gone(vm)
}

// denied waits until a policy denies requests of a kind, and not only requests while it is registered.
func (s *site) denied(reason string, request func() error) {
	s.Helper()
	s.Until(reason, func() (string, bool) {
		err := request()
		return fmt.Sprint(err), err != nil && strings.Contains(err.Error(), "["+reason+"]")
	})
}

// running waits for a running instance.
func (s *site) running(key types.NamespacedName) *virtv1.VirtualMachineInstance {
	s.Helper()
	vmi := &virtv1.VirtualMachineInstance{}
	s.Eventually("instance "+key.Name+" runs", func() bool {
		return s.Get(s.Context(), key, vmi) == nil && vmi.Status.Phase == virtv1.Running && vmi.DeletionTimestamp.IsZero()
	})
	return vmi
}

// snapshot sets what KubeVirt sets while it takes a snapshot; "" ends it.
func (s *site) snapshot(vm *virtv1.VirtualMachine, name string) {
	patch := []byte(`{"status": {"snapshotInProgress": null}}`)
	if name != "" {
		patch = fmt.Appendf(nil, `{"status": {"snapshotInProgress": %q}}`, name)
	}
	s.Must(s.Status().Patch(s.Context(), vm, client.RawPatch(types.MergePatchType, patch)))
}

// kubevirtObject returns the KubeVirt object.
func (s *site) kubevirtObject() client.Object {
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion("kubevirt.io/v1")
	list.SetKind("KubeVirtList")
	s.Must(s.List(s.Context(), list))
	if len(list.Items) != 1 {
		s.Fatalf("there are %d KubeVirt objects", len(list.Items))
	}
	return &list.Items[0]
}
