package kubevirt

import (
	virtv1 "kubevirt.io/api/core/v1"

	"sallyport.dev/sallyport/commands"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// verbs returns what KubeVirt does with the machine for requests of its own API: it restores it, takes a snapshot of it, also for a clone,
// or dumps its memory. An export reads claims only. A guest that is on can be powered off during all but a restore, if it is forced.
func (s *sight) verbs() (all []runtime.Task) {
	task := func(id, doing, end string, yields bool) {
		all = append(all, runtime.Task{
			ID: id, Kind: runtime.TaskOther, By: "KubeVirt, which " + doing + " (to end that: " + end + ")", Yields: yields,
		})
	}
	in := s.vm.Namespace
	if name := s.vm.Status.RestoreInProgress; name != nil {
		task("restore-"+*name, "restores it with VirtualMachineRestore "+*name, commands.Line("kubectl", "delete", "vmrestore", *name, "-n", in), false)
	}
	if name := s.vm.Status.SnapshotInProgress; name != nil {
		task("snapshot-"+*name, "takes VirtualMachineSnapshot "+*name+" of it", commands.Line("kubectl", "delete", "vmsnapshot", *name, "-n", in), s.on())
	}
	if dump := s.vm.Status.MemoryDumpRequest; dump != nil && s.on() { // one of a machine that is off waits for the next start
		switch dump.Phase {
		case virtv1.MemoryDumpAssociating, virtv1.MemoryDumpInProgress, virtv1.MemoryDumpUnmounting, virtv1.MemoryDumpDissociating:
			task("memory-dump-"+dump.ClaimName, "dumps its memory to PersistentVolumeClaim "+dump.ClaimName,
				commands.Line("virtctl", "memory-dump", "remove", s.vm.Name, "-n", in), true)
		}
	}
	return all
}
