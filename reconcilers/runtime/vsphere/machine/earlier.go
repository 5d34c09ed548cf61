package machine

import (
	"context"
	"path"
	"strings"

	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
	kubetypes "k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/inventory"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/session"
)

// ofMarked are the properties read of all machines of a datacenter.
var ofMarked = []string{"name", "config.instanceUuid", "config.template", inventory.Keyed(OwnerKey), inventory.Keyed(NameKey)}

// inDatacenter selects all machines of the datacenter that contains an object.
func inDatacenter() []types.BaseSelectionSpec {
	up := inventory.Upwards()[0].(*types.TraversalSpec)
	up.SelectSet = append(up.SelectSet, &types.TraversalSpec{
		Type: "Datacenter", Path: "datastore", Skip: new(true),
		SelectSet: []types.BaseSelectionSpec{&types.TraversalSpec{Type: "Datastore", Path: "vm"}},
	})
	return []types.BaseSelectionSpec{up}
}

// marked reads the marks of all machines in the datacenter that contains a folder. This is a long read, so concurrent
// callers share one.
func (r *Runtime) marked(ctx context.Context, folder types.ManagedObjectReference) ([]mo.VirtualMachine, error) {
	found, err, _ := r.shared.lookups.Do(folder.Value, func() (any, error) {
		var all []mo.VirtualMachine
		err := r.Retrieve(ctx, types.PropertyFilterSpec{
			ObjectSet: []types.ObjectSpec{{Obj: folder, Skip: new(true), SelectSet: inDatacenter()}},
			PropSet:   []types.PropertySpec{{Type: "VirtualMachine", PathSet: ofMarked}},
		}, session.Only(func(vm mo.VirtualMachine) { all = append(all, vm) }))
		return all, err
	})
	if err != nil {
		return nil, err
	}
	return found.([]mo.VirtualMachine), nil
}

// succeed checks for the machine of an earlier VirtualMachine of m's name in the datacenter: it is an OwnedByAnother
// error, or is taken over if m says so. Without an ID and an error there is none, or it does not matter.
func (r *Runtime) succeed(ctx context.Context, m runtime.Machine) (instanceID string, err error) {
	if m.Earlier == runtime.MakeAnew {
		return "", nil
	}
	folder, err := r.Named(ctx, cloneOf(m).Folder, "Folder")
	if err != nil || folder == nil {
		return "", err // placement reports what is wrong with the folder
	}
	all, err := r.marked(ctx, *folder)
	if err != nil {
		return "", r.NotGone(err)
	}
	var earlier, made []mo.VirtualMachine
	for _, vm := range all {
		switch {
		case vm.Config == nil && calledLike(vm.Name, m):
			return "", runtime.NewUnavailable(nil, "vCenter %s does not show the configuration of machine %s, which may belong to an earlier VirtualMachine %s",
				r.Config.Name, session.Shown(vm.Name), m)
		case vm.Config != nil && !vm.Config.Template && ofName(&vm, m):
			earlier = append(earlier, vm)
			if madeByUs(&vm) {
				made = append(made, vm)
			}
		}
	}
	switch {
	case len(earlier) == 0:
		return "", nil
	case m.Earlier != runtime.TakeOver:
		return "", runtime.NewHeldBack("svm", m.NamespacedName, "machine %s in vCenter %s", session.Shown(earlier[0].Name), r.Config.Name)
	case len(made) != 1:
		return "", runtime.NewOwnedByAnother(nil, "vCenter %s has %d machines with the mark of an earlier VirtualMachine %s, %d of them created by "+
			"Sallyport, and cannot tell which one to take over: remove %s from the extraConfig of the others (a copy inherits it), or adopt one by its path",
			r.Config.Name, len(earlier), m, len(made), OwnerKey)
	}
	return r.takeOver(ctx, m, made[0].Self)
}

// mayTakeOver evaluates the tenants for the machine at its place: its mark names the former owner, and not whether
// the namespace may have machines there.
func (r *Runtime) mayTakeOver(ctx context.Context, m runtime.Machine, ref types.ManagedObjectReference) error {
	seen, err := r.Ancestry(ctx, []types.ManagedObjectReference{ref})
	if err != nil {
		return r.NotGone(err)
	}
	at, known := seen.Shown(ref)
	if !known {
		return runtime.NewUnavailable(nil, "vCenter %s does not show the full path of the machine to take over, which is needed to check spec.tenants",
			r.Config.Name)
	}
	clone := cloneOf(resolved(m)).DeepCopy()
	clone.Folder = v1alpha1.InventoryPath(path.Dir(at))
	if _, err := r.placeCheck(ctx, clone); runtime.IsPermission(err) {
		return runtime.NewPermission(err, "the machine to take over is in a folder of vCenter %s where the namespace may not create machines", r.Config.Name)
	} else if err != nil {
		return err
	}
	return nil
}

// takeOver sets our mark and the instance UUID of a machine created for m, in one reconfiguration.
func (r *Runtime) takeOver(ctx context.Context, m runtime.Machine, ref types.ManagedObjectReference) (instanceID string, err error) {
	s, err := r.readMachine(ctx, ref, nil)
	if err != nil {
		return "", r.NotGone(err)
	}
	if err := r.mayTakeOver(ctx, m, ref); err != nil {
		return "", err
	}
	if !ofName(&s.vm, m) || !madeByUs(&s.vm) {
		return "", runtime.NewInvalidState(nil, "the mark of the machine was changed concurrently")
	}
	spec := s.noting(map[string]string{OwnerKey: string(m.UID), NameKey: m.String()})
	spec.InstanceUuid = string(m.UID)
	if err := r.Reconfigure(ctx, &s.vm, spec); err != nil {
		return "", err
	}
	return string(m.UID), nil
}

// ofName reports whether a machine is marked for a VirtualMachine of that namespace and name with another UID.
func ofName(vm *mo.VirtualMachine, m runtime.Machine) bool {
	keys := ExtraConfigOf(vm)
	owner := kubetypes.UID(keys[OwnerKey])
	return owner != "" && owner != m.UID && keys[NameKey] == m.String()
}

// madeByUs reports whether a machine was created for the VirtualMachine in its mark: an adopted machine, or a copy,
// has another UUID.
func madeByUs(vm *mo.VirtualMachine) bool {
	return strings.EqualFold(vm.Config.InstanceUuid, ExtraConfigOf(vm)[OwnerKey])
}

// calledLike reports whether a machine has the name of one created for a VirtualMachine of that namespace and name
// with another UID.
func calledLike(name string, m runtime.Machine) bool {
	ours := inventoryName(m)
	return len(name) == len(ours) && name != ours && strings.HasPrefix(name, ours[:strings.LastIndex(ours, "-")+1])
}
