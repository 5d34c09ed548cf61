# What the policy relies on in the request and the facts, besides the types of their fields.
package sallyport.placement.migration

import data.sallyport.lib.operations

_known_request if {
	_of_operation
	input.request.operation == "CREATE"
	is_string(input.request.namespace)
	input.request.namespace != ""
	operations.known(input.request.object.spec)
	object.get(input.request.object.spec, ["migrate", "nodeName"], "any") != ""
}

_known_request if {
	input.request.resource.resource == "virtualmachines"
	input.request.operation == "UPDATE"
	is_string(input.request.namespace)
	input.request.namespace != ""
	_known_machine(input.request.oldObject)
	input.request.object.spec
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
	input.facts.vm.metadata.name == _name
	_known_machine(input.facts.vm)
}

_known_node if input.facts.node == null

_known_node if input.facts.node.metadata.name == _to

_known_moving if input.facts.moving == null

_known_moving if {
	every vm in input.facts.moving {
		vm.metadata.name != ""
		vm.metadata.namespace != ""
	}
}

_known_machine(vm) if {
	vm.metadata.name != ""
	_known_runtime(vm)
	every holder in array.concat([claim | claim := vm.status.activeOperation], object.get(vm, ["status", "undoing"], [])) {
		holder.type != ""
		holder.origin != ""
	}
	operations.known_migration(object.get(vm, ["status", "migration"], null))
}

_known_runtime(vm) if _in_cluster(vm)

_known_runtime(vm) if _server_of(vm)
