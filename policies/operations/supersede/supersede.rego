# METADATA
# title: One operation at a time
# description: >-
#   A VirtualMachine carries out one operation at a time. A new one takes the place of those that are unfinished only if
#   each of them yields to it, as the table data.parameters.yieldsTo says; else it is refused. Of a machine between two nodes, none yields.
package sallyport.operations.supersede

import data.sallyport.lib.operations

# METADATA
# title: Unfinished operations of the same VirtualMachine
# description: An operation in phase Terminating is unfinished too, its effect may still be under way.
facts.unfinished := {
	"apiVersion": "sallyport.dev/v1alpha1",
	"kind": "VirtualMachineOperation",
	"namespace": input.request.namespace,
	"fields": {"spec.virtualMachineName": input.request.object.spec.virtualMachineName},
	"except": {"status.phase": ["Completed", "Failed"]},
}

# METADATA
# title: The VirtualMachine, for its claim
facts.vm := {
	"apiVersion": "sallyport.dev/v1alpha1",
	"kind": "VirtualMachine",
	"namespace": input.request.namespace,
	"name": input.request.object.spec.virtualMachineName,
}

valid_input if {
	operations.known(input.request.object.spec)
	valid_parameters
	is_array(input.facts.unfinished)
	every op in input.facts.unfinished { _known_operation(op) }
	_known_machine
}

# METADATA
# title: Another operation is in progress
# description: An unfinished operation of the VirtualMachine does not yield to the new one.
# custom:
#   reason: OperationInProgress
#   remedyInMessage: Wait until the operation ends, delete it, or create one that the message names.
deny contains {
	"reason": "OperationInProgress",
	"code": 409,
	"message": $"{_called(op)} of {_machine} is {_phase(op)} and does not yield to {_asked}; accepted now: {_accepted}",
	"details": {"kind": "VirtualMachineOperation", "name": op.metadata.name},
} if {
	some op in _unfinished
	not _yields(op)
	not _travels
}

# METADATA
# title: The VirtualMachine is held by something other than an operation
# description: The run policy, a placement, a rollout or the deletion has claimed it, and does not yield to the new one.
# custom:
#   reason: OperationInProgress
#   remedyInMessage: Wait until the VirtualMachine is free, or create an operation that the message names.
deny contains {
	"reason": "OperationInProgress",
	"code": 409,
	"message": $"{_machine} is held by {_holder_called}, which does not yield to {_asked}; accepted now: {_accepted}",
	"details": {"kind": "VirtualMachine", "name": _name},
} if {
	_holder
	not _holder_yields
	not _travels
}

# METADATA
# title: The machine is between two nodes
# description: It may exist only as a snapshot, so that what moves it yields to no operation, not to a forced one either.
# custom:
#   reason: OperationInProgress
#   remedyInMessage: Wait until the machine has arrived, or delete the VirtualMachine.
deny contains {
	"reason": "OperationInProgress",
	"code": 409,
	"message": concat("", [
		$"{_machine} is on its way to {_destination} and does not yield to {_asked}; accepted now: nothing until it has arrived. ",
		$"To wait: kubectl wait svm {_name} -n {input.request.namespace} --for=condition=PlacementSettled --timeout=10m",
	]),
	"details": {"kind": "VirtualMachine", "name": _name},
} if {
	_travels
}

# METADATA
# title: Operations that the new one takes the place of
# description: All of them or none, because what does not yield goes on.
outcome.supersedes contains op.metadata.name if {
	count(deny) == 0
	some op in _unfinished
}

# METADATA
# title: Origin of the claim that the new operation takes over, if that is not an operation
outcome.supersedes_origins contains _holder.origin if count(deny) == 0

_new := operations.key(input.request.object.spec)

# An operation that is being undone has lost already: it is waited for, but it bars nothing.
_unfinished := [op |
	some op in input.facts.unfinished
	not _undone(op)
]

_undone(op) if {
	some entry in input.facts.vm.status.undoing
	entry.id == op.metadata.uid
}

# A claim of an operation is that operation, which is judged from its own object: one that is finished or gone is free.
_holder := holder if {
	holder := input.facts.vm.status.activeOperation
	holder.origin != "Operation"
}

# This takes the whole operation, because `not` of a call with an undefined argument is not true but undefined itself:
# a denial would vanish.
_yields(op) if _new in data.parameters.yieldsTo[operations.key(op.spec)]

_travels if {
	operations.travels(input.facts.vm.status.migration)
	_on_its_way
}

# A move that is being undone is waited for by whoever holds the machine next, and bars nothing.
_on_its_way if input.facts.vm.status.activeOperation.origin != "Deletion"

# A move that nobody holds any more is brought to its end, unless the machine is lost: then its phase is Failed.
_on_its_way if {
	not input.facts.vm.status.activeOperation
	count(object.get(input.facts.vm.status, "undoing", [])) == 0
	input.facts.vm.status.phase == "Migrating"
}

_to := object.get(input.facts.vm.status.migration, ["to", "nodeName"], "")

_destination := $"node {_to}" if _to != ""

_destination := "another node" if _to == ""

# The holder counts as an operation without force. There is no row for Delete: a deletion yields to nothing.
_holder_yields if _new in data.parameters.yieldsTo[_holder.type]

_running contains operations.key(op.spec) if some op in _unfinished

_running contains _holder.type

_acceptable := [operations.names[key] |
	some key in operations.keys
	every running in _running { key in data.parameters.yieldsTo[running] }
]

_accepted := concat(", ", _acceptable) if count(_acceptable) > 0

_accepted := "nothing until it ends" if count(_acceptable) == 0

_asked := operations.name(input.request.object.spec)

_name := input.request.object.spec.virtualMachineName

_machine := $"VirtualMachine {_name}"

_called(op) := $"{operations.name(op.spec)} {op.metadata.name}"

_holder_called := $"{_origins[_holder.origin]} ({_holder.type})"

_origins := {
	"RunPolicy": "the run policy",
	"Placement": "placement",
	"Rollout": "a rollout",
	"Deletion": "deletion",
}

_phase(op) := object.get(op, ["status", "phase"], "Pending")

# METADATA
# title: The table can be read
# description: yieldsTo has a row for each operation and no other, and rows name operations.
valid_parameters if {
	operations.known_table(data.parameters.yieldsTo)
	object.keys(data.parameters.yieldsTo) == object.keys(operations.names)
}

_known_operation(op) if {
	operations.known(op.spec)
	operations.text(op.metadata.name)
	operations.text(op.metadata.uid)
	status := object.get(op, "status", {})
	is_object(status)
	operations.text(object.get(status, "phase", "Pending"))
}

_known_machine if input.facts.vm == null

_known_machine if {
	input.facts.vm.metadata.name == input.request.object.spec.virtualMachineName
	status := object.get(input.facts.vm, "status", {})
	is_object(status)
	undoing := object.get(status, "undoing", [])
	is_array(undoing)
	every entry in undoing { _known_entry(entry) }
	_known_holder(status)
	operations.known_migration(object.get(status, "migration", null))
}

_known_entry(entry) if {
	operations.text(entry.id)
	entry.origin in (object.keys(_origins) | {"Operation"})
	is_string(object.get(entry, "name", ""))
}

_known_holder(status) if not "activeOperation" in object.keys(status)

_known_holder(status) if status.activeOperation.origin == "Operation"

_known_holder(status) if {
	status.activeOperation.origin in {"RunPolicy", "Placement", "Rollout"}
	status.activeOperation.type in operations.types
}

_known_holder(status) if {
	status.activeOperation.origin == "Deletion"
	status.activeOperation.type == "Delete"
}
