# METADATA
# title: Which VMDiskImages disks may be copied from
# description: >-
#   A VirtualMachine, a VirtualDisk or the templates of a VirtualMachinePool may name a VMDiskImage only if it exists, is not being deleted
#   and is not retired. An image of another namespace must allow the namespace in spec.allowedNamespaces. With mode CreateIfNotExist, the
#   image need not exist: the requester must then be allowed to create it, and to get the Secret in its template. Only references that the
#   request adds are evaluated.
package sallyport.images.references

import data.sallyport.lib.machines
import data.sallyport.lib.shell
import data.sallyport.lib.tenants

# METADATA
# title: The VMDiskImage, if the request names one
facts["image"] := {
	"apiVersion": "sallyport.dev/v1alpha1",
	"kind": "VMDiskImage",
	"namespace": _added[0].namespace,
	"name": _added[0].name,
} if {
	count(_added) == 1
}

facts["image"] := null if count(_added) != 1

# METADATA
# title: The VMDiskImages in their namespaces, if the request names several
facts["images"] := {
	"apiVersion": "sallyport.dev/v1alpha1",
	"kind": "VMDiskImage",
	"namespaces": [namespace | some namespace in {ref.namespace | some ref in _added}],
} if {
	count(_added) > 1
}

facts["images"] := null if count(_added) < 2

# METADATA
# title: The namespace of the object, for its labels
facts["namespace"] := {"apiVersion": "v1", "kind": "Namespace", "name": input.request.namespace} if _abroad

facts["namespace"] := null if not _abroad

# METADATA
# title: Whether the requester may create the VMDiskImage
facts["creatable"] := {"access": {
	"verb": "create",
	"group": "sallyport.dev",
	"resource": "vmdiskimages",
	"namespace": _created.namespace,
}} if {
	_creates
}

facts["creatable"] := null if not _creates

# METADATA
# title: Whether the requester may get the Secret in the template
facts["readable"] := {"access": {
	"verb": "get",
	"group": "",
	"resource": "secrets",
	"namespace": _created.namespace,
	"name": _secret,
}} if {
	_names_secret
}

facts["readable"] := null if not _names_secret

valid_input if {
	input.request.operation in {"CREATE", "UPDATE"}
	_known_object
	every template in object.get(_spec("object"), "virtualDiskTemplates", []) { _names(object.get(template.spec, "source", null), "image") }
	_known_before
	every image in _images { # others would be taken for missing
		image.metadata.name != ""
		image.metadata.namespace != ""
	}
}

# METADATA
# title: The VMDiskImage does not exist
# custom:
#   reason: ImageMissing
#   remedyInMessage: Create the image first, or use mode CreateIfNotExist.
deny contains {
	"reason": "ImageMissing",
	"code": 422,
	"message": $"{ref.field}: VMDiskImage {ref.name} does not exist in namespace {ref.namespace}",
	"remedy": $"create it first, or name another one; to list images: kubectl get vmdi -n {shell.word(ref.namespace)}",
	"details": {"kind": "VMDiskImage", "name": ref.name, "field": ref.field},
} if {
	some ref in _added
	not _found(ref)
	not _is_abroad(ref)
	not _creates
	not _waits
	not _restored
}

# METADATA
# title: The VMDiskImage is being deleted
# custom:
#   reason: ImageTerminating
#   remedyInMessage: Name another image, or create the image again once it is gone.
deny contains {
	"reason": "ImageTerminating",
	"message": $"{ref.field}: VMDiskImage {ref.name} in namespace {ref.namespace} is being deleted",
	"remedy": concat("", [
		"name another one, or create it again once it is gone; to see what it waits for: ",
		$"kubectl describe vmdi {shell.word(ref.name)} -n {shell.word(ref.namespace)}",
	]),
	"details": {"kind": "VMDiskImage", "name": ref.name, "field": ref.field},
} if {
	some ref in _added
	_usable(ref)
	_image(ref).metadata.deletionTimestamp != null
	not _restored
}

# METADATA
# title: The VMDiskImage is retired
# custom:
#   reason: ImageRetired
#   remedyInMessage: Name another image, or have its owner run the command in the message.
deny contains {
	"reason": "ImageRetired",
	"message": $"{ref.field}: VMDiskImage {ref.name} in namespace {ref.namespace} is retired: nothing new may use it",
	"remedy": concat("", [
		$"name another one; its owner can reverse this: kubectl patch vmdi {shell.word(ref.name)} -n {shell.word(ref.namespace)} --type=merge ",
		`-p '{"spec":{"retired":false}}'`,
	]),
	"details": {"kind": "VMDiskImage", "name": ref.name, "field": ref.field},
} if {
	some ref in _added
	_usable(ref)
	object.get(_image(ref), ["spec", "retired"], false) == true
	not _restored
}

# METADATA
# title: The VMDiskImage may not be used in this namespace
# custom:
#   reason: ImageNotAllowed
#   remedyInMessage: Use an image of the same namespace, or have the owner of the image run the command in the message.
deny contains {
	"reason": "ImageNotAllowed",
	"message": $"{ref.field}: there is no VMDiskImage {ref.name} in namespace {ref.namespace} that namespace {input.request.namespace} may use",
	"remedy": concat("", [
		"use an image of the same namespace; the owner of the image can allow others: kubectl patch vmdi ",
		$"{shell.word(ref.name)} -n {shell.word(ref.namespace)} --type=merge ",
		`-p '{"spec":{"allowedNamespaces":{"from":"All"}}}'`,
	]),
	"details": {"kind": "VMDiskImage", "name": ref.name, "field": ref.field},
} if {
	some ref in _added
	_is_abroad(ref)
	not _allows(ref)
	not _makes(ref)
	not _restored
}

