# METADATA
# title: Sallyport moves machines instead of evicting their Pods
# description: >-
#   An eviction deletes a Pod, and with the Pod of a machine it would delete the machine. The policy denies the eviction with code
#   429, so that kubectl drain retries it. If the node of the Pod is cordoned, Sallyport creates an Evict operation. After the move
#   the Pod does not exist any more, and the drain can continue.
package sallyport.machines.eviction

import data.sallyport.lib.shell

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
# title: The Pod, which the API server reads only after admission
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
# title: The eviction would delete a machine that Sallyport can move
# custom:
#   reason: MachineIsMoved
#   remedy: Retry until the Pod is gone, as kubectl drain does.
#   override: false
deny contains {
	"reason": "MachineIsMoved",
	"code": 429,
	"message": concat("", [
		$"Pod {input.request.name}: cannot be evicted because that would delete VirtualMachine {_name} ({_phase}{_progress}); ",
		$"if node {_node} is cordoned, Sallyport moves the machine to another node",
	]),
	"details": _details,
} if {
	_is_machine
	not _outdated
	not _is_off
}

# METADATA
# title: The eviction would delete a machine that is not running
# custom:
#   reason: MachineIsOff
#   remedyInMessage: Set spec.nodeName of the VirtualMachine to another node with the command in the message, or delete the VirtualMachine.
#   override: false
deny contains {
	"reason": "MachineIsOff",
	"code": 429,
	"message": concat("", [
		$"Pod {input.request.name}: cannot be evicted because that would delete VirtualMachine {_name} ({_phase}); ",
		$"to move it off node {_node}: kubectl patch svm {shell.word(_name)} -n {shell.word(input.request.namespace)} ",
		`--type merge -p '{"spec":{"nodeName":"NODE"}}'`,
	]),
	"details": _details,
} if {
	_is_machine
	not _outdated
	_is_off
}

# METADATA
# title: The eviction is for another Pod of this name, or for an earlier state of the Pod
# description: >-
#   The API server would answer the same, after admission. Sallyport does not move the machine.
# custom:
#   reason: Conflict
#   remedy: Read the Pod again, and request its eviction with the UID and resourceVersion that it has now, or without preconditions.
#   override: false
deny contains {
	"reason": "Conflict",
	"code": 409,
	"message": concat("", [
		$"Pod {input.request.name}: cannot be evicted because its {field} is {input.facts.pod.metadata[field]}, ",
		$"but deleteOptions.preconditions.{field} is {wanted}",
	]),
	"details": {"kind": "Pod", "name": input.request.name},
} if {
	_is_machine
	some field, wanted in _differing
}

_outdated if count(_differing) > 0

# The preconditions that the Pod does not meet.
_differing[field] := wanted if {
	some field in ["uid", "resourceVersion"]
	wanted := input.request.object.deleteOptions.preconditions[field]
	wanted != input.facts.pod.metadata[field]
}

_details := {
	"group": "sallyport.dev",
	"kind": "VirtualMachine",
	"name": _name,
}

# The eviction of a Pod that does not exist is admitted: the API server answers it, and kubectl drain sees that the machine was moved.
# A Pod whose name only looks like that of a machine is evicted as any other, and so is the Pod of a machine that is being deleted.
_is_machine if {
	is_object(input.facts.pod)
	is_object(_vm)
	lower(_vm.metadata.uid) == _named.uid
	_vm.spec.runtime.pod != null
	not _vm.metadata.deletionTimestamp
}

_is_machine if _owner

# The name of a Pod has no room for the whole of a long name. The VirtualMachine is then not found by its name, and its status is not known.
_owner := owner.name if {
	some owner in input.facts.pod.metadata.ownerReferences
	owner.controller == true
	owner.kind == "VirtualMachine"
	startswith(owner.apiVersion, "sallyport.dev/")
	lower(owner.uid) == _named.uid
	startswith(owner.name, _named.vm)
	owner.name != _named.vm
}

_is_off if _phase in {"Stopped", "Paused", "Failed"}

_vm := input.facts.vm

_name := _owner

_name := _vm.metadata.name if not _owner

_status := object.get(_vm, "status", {}) if not _owner

_status := {"phase": "phase unknown", "nodeName": object.get(input.facts.pod, ["spec", "nodeName"], "")} if _owner

_phase := object.get(_status, "phase", "Pending")

_node := object.get(_status, "nodeName", "")

_progress := $", step {_status.migration.step}" if is_string(_status.migration.step)

default _progress := ""

# The Pod of a machine is named NAME-UID, or NAME-UID-MOVE after a move. A UID has five groups, the last of 12 digits, and MOVE has
# 8 digits.
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
