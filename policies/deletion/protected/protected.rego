# METADATA
# title: What is protected is not deleted
# description: >-
#   An object of any kind with the label sallyport.dev/deletion-protection: enabled is not deleted. Nor is the label taken off,
#   or the object given an owner, with which it would be deleted. Whoever holds the verb override on the policy can do all of
#   that, once and with a reason. What is being deleted already, what the garbage collector and the end of a namespace take
#   with them, and what data.parameters.exempt has, passes.
package sallyport.deletion.protected

import data.sallyport.lib.override

# METADATA
# title: The namespace that is being emptied
# description: Asked for what a namespace controller deletes, whose word alone does not count.
facts["namespace"] := {
	"apiVersion": "v1",
	"kind": "Namespace",
	"name": input.request.namespace,
} if {
	_emptied
}

facts["namespace"] := null if not _emptied

valid_input if {
	valid_parameters
	_known_request
	_known_objects
	_known_namespace
}

# METADATA
# title: The parameters can be read
# description: >-
#   garbageCollectors and namespaceControllers list users; the rows of exempt have resources, and users, groups or both.
valid_parameters if {
	_known_texts(data.parameters.garbageCollectors)
	_known_texts(data.parameters.namespaceControllers)
	is_array(data.parameters.exempt)
	every row in data.parameters.exempt { _known_row(row) }
}

# METADATA
# title: The object is protected from deletion
# custom:
#   reason: DeletionProtected
#   remedyInMessage: Ask somebody who holds the verb override on the policy; the message has the command that they would type first.
deny contains {
	"reason": "DeletionProtected",
	"message": $"{_object} is protected from deletion by its label {_label}=enabled. {_way_out}, and delete it then",
	"details": _details,
} if {
	_deletes
	not _taken
}

# METADATA
# title: The protection would be taken off
# custom:
#   reason: ProtectionRemoved
#   remedyInMessage: Leave the label as it is, or ask somebody who holds the verb override on the policy.
deny contains {
	"reason": "ProtectionRemoved",
	"message": $"{_object} is protected from deletion, and its label {_label} would be {_told} instead of enabled. {_way_out}, and change the label then",
	"details": _details,
} if {
	_protected_before
	_new_value != "enabled"
	not _exempt
}

# METADATA
# title: The object would get an owner
# description: An object is deleted with its owners, also with one that there never was.
# custom:
#   reason: OwnerAdded
#   remedyInMessage: Leave metadata.ownerReferences as they are, or ask somebody who holds the verb override on the policy.
deny contains {
	"reason": "OwnerAdded",
	"message": $"{_object} is protected from deletion, and would be deleted with its new owner {_owners}. {_way_out}, and add the owner then",
	"details": object.union(_details, {"field": "metadata.ownerReferences"}),
} if {
	_protected_before
	count(_added) > 0
	not _exempt
}

# METADATA
# title: The label has another value than enabled
# custom:
#   reason: UnknownProtection
#   remedyInMessage: Write enabled, or leave the label out.
deny contains {
	"reason": "UnknownProtection",
	"message": $"metadata.labels: {_label} is \"{_new_value}\", with which {_object} would not be protected: the value is enabled, or the label is left out",
	"details": _details,
} if {
	_odd
}

_label := "sallyport.dev/deletion-protection"

_request := input.request

# What is refused.

_deletes if {
	_request.operation == "DELETE"
	_live
	_old_value == "enabled"
}

_protected_before if {
	_request.operation == "UPDATE"
	_live
	_old_value == "enabled"
}

# A subresource such as pods/eviction is created without anything being stored of it.
_odd if {
	_request.operation == "CREATE"
	_whole
	not _new_value in _accepted
}

# One that is there, from before the policy, keeps nobody from writing the rest of the object.
_odd if {
	_request.operation == "UPDATE"
	_live
	_old_value != "enabled"
	_old_value != _new_value
	not _new_value in _accepted
}

_accepted := {"enabled", null}

_live if object.get(_request.oldObject.metadata, "deletionTimestamp", null) == null

_whole if object.get(_request, "subResource", "") == ""

_old_value := _value(_request.oldObject)

_new_value := _value(_request.object)

_value(of) := object.get(_labels(of), _label, null)

_labels(of) := labels if {
	labels := object.get(of.metadata, "labels", null)
	labels != null
}

_labels(of) := {} if object.get(of.metadata, "labels", null) == null

# What else it would be deleted with. The collector compares kind and name as well as the UID, and takes an
# owner that it does not find so for gone. Of the API version only the group counts: who owns is written anew with another one.
_added := [owner |
	some owner in _owners_of(_request.object)
	not _identity(owner) in {_identity(known) | some known in _owners_of(_request.oldObject)}
]

_owners_of(of) := owners if {
	owners := object.get(of.metadata, "ownerReferences", null)
	owners != null
}

_owners_of(of) := [] if object.get(of.metadata, "ownerReferences", null) == null

_identity(owner) := [_group(split(owner.apiVersion, "/")), owner.kind, owner.name, owner.uid]

_group(parts) := parts[0] if count(parts) == 2

_group(parts) := "" if count(parts) != 2

# Who passes.

_who := _request.userInfo.username

_taken if {
	_who in data.parameters.garbageCollectors
	count(_owners_of(_request.oldObject)) > 0
}

_taken if {
	_emptied
	_ending
}

_taken if _exempt

_exempt if {
	some row in data.parameters.exempt
	override.resource(_request.resource) in row.resources
	_one_of(row)
}

_one_of(row) if _who in object.get(row, "users", [])

_one_of(row) if {
	some group in object.get(_request.userInfo, "groups", [])
	group in object.get(row, "groups", [])
}

_emptied if {
	_deletes
	override.within(_request)
	_who in data.parameters.namespaceControllers
}

# One that is gone leaves nothing to be in.
_ending if input.facts.namespace == null

_ending if object.get(input.facts.namespace.metadata, "deletionTimestamp", null) != null

# Messages.

# else, and not two rules: of rules that could both hold all of their values would be read, to tell whether they differ.
_stored := _request.object.metadata if _request.operation == "CREATE"

else := _request.oldObject.metadata

_object := concat("", [$"{_request.kind.kind} {_name}", _place])

# A new object may have nothing but a generateName.
_name := object.get(_stored, "name", object.get(_stored, "generateName", ""))

_place := $" in namespace {_request.namespace}" if override.within(_request)

_place := "" if not override.within(_request)

_told := "missing" if _new_value == null

_told := $"\"{_new_value}\"" if _new_value != null

_owners := concat(", ", [$"{owner.kind} {owner.name}" | some owner in _added])

_way_out := $"Somebody who holds the verb override on RegoPolicy deletion-protected can write `{_command}`"

_command := override.command("deletion-protected", _request, _stored)

_details := {
	"group": _request.kind.group, "kind": _request.kind.kind, "name": _name,
	"field": "metadata.labels",
}