# METADATA
# title: The requester may not create the VMDiskImage
# custom:
#   reason: ImageCreationNotAllowed
#   remedyInMessage: Use mode FailIfNotExist, or ask an administrator of the namespace for the verb create on vmdiskimages.
deny contains {
	"reason": "ImageCreationNotAllowed",
	"message": $"{_field("mode")}: CreateIfNotExist is not allowed",
	"cause": $"{_who} may not create VMDiskImages in namespace {_created.namespace}",
	"remedy": $"use FailIfNotExist; to check: kubectl auth can-i create vmdiskimages.sallyport.dev -n {shell.word(_created.namespace)}",
	"details": {"kind": "VMDiskImage", "name": _created.name, "field": _field("mode")},
} if {
	_creates
	not input.facts.creatable == true
}

# METADATA
# title: The requester may not get the Secret in the template
# custom:
#   reason: SecretNotAllowed
#   remedyInMessage: Name a Secret that you may get, or ask an administrator of the namespace for the verb get on this Secret.
deny contains {
	"reason": "SecretNotAllowed",
	"message": $"{_field("template.secretRef.name")}: cannot use Secret {_secret}",
	"cause": $"{_who} may not get it in namespace {_created.namespace}",
	"remedy": $"name a Secret that you may get; to check: kubectl auth can-i get secrets/NAME -n {shell.word(_created.namespace)}",
	"details": {"kind": "Secret", "name": _secret, "field": _field("template.secretRef.name")},
} if {
	_names_secret
	not input.facts.readable == true
}

_who := input.request.userInfo.username

_of_disk if input.request.resource.resource == "virtualdisks"

# The references of an object: the field of each, and the image.
_refs(side) := array.concat(
	[_ref(_image_field, image) | image := _machine_or_disk(side)],
	[_ref($"spec.virtualDiskTemplates[{i}].spec.source.image", template.spec.source.image) |
		some i, template in object.get(_spec(side), "virtualDiskTemplates", [])
	],
)

_machine_or_disk(side) := _spec(side).source.image if _of_disk

_machine_or_disk(side) := machines.spec(input.request, side).diskImage.ref if not _of_disk

_image_field := "spec.source.image" if _of_disk

_image_field := _field("ref") if not _of_disk

_spec(side) := input.request[side].spec

_ref(field, image) := {
	"field": field,
	"namespace": [namespace | some namespace in [object.get(image, "namespace", ""), input.request.namespace]; namespace != ""][0],
	"name": image.name,
}

_field(path) := machines.field(input.request, $"diskImage.{path}")

# Those that the request adds.
_added := [ref | some ref in _refs("object"); not _had(ref)]

_had(ref) if {
	input.request.operation == "UPDATE"
	some before in _refs("oldObject")
	before.namespace == ref.namespace
	before.name == ref.name
}

_abroad if {
	some ref in _added
	_is_abroad(ref)
}

_is_abroad(ref) if ref.namespace != input.request.namespace

# The image of a reference. It is undefined if there is none.
_image(ref) := [image |
	some image in _images
	image.metadata.namespace == ref.namespace
	image.metadata.name == ref.name
][0]

_images := array.concat([input.facts.image | input.facts.image != null], [image | some image in input.facts.images])

_found(ref) if _image(ref)

# Of an image that may not be used, nothing is told.
_usable(ref) if {
	_found(ref)
	not _is_abroad(ref)
}

_usable(ref) if _allows(ref)

_allows(ref) if {
	_from(ref) == "All"
}

_allows(ref) if {
	_from(ref) == "Selector"
	selector := _image(ref).spec.allowedNamespaces.selector
	is_object(selector)
	labels := object.get(input.facts.namespace.metadata, "labels", {})
	tenants.includes({"namespaces": {"names": [], "selector": selector}}, input.request.namespace, labels)
}

_from(ref) := object.get(_image(ref), ["spec", "allowedNamespaces", "from"], "Same")

_waits if {
	some namespace in data.parameters.waitNamespaces
	namespace in {"*", input.request.namespace}
}

# A tool restores objects in an order of its own, and a disk whose data still exists needs no image. Anyone can set the label: the object
# then waits with the same reason, because reconcilers check the image again before they copy it.
_restored if {
	input.request.operation == "CREATE"
	some label in data.parameters.restoreLabels
	object.get(input.request.object, ["metadata", "labels", label], null) != null
}

# With mode CreateIfNotExist, the image of the machine is created from its template.
_disk_image := machines.spec(input.request, "object").diskImage if not _of_disk

_creates if {
	_disk_image.mode == "CreateIfNotExist"
	_created
}

_created := [ref | some ref in _added; ref.field == _image_field][0]

# Whether the image is created, and then allows the namespace.
_makes(ref) if {
	_creates
	ref == _created
	not _found(ref)
	input.facts.creatable == true
}

_secret := _disk_image.template.secretRef.name

_names_secret if {
	_creates
	_secret
}

# An image without a name would not be noticed.

_known_object if {
	_of_disk
	_names(object.get(_spec("object"), "source", null), "image")
}

_known_object if {
	not _of_disk
	_known_disk_image(object.get(machines.spec(input.request, "object"), "diskImage", null))
}

_known_disk_image(null)

_known_disk_image(of) if {
	_names(of, "ref")
	object.get(of, "mode", "FailIfNotExist") in {"FailIfNotExist", "CreateIfNotExist"}
	_known_secret
}

_known_secret if not _disk_image.template.secretRef

_known_secret if _secret != ""

_names(null, _)

_names(of, field) if of[field].name != ""

_known_before if input.request.operation == "CREATE"

_known_before if _spec("oldObject")
