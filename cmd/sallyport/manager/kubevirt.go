package manager

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	virtv1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"

	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/kubevirt"
	"sallyport.dev/sallyport/reconcilers/watch"
)

// kubeVirtMachines are machines of KubeVirt.
type kubeVirtMachines struct {
	// client is nil if they are disabled.
	client *runtime.Client
	// served is closed when the cluster serves the API of KubeVirt.
	served chan struct{}
}

func (o *Options) kubeVirtRuntime(mgr ctrl.Manager) (m kubeVirtMachines, err error) {
	if !o.KubeVirtRuntime {
		return m, nil
	}
	subresources, err := kubevirt.NewSubresources(mgr.GetConfig())
	if err != nil {
		return m, err
	}
	m.client = runtime.NewClient(&kubevirt.Runtime{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Subresources: subresources, Uncopied: o.UncopiedLabels})
	m.served, err = awaitKubeVirt(mgr)
	return m, err
}

// awaitKubeVirt returns a channel that is closed when the cluster serves the API of KubeVirt: at once if it does so now, so that a new leader
// does not take machines for missing. Only the leader waits.
func awaitKubeVirt(mgr ctrl.Manager) (chan struct{}, error) {
	served := make(chan struct{})
	kind := virtv1.VirtualMachineGroupVersionKind
	switch _, err := mgr.GetRESTMapper().RESTMapping(kind.GroupKind(), kind.Version); {
	case err == nil:
		close(served)
		return served, nil
	case !meta.IsNoMatchError(err):
		return nil, fmt.Errorf("finding the API of KubeVirt: %w", err)
	}
	return served, mgr.Add(ctrlmanager.RunnableFunc(func(ctx context.Context) error {
		if watch.AwaitServed(ctx, mgr, kind) == nil {
			close(served)
		}
		return nil
	}))
}

// followed returns the kinds of objects in this cluster that implement machines without being owned by them.
func (o *Options) followed() []schema.GroupVersionKind {
	if !o.KubeVirtRuntime {
		return nil
	}
	return []schema.GroupVersionKind{virtv1.VirtualMachineGroupVersionKind, virtv1.VirtualMachineInstanceGroupVersionKind, virtv1.VirtualMachineInstanceMigrationGroupVersionKind}
}

func (m kubeVirtMachines) runtime() (*runtime.Client, error) {
	if m.client == nil {
		return nil, disabled("kubevirt")
	}
	select {
	case <-m.served:
		return m.client, nil
	default:
		return nil, runtime.NewNotSupported(nil, "the cluster does not serve the API of KubeVirt (kubevirt.io/v1): install KubeVirt; no restart is needed")
	}
}
