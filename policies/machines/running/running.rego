# METADATA
# title: Deletion of machines that run
# description: >-
#   Denies the deletion of a VirtualMachine whose machine is not off, because the machine is deleted with its disks. An adopted machine
#   is only released, so its VirtualMachine can be deleted.
package sallyport.machines.running

import data.sallyport.lib.machines
import data.sallyport.lib.override
import data.sallyport.lib.shell

valid_input if {
	input.request.operation == "DELETE"
	_name != ""
	is_object(_old.spec.runtime)
	is_string(_phase)
}

# METADATA
# title: The machine runs
# custom:
#   reason: MachineRunning
#   remedyInMessage: >-
#     Stop the machine first, or override this policy temporarily. An override requires the verb override on the RegoPolicy.
deny contains {
	"reason": "MachineRunning",
	"message": $"VirtualMachine {_name}: deletion is not allowed",
	"cause": $"its machine is in phase {_phase} and would be deleted with its disks",
	"remedy": concat("", [
		$"stop it first: kubectl sallyport stop {shell.word(_name)} -n {shell.word(input.request.namespace)}",
		$"; to override this policy temporarily: {override.command("machines-running", input.request, _old.metadata)}",
	]),
	"details": {"kind": "VirtualMachine", "name": _name},
} if {
	not _old.metadata.deletionTimestamp
	not machines.adopted(_old.spec.runtime)
	_phase in _on
	not _exempt
}

# The phases in which the machine is on, or may be.
_on := {"Starting", "Running", "Degraded", "Paused", "Stopping", "Migrating"}

_exempt if input.request.userInfo.username in data.parameters.exempt.users

_exempt if {
	some group in input.request.userInfo.groups
	group in data.parameters.exempt.groups
}

_old := input.request.oldObject

_name := _old.metadata.name

_phase := object.get(_old, ["status", "phase"], "Pending")
