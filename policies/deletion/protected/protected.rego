# METADATA
# title: Deletion of objects with the label sallyport.dev/deletion-protection
# description: >-
#   Denies the deletion of an object of any kind with the label sallyport.dev/deletion-protection: enabled. It also denies removing
#   the label, and adding an owner with which the object would be deleted, also by a controller that adopts the object. Users who hold the verb override on the policy can
#   override it once, with a reason. The policy allows requests for objects that are already being deleted, deletions by the
#   garbage collector and by the namespace controller, and everything that data.parameters.exempt allows.
package sallyport.deletion.protected

import data.sallyport.lib.override
import data.sallyport.lib.shell

# METADATA
# title: The namespace of the object
# description: Read for deletions by a namespace controller, to verify that the namespace is being deleted.
facts["namespace"] := {
	"apiVersion": "v1",
	"kind": "Namespace",
	"name": input.request.namespace,
} if {
	_emptied
}

facts["namespace"] := null if not _emptied

# METADATA
# title: The owner that would be added, if it is a pool or a machine of Sallyport
# description: If it is protected, too, the object is not deleted together with it.
facts["owner"] := {
	"apiVersion": "sallyport.dev/v1alpha1",
	"kind": _new_owner.kind,
	"namespace": input.request.namespace,
	"name": _new_owner.name,
} if {
	_protected_before
	_new_owner
}

facts["owner"] := null if not _asks_for_owner

_asks_for_owner if {
	_protected_before
	_new_owner
}

valid_input if {
	_known_objects
	_known_owner
}

# METADATA
# title: The object is protected from deletion
# custom:
#   reason: DeletionProtected
#   remedyInMessage: >-
#     Run the command in the message, then delete the object. It requires the verb override on the RegoPolicy.
deny contains {
	"reason": "DeletionProtected",
	"message": $"{_object}: deletion is not allowed",
	"cause": $"its label {_label} is enabled",
	"remedy": $"{_way_out}",
	"details": _details,
} if {
	_deletes
	not _taken
}

# METADATA
# title: The request would remove the protection
# custom:
#   reason: ProtectionRemoved
#   remedyInMessage: >-
#     Keep the label, or run the command in the message and then change the label. It requires the verb override on the RegoPolicy.
deny contains {
	"reason": "ProtectionRemoved",
	"message": $"{_object}: label {_label} cannot {_change}",
	"cause": "it protects the object from deletion",
	"remedy": $"{_way_out}",
	"details": _details,
} if {
	_protected_before
	_new_value != "enabled"
	not _exempt
}

# METADATA
# title: The request would add an owner
# description: >-
#   The garbage collector deletes an object together with its owners, and also if an owner does not exist. An exempt controller may replace
#   owners, and not adopt an object that has none: it would then delete it as one of its own. A VirtualMachinePool or VirtualMachine that is
#   protected itself may become the owner.
# custom:
#   reason: OwnerAdded
#   remedyInMessage: >-
#     Keep metadata.ownerReferences, protect the VirtualMachinePool or VirtualMachine that becomes the owner, or run the command in the
#     message and then add the owner. It requires the verb override on the RegoPolicy.
deny contains {
	"reason": "OwnerAdded",
	"message": $"{_object}: adding owner {_owners} is not allowed",
	"cause": $"the object is protected from deletion (label {_label}=enabled) and would be deleted together with that owner",
	"remedy": $"{_protect_owner}{_way_out}",
	"details": object.union(_details, {"field": "metadata.ownerReferences"}),
} if {
	_protected_before
	count(_added) > 0
	not _replaces_owner
	not _owner_is_protected
}

# METADATA
# title: The label has a value other than enabled
# custom:
#   reason: UnknownProtection
#   remedyInMessage: Set the label to enabled, or remove it.
deny contains {
	"reason": "UnknownProtection",
	"message": $"metadata.labels: value \"{_new_value}\" of label {_label} does not protect {_object}",
	"remedy": "set it to enabled, or remove the label",
	"details": _details,
} if {
	_odd
}

_label := "sallyport.dev/deletion-protection"

_request := input.request

# Denied requests.

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

# Creating a subresource such as pods/eviction stores no object.
_odd if {
	_request.operation == "CREATE"
	_whole
	not _new_value in _accepted
}

# An invalid value that is already stored does not block other changes of the object.
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

# New owners. The garbage collector compares kind, name and UID, and treats an owner that does not match as deleted. Of the API
# version only the group counts: controllers rewrite owner references when the version changes.
_added := [owner |
	some owner in _owners_of(_request.object)
	not _identity(owner) in _owners_before
]

_owners_before := {_identity(known) | some known in _owners_of(_request.oldObject)}

_owners_of(of) := owners if {
	owners := object.get(of.metadata, "ownerReferences", null)
	owners != null
}

_owners_of(of) := [] if object.get(of.metadata, "ownerReferences", null) == null

# An exempt controller replaces owners of what was its own.
_replaces_owner if {
	_exempt
	count(_owners_before) > 0
}

# The only new owner, if it is of a kind whose label can be read.
_new_owner := owner if {
	count(_added) == 1
	some owner in _added
	_group(split(owner.apiVersion, "/")) == "sallyport.dev"
	owner.kind in {"VirtualMachinePool", "VirtualMachine"}
}

_owner_is_protected if {
	input.facts.owner != null
	input.facts.owner.metadata.uid == _new_owner.uid
	object.get(input.facts.owner.metadata, "deletionTimestamp", null) == null
	_value(input.facts.owner) == "enabled"
}

_known_owner if {
	_asks_for_owner
	input.facts.owner == null
}

_known_owner if {
	_asks_for_owner
	input.facts.owner.metadata.uid != ""
}

_known_owner if {
	not _asks_for_owner
	input.facts.owner == null
}

_identity(owner) := [_group(split(owner.apiVersion, "/")), owner.kind, owner.name, owner.uid]

_group(parts) := parts[0] if count(parts) == 2

_group(parts) := "" if count(parts) != 2

# Allowed requesters.

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

# A namespace that does not exist any longer is deleted.
_ending if input.facts.namespace == null

_ending if object.get(input.facts.namespace.metadata, "deletionTimestamp", null) != null

# Messages.

# One rule with else instead of two rules: OPA evaluates the values of all rules that can hold, to compare them.
_stored := _request.object.metadata if _request.operation == "CREATE"

else := _request.oldObject.metadata

_object := concat("", [$"{_request.kind.kind} {_name}", _place])

# A new object may have only a generateName.
_name := object.get(_stored, "name", object.get(_stored, "generateName", ""))

_place := $" in namespace {_request.namespace}" if override.within(_request)

_place := "" if not override.within(_request)

_change := "be removed" if _new_value == null

_change := $"change from enabled to \"{_new_value}\"" if _new_value != null

_owners := concat(", ", [$"{owner.kind} {owner.name}" | some owner in _added])

_protect_owner := concat("", [
	$"to protect that owner, too: kubectl label {shell.word(_short[_new_owner.kind])} {shell.word(_new_owner.name)} ",
	$"-n {shell.word(_request.namespace)} {_label}=enabled; ",
]) if _new_owner

_protect_owner := "" if not _new_owner

_short := {"VirtualMachinePool": "svmpool", "VirtualMachine": "svm"}

_way_out := $"to override this policy temporarily: {override.command("deletion-protected", _request, _stored)}"

_details := {
	"group": _request.kind.group, "kind": _request.kind.kind, "name": _name,
	"field": "metadata.labels",
}
