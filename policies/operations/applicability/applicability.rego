# METADATA
# title: The VirtualMachine can carry out the operation
# description: >-
#   An operation is for a VirtualMachine that exists, is not being deleted, leaves the operation to people by its run
#   policy, and is in a phase in which it can carry it out. The tables are data.parameters.runPolicies and
#   data.parameters.phases. The first of these that is not met refuses; the others would follow from it.
package sallyport.operations.applicability

import data.sallyport.lib.operations

# METADATA
# title: The VirtualMachine that the operation is for
facts["vm"] := {
	"apiVersion": "sallyport.dev/v1alpha1",
	"kind": "VirtualMachine",
	"namespace": input.request.namespace,
	"name": input.request.object.spec.virtualMachineName,
}

valid_input if {
	operations.text(input.request.namespace)
	operations.known(input.request.object.spec)
	valid_parameters
	_known_machine
}

# METADATA
# title: The tables can be read
# description: runPolicies and phases have rows that name operations.
valid_parameters if {
	operations.known_table(data.parameters.runPolicies)
	operations.known_table(data.parameters.phases)
}

# METADATA
# title: The VirtualMachine does not exist
# custom:
#   reason: VirtualMachineNotFound
#   remedy: Name a VirtualMachine of the same namespace, or create it first.
#   override: false
deny contains {
	"reason": "VirtualMachineNotFound",
	"code": 422,
	"message": $"spec.virtualMachineName: {_machine} does not exist in namespace {input.request.namespace}",
	"details": {
		"kind": "VirtualMachine",
		"name": input.request.object.spec.virtualMachineName,
		"field": "spec.virtualMachineName",
	},
} if {
	input.facts.vm == null
}

# METADATA
# title: The VirtualMachine is being deleted
# custom:
#   reason: VirtualMachineTerminating
#   remedy: Wait until it is gone; for a new machine of the same name create the VirtualMachine again.
deny contains {
	"reason": "VirtualMachineTerminating",
	"code": 409,
	"message": $"{_machine} is being deleted, since {_deleted_at}; accepted now: nothing",
	"details": _details,
} if {
	_deleted_at
}

# METADATA
# title: The run policy does not leave this operation to people
# custom:
#   reason: RunPolicyForbids
#   remedyInMessage: Create an operation that the message names, or change spec.runPolicy of the VirtualMachine.
deny contains {
	"reason": "RunPolicyForbids",
	"message": $"{_machine} ({_phase}) has run policy {_run_policy}, which forbids {_asked}; its run policy and phase allow: {_accepted}",
	"details": _details,
} if {
	_usable
	not _run_policy_allows
}

# METADATA
# title: The VirtualMachine is in a phase in which it cannot carry out the operation
# custom:
#   reason: PhaseForbids
#   remedyInMessage: Create an operation that the message names, or wait until the VirtualMachine is in another phase.
deny contains {
	"reason": "PhaseForbids",
	"code": 409,
	"message": $"{_machine} is {_phase} and cannot carry out {_asked}; its run policy and phase allow: {_accepted}",
	"details": _details,
} if {
	_usable
	_run_policy_allows
	not _phase_allows
	_phase != "Failed"
}

# METADATA
# title: The machine is gone from its runtime
# custom:
#   reason: InstanceLost
#   remedyInMessage: Bring the machine back on its runtime, or delete the VirtualMachine and create it again.
#   override: false
deny contains {
	"reason": "InstanceLost",
	"code": 409,
	"message": $"{_machine} has lost its machine, which its runtime does not know any more, and cannot carry out {_asked}; its run policy and phase allow: {_accepted}. Bring the machine back, or delete the VirtualMachine and create it again",
	"details": _details,
} if {
	_usable
	_run_policy_allows
	not _phase_allows
	_phase == "Failed"
}

_new := operations.key(input.request.object.spec)

_deleted_at := input.facts.vm.metadata.deletionTimestamp

_usable if {
	input.facts.vm != null
	not _deleted_at
}

_run_policy := input.facts.vm.spec.runPolicy

# What has not been looked at yet has no phase.
_phase := phase if {
	phase := object.get(input.facts.vm, ["status", "phase"], "")
	phase != ""
}

_phase := "Pending" if object.get(input.facts.vm, ["status", "phase"], "") == ""

_run_policy_allows if _new in data.parameters.runPolicies[_run_policy]

_phase_allows if _new in data.parameters.phases[_phase]

_acceptable := [operations.names[key] |
	some key in operations.keys
	key in data.parameters.runPolicies[_run_policy]
	key in data.parameters.phases[_phase]
]

_accepted := concat(", ", _acceptable) if count(_acceptable) > 0

_accepted := $"nothing while it is {_phase}" if {
	count(_acceptable) == 0
	count(data.parameters.runPolicies[_run_policy]) > 0
}

_accepted := $"nothing while its run policy is {_run_policy}" if count(data.parameters.runPolicies[_run_policy]) == 0

_asked := operations.name(input.request.object.spec)

_machine := $"VirtualMachine {input.request.object.spec.virtualMachineName}"

_details := {"kind": "VirtualMachine", "name": input.request.object.spec.virtualMachineName}

_known_machine if input.facts.vm == null

_known_machine if {
	input.facts.vm.metadata.name == input.request.object.spec.virtualMachineName
	operations.text(object.get(input.facts.vm.metadata, "deletionTimestamp", "none"))
	is_object(object.get(input.facts.vm, "status", {}))
	data.parameters.runPolicies[_run_policy]
	data.parameters.phases[_phase]
}
