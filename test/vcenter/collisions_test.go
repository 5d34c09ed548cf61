//go:build !race

package vcenter

import (
	"slices"
	"testing"

	"github.com/vmware/govmomi/vim25/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere"
	"sallyport.dev/sallyport/test/collisions"
	"sallyport.dev/sallyport/test/depth"
)

// folder is where the simulator has its machines.
const folder = "/DC0/vm/"

func cluster() *collisions.Cluster {
	return &collisions.Cluster{
		Client: stack.client, Namespace: namespace,
		New: func(t *testing.T, name string) v1alpha1.VirtualMachineSpec {
			t.Helper()
			if !slices.Contains(stack.vcenter.Machines(), folder+name) {
				if _, err := stack.vcenter.AddMachine(name); err != nil {
					t.Fatal(err)
				}
			}
			return adopting(name)
		},
		Hypervisor: hypervisor,
	}
}

// adopting is the spec of a VirtualMachine that adopts the machine of that name.
func adopting(name string) v1alpha1.VirtualMachineSpec {
	return v1alpha1.VirtualMachineSpec{Runtime: v1alpha1.VirtualMachineRuntime{VSphere: &v1alpha1.VSphereRuntime{
		ServerRef: v1alpha1.VSphereServerReference{Name: "vc"}, InventoryPath: folder + name,
	}}}
}

// hypervisor is the machine as the vCenter has it, asked and changed without any code of ours.
func hypervisor(vm *v1alpha1.VirtualMachine) collisions.Hypervisor {
	v, path, owner := stack.vcenter, folder+vm.Name, string(vm.UID)
	return collisions.Hypervisor{
		Hold:           func(kind runtime.TaskKind) func() { return v.Hold(path, kind) },
		IgnoreShutdown: func() { v.IgnoreShutdown(path) },
		HeedShutdown:   func() { v.HeedShutdown(path) },
		GoOff:          func() { v.SetPower(path, v1alpha1.PowerStopped) },
		Suspend:        func() { v.SetPower(path, v1alpha1.PowerPaused) },
		IgnoreCancel:   func() { v.IgnoreCancels(path) },
		Away: func() func() {
			v.SetConnection(path, types.VirtualMachineConnectionStateDisconnected)
			return func() { v.SetConnection(path, types.VirtualMachineConnectionStateConnected) }
		},
		Power: func() v1alpha1.PowerState {
			state := v.State(path)
			if state.ExtraConfig[vsphere.OwnerKey] != owner {
				return ""
			}
			return state.Power
		},
		Node: func() string { return v.State(path).Host },
	}
}

// The pairs and scenarios of test/collisions on another hypervisor.

func TestPairs(t *testing.T) {
	depth.Only(t)
	collisions.Pairs(t, cluster())
}

func TestScenarios(t *testing.T) {
	depth.Only(t)
	collisions.Scenarios(t, cluster())
}
