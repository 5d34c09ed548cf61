package manager

import (
	"context"
	"errors"

	"sigs.k8s.io/controller-runtime/pkg/event"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/template"
	"sallyport.dev/sallyport/reconcilers/vsphereserver"
	"sallyport.dev/sallyport/webhooks/decision"
)

// vcenters adapts the sessions to the reconciler of VSphereServers, which does not depend on the vSphere runtime.
type vcenters struct{ *vsphere.Sessions }

func (v vcenters) Connect(ctx context.Context, name string, connection vsphereserver.Connection) (vsphereserver.About, error) {
	about, err := v.Sessions.Connect(ctx, name, vsphere.Connection(connection))
	return vsphereserver.About(about), err
}

func (v vcenters) Inventory(ctx context.Context, name string, tenants []v1alpha1.VSphereTenant) (vsphereserver.Inventory, error) {
	found, err := v.Sessions.Inventory(ctx, name, tenants)
	inventory := vsphereserver.Inventory{Hosts: found.Hosts, Places: found.Places}
	for _, m := range found.Marked {
		inventory.Marked = append(inventory.Marked, vsphereserver.Marked(m))
	}
	return inventory, err
}

// changes is the channel of changes that runtimes report. Senders block until a change is received.
type changes chan event.TypedGenericEvent[runtime.Change]

func (c changes) send(ctx context.Context, of runtime.Change) {
	select {
	case c <- event.TypedGenericEvent[runtime.Change]{Object: of}:
	case <-ctx.Done():
	}
}

func tenants(gate *decision.Decider) vsphere.Tenants {
	return func(ctx context.Context, vm *v1alpha1.VirtualMachine) (datastores []v1alpha1.InventoryPath, err error) {
		placement, err := gate.Admits(ctx, vm)
		for _, path := range placement.Datastores {
			datastores = append(datastores, v1alpha1.InventoryPath(path))
		}
		return datastores, locationError("machine", placement.Admission, err)
	}
}

func diskTenants(gate *decision.Decider) vsphere.DiskTenants {
	return func(ctx context.Context, d *v1alpha1.VirtualDisk) error {
		admission, err := gate.AdmitsDisk(ctx, d)
		return locationError("disk", admission, err)
	}
}

func templateTenants(gate *decision.Decider) template.Tenants {
	return func(ctx context.Context, t *v1alpha1.VSphereTemplate) error {
		admission, err := gate.AdmitsTemplate(ctx, t)
		return locationError("template", admission, err)
	}
}

func locationError(what string, admission decision.Admission, err error) error {
	switch {
	case err != nil:
		return runtime.NewUnavailable(errors.Unwrap(err), "policies could not decide whether the %s may use its location: %v", what, err)
	case admission.Denied:
		return runtime.NewPermission(nil, "%s", admission.Message)
	}
	return nil
}
