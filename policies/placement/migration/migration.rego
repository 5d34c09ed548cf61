# METADATA
# title: Where machines are moved to
# description: >-
#   A machine in the cluster (spec.runtime.pod or kubevirt) is moved to a Node that exists, is ready and is not cordoned, and while not
#   too many others are on their way from or to its nodes. ESXi hosts are no objects in the cluster: whether a machine can be moved to
#   one, its vCenter says later. No machine is moved to the node that it is on, and spec.nodeName stays while an operation
#   holds the machine. Judged are changes of spec.nodeName, and the operations Migrate and Evict.
package sallyport.placement.migration

import data.sallyport.lib.operations

# METADATA
# title: The VirtualMachine that an operation moves
facts["vm"] := {
	"apiVersion": "sallyport.dev/v1alpha1",
	"kind": "VirtualMachine",
	"namespace": input.request.namespace,
	"name": _name,
} if {
	_operates
}

facts["vm"] := null if not _operates

# METADATA
# title: The node that it is to be on
# description: Asked only for a name that a Node can have. An ESXi host is found here only if a Node has the same name, and is not judged by it.
facts["node"] := {"apiVersion": "v1", "kind": "Node", "name": _to} if _asks_for_node

facts["node"] := null if not _asks_for_node

# METADATA
# title: The VirtualMachines that are being moved, in all namespaces
facts["moving"] := {
	"apiVersion": "sallyport.dev/v1alpha1",
	"kind": "VirtualMachine",
	"fields": {"status.phase": "Migrating"},
} if {
	_moves
}

facts["moving"] := null if not _moves

valid_input if {
	_known_request
	_known_facts
}

# METADATA
# title: An operation holds the VirtualMachine, or is being undone
# description: A move that spec.nodeName itself has begun is no obstacle, so that it can be aimed elsewhere or taken back.
# custom:
#   reason: OperationInProgress
#   remedyInMessage: Wait until the operation has ended, or delete it.
deny contains {
	"reason": "OperationInProgress",
	"message": concat("", [
		$"spec.nodeName: {_machine} {_busy}; change it when that has ended. ",
		$"To see how far it is: kubectl sallyport why svm {_name} -n {input.request.namespace}",
	]),
	"details": {"kind": "VirtualMachine", "name": _name, "field": "spec.nodeName"},
} if {
	_retargets
	_busy
}

# METADATA
# title: The machine is on that node already
# custom:
#   reason: AlreadyOnNode
#   remedyInMessage: Name another node, or evict the machine.
deny contains {
	"reason": "AlreadyOnNode",
	"code": 422,
	"message": concat("", [
		$"{_field}: {_machine} is on node {_to} already. ",
		$"To move it anywhere else: kubectl sallyport evict {_name} -n {input.request.namespace}",
	]),
	"details": {"kind": "VirtualMachine", "name": _name, "field": _field},
} if {
	_operates
	_stays
}

# METADATA
# title: The node does not exist
# custom:
#   reason: NodeUnknown
#   remedyInMessage: Name a node that exists.
#   override: false
deny contains {
	"reason": "NodeUnknown",
	"code": 422,
	"message": $"{_field}: node {_to} does not exist. To see those that do: kubectl get nodes",
	"details": {"kind": "Node", "name": _to, "field": _field},
} if {
	_goes_to_node
	input.facts.node == null
}

# METADATA
# title: The node is not ready
# custom:
#   reason: NodeNotReady
#   remedyInMessage: Wait until the node is ready, or name another one.
deny contains {
	"reason": "NodeNotReady",
	"code": 409,
	"message": $"{_field}: node {_to} {_unready}, so {_machine} cannot be moved there. To see others: kubectl get nodes",
	"details": {"kind": "Node", "name": _to, "field": _field},
} if {
	_goes_to_node
	_unready
}

# METADATA
# title: The node takes no more machines
# custom:
#   reason: NodeUnschedulable
#   remedyInMessage: Uncordon the node, or name another one.
deny contains {
	"reason": "NodeUnschedulable",
	"code": 409,
	"message": $"{_field}: node {_to} is cordoned, so {_machine} cannot be moved there. To allow it: kubectl uncordon {_to}",
	"details": {"kind": "Node", "name": _to, "field": _field},
} if {
	_goes_to_node
	not _unready
	input.facts.node.spec.unschedulable == true
}

# METADATA
# title: Too many machines are being moved from or to the node
# custom:
#   reason: TooManyMigrations
#   remedyInMessage: Wait until one of them has arrived, or raise the parameter maxPerNode.
deny contains {
	"reason": "TooManyMigrations",
	"code": 409,
	"message": concat("", [
		$"{_machine} cannot be moved yet: moves in progress from or to node {node}: {count(others)}{_named(others)}, ",
		$"allowed: {data.parameters.maxPerNode}. ",
		"To see them: kubectl get svm -A --field-selector status.phase=Migrating",
	]),
	"details": {"kind": "Node", "name": node},
} if {
	_travels
	_status.nodeName != "" # one that is on no node is not moved, but made
	data.parameters.maxPerNode > 0
	some node in _ends
	others := [other | some other in _others; node in _ends_of(other)]
	count(others) >= data.parameters.maxPerNode
}

# What is asked for.

_operates if {
	_of_operation
	input.request.object.spec.type in _types
}

_types := {"Migrate", "Evict"}

_retargets if {
	input.request.resource.resource == "virtualmachines"
	_before != _to
}

_moves if _operates

_moves if {
	_retargets
	_in_cluster(input.request.oldObject)
	_to != ""
}

_asks_for_node if {
	_moves
	count(_to) <= 253
	regex.match(`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`, _to)
}

