# METADATA
# title: The VirtualMachine can carry out the operation
# description: >-
#   The VirtualMachine of an operation must exist and must not be being deleted, its run policy must allow users to request the
#   operation, nobody may have made its machine unusable on the runtime, and it must be in a phase in which it can carry out the
#   operation. The tables are data.parameters.runPolicies and data.parameters.phases. Only the first condition that is not met is
#   reported.
package sallyport.operations.applicability

import data.sallyport.lib.operations
import data.sallyport.lib.shell

# METADATA
# title: The VirtualMachine of the operation
facts["vm"] := {
	"apiVersion": "sallyport.dev/v1alpha1",
	"kind": "VirtualMachine",
	"namespace": input.request.namespace,
	"name": input.request.object.spec.virtualMachineName,
}

valid_input if {
	# The engine checks types; here are presence and values.
	operations.known(input.request.object.spec)
	valid_parameters
	_known_machine
}

# METADATA
# title: The tables are valid
# description: runPolicies and phases have rows that name operations.
valid_parameters if {
	operations.known_table(data.parameters.runPolicies)
	operations.known_table(data.parameters.phases)
}

# METADATA
# title: The VirtualMachine does not exist
# custom:
#   reason: VirtualMachineNotFound
#   remedyInMessage: Name a VirtualMachine in the same namespace, or create it first.
#   override: false
deny contains {
	"reason": "VirtualMachineNotFound",
	"code": 422,
	"message": $"spec.virtualMachineName: {_machine} does not exist in namespace {input.request.namespace}",
	"remedy": $"{_list}",
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
#   remedyInMessage: Wait until the VirtualMachine is gone. For a new machine of the same name, create the VirtualMachine again.
deny contains {
	"reason": "VirtualMachineTerminating",
	"code": 409,
	"message": $"{_forbidden}",
	"cause": $"it is being deleted (since {_deleted_at})",
	"remedy": concat("", [
		"no operation is allowed; ",
		$"to see what the deletion waits for: kubectl sallyport why svm {shell.word(_name)} -n {shell.word(input.request.namespace)}",
	]),
	"details": _details,
} if {
	_deleted_at
}

# METADATA
# title: The machine is only observed
# custom:
#   reason: MachineObserved
#   remedyInMessage: Set another spec.runPolicy of the VirtualMachine, such as Manual, with which Sallyport adopts the machine.
#   override: false
deny contains {
	"reason": "MachineObserved",
	"message": $"{_forbidden}",
	"cause": "its run policy is Observe, so Sallyport changes nothing on its runtime",
	"remedy": $"to have Sallyport manage the machine: {_to_manual}",
	"details": _details,
} if {
	_usable
	_run_policy == "Observe"
}

# METADATA
# title: The run policy does not allow users to request the operation
# custom:
#   reason: RunPolicyForbids
#   remedyInMessage: Request an operation that the message lists, or change spec.runPolicy of the VirtualMachine.
deny contains {
	"reason": "RunPolicyForbids",
	"message": $"{_forbidden}",
	"cause": $"its run policy is {_run_policy}",
	"remedy": $"{_way_out}; to allow every operation: {_to_manual}",
	"details": _details,
} if {
	_usable
	_run_policy != "Observe"
	not _run_policy_allows
}

# METADATA
# title: An operation that the run policy will undo
warn contains $"run policy {_run_policy} will undo this: to keep it, {_to_manual}" if {
	_usable
	_run_policy in {"AlwaysOn", "AlwaysOff"}
	not _run_policy_allows
	startswith(object.get(input.request.object.spec, "override", ""), "operations-applicability;")
}

# METADATA
# title: Somebody made the machine unusable on its runtime
# custom:
#   reason: InstanceUnusable
#   remedyInMessage: Undo the change on the runtime, as the message and condition Ready say.
deny contains {
	"reason": "InstanceUnusable",
	"code": 409,
	"message": $"{_forbidden}",
	"cause": cause,
	"remedy": "undo that, and then request the operation again",
	"details": _details,
} if {
	_usable
	_run_policy_allows
	some cause in _unusable
}

# METADATA
# title: The VirtualMachine cannot carry out the operation in its phase
# custom:
#   reason: PhaseForbids
#   remedyInMessage: Request an operation that the message lists, or wait until the VirtualMachine is in another phase.
deny contains {
	"reason": "PhaseForbids",
	"code": 409,
	"message": $"{_forbidden}",
	"cause": $"its phase is {_phase}",
	"remedy": $"{_way_out}",
	"details": _details,
} if {
	_usable
	_run_policy_allows
	count(_unusable) == 0
	not _phase_allows
	_phase != "Failed"
}

# METADATA
# title: The runtime has lost the machine
# custom:
#   reason: InstanceLost
#   remedyInMessage: Restore the machine on its runtime, or delete the VirtualMachine and create it again.
#   override: false
deny contains {
	"reason": "InstanceLost",
	"code": 409,
	"message": $"{_forbidden}",
	"cause": "its machine does not exist on the runtime any more (phase Failed)",
	"remedy": $"{_way_out}; restore the machine on the runtime, or delete the VirtualMachine and create it again",
	"details": _details,
} if {
	_usable
	_run_policy_allows
	count(_unusable) == 0
	not _phase_allows
	_phase == "Failed"
}

_new := operations.key(input.request.object.spec)

_deleted_at := input.facts.vm.metadata.deletionTimestamp

_usable if {
	input.facts.vm != null
	not _deleted_at
}

# Why the machine cannot be used, according to its condition Ready.
_unusable contains condition.message if {
	some condition in input.facts.vm.status.conditions
	condition.type == "Ready"
	condition.status == "False"
	condition.reason == "InstanceUnusable"
}

# Policy defaults sets a run policy. Without one, users may request what they may under both defaults.
_run_policy := object.get(input.facts.vm.spec, "runPolicy", "Manual")

# A VirtualMachine that was not reconciled yet has no phase.
_phase := phase if {
	phase := object.get(input.facts.vm, ["status", "phase"], "")
	phase != ""
}

_phase := "Pending" if object.get(input.facts.vm, ["status", "phase"], "") == ""

_run_policy_allows if _new in data.parameters.runPolicies[_run_policy]

_phase_allows if _new in data.parameters.phases[_phase]

_allowed := [operations.commands[key] |
	some key in operations.keys
	key in data.parameters.runPolicies[_run_policy]
	key in data.parameters.phases[_phase]
]

_way_out := $"allowed in phase {_phase}: {concat(", ", _allowed)}" if count(_allowed) > 0

_way_out := $"no operation is allowed in phase {_phase}" if {
	count(_allowed) == 0
	count(data.parameters.runPolicies[_run_policy]) > 0
}

_way_out := "no operation is allowed under this run policy" if count(data.parameters.runPolicies[_run_policy]) == 0

_to_manual := concat(" ", [
	"kubectl patch svm", shell.word(_name), "-n", shell.word(input.request.namespace),
	`--type=merge -p '{"spec":{"runPolicy":"Manual"}}'`,
])

_forbidden := $"{_machine}: {operations.command(input.request.object.spec)} is not allowed"

_machine := $"VirtualMachine {_name}"

_name := input.request.object.spec.virtualMachineName

_list := $"list VirtualMachines with: kubectl get svm -n {shell.word(input.request.namespace)}"

_details := {"kind": "VirtualMachine", "name": _name}

_known_machine if input.facts.vm == null

_known_machine if {
	input.facts.vm.metadata.name == input.request.object.spec.virtualMachineName
	data.parameters.runPolicies[_run_policy]
	data.parameters.phases[_phase]
}
