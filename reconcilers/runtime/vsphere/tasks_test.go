package vsphere

import (
	"testing"

	"github.com/vmware/govmomi/vim25/types"

	"sallyport.dev/sallyport/reconcilers/runtime"
)

func TestKinds(t *testing.T) {
	task := func(id string, state types.TaskInfoState) types.TaskInfo {
		return types.TaskInfo{DescriptionId: id, State: state}
	}
	for id, want := range map[string]runtime.TaskKind{
		"VirtualMachine.powerOn":         runtime.TaskPowerOn,
		"Datacenter.ExecuteVmPowerOnLRO": runtime.TaskPowerOn,
		"VirtualMachine.powerOff":        runtime.TaskPowerOff,
		"VirtualMachine.migrate":         runtime.TaskRelocate,
		"Drm.ExecuteVMotionLRO":          runtime.TaskRelocate,
		"VirtualMachine.destroy":         runtime.TaskDelete,
		"VirtualMachine.clone":           runtime.TaskOther,
		"com.example.backup":             runtime.TaskOther,
		"":                               runtime.TaskOther,
	} {
		s := &sighting{tasks: []types.TaskInfo{
			task("VirtualMachine.shutdownGuest", types.TaskInfoStateRunning), // Not in flight, as the contract has it.
			task("VirtualMachine.powerOff", types.TaskInfoStateSuccess),
			task(id, types.TaskInfoStateQueued),
		}}
		if all := s.inFlight(); len(all) != 1 || kindOf(all[0]) != want {
			t.Errorf("%q: got %+v, want one of kind %s", id, all, want)
		}
	}
}
