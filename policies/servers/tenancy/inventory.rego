# New machines require existing places: the status of the VSphereServer lists what its tenants may use.
package sallyport.servers.tenancy

import data.sallyport.lib.machines
import data.sallyport.lib.shell
import data.sallyport.lib.tenants

# METADATA
# title: A place of the new machine does not exist in the vCenter
# custom:
#   reason: PlaceNotFound
#   remedyInMessage: Use a place in the message, or wait until a new one is listed in status.inventory of the VSphereServer.
deny contains {
	"reason": "PlaceNotFound",
	"code": 422,
	"message": $"{_field(place)}: {_kinds[place.allowed]} {place.path} does not exist on {_server}",
	"remedy": concat("", [
		$"available to {_namespace}: {_present(place)}; ",
		$"new ones appear in status.inventory within a minute: kubectl get vsphereserver {shell.word(_vsphere.serverRef.name)} -o yaml",
	]),
	"details": _details(_field(place)),
} if {
	_new
	_current
	count(_refused) == 0
	some place in _places
	_lacked(place)
}

_kinds := {
	"templates": "template", "folders": "folder", "resourcePools": "resource pool, cluster or host", "datastores": "datastore",
	"networks": "network",
}

# METADATA
# title: The host does not exist in the vCenter
# custom:
#   reason: HostNotFound
#   remedyInMessage: Use a host in the message, or leave spec.nodeName empty to let vCenter choose one.
deny contains {
	"reason": "HostNotFound",
	"code": 422,
	"message": $"{_node_field}: host {_node} does not exist on {_server}",
	"remedy": $"available: {_present_hosts}; leave the field empty to let vCenter choose one",
	"details": _details(_node_field),
} if {
	_served
	count(_tenants) > 0
	machines.makes(input.request)
	not _found
	_current
	_node != ""
	not _node in _hosts
}

_node := object.get(_machine, "nodeName", "")

_node_field := machines.field(input.request, "nodeName")

_hosts := sort([host.name | some host in object.get(_status, "hosts", [])])

_present_hosts := _cut(_hosts, ", ") if count(_hosts) > 0

_present_hosts := "none" if count(_hosts) == 0

# A machine that is about to be cloned was admitted. If a place disappears later, its condition reports it.
_new if {
	_cloned
	_straight
	machines.makes(input.request)
	not _found
}

_status := object.get(input.facts.server, "status", {})

# The lists are current if the last check of the vCenter used the current generation of spec.tenants.
_current if {
	some condition in _status.conditions
	condition.type == "Ready"
	condition.status == "True"
	condition.observedGeneration == input.facts.server.metadata.generation
}

# vCenter may find a name in a different case.
_lacked(place) if {
	not place.any
	place.field != "clone.template.templateRef" # the VSphereTemplate reports whether it exists yet
	_status.inventory[place.allowed].complete == true
	every path in _listed(place) { lower(path) != lower(place.path) }
}

_listed(place) := object.get(_status.inventory[place.allowed], "paths", [])

# Messages list only what this namespace may use.
_present(place) := _cut(_choice(place), ", ") if count(_choice(place)) > 0

_present(place) := "none" if count(_choice(place)) == 0

_choice(place) := [path |
	some path in _listed(place)
	some tenant in _tenants
	tenants.allows(tenant, object.union(place, {"path": path}))
]

_known_inventory if not _status.inventory

_known_inventory if {
	every kind in object.keys(_kinds) { is_boolean(_status.inventory[kind].complete) }
}

_known_hosts if {
	every host in object.get(_status, "hosts", []) { host.name }
}
