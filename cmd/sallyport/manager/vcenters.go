package manager

import (
	"context"
	"errors"

	"sigs.k8s.io/controller-runtime/pkg/event"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere"
	"sallyport.dev/sallyport/reconcilers/vsphereserver"
	"sallyport.dev/sallyport/webhooks"
)

// vcenters are the sessions as the reconciler of VSphereServers, which knows nothing of runtimes of that kind, speaks of them.
type vcenters struct{ *vsphere.Sessions }

// Connect sees to it that there is a session.
func (v vcenters) Connect(ctx context.Context, name string, connection vsphereserver.Connection) (vsphereserver.About, error) {
	about, err := v.Sessions.Connect(ctx, name, vsphere.Connection(connection))
	return vsphereserver.About(about), err
}

// Inventory gives what a vCenter has.
func (v vcenters) Inventory(ctx context.Context, name string, tenants []v1alpha1.VSphereTenant) (vsphereserver.Inventory, error) {
	found, err := v.Sessions.Inventory(ctx, name, tenants)
	return vsphereserver.Inventory(found), err
}

// changes are what runtimes tell of: whoever tells waits until it is taken.
type changes chan event.TypedGenericEvent[runtime.Change]

func (c changes) tell(ctx context.Context, of runtime.Change) {
	select {
	case c <- event.TypedGenericEvent[runtime.Change]{Object: of}:
	case <-ctx.Done():
	}
}

// tenants has the policies judge where in a vCenter a machine may be.
func tenants(gate *webhooks.Gate) vsphere.Tenants {
	return func(ctx context.Context, vm *v1alpha1.VirtualMachine) (datastores []v1alpha1.InventoryPath, err error) {
		placement, err := gate.Admits(ctx, vm)
		for _, path := range placement.Datastores {
			datastores = append(datastores, v1alpha1.InventoryPath(path))
		}
		return datastores, judged("machine", placement.Ruling, err)
	}
}

// diskTenants has them judge where a disk may be.
func diskTenants(gate *webhooks.Gate) vsphere.DiskTenants {
	return func(ctx context.Context, d *v1alpha1.VirtualDisk) error {
		ruling, err := gate.AdmitsDisk(ctx, d)
		return judged("disk", ruling, err)
	}
}

// templateTenants has them judge where templates may be.
func templateTenants(gate *webhooks.Gate) vsphere.TemplateTenants {
	return func(ctx context.Context, t *v1alpha1.VSphereTemplate) error {
		ruling, err := gate.AdmitsTemplate(ctx, t)
		return judged("template", ruling, err)
	}
}

func judged(what string, ruling webhooks.Ruling, err error) error {
	switch {
	case err != nil:
		return runtime.NewUnavailable(errors.Unwrap(err), "the policies could not judge whether the %s may be where it is: %v", what, err)
	case ruling.Denied:
		return runtime.NewPermission(nil, "%s", ruling.Message)
	}
	return nil
}
