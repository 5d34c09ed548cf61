# What the policy relies on in the request and the facts.
package sallyport.placement.migration

import data.sallyport.lib.operations

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
	_known_server
	_known_servers
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
	every vm in input.facts.moving { # of other namespaces, too: one that is not understood counts on the nodes that it names
		operations.text(vm.metadata.name)
		operations.text(vm.metadata.namespace)
	}
}

_known_machine(vm) if {
	operations.text(vm.metadata.name)
	is_object(vm.spec)
	is_string(object.get(vm.spec, "nodeName", ""))
	is_object(vm.spec.runtime)
	_known_runtime(vm)
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
	_known_placement(object.get(status, "placement", null))
}

_known_runtime(vm) if _in_cluster(vm)

_known_runtime(vm) if _server_of(vm)

_known_placement(null)

_known_placement(placement) if {
	operations.text(placement.nodeName)
	is_string(object.get(placement, "inPlaceOf", ""))
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
