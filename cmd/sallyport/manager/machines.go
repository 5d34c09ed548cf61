package manager

import (
	"context"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/agent"
	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/pod"
	"sallyport.dev/sallyport/reconcilers/runtime/volumes"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere"
	"sallyport.dev/sallyport/webhooks/catalog/keeper"
	"sallyport.dev/sallyport/webhooks/decision"
)

type machines struct {
	// vcenters is nil if the runtime vsphere is disabled.
	vcenters *vcenters
	// pods is that of machines that are Pods, and nil where there are none.
	pods     *runtime.Client
	kubeVirt kubeVirtMachines
}

// machines returns the runtimes that the flags enable, and adds the reconciler of VSphereServers.
func (o *Options) machines(mgr ctrl.Manager, gate *decision.Decider, namespace string, changed changes) (all machines, err error) {
	if all.pods, err = o.podRuntime(mgr); err != nil {
		return all, err
	}
	if all.kubeVirt, err = o.kubeVirtRuntime(mgr); err != nil || !o.VSphereRuntime {
		return all, err
	}
	all.vcenters = &vcenters{vsphere.NewSessions(tenants(gate), diskTenants(gate), templateTenants(gate), changed.send)}
	return all, addVCenters(mgr, *all.vcenters, namespace)
}

func (m machines) close() {
	if m.vcenters != nil {
		m.vcenters.Close()
	}
}

func (m machines) runtimes() *Runtimes {
	all := &Runtimes{Machine: m.runtime, Disk: m.diskRuntime}
	if m.vcenters != nil {
		all.Template = m.vcenters.TemplateStore
	}
	return all
}

// disabled is the error of machines and disks whose runtime is disabled.
func disabled(kind string) error {
	return runtime.NewNotSupported(nil, "machines of kind %s are disabled; an administrator can enable them with the chart value runtimes.%s.enabled=true", kind, kind)
}

func (m machines) runtime(ctx context.Context, vm *v1alpha1.VirtualMachine) (*runtime.Client, error) {
	switch {
	case vm.Spec.Runtime.VSphere != nil && m.vcenters == nil:
		return nil, disabled("vsphere")
	case vm.Spec.Runtime.VSphere != nil:
		return m.vcenters.Runtime(ctx, vm)
	case vm.Spec.Runtime.Pod != nil:
		return m.podRuntime()
	}
	return m.kubeVirt.runtime()
}

func (m machines) diskRuntime(ctx context.Context, d *v1alpha1.VirtualDisk) (*runtime.Client, error) {
	switch {
	case d.Spec.Runtime.VSphere != nil && m.vcenters == nil:
		return nil, disabled("vsphere")
	case d.Spec.Runtime.VSphere != nil:
		return m.vcenters.DiskRuntime(ctx, d)
	case d.Spec.Runtime.Pod != nil:
		return m.podRuntime()
	}
	return m.kubeVirt.runtime()
}

func (m machines) podRuntime() (*runtime.Client, error) {
	if m.pods == nil {
		return nil, disabled("pod")
	}
	return m.pods, nil
}

// podRuntime returns the runtime of machines of kind pod, or nil if they are disabled.
func (o *Options) podRuntime(mgr ctrl.Manager) (*runtime.Client, error) {
	if !o.PodRuntime {
		return nil, nil
	}
	pods := &pod.Runtime{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), NodeSelector: o.PodNodeSelector, Uncopied: o.UncopiedLabels}
	store, err := o.snapshots(mgr)
	if err != nil {
		return nil, err
	}
	if store != nil { // a nil *Store would be Snapshots that are there
		pods.Snapshots = store
	}
	return runtime.NewClient(pods), nil
}

// owned returns the kinds of objects in this cluster that implement machines.
func (o *Options) owned() (kinds []client.Object) {
	if o.PodRuntime {
		kinds = append(kinds, &corev1.Pod{})
	}
	return kinds
}

// cached restricts the manager's cache: of Pods to machines, and of PersistentVolumeClaims to disks.
func (o *Options) cached(namespace string) map[client.Object]cache.ByObject {
	of := keeper.CacheOptions(namespace)
	of[&admissionregistrationv1.ValidatingWebhookConfiguration{}] = o.cachedOpening()
	if o.ShippedPolicies != "" {
		of[&corev1.ConfigMap{}] = o.cachedShipment(namespace)
	}
	if o.PodRuntime {
		of[&corev1.Pod{}] = labelled(agent.LabelMachine)
	}
	if o.PodRuntime || o.KubeVirtRuntime {
		of[&corev1.PersistentVolumeClaim{}] = labelled(volumes.LabelDisk)
	}
	return of
}

func labelled(key string) cache.ByObject {
	exists, err := labels.NewRequirement(key, selection.Exists, nil)
	if err != nil { // of a constant
		panic(err)
	}
	return cache.ByObject{Label: labels.NewSelector().Add(*exists)}
}
