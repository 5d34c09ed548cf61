package vcsim

import (
	"slices"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// viewManager makes the views of all machines such that nobody waits for them for long.
type viewManager struct {
	*simulator.ViewManager
}

// CreateContainerView makes a view.
func (m *viewManager) CreateContainerView(ctx *simulator.Context, req *types.CreateContainerView) soap.HasFault {
	answer := m.ViewManager.CreateContainerView(ctx, req)
	body := answer.(*methods.CreateContainerViewBody)
	if body.Res != nil && req.Recursive && req.Container.Type == "Folder" && slices.Equal(req.Type, []string{"VirtualMachine"}) {
		made := ctx.Session.Get(body.Res.Returnval).(*simulator.ContainerView)
		ctx.Map.AddHandler(&machinesView{made}) // in place of the simulator's
	}
	return answer
}

// machinesView keeps a view of machines current. The simulator's own way locks the view, also for what is no machine, while it waits for
// the property filters on it, and a filter is locked while it waits for the view and the machines in it: two machines that come at the
// same time, or one that comes while another has a task, would stop the whole simulator. It would also have a filter tell of all machines
// again, which no vCenter does.
type machinesView struct {
	*simulator.ContainerView
}

// PutObject takes a machine into the view.
func (v *machinesView) PutObject(ctx *simulator.Context, object mo.Reference) {
	ref := object.Reference()
	if ref.Type != "VirtualMachine" {
		return
	}
	ctx.WithLock(v.ContainerView, func() {
		if !slices.Contains(v.View, ref) {
			v.View = append(slices.Clip(v.View), ref)
		}
	})
	// Property collectors, who may have heard of the machine before the view had it, look into their views when anything changes.
	ctx.Update(&mo.Folder{ManagedEntity: mo.ManagedEntity{ExtensibleManagedObject: mo.ExtensibleManagedObject{Self: anything}}},
		[]types.PropertyChange{{Name: "name", Val: ""}})
}

// anything is what no filter is about.
var anything = types.ManagedObjectReference{Type: "Folder", Value: "anything"}

// RemoveObject takes a machine out of the view.
func (v *machinesView) RemoveObject(ctx *simulator.Context, ref types.ManagedObjectReference) {
	if ref.Type != "VirtualMachine" {
		return
	}
	ctx.WithLock(v.ContainerView, func() {
		v.View = slices.DeleteFunc(slices.Clone(v.View), func(of types.ManagedObjectReference) bool { return of == ref })
	})
}
