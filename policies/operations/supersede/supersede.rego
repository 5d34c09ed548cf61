# METADATA
# title: One operation at a time
# description: >-
#   A VirtualMachine carries out one operation at a time. A new operation is admitted only if it can supersede every unfinished
#   one, as the table data.parameters.supersededBy says. While the machine is between two nodes, no operation can supersede the move.
package sallyport.operations.supersede

import data.sallyport.lib.operations
import data.sallyport.lib.shell

# METADATA
# title: Unfinished operations of the same VirtualMachine
# description: An operation in phase Terminating is unfinished, because its effect may still be in progress.
facts.unfinished := {
	"apiVersion": "sallyport.dev/v1alpha1",
	"kind": "VirtualMachineOperation",
	"namespace": input.request.namespace,
	"fields": {"spec.virtualMachineName": input.request.object.spec.virtualMachineName},
	"except": {"status.phase": ["Completed", "Failed"]},
}

# METADATA
# title: The VirtualMachine, whose status has the claim
facts.vm := {
	"apiVersion": "sallyport.dev/v1alpha1",
	"kind": "VirtualMachine",
	"namespace": input.request.namespace,
	"name": input.request.object.spec.virtualMachineName,
}

valid_input if {
	# The engine checks types; here are presence and values.
	operations.known(input.request.object.spec)
	valid_parameters
	every op in input.facts.unfinished { _known_operation(op) }
	_known_machine
}

# METADATA
# title: Another operation is in progress
# description: The new operation cannot supersede an unfinished operation of the VirtualMachine.
# custom:
#   reason: OperationInProgress
#   remedyInMessage: Wait until the unfinished operation ends, delete it, or request an operation that the message lists.
deny contains {
	"reason": "OperationInProgress",
	"code": 409,
	"message": $"{_forbidden}",
	"cause": $"{_called(op)} is {_state(op)}",
	"remedy": $"{_way_out}",
	"details": {"kind": "VirtualMachineOperation", "name": op.metadata.name},
} if {
	some op in _unfinished
	not _may_supersede(op)
	not _travels
}

# METADATA
# title: The VirtualMachine is claimed by something other than an operation
# description: The run policy, placement, a rollout or the deletion holds the claim, and the new operation cannot supersede it.
# custom:
#   reason: OperationInProgress
#   remedyInMessage: Wait until the claim is released, or request an operation that the message lists.
deny contains {
	"reason": "OperationInProgress",
	"code": 409,
	"message": $"{_forbidden}",
	"cause": $"{_holder_called} is in progress",
	"remedy": $"{_way_out}",
	"details": {"kind": "VirtualMachine", "name": _name},
} if {
	_holder
	not _may_supersede_holder
	not _travels
}

# METADATA
# title: The machine is between two nodes
# description: It may exist only as a snapshot, so that no operation can supersede the move, not even a forced one.
# custom:
#   reason: OperationInProgress
#   remedyInMessage: Wait until the machine arrives, or delete the VirtualMachine.
deny contains {
	"reason": "OperationInProgress",
	"code": 409,
	"message": $"{_forbidden}",
	"cause": $"the machine is moving to {_destination} as a snapshot",
	"remedy": concat("", [
		"no operation is allowed until it arrives; ",
		$"to wait: kubectl wait svm {shell.word(_name)} -n {shell.word(input.request.namespace)} --for=condition=PlacementSettled --timeout=10m",
	]),
	"details": {"kind": "VirtualMachine", "name": _name},
} if {
	_travels
}

# METADATA
# title: Operations that the new operation supersedes
# description: All unfinished operations or none, because an operation that cannot be superseded continues.
outcome.supersedes contains op.metadata.name if {
	count(deny) == 0
	some op in _unfinished
}

# METADATA
# title: Origin of the claim that the new operation supersedes, if the claim is not that of an operation
outcome.supersedes_origins contains _holder.origin if count(deny) == 0

_new := operations.key(input.request.object.spec)

