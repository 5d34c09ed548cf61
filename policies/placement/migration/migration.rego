# METADATA
# title: Where machines can be moved
# description: >-
#   A machine in the cluster (spec.runtime.pod or kubevirt) can be moved to a Node that exists, is ready and is not cordoned. A machine in a
#   vCenter can be moved to a host that its VSphereServer lists in status.hosts as connected and not in maintenance mode. The policy uses
#   that list only while it is current, and refuses a host that the list lacks only while it is complete; otherwise vCenter decides. The
#   number of machines that move from or to the same node or host at a time is limited, in total and for each namespace, and so is the
#   number of machines of KubeVirt that move anywhere in the cluster. A move by
#   hibernation whose step takes longer than 15 minutes counts only for its own namespace. A machine cannot be moved to the node that it
#   is on, and spec.nodeName cannot change while an operation is in progress. The policy evaluates changes of spec.nodeName, and the
#   operations Migrate and Evict.
package sallyport.placement.migration

import data.sallyport.lib.operations
import data.sallyport.lib.shell

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
# title: The target node
# description: >-
#   Read only if the target is a valid name of a Node. For an operation the runtime of the machine is not known yet, so that a Node
#   with the name of an ESXi host may be read. It is then ignored.
facts["node"] := {"apiVersion": "v1", "kind": "Node", "name": _to} if _asks_for_node

facts["node"] := null if not _asks_for_node

# METADATA
# title: The VSphereServer of the machine, for its hosts
# description: Read only for a change of spec.nodeName to another host of the same VSphereServer.
facts["server"] := {
	"apiVersion": "sallyport.dev/v1alpha1",
	"kind": "VSphereServer",
	"name": _server_of(input.request.oldObject),
} if {
	_asks_for_server
}

facts["server"] := null if not _asks_for_server

# METADATA
# title: All VSphereServers, for the hosts of that of the machine
# description: Read only for an operation that names a node. The VirtualMachine names its VSphereServer, and is itself read as a fact.
facts["servers"] := {"apiVersion": "sallyport.dev/v1alpha1", "kind": "VSphereServer"} if _asks_for_servers

facts["servers"] := null if not _asks_for_servers

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
# title: An operation is in progress or rolling back
# description: A move that spec.nodeName itself has started does not block, so that its target can be changed or the move taken back.
# custom:
#   reason: OperationInProgress
#   remedyInMessage: Wait until the operation has finished, or delete it.
deny contains {
	"reason": "OperationInProgress",
	"message": "spec.nodeName: cannot be changed",
	"cause": $"{_busy}",
	"remedy": $"to see its progress: kubectl sallyport why svm {shell.word(_name)} -n {shell.word(input.request.namespace)}",
	"details": {"kind": "VirtualMachine", "name": _name, "field": "spec.nodeName"},
} if {
	_retargets
	_busy
}

# METADATA
# title: The machine is already on the node
# custom:
#   reason: AlreadyOnNode
#   remedyInMessage: Name another node, or evict the machine.
deny contains {
	"reason": "AlreadyOnNode",
	"code": 422,
	"message": $"{_field}: {_machine} is already on {_called(_to)}",
	"remedy": $"to move it to any other {_place}: kubectl sallyport evict {shell.word(_name)} -n {shell.word(input.request.namespace)}",
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
	"message": $"{_field}: node {_to} does not exist",
	"remedy": "list nodes with: kubectl get nodes",
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
	"message": $"{_field}: {_machine} cannot be moved",
	"cause": $"node {_to} {_unready}",
	"remedy": "list nodes with: kubectl get nodes",
	"details": {"kind": "Node", "name": _to, "field": _field},
} if {
	_goes_to_node
	_unready
}

# METADATA
# title: The node is cordoned
# custom:
#   reason: NodeUnschedulable
#   remedyInMessage: Uncordon the node, or name another one.
deny contains {
	"reason": "NodeUnschedulable",
	"code": 409,
	"message": $"{_field}: {_machine} cannot be moved",
	"cause": $"node {_to} is cordoned",
	"remedy": $"to allow it: kubectl uncordon {shell.word(_to)}",
	"details": {"kind": "Node", "name": _to, "field": _field},
} if {
	_goes_to_node
	not _unready
	input.facts.node.spec.unschedulable == true
}

# METADATA
# title: Too many machines are moving from or to the node or host, or on KubeVirt
# custom:
#   reason: TooManyMigrations
#   remedyInMessage: Wait until one of the moves has finished, or raise the parameter maxPerNode, maxPerHost or maxOnKubeVirt.
deny contains {
	"reason": "TooManyMigrations",
	"code": 409,
	"message": $"{_machine}: cannot be moved",
	"cause": concat("", [
		$"the limit of moves {limit.where} is reached: ",
		$"{count(others)} in progress{_named(others)}, {limit.parameter} is {limit.most}",
	]),
	"remedy": "list moves with: kubectl get svm -A --field-selector status.phase=Migrating",
	"details": limit.owner,
} if {
	some limit in _limits
	others := [other | some other in limit.moves; not _stalled(other)]
	count(others) >= limit.most
}

