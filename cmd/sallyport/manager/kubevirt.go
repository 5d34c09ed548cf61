package manager

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	virtv1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/kubevirt"
)

// kubeVirtRuntime returns the runtime of machines of KubeVirt, or nil if they are disabled or the cluster does not serve the API of KubeVirt.
func (o *Options) kubeVirtRuntime(mgr ctrl.Manager) (*runtime.Client, error) {
	served, err := o.kubeVirtServed(mgr)
	if !served || err != nil {
		return nil, err
	}
	subresources, err := kubevirt.NewSubresources(mgr.GetConfig())
	if err != nil {
		return nil, err
	}
	return runtime.NewClient(&kubevirt.Runtime{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Subresources: subresources}), nil
}

func (o *Options) kubeVirtServed(mgr ctrl.Manager) (bool, error) {
	if !o.KubeVirtRuntime {
		return false, nil
	}
	kind := virtv1.VirtualMachineGroupVersionKind
	switch _, err := mgr.GetRESTMapper().RESTMapping(kind.GroupKind(), kind.Version); {
	case meta.IsNoMatchError(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("finding the API of KubeVirt: %w", err)
	}
	return true, nil
}

// followed returns the kinds of objects in this cluster that implement machines without being owned by them.
func (o *Options) followed(mgr ctrl.Manager) ([]client.Object, error) {
	served, err := o.kubeVirtServed(mgr)
	if !served || err != nil {
		return nil, err
	}
	return []client.Object{&virtv1.VirtualMachine{}, &virtv1.VirtualMachineInstance{}, &virtv1.VirtualMachineInstanceMigration{}}, nil
}

func (m machines) kubeVirtRuntime() (*runtime.Client, error) {
	switch {
	case m.kubeVirt != nil:
		return m.kubeVirt, nil
	case m.kubeVirtEnabled:
		return nil, runtime.NewNotSupported(nil, "the cluster did not have KubeVirt when Sallyport started; after KubeVirt is installed, an administrator restarts Sallyport's Deployment")
	}
	return nil, runtime.NewNotSupported(nil, "machines of kind kubevirt are disabled; an administrator can enable them with the chart value runtimes.kubevirt.enabled=true")
}
