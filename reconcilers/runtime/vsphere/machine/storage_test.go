package machine

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// The policy is for the machine's files and for each disk, all of them on the datastore that was judged.
func TestStoragePolicyOfAClone(t *testing.T) {
	disk := &types.VirtualDisk{}
	disk.Key = 2000
	p := placement{template: &mo.VirtualMachine{Config: &types.VirtualMachineConfigInfo{}}, datastore: &mo.Datastore{}}
	p.template.Config.Hardware.Device = []types.BaseVirtualDevice{disk, &types.VirtualVmxnet3{}}
	p.datastore.Self = types.ManagedObjectReference{Type: "Datastore", Value: "fast"}
	if got := p.location(); got.Profile != nil || got.Disk != nil {
		t.Errorf("without a policy: %+v", got)
	}
	p.profile = "gold"
	profile := []types.BaseVirtualMachineProfileSpec{&types.VirtualMachineDefinedProfileSpec{ProfileId: "gold"}}
	want := types.VirtualMachineRelocateSpec{
		Pool: &p.Pool, Datastore: &p.datastore.Self, Profile: profile,
		Disk: []types.VirtualMachineRelocateSpecDiskLocator{{DiskId: 2000, Datastore: p.datastore.Self, Profile: profile}},
	}
	if diff := cmp.Diff(want, p.location()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
