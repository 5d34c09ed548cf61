# Machines that are made of what is there: the status of the VSphereServer lists what its tenants may use.
package sallyport.servers.tenancy

import data.sallyport.lib.machines
import data.sallyport.lib.tenants

# METADATA
# title: The vCenter does not have a place that the machine would be made from or in
# custom:
#   reason: PlaceNotFound
#   remedyInMessage: Name a place that the message lists, or wait until a new one is in status.inventory of the VSphereServer.
deny contains {
	"reason": "PlaceNotFound",
	"code": 422,
	"message": concat("", [
		$"{_field(place)}: {_server} has no {_kinds[place.allowed]} at {place.path}; it has these that {_namespace} may use: ",
		$"{_present(place)}. A new one can be used within a minute: `kubectl get vsphereserver {_vsphere.serverRef.name} -o yaml` ",
		"lists it in status.inventory",
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
# title: The vCenter does not have the host that the machine is to be on
# custom:
#   reason: HostNotFound
#   remedyInMessage: Name a host that the message lists, or leave spec.nodeName out, and vCenter chooses one.
deny contains {
	"reason": "HostNotFound",
	"code": 422,
	"message": $"{_node_field}: {_server} has no host {_node}; it has: {_present_hosts}. Without {_node_field} vCenter chooses one",
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

# What is about to be made was admitted: what has gone since is for its condition to say.
_new if {
	_cloned
	_straight
	machines.makes(input.request)
	not _found
}

_status := object.get(input.facts.server, "status", {})

# The lists are what the vCenter had at the last look, if that was made by the tenants as they are now.
_current if {
	some condition in _status.conditions
	condition.type == "Ready"
	condition.status == "True"
	condition.observedGeneration == input.facts.server.metadata.generation
}

# vCenter may find a name that is written in another case.
_lacked(place) if {
	not place.any
	place.field != "clone.template.templateRef" # whether that is there yet is the business of the VSphereTemplate
	_status.inventory[place.allowed].complete == true
	every path in _listed(place) { lower(path) != lower(place.path) }
}

_listed(place) := object.get(_status.inventory[place.allowed], "paths", [])

# What others may use does not show.
_present(place) := _cut(_choice(place), ", ") if count(_choice(place)) > 0

_present(place) := "none" if count(_choice(place)) == 0

_choice(place) := [path |
	some path in _listed(place)
	some tenant in _tenants
	tenants.allows(tenant, object.union(place, {"path": path}))
]

_known_status if {
	is_object(_status)
	is_array(object.get(_status, "conditions", []))
	_known_inventory
	is_string(_node)
	every host in object.get(_status, "hosts", []) { is_string(host.name) }
}

_known_inventory if not "inventory" in object.keys(_status)

_known_inventory if {
	every kind in object.keys(_kinds) { _known_list(_status.inventory[kind]) }
}

_known_list(list) if {
	is_boolean(list.complete)
	is_array(object.get(list, "paths", []))
	every path in object.get(list, "paths", []) { is_string(path) }
}
