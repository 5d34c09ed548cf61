# METADATA
# title: Who may give up on an instance
# description: >-
#   The annotation sallyport.dev/abandon-instance lets a VirtualMachine go whose runtime cannot be asked, and leaves its
#   instance there. The annotation sallyport.dev/source-fenced says that the node of an instance is dead: the instance is
#   removed without its agent, and if the node is alive, the machine then runs twice. To write either takes the verb override
#   on this policy. To take it off takes nothing.
package sallyport.machines.abandon

# METADATA
# title: Whether the requester may give up on an instance
# description: Asked only if one of the annotations is written.
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
# title: The requester may not give up on an instance
# custom:
#   reason: AbandonNotAllowed
#   remedyInMessage: Wait until the runtime or the node answers, or ask a cluster administrator for the verb override on the policy.
deny contains {
	"reason": "AbandonNotAllowed",
	"message": concat("", [
		$"VirtualMachine {_name}: annotation {key} {_effects[key]}, and {_who} may not write it. ",
		"It takes the verb override on RegoPolicy machines-abandon, which a cluster administrator grants",
	]),
	"details": {"group": "sallyport.dev", "kind": "VirtualMachine", "name": _name, "field": $"metadata.annotations[{key}]"},
} if {
	some key in _written
	not input.facts.override == true
}

# What each annotation does.
_effects := {
	"sallyport.dev/abandon-instance": "leaves the instance on its runtime",
	"sallyport.dev/source-fenced": "removes an instance without its agent, so that the machine runs twice if the node is alive",
}

_who := input.request.userInfo.username

_name := object.get(_metadata(input.request.object), "name", object.get(_metadata(input.request.object), "generateName", ""))

# What is taken off, or stays as it was, takes nothing.
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