# METADATA
# title: Too many machines of the namespace are moving from or to the node or host, or on KubeVirt
# custom:
#   reason: TooManyMigrations
#   remedyInMessage: Wait until one of the moves has finished, or raise the parameter maxPercentPerNamespace.
deny contains {
	"reason": "TooManyMigrations",
	"code": 409,
	"message": $"{_machine}: cannot be moved",
	"cause": concat("", [
		$"namespace {input.request.namespace} has reached its share of the moves ",
		$"{limit.where}: {count(own)} in progress{_named(own)}, maxPercentPerNamespace is {_percent} and {limit.parameter} is {limit.most}",
	]),
	"remedy": $"list moves with: kubectl get svm -n {shell.word(input.request.namespace)} --field-selector status.phase=Migrating",
	"details": limit.owner,
} if {
	some limit in _limits
	own := [other | some other in limit.moves; other.metadata.namespace == input.request.namespace]
	count(own) >= ceil((limit.most * _percent) / 100)
	count(own) < limit.most
}

# The request.

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
	_to != ""
}

_asks_for_node if {
	_moves
	_may_be_in_cluster
	count(_to) <= 253
	regex.match(`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`, _to)
}

_may_be_in_cluster if _operates

_may_be_in_cluster if _in_cluster(input.request.oldObject)

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

# The state of the machine and its target.

_vm := input.facts.vm if _operates

_vm := input.request.oldObject if _retargets

_status := object.get(_vm, "status", {}) if _vm != null

_in_cluster(vm) if {
	vm.spec.runtime
	not vm.spec.runtime.vsphere
}

# While a machine is between two nodes, the node that it was on is a target like any other.
_stays if {
	_to != ""
	_to == _status.nodeName
	not _between_nodes
}

_between_nodes if operations.travels(_status.migration)

_travels if {
	_moves
	_vm != null
	not _stays
}

_goes_to_node if {
	_travels
	_in_cluster(_vm)
	_to != ""
}

_busy := $"{claim.type} {claim.name} of {_machine} is in progress" if {
	claim := _status.activeOperation
	claim.origin == "Operation"
} else := $"{formers[0]} of {_machine} is rolling back" if {
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

# Moves.

_limit := data.parameters.maxPerNode if _in_cluster(_vm)

_limit := data.parameters.maxPerHost if _server_of(_vm)

_percent := object.get(data.parameters, "maxPercentPerNamespace", 100)

# The limits that apply to the move, with the other moves that count.
_limits contains limit if {
	_relocates
	_limit > 0
	some node in _ends
	limit := {
		"where": $"from or to {_called(node)}", "parameter": _parameter, "most": _limit, "moves": _moves_at(node), "owner": _owner(node),
	}
}

# KubeVirt queues the migrations beyond its own limit, those of drains included, and a stuck one keeps its place.
_limits contains limit if {
	_relocates
	_on_kubevirt(_vm)
	most := object.get(data.parameters, "maxOnKubeVirt", 0)
	most > 0
	limit := {
		"where": "on KubeVirt", "parameter": "maxOnKubeVirt", "most": most,
		"moves": [other | some other in _others; _on_kubevirt(other)], "owner": {"kind": "VirtualMachine", "name": _name},
	}
}

_relocates if {
	_travels
	_status.nodeName != "" # a machine that is on no node is not moved but created
}

_on_kubevirt(vm) if vm.spec.runtime.kubevirt

_moves_at(node) := [other | some other in _others; node in _ends_of(other)]

# A step that takes this long is blocked and does not load the node. If it counted for other namespaces, the tenant that blocks it, for
# example with a finalizer on the Pod, would stop their moves.
_stalled(other) if {
	other.metadata.namespace != input.request.namespace
	since := other.status.migration.since
	regex.match(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$`, since)
	time.parse_rfc3339_ns(since) < time.parse_rfc3339_ns(input.now) - _patience
}

_patience := ((15 * 60) * 1000) * 1000000

_parameter := "maxPerNode" if _in_cluster(_vm)

_parameter := "maxPerHost" if _server_of(_vm)

_place := "node" if _in_cluster(_vm)

_place := "host" if _server_of(_vm)

_called(node) := $"node {node}" if _in_cluster(_vm)

_called(host) := $"host {host} of VSphereServer {_server_of(_vm)}" if _server_of(_vm)

_owner(node) := {"kind": "Node", "name": node} if _in_cluster(_vm)

_owner(_) := {"kind": "VSphereServer", "name": _server_of(_vm)} if _server_of(_vm)

# The nodes that the machine leaves and enters, as far as they are known.
_ends := {node | some node in [_to, _status.nodeName]; node != ""}

# Until status.migration names the target, it is in the claim of a Migrate, and in the spec for a placement. An Evict has no target yet.
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

_wanted(vm) := "" if not _placed(vm)

_wanted(vm) := _chosen(vm) if _placed(vm)

_placed(vm) if vm.status.activeOperation.origin == "Placement"

# The node that an operation has chosen overrides spec.nodeName until that changes.
_chosen(vm) := vm.status.placement.nodeName if {
	object.get(vm, ["status", "placement", "inPlaceOf"], "") == object.get(vm.spec, "nodeName", "")
} else := object.get(vm.spec, "nodeName", "")

_others := [other |
	some other in input.facts.moving
	_beside(other)
	[other.metadata.namespace, other.metadata.name] != [input.request.namespace, _name]
]

# A Node and an ESXi host, or hosts of two vCenters, may have the same name.
_beside(other) if {
	_in_cluster(_vm)
	_in_cluster(other)
}

_beside(other) if _server_of(other) == _server_of(_vm)

# Machines of other namespaces are counted, but their names are not shown.
_named(others) := $" ({concat(", ", array.slice(names, 0, 3))})" if {
	names := [other.metadata.name | some other in others; other.metadata.namespace == input.request.namespace]
	count(names) > 0
} else := ""
