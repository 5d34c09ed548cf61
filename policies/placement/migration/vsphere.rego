# ESXi hosts, as the status of the VSphereServer lists them.
package sallyport.placement.migration

# METADATA
# title: The vCenter does not have the host
# custom:
#   reason: NodeUnknown
#   remedyInMessage: Name a host that the message lists, or wait until status.hosts of the VSphereServer lists a new one.
deny contains {
	"reason": "NodeUnknown",
	"code": 422,
	"message": $"{_field}: VSphereServer {_server_name} has no host {_to}",
	"remedy": $"{_choice}. A host that is added to vCenter is listed within a minute",
	"details": {"kind": "VSphereServer", "name": _server_name, "field": _field},
} if {
	_goes_to_host
	_complete
	not _host
}

# METADATA
# title: vCenter is not connected to the host
# custom:
#   reason: NodeNotReady
#   remedyInMessage: Connect the host in vCenter, or name another one.
deny contains {
	"reason": "NodeNotReady",
	"code": 409,
	"message": $"{_field}: {_machine} cannot be moved",
	"cause": $"{_called(_to)} is not connected",
	"remedy": $"connect it in vCenter, or {_choice}",
	"details": {"kind": "VSphereServer", "name": _server_name, "field": _field},
} if {
	_goes_to_host
	_host.connected == false
}

# METADATA
# title: The host is in maintenance mode
# custom:
#   reason: NodeUnschedulable
#   remedyInMessage: End the maintenance mode in vCenter, or name another host.
deny contains {
	"reason": "NodeUnschedulable",
	"code": 409,
	"message": $"{_field}: {_machine} cannot be moved",
	"cause": $"{_called(_to)} is in maintenance mode",
	"remedy": $"end maintenance mode in vCenter, or {_choice}",
	"details": {"kind": "VSphereServer", "name": _server_name, "field": _field},
} if {
	_goes_to_host
	_host.connected == true
	_host.inMaintenance == true
}

_goes_to_host if {
	_travels
	_to != ""
	_current
}

# The VSphereServer that a machine names.

_server_of(vm) := name if {
	name := vm.spec.runtime.vsphere.serverRef.name
	name != ""
}

_server_name := _server_of(_vm)

_asks_for_server if {
	_retargets
	_to != ""
	_server_of(input.request.oldObject)
	not _changes_server
}

# Then spec.nodeName names a host of the new VSphereServer, and the change is not a move.
_changes_server if input.request.object.spec.runtime.vsphere.serverRef.name != _server_of(input.request.oldObject)

_asks_for_servers if {
	_operates
	_to != ""
}

_server := input.facts.server if {
	_retargets
	input.facts.server != null
}

_server := server if {
	_operates
	some server in input.facts.servers
	server.metadata.name == _server_name
}

# Its hosts.

_host := host if {
	some host in _hosts
	host.name == _to
}

_hosts := object.get(_server, ["status", "hosts"], [])

# The list is from the last successful look at the vCenter, which the condition stands for.
_current if {
	some condition in _server.status.conditions
	condition.type == "Ready"
	condition.status == "True"
	condition.observedGeneration == _server.metadata.generation
}

# The VSphereServer reconciler cuts a longer list off.
_complete if count(_hosts) < 2500

_choice := $"use another host (available: {_cut(_available)})" if count(_available) > 0

_choice := "use another host (none is available now)" if count(_available) == 0

_available := [host.name |
	some host in _hosts
	host.connected == true
	host.inMaintenance == false
	host.name != object.get(_status, "nodeName", "")
]

_cut(names) := concat(", ", names) if count(names) <= 5

_cut(names) := $"{concat(", ", array.slice(names, 0, 5))} and {count(names) - 5} more" if count(names) > 5

_known_server if input.facts.server == null

_known_server if {
	input.facts.server.metadata.name == _server_name
	_known_hosts
}

_known_servers if input.facts.servers == null

_known_servers if {
	every server in input.facts.servers { server.metadata.name != "" }
	_known_list
}

# Only the VSphereServer of the machine matters: one that is incomplete is no obstacle to moves elsewhere.
_known_list if not _server

_known_list if _known_hosts

_known_hosts if {
	_server.metadata.generation
	every condition in object.get(_server, ["status", "conditions"], []) {
		condition.type != ""
		condition.status != ""
	}
	every host in _hosts {
		host.name != ""
		is_boolean(host.connected)
		is_boolean(host.inMaintenance)
	}
}
