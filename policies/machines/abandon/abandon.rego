# METADATA
# title: Who may abandon an instance, or take one over
# description: >-
#   With annotation sallyport.dev/abandon-instance Sallyport deletes a VirtualMachine whose runtime is unreachable, and leaves
#   its instance there. With annotation sallyport.dev/source-fenced Sallyport treats the node of an instance as dead: it removes
#   the instance without the node's agent, and if the node is alive, the machine runs twice. With annotation
#   sallyport.dev/take-over a VirtualMachine, VirtualDisk or VSphereTemplate takes over what the runtime has for an object of the same name with
#   another UID, as after a restore; with annotation sallyport.dev/make-anew Sallyport creates another machine or disk beside it.
#   That object can be one of another cluster. Setting any of these annotations requires the verb override on this policy.
#   Removing it requires no permission.
package sallyport.machines.abandon

# METADATA
# title: Whether the requester may set the annotations
# description: Evaluated only if the request sets one of the annotations.
facts["override"] := {"access": {
	"verb": "override",
	"group": "sallyport.dev",
	"resource": "regopolicies",
	"name": "machines-abandon",
}} if {
	count(_written) > 0
}

facts["override"] := null if count(_written) == 0

valid_input if {
	_kind
	_known_annotations(input.request.object)
	_known_old
	_text(input.request.userInfo.username)
	_known_override
}

# METADATA
# title: The requester may not set the annotation
# custom:
#   reason: AbandonNotAllowed
#   remedyInMessage: Wait until the runtime or the node is reachable, or ask a cluster administrator for the verb override on this policy.
deny contains {
	"reason": "AbandonNotAllowed",
	"message": concat("", [
		$"{_kind} {_name}: {_who} cannot set annotation {key} because it {_effects[key]}; ",
		"ask a cluster administrator for the verb override on RegoPolicy machines-abandon",
	]),
	"details": {"group": "sallyport.dev", "kind": _kind, "name": _name, "field": $"metadata.annotations[{key}]"},
} if {
	some key in _written
	not input.facts.override == true
}

# The effect of each annotation.
_effects := {
	"sallyport.dev/abandon-instance": "leaves the instance on its runtime",
	"sallyport.dev/source-fenced": "removes the instance without its agent, and the machine runs twice if the node is alive",
	"sallyport.dev/take-over": "takes over what another object of this name, perhaps of another cluster, has on the runtime",
	"sallyport.dev/make-anew": "creates another one beside what another object of this name has on the runtime",
}

_kind := {
	"virtualmachines": "VirtualMachine",
	"virtualdisks": "VirtualDisk",
	"vspheretemplates": "VSphereTemplate",
}[input.request.resource.resource]

_who := input.request.userInfo.username

_name := object.get(_metadata(input.request.object), "name", object.get(_metadata(input.request.object), "generateName", ""))

# Removing or keeping an annotation requires no permission.
_written := {key |
	some key, _ in _effects
	some value in [_value(input.request.object, key)]
	value != null
	value != _value(_old, key)
}

_old := input.request.oldObject if input.request.operation == "UPDATE"

_old := {} if input.request.operation != "UPDATE"

_value(of, key) := object.get(object.get(_metadata(of), "annotations", {}), key, null)

_metadata(of) := object.get(of, "metadata", {})

# Types.

_known_old if input.request.operation == "CREATE"

_known_old if {
	input.request.operation == "UPDATE"
	_known_annotations(input.request.oldObject)
}

_known_annotations(of) if {
	is_object(of)
	is_object(_metadata(of))
	annotations := object.get(_metadata(of), "annotations", {})
	is_object(annotations)
	every value in annotations { is_string(value) }
}

_known_override if {
	count(_written) == 0
	input.facts.override == null
}

_known_override if {
	count(_written) > 0
	is_boolean(input.facts.override)
}

_text(value) if {
	is_string(value)
	value != ""
}
