# METADATA
# title: Data of VMDiskImages
# description: >-
#   Denies the deletion of the DataVolume, the PersistentVolumeClaim and the VolumeSnapshot of a VMDiskImage. It also denies changes of
#   their labels sallyport.dev/disk-image and sallyport.dev/import-attempt, and new owners. The parameter accounts lists who may do it.
#   The garbage collector may delete objects that have owners, and the namespace controller the objects in a namespace that is
#   being deleted. Objects whose VMDiskImage no longer exists can be deleted.
package sallyport.images.children

import data.sallyport.lib.override
import data.sallyport.lib.shell

# METADATA
# title: The VMDiskImages in the namespace
facts["images"] := {"apiVersion": "sallyport.dev/v1alpha1", "kind": "VMDiskImage", "namespace": input.request.namespace} if _judged

facts["images"] := null if not _judged

# METADATA
# title: The namespace, to check whether it is being deleted
# description: Only read if a namespace controller deletes the object.
facts["namespace"] := {"apiVersion": "v1", "kind": "Namespace", "name": input.request.namespace} if _empties

facts["namespace"] := null if not _empties

valid_input if {
	_request.operation in {"UPDATE", "DELETE"}
	_old.name != ""
	_known_owners(_old)
	_known_new
	_known_images
}

# METADATA
# title: The object has the data of a VMDiskImage
# custom:
#   reason: ImageDataNeeded
#   remedyInMessage: >-
#     Delete the VMDiskImage, which deletes its data once no disk uses it, or override this policy temporarily. An override requires the verb
#     override on the RegoPolicy.
deny contains {
	"reason": "ImageDataNeeded",
	"message": $"{_object}: deletion is not allowed",
	"cause": $"it belongs to VMDiskImage {_image}",
	"remedy": concat("", [
		"to delete the image with its data, once no disk ",
		$"uses it: kubectl delete vmdiskimages {shell.word(_image)} -n {shell.word(_request.namespace)}; {_way_out}",
	]),
	"details": _details,
} if {
	_request.operation == "DELETE"
	_kept
}

# METADATA
# title: The object would be detached from its VMDiskImage
# description: By these labels, Sallyport finds the data of the image. With an owner, the garbage collector would delete it.
# custom:
#   reason: ImageDataDetached
#   remedyInMessage: >-
#     Keep the labels and the owners, or override this policy temporarily. An override requires the verb override on the RegoPolicy.
deny contains {
	"reason": "ImageDataDetached",
	"message": $"{_object}: changing its labels {_labels[0]} and {_labels[1]}, or adding owners, is not allowed",
	"cause": $"it belongs to VMDiskImage {_image}",
	"remedy": $"keep them; {_way_out}",
	"details": object.union(_details, {"field": "metadata.labels"}),
} if {
	_request.operation == "UPDATE"
	_kept
}

_request := input.request

_old := _request.oldObject.metadata

_who := _request.userInfo.username

_labels := ["sallyport.dev/disk-image", "sallyport.dev/import-attempt"]

# Whether the object is one of those that the reconciler of images makes: the name has the UID and the attempt of the labels.
_child if _old.name == $"vmdi-{_old.labels[_labels[0]]}-{_old.labels[_labels[1]]}"

_judged if {
	_child
	object.get(_old, "deletionTimestamp", null) == null
	not _exempt
	_takes
}

_takes if _request.operation == "DELETE"

_takes if {
	_request.operation == "UPDATE"
	some label in _labels
	_label(_request.object.metadata, label) != _label(_old, label)
}

_takes if {
	_request.operation == "UPDATE"
	count(_owners(_request.object.metadata) - _owners(_old)) > 0
}

_label(metadata, name) := object.get(metadata, ["labels", name], null)

_owners(metadata) := {[owner.kind, owner.name, owner.uid] | some owner in object.get(metadata, "ownerReferences", [])}

_exempt if _who in data.parameters.accounts

_exempt if {
	_request.operation == "DELETE"
	_who in data.parameters.garbageCollectors
	count(_owners(_old)) > 0
}

_empties if {
	_judged
	_request.operation == "DELETE"
	_who in data.parameters.namespaceControllers
}

# A namespace that does not exist any longer is deleted.
_emptied if {
	_empties
	input.facts.namespace == null
}

_emptied if {
	_empties
	object.get(input.facts.namespace.metadata, "deletionTimestamp", null) != null
}

_kept if {
	_judged
	not _emptied
	_image
}

_image := [image.metadata.name | some image in input.facts.images; image.metadata.uid == _old.labels[_labels[0]]][0]

_object := $"{_request.kind.kind} {_old.name} in namespace {_request.namespace}"

_details := {"group": _request.resource.group, "kind": _request.kind.kind, "name": _old.name}

_way_out := $"to override this policy temporarily: {override.command("images-children", _request, _old)}"

# An owner or an image without its identity would not be noticed.

_known_new if _request.operation == "DELETE"

_known_new if _known_owners(_request.object.metadata)

_known_owners(metadata) if {
	every owner in object.get(metadata, "ownerReferences", []) {
		every field in ["kind", "name", "uid"] { owner[field] != "" }
	}
}

_known_images if input.facts.images == null

_known_images if {
	every image in input.facts.images {
		image.metadata.name != ""
		image.metadata.uid != ""
	}
}