# An operation that is being rolled back is superseded already: the new one waits for it, but is not denied.
_unfinished := [op |
	some op in input.facts.unfinished
	not _undone(op)
]

_undone(op) if {
	some entry in input.facts.vm.status.undoing
	entry.id == op.metadata.uid
}

# The claim of an operation is evaluated from the VirtualMachineOperation: if that is finished or gone, the claim is free.
_holder := holder if {
	holder := input.facts.vm.status.activeOperation
	holder.origin != "Operation"
}

# The argument is the whole operation, because `not` of a call with an undefined argument is undefined instead of true, and
# the denial would be lost.
_may_supersede(op) if _new in data.parameters.supersededBy[operations.key(op.spec)]

_travels if {
	operations.travels(input.facts.vm.status.migration)
	_on_its_way
}

# If a deletion holds the claim, the denial names the deletion.
_on_its_way if input.facts.vm.status.activeOperation.origin != "Deletion"

# Without a claim, a move that is not being rolled back is completed, unless the machine is lost: then its phase is Failed.
_on_its_way if {
	not input.facts.vm.status.activeOperation
	count(object.get(input.facts.vm.status, "undoing", [])) == 0
	input.facts.vm.status.phase == "Migrating"
}

_to := object.get(input.facts.vm.status.migration, ["to", "nodeName"], "")

_destination := $"node {_to}" if _to != ""

_destination := "another node" if _to == ""

# The holder counts as an operation without force. There is no row for Delete: a deletion cannot be superseded.
_may_supersede_holder if _new in data.parameters.supersededBy[_holder.type]

_running contains operations.key(op.spec) if some op in _unfinished

_running contains _holder.type

_allowed := [operations.commands[key] |
	some key in operations.keys
	every running in _running { key in data.parameters.supersededBy[running] }
]

_way_out := $"allowed now: {concat(", ", _allowed)}" if count(_allowed) > 0

_way_out := "no operation is allowed until it ends" if count(_allowed) == 0

_forbidden := $"VirtualMachine {_name}: {operations.command(input.request.object.spec)} is not allowed"

_name := input.request.object.spec.virtualMachineName

_called(op) := $"{operations.name(op.spec)} {op.metadata.name}"

_holder_called := "its deletion" if _holder.origin == "Deletion"

_holder_called := $"{_holder.type} by {_origins[_holder.origin]}" if _holder.origin != "Deletion"

_origins := {
	"RunPolicy": "the run policy",
	"Placement": "placement",
	"Rollout": "a rollout",
	"Deletion": "deletion",
}

_state(op) := object.get({"InProgress": "in progress", "Pending": "pending", "Terminating": "terminating"}, _phase(op), _phase(op))

_phase(op) := object.get(op, ["status", "phase"], "Pending")

# METADATA
# title: The table is valid
# description: supersededBy has a row for each operation and no other, and rows name operations.
valid_parameters if {
	operations.known_table(data.parameters.supersededBy)
	object.keys(data.parameters.supersededBy) == object.keys(operations.names)
}

_known_operation(op) if {
	operations.known(op.spec)
	op.metadata.name != ""
	op.metadata.uid != ""
	_phase(op) != ""
}

_known_machine if input.facts.vm == null

_known_machine if {
	input.facts.vm.metadata.name == input.request.object.spec.virtualMachineName
	every entry in object.get(input.facts.vm, ["status", "undoing"], []) { _known_entry(entry) }
	_known_holder
	operations.known_migration(object.get(input.facts.vm, ["status", "migration"], null))
}

_known_entry(entry) if {
	entry.id != ""
	entry.origin in (object.keys(_origins) | {"Operation"})
}

_known_holder if not input.facts.vm.status.activeOperation

_known_holder if input.facts.vm.status.activeOperation.origin == "Operation"

_known_holder if {
	_holder.origin in {"RunPolicy", "Placement", "Rollout"}
	_holder.type in operations.types
}

_known_holder if {
	_holder.origin == "Deletion"
	_holder.type == "Delete"
}
