# VMDiskImages that VirtualDisks use.
package sallyport.deletion.references

import data.sallyport.lib.shell

# METADATA
# title: The VirtualDisks of all namespaces that use the VMDiskImage
facts["disks"] := {
	"apiVersion": "sallyport.dev/v1alpha1", "kind": "VirtualDisk",
	"fields": {"status.image.uid": _metadata.uid},
} if {
	_image_judged
}

facts["disks"] := null if not _image_judged

valid_input if {
	input.request.resource.resource == "vmdiskimages"
	input.request.operation == "DELETE"
	input.request.namespace != ""
	_metadata.name != ""
	_metadata.uid != ""
	input.facts.holder == null
	_known_image_facts
}

# METADATA
# title: Disks use the VMDiskImage
# description: Only if the parameter images is Deny.
# custom:
#   reason: ImageReferenced
#   remedyInMessage: >-
#     Delete the disks and the machines that they belong to, or override this policy temporarily. An override requires the verb override on the
#     RegoPolicy. To keep the image and admit no new disks, set spec.retired to true.
deny contains {
	"reason": "ImageReferenced",
	"message": $"VMDiskImage {_metadata.name} in namespace {input.request.namespace}: deletion is not allowed",
	"cause": $"it is used by {_disks}",
	"remedy": $"delete the disks first, or keep the image and admit no new disks: {_retire}; {_way_out}",
	"details": {"kind": "VMDiskImage", "name": _metadata.name},
} if {
	data.parameters.images == "Deny"
	_used
}

# METADATA
# title: The deletion of the VMDiskImage is deferred
# description: Only if the parameter images is Defer.
warn contains concat("", [
	$"VMDiskImage {_metadata.name} in namespace {input.request.namespace} is used by {_disks}: it is Terminating until they are deleted, ",
	"which cannot be undone; no new disk can use it",
]) if {
	data.parameters.images == "Defer"
	_used
}

_image_judged if {
	input.request.resource.resource == "vmdiskimages"
	input.request.operation == "DELETE"
	_live(_metadata)
}

_used if {
	_image_judged
	not _emptied
	count(input.facts.disks) > 0
}

_near := [disk.metadata.name | some disk in input.facts.disks; disk.metadata.namespace == input.request.namespace]

_far := count(input.facts.disks) - count(_near)

# Disks of other namespaces are counted, not named.
_disks := concat(", ", array.concat(
	[$"VirtualDisk {name}" | some name in array.slice(_near, 0, 5)],
	array.concat(
		[$"{count(_near) - 5} more VirtualDisks of the namespace" | count(_near) > 5],
		[$"{_far} VirtualDisks of other namespaces" | _far > 0],
	),
))

_retire := concat(" ", [
	"kubectl patch vmdiskimages", shell.word(_metadata.name), "-n", shell.word(input.request.namespace),
	`--type=merge -p '{"spec":{"retired":true}}'`,
])

_known_image_facts if {
	not _image_judged
	input.facts.machines == null
	input.facts.pools == null
	input.facts.namespace == null
	input.facts.disks == null
}

_known_image_facts if {
	_image_judged
	input.facts.machines == null
	input.facts.pools == null
	every disk in input.facts.disks { _known_disk(disk) }
	_known_namespace(input.facts.namespace)
}

_known_disk(disk) if {
	disk.metadata.name != ""
	disk.metadata.namespace != ""
	disk.status.image.uid == _metadata.uid
}