_of_operation if input.request.resource.resource == "virtualmachineoperations"

_to := input.request.object.spec.migrate.nodeName if {
	_of_operation
} else := input.request.object.spec.nodeName if {
	not _of_operation
} else := ""

_before := input.request.oldObject.spec.nodeName if {
	input.request.oldObject.spec.nodeName
} else := ""

_field := "spec.migrate.nodeName" if _operates

_field := "spec.nodeName" if _retargets

_name := input.request.object.spec.virtualMachineName if _of_operation

_name := input.request.object.metadata.name if not _of_operation

_machine := $"VirtualMachine {_name}"

# What there is.

_vm := input.facts.vm if _operates

_vm := input.request.oldObject if _retargets

_status := object.get(_vm, "status", {}) if _vm != null

_in_cluster(vm) if {
	runtimes := object.keys(vm.spec.runtime)
	not "vsphere" in runtimes
}

# Of a machine between two nodes the one that it was on is one that it goes to.
_stays if {
	_to != ""
	_to == _status.nodeName
	not _between_nodes
}

_between_nodes if operations.travels(_status.migration)

_travels if {
	_moves
	_in_cluster(_vm)
	not _stays
}

_goes_to_node if {
	_travels
	_to != ""
}

_busy := $"is held by {claim.type} {claim.name}" if {
	claim := _status.activeOperation
	claim.origin == "Operation"
} else := $"is not yet released by {formers[0]}" if {
	formers := [$"{entry.type} {entry.name}" | some entry in _status.undoing; entry.origin == "Operation"]
	count(formers) > 0
}

_unready := "is being deleted" if {
	input.facts.node.metadata.deletionTimestamp
} else := "is not ready" if {
	not _ready
	input.facts.node != null
}

_ready if {
	some condition in input.facts.node.status.conditions
	condition.type == "Ready"
	condition.status == "True"
}

# The nodes that the machine leaves and enters, as far as that is known.
_ends := {node | some node in [_to, _status.nodeName]; node != ""}

# Until status.migration names the target, the claim names that of a Migrate, and the spec that of a placement. An Evict has none yet.
_ends_of(vm) := {node |
	some node in [
		object.get(vm, ["status", "nodeName"], ""),
		object.get(vm, ["status", "migration", "was", "nodeName"], ""),
		object.get(vm, ["status", "migration", "to", "nodeName"], ""),
		object.get(vm, ["status", "activeOperation", "nodeName"], ""),
		_wanted(vm),
	]
	node != ""
}

_wanted(vm) := object.get(vm, ["spec", "nodeName"], "") if _placed(vm)

_wanted(vm) := "" if not _placed(vm)

_placed(vm) if vm.status.activeOperation.origin == "Placement"

_others := [other |
	some other in input.facts.moving
	_in_cluster(other)
	[other.metadata.namespace, other.metadata.name] != [input.request.namespace, _name]
]

# Machines of other namespaces are counted, and nobody is told their names.
_named(others) := $" ({concat(", ", array.slice(names, 0, 3))})" if {
	names := [other.metadata.name | some other in others; other.metadata.namespace == input.request.namespace]
	count(names) > 0
} else := ""

# Types.

_known_request if {
	_of_operation
	input.request.operation == "CREATE"
	operations.text(input.request.namespace)
	operations.known(input.request.object.spec)
	migrate := object.get(input.request.object.spec, "migrate", {})
	is_object(migrate)
	operations.text(object.get(migrate, "nodeName", "any"))
}

_known_request if {
	input.request.resource.resource == "virtualmachines"
	input.request.operation == "UPDATE"
	operations.text(input.request.namespace)
	_known_machine(input.request.oldObject)
	is_object(input.request.object.spec)
	is_string(_to)
	input.request.object.metadata.name == input.request.oldObject.metadata.name
}

_known_facts if {
	_known_vm
	_known_node
	_known_moving
}

_known_vm if input.facts.vm == null

_known_vm if {
	_operates
	input.facts.vm.metadata.name == _name
	_known_machine(input.facts.vm)
}

_known_node if input.facts.node == null

_known_node if {
	_asks_for_node
	input.facts.node.metadata.name == _to
	operations.text(object.get(input.facts.node.metadata, "deletionTimestamp", "none"))
	spec := object.get(input.facts.node, "spec", {})
	is_object(spec)
	is_boolean(object.get(spec, "unschedulable", false))
}

_known_moving if {
	not _moves
	input.facts.moving == null
}

_known_moving if {
	_moves
	is_array(input.facts.moving)
	every vm in input.facts.moving {
		_known_machine(vm)
		operations.text(vm.metadata.namespace)
	}
}

_known_machine(vm) if {
	operations.text(vm.metadata.name)
	is_object(vm.spec)
	is_string(object.get(vm.spec, "nodeName", ""))
	is_object(vm.spec.runtime)
	status := object.get(vm, "status", {})
	is_object(status)
	is_string(object.get(status, "nodeName", ""))
	_known_claim(object.get(status, "activeOperation", null))
	undoing := object.get(status, "undoing", [])
	is_array(undoing)
	every entry in undoing { _known_holder(entry) }
	migration := object.get(status, "migration", null)
	operations.known_migration(migration)
	_known_start(migration)
}

_known_claim(null)

_known_claim(claim) if {
	_known_holder(claim)
	is_string(object.get(claim, "nodeName", ""))
}

_known_holder(holder) if {
	operations.text(holder.type)
	operations.text(holder.origin)
	is_string(object.get(holder, "name", ""))
}

_known_start(null)

_known_start(migration) if {
	was := object.get(migration, "was", {})
	is_object(was)
	is_string(object.get(was, "nodeName", ""))
}
