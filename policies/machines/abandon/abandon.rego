# METADATA
# title: Who may abandon an instance, take one over, or remove a finalizer of Sallyport
# description: >-
#   With annotation sallyport.dev/abandon-instance Sallyport deletes a VirtualMachine whose runtime is unreachable, and leaves
#   its instance there. With annotation sallyport.dev/source-fenced Sallyport treats the node of an instance as dead: it removes
#   the instance without the node's agent, and if the node is alive, the machine runs twice. With annotation
#   sallyport.dev/take-over a VirtualMachine, VirtualDisk or VSphereTemplate takes over what the runtime has for an object of the same name with
#   another UID, as after a restore; with annotation sallyport.dev/make-anew Sallyport creates another machine or disk beside it.
#   That object can be one of another cluster. Setting any of these annotations requires the verb override on this policy.
#   Removing it requires no permission. The same verb is required to remove Sallyport's finalizer from a VirtualMachine, VirtualDisk, VMDiskImage or
#   VSphereTemplate that is not being deleted, or that still has something on its runtime or has begun something there: without it, Sallyport
#   no longer knows what is there.
package sallyport.machines.abandon

import data.sallyport.lib.shell

# METADATA
# title: Whether the requester may set the annotations
# description: Evaluated only if the request sets one of the annotations, or removes the finalizer.
facts["override"] := {"access": {
	"verb": "override",
	"group": "sallyport.dev",
	"resource": "regopolicies",
	"name": "machines-abandon",
}} if {
	_asks
}

facts["override"] := null if not _asks

valid_input if {
	_kind
	input.request.object.metadata
	_known_old
	_who != ""
	_known_override
}

# METADATA
# title: The requester may not set the annotation
# custom:
#   reason: AbandonNotAllowed
#   remedyInMessage: Wait until the runtime or the node is reachable, or ask a cluster administrator for the verb override on this policy.
deny contains {
	"reason": "AbandonNotAllowed",
	"message": $"{_kind} {_name}: {_who} cannot set annotation {key}",
	"cause": $"it {_effects[key]}",
	"remedy": "ask a cluster administrator for the verb override on RegoPolicy machines-abandon",
	"details": {"group": "sallyport.dev", "kind": _kind, "name": _name, "field": $"metadata.annotations[{key}]"},
} if {
	some key in _written
	not input.facts.override == true
}

# METADATA
# title: The requester may not remove the finalizer
# custom:
#   reason: FinalizerRequired
#   remedyInMessage: Delete the object and wait, or ask a cluster administrator for the verb override on this policy.
deny contains {
	"reason": "FinalizerRequired",
	"message": $"{_kind} {_name}: {_who} cannot remove finalizer {finalizer}",
	"cause": $"{why}",
	"remedy": concat("", [
		"delete it and wait until Sallyport removes the finalizer, or ask a cluster administrator for the verb override on RegoPolicy machines-abandon",
		_instead,
	]),
	"details": {"group": "sallyport.dev", "kind": _kind, "name": _name, "field": "metadata.finalizers"},
} if {
	some finalizer in _removed
	some why in _needed
	not input.facts.override == true
}

# A VirtualMachine is given up by an annotation, which needs the same verb.
_instead := concat("", [
	$" (kubectl annotate svm {shell.word(_name)} -n {shell.word(input.request.namespace)} ",
	$"sallyport.dev/abandon-instance={shell.word(input.request.object.metadata.uid)})",
]) if _kind == "VirtualMachine"

_instead := "" if _kind != "VirtualMachine"

_asks if count(_written) > 0

_asks if {
	count(_removed) > 0
	count(_needed) > 0
}

_ours := {
	"sallyport.dev/virtual-machine", "sallyport.dev/virtual-disk", "sallyport.dev/vm-disk-image",
	"sallyport.dev/vsphere-template",
}

_removed := {finalizer |
	some finalizer in _finalizers(_old)
	finalizer in _ours
	not _keeps(finalizer)
}

_keeps(finalizer) if finalizer in _finalizers(input.request.object)

_finalizers(of) := object.get(_metadata(of), "finalizers", [])

# Why the finalizer is still needed.
_needed contains "the object is not being deleted" if not _terminating

_needed contains "its instance still exists on the runtime" if {
	_terminating
	not _abandoned
	_exists
}

# What is in flight is recorded in no other field of the status until it exists.
_needed contains "what was begun for it on the runtime is not undone yet" if {
	_terminating
	not _abandoned
	not _exists
	_begun
}

_exists if {
	some field in ["instanceID", "diskID", "failureDomains", "attempt"] # of a machine, a disk, a template and an image
	_has(field)
}

# A machine or a disk that is being made; a machine with a claim; and a disk that is being copied.
_begun if {
	some field in ["provisioningSince", "activeOperation", "undoing", "image", "copySnapshot"]
	_has(field)
}

_has(field) if not object.get(_old, ["status", field], null) in {null, "", []}

_terminating if object.get(_metadata(_old), "deletionTimestamp", null) != null

_abandoned if _value(_old, "sallyport.dev/abandon-instance") == object.get(_metadata(_old), "uid", "")

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
	"vmdiskimages": "VMDiskImage",
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

_value(of, key) := object.get(of, ["metadata", "annotations", key], null)

_metadata(of) := object.get(of, "metadata", {})

_known_old if input.request.operation == "CREATE"

_known_old if {
	input.request.operation == "UPDATE"
	input.request.oldObject.metadata
}

_known_override if {
	not _asks
	input.facts.override == null
}

_known_override if {
	_asks
	is_boolean(input.facts.override)
}
