# METADATA
# title: Who may abandon an instance
# description: >-
#   With annotation sallyport.dev/abandon-instance Sallyport deletes a VirtualMachine whose runtime is unreachable, and leaves
#   its instance there. With annotation sallyport.dev/source-fenced Sallyport treats the node of an instance as dead: it removes
#   the instance without the node's agent, and if the node is alive, the machine runs twice. Setting either annotation requires
#   the verb override on this policy. Removing it requires no permission.
package sallyport.machines.abandon

# METADATA
# title: Whether the requester may abandon an instance
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
	_known_annotations(input.request.object)
	_known_old
	_text(input.request.userInfo.username)
	_known_override
}

# METADATA
# title: The requester may not abandon an instance
# custom:
#   reason: AbandonNotAllowed
#   remedyInMessage: Wait until the runtime or the node is reachable, or ask a cluster administrator for the verb override on this policy.
deny contains {
	"reason": "AbandonNotAllowed",
	"message": concat("", [
		$"VirtualMachine {_name}: {_who} cannot set annotation {key} because it {_effects[key]}; ",
		"ask a cluster administrator for the verb override on RegoPolicy machines-abandon",
	]),
	"details": {"group": "sallyport.dev", "kind": "VirtualMachine", "name": _name, "field": $"metadata.annotations[{key}]"},
} if {
	some key in _written
	not input.facts.override == true
}

# The effect of each annotation.
_effects := {
	"sallyport.dev/abandon-instance": "leaves the instance on its runtime",
	"sallyport.dev/source-fenced": "removes the instance without its agent, and the machine runs twice if the node is alive",
}

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
