# METADATA
# title: Sallyport moves machines instead of evicting their Pods
# description: >-
#   An eviction deletes a Pod, and with the Pod of a machine it would delete the machine. The policy denies the eviction with code
#   429, so that kubectl drain retries it. If the node of the Pod is cordoned, or has a taint that the Pod does not tolerate, Sallyport
#   creates an Evict operation. After the move the Pod does not exist any more, and the drain can continue. Unless API servers identify themselves to the webhook with a client
#   certificate, the node must also have the label sallyport.dev/drain=enabled, because others could request moves in their name.
package sallyport.machines.eviction

import data.sallyport.lib.shell

# METADATA
# title: The Pod, which the API server reads only after admission
facts["pod"] := {
	"apiVersion": "v1",
	"kind": "Pod",
	"namespace": input.request.namespace,
	"name": input.request.name,
}

# METADATA
# title: The VirtualMachines whose machine is the Pod
facts["vms"] := {
	"apiVersion": "sallyport.dev/v1alpha1",
	"kind": "VirtualMachine",
	"namespace": input.request.namespace,
	"fields": {"status.instanceID": input.request.name},
}

# A machine without a UID is not the one that the Pod names, whose eviction is denied all the same.
valid_input := true

# METADATA
# title: The eviction would delete a machine that Sallyport can move
# custom:
#   reason: MachineIsMoved
#   remedyInMessage: Retry until the Pod is gone, as kubectl drain does.
#   override: false
deny contains {
	"reason": "MachineIsMoved",
	"code": 429,
	"message": $"Pod {input.request.name}: cannot be evicted",
	"cause": $"that would delete VirtualMachine {_name} ({_phase}{_progress})",
	"remedy": concat("", [
		$"if node {_node} is cordoned or tainted, Sallyport moves the machine to another node; ",
		$"without the chart value webhook.clientCA, this also needs: kubectl label node {shell.word(_node)} sallyport.dev/drain=enabled. ",
		"Retry until the Pod is gone, as kubectl drain does.",
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
	"message": $"Pod {input.request.name}: cannot be evicted",
	"cause": $"that would delete VirtualMachine {_name} ({_phase})",
	"remedy": concat("", [
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
	"message": $"Pod {input.request.name}: cannot be evicted",
	"cause": $"its {field} is {input.facts.pod.metadata[field]}, but deleteOptions.preconditions.{field} is {wanted}",
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
# A Pod that no VirtualMachine controls is evicted as any other, and so is the Pod of a machine that is being deleted.
_is_machine if {
	_owner
	not _vm.metadata.deletionTimestamp
}

# What controls the Pod, if it is a VirtualMachine. Anybody who may create Pods can name one like that of a machine.
_owner := [owner |
	some owner in input.facts.pod.metadata.ownerReferences
	owner.controller == true
	owner.kind == "VirtualMachine"
	startswith(owner.apiVersion, "sallyport.dev/")
][0]

_vm := [vm | some vm in input.facts.vms; vm.metadata.uid == _owner.uid][0]

_is_off if _phase in {"Stopped", "Paused", "Failed"}

_name := _owner.name

# During a move, the status names the other Pod of the machine.
default _phase := "phase unknown"

_phase := object.get(_vm, ["status", "phase"], "Pending")

_node := object.get(input.facts.pod, ["spec", "nodeName"], "")

default _progress := ""

_progress := $", step {_vm.status.migration.step}" if is_string(_vm.status.migration.step)
