# METADATA
# title: Which Secrets a machine may be given
# description: >-
#   A VirtualMachine in a vCenter may name a Secret for cloud-init that whoever creates it may read, whether there is one of that
#   name or not. The same is so for the template of a VirtualMachinePool, and for whoever creates the pool or changes the runtime
#   of its template.
package sallyport.machines.secrets

import data.sallyport.lib.machines

# METADATA
# title: Whether the requester may read the Secret
# description: Asked only if a Secret is named.
facts["readable"] := {"access": {
	"verb": "get",
	"group": "",
	"resource": "secrets",
	"namespace": input.request.namespace,
	"name": _secret.name,
}} if {
	_names_one
}

facts["readable"] := null if not _names_one

valid_input if {
	is_object(_runtime)
	_known
}

# METADATA
# title: The requester may not read the Secret
# custom:
#   reason: SecretNotAllowed
#   remedyInMessage: Name a Secret that you may read, or ask an administrator of the namespace for the verb get on this one.
deny contains {
	"reason": "SecretNotAllowed",
	"message": concat("", [
		$"{_field}: {_who} may not get secrets {_secret.name} in namespace {input.request.namespace}, ",
		"and a machine may only be given a Secret that its creator may read",
	]),
	"details": {"kind": "Secret", "name": _secret.name, "field": _field},
} if {
	_names_one
	not input.facts.readable == true
}

_field := machines.field(input.request, "runtime.vsphere.clone.cloudInit.secretRef.name")

_who := input.request.userInfo.username

_runtime := machines.spec(input.request, "object").runtime

_secret := _runtime.vsphere.clone.cloudInit.secretRef

_names_one if {
	_runtime.vsphere.clone.cloudInit != null
	not _unchanged
}

# What was there was judged when it was written.
_unchanged if {
	input.request.operation == "UPDATE"
	machines.spec(input.request, "oldObject").runtime == _runtime
}

# Types.

_known if {
	not _names_one
	vsphere := object.get(_runtime, "vsphere", {})
	is_object(vsphere)
	is_object(object.get(vsphere, "clone", {}))
	input.facts.readable == null
}

_known if {
	_names_one
	_text(_secret.name)
	_text(_who)
	_text(input.request.namespace)
	is_boolean(input.facts.readable)
}

_text(value) if {
	is_string(value)
	value != ""
}
