# METADATA
# title: Who may give up on an instance
# description: >-
#   The annotation sallyport.dev/abandon-instance lets a VirtualMachine go whose runtime cannot be asked, and leaves its
#   instance there. To write it takes the verb override on this policy. To take it off takes nothing.
package sallyport.machines.abandon

# METADATA
# title: Whether the requester may give up on an instance
# description: Asked only if the annotation is written.
facts["override"] := {"access": {
	"verb": "override",
	"group": "sallyport.dev",
	"resource": "regopolicies",
	"name": "machines-abandon",
}} if {
	_abandons
}

facts["override"] := null if not _abandons

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
#   remedyInMessage: Wait until the runtime answers, or ask a cluster administrator for the verb override on the policy.
deny contains {
	"reason": "AbandonNotAllowed",
	"message": concat("", [
		$"VirtualMachine {_name}: annotation {_key} leaves the instance on its runtime, and {_who} may not write it. ",
		"It takes the verb override on RegoPolicy machines-abandon, which a cluster administrator grants",
	]),
	"details": {"group": "sallyport.dev", "kind": "VirtualMachine", "name": _name, "field": $"metadata.annotations[{_key}]"},
} if {
	_abandons
	not input.facts.override == true
}

_key := "sallyport.dev/abandon-instance"

_who := input.request.userInfo.username

_name := object.get(_metadata(input.request.object), "name", object.get(_metadata(input.request.object), "generateName", ""))

_abandons if {
	some value in [_value(input.request.object)]
	value != null
	value != _before
}

_before := _value(input.request.oldObject) if input.request.operation == "UPDATE"

_before := null if input.request.operation != "UPDATE"

_value(of) := object.get(object.get(_metadata(of), "annotations", {}), _key, null)

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
	not _abandons
	input.facts.override == null
}

_known_override if {
	_abandons
	is_boolean(input.facts.override)
}

_text(value) if {
	is_string(value)
	value != ""
}
