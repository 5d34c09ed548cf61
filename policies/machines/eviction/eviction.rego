# METADATA
# title: A machine is moved instead of evicted
# description: >-
#   An eviction deletes a Pod, and the Pod of a machine is the machine. The policy refuses it with code 429, upon which kubectl drain
#   tries again. If the Pod's node is cordoned, Sallyport creates an Evict operation instead. Once that has moved the machine, the
#   Pod is gone, which is what the eviction was for.
package sallyport.machines.eviction

# METADATA
# title: The VirtualMachine that the Pod is named after
facts["vm"] := {
	"apiVersion": "sallyport.dev/v1alpha1",
	"kind": "VirtualMachine",
	"namespace": input.request.namespace,
	"name": _named.vm,
} if {
	_named
}

facts["vm"] := null if not _named

# METADATA
# title: The Pod, which the API server looks for only after it has asked
facts["pod"] := {
	"apiVersion": "v1",
	"kind": "Pod",
	"namespace": input.request.namespace,
	"name": input.request.name,
} if {
	_named
}

facts["pod"] := null if not _named

valid_input if {
	_text(input.request.name)
	_text(input.request.namespace)
	_known_machine
}

# METADATA
# title: The eviction would delete a machine, which is moved instead
# custom:
#   reason: MachineIsMoved
#   remedy: Try again until the Pod is gone, as kubectl drain does.
deny contains {
	"reason": "MachineIsMoved",
	"code": 429,
	"message": concat("", [
		$"Pod {input.request.name} cannot be evicted because that would delete VirtualMachine {_vm.metadata.name} ({_phase}{_progress}); ",
		$"Sallyport moves the machine to another node instead if node {_node} is cordoned",
	]),
	"details": _details,
} if {
	_is_machine
	not _is_off
}

# METADATA
# title: The eviction would delete a machine that is off
# custom:
#   reason: MachineIsOff
#   remedyInMessage: Set spec.nodeName of the VirtualMachine to another node, or delete the VirtualMachine.
deny contains {
	"reason": "MachineIsOff",
	"code": 429,
	"message": concat("", [
		$"Pod {input.request.name} cannot be evicted because that would delete VirtualMachine {_vm.metadata.name}, which is {_phase}; ",
		$"to move it off node {_node}, set spec.nodeName of the VirtualMachine to another node",
	]),
	"details": _details,
} if {
	_is_machine
	_is_off
}

_details := {
	"group": "sallyport.dev",
	"kind": "VirtualMachine",
	"name": _vm.metadata.name,
}

# A Pod that is gone can be evicted: by that kubectl drain notices that a machine was moved. A Pod that only looks like that of a machine is
# evicted as any other, and so is that of a machine that is being deleted.
_is_machine if {
	is_object(input.facts.pod)
	is_object(_vm)
	lower(_vm.metadata.uid) == _named.uid
	_vm.spec.runtime.pod != null
	not _vm.metadata.deletionTimestamp
}

_is_off if _phase in {"Stopped", "Paused", "Failed"}

_vm := input.facts.vm

_status := object.get(_vm, "status", {})

_phase := object.get(_status, "phase", "Pending")

_node := object.get(_status, "nodeName", "")

_progress := $", step {_status.migration.step}" if is_string(_status.migration.step)

default _progress := ""

# Pods of machines are called NAME-UID, or NAME-UID-MOVE: a UID has five groups, of which the last has 12 digits, and what is left of
# a move's has 8.
_named := {"vm": concat("-", array.slice(_groups, 0, _first)), "uid": lower(concat("-", array.slice(_groups, _first, _first + 5)))} if {
	_first > 0
}

_groups := split(input.request.name, "-")

_first := count(_groups) - 5 if count(_groups[count(_groups) - 1]) == 12

_first := count(_groups) - 6 if count(_groups[count(_groups) - 1]) == 8

# Types.

_known_machine if input.facts.vm == null

_known_machine if {
	_text(_vm.metadata.name)
	_text(_vm.metadata.uid)
	is_object(_status)
	is_string(_phase)
	is_string(_node)
}

_text(value) if {
	is_string(value)
	value != ""
}
