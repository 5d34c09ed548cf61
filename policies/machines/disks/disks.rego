# METADATA
# title: One claim for one machine
# description: >-
#   A VirtualMachine that creates a machine of KubeVirt, and the template of a VirtualMachinePool, may not name the PersistentVolumeClaim of
#   a VirtualDisk, whether or not the disk is attached. A pool may not have more than one member if its template names a
#   PersistentVolumeClaim or a DataVolume, which all members would write to. A claim that is shared on purpose is allowed: its disk is
#   shareable, read-only or a cdrom in create.template, or it is ephemeral or a file system. The policy evaluates creations, and
#   requests that raise the replicas of a pool, also through the subresource scale.
package sallyport.machines.disks

import data.sallyport.lib.machines
import data.sallyport.lib.shell

# METADATA
# title: The pool that is scaled up
facts.parent := {"parent": true} if _scales_up

facts.parent := null if not _scales_up

# METADATA
# title: The VirtualDisks that have a claim of the new object
facts.disks := {
	"apiVersion": "sallyport.dev/v1alpha1", "kind": "VirtualDisk", "namespace": input.request.namespace,
	"fields": {"status.diskID": _claims[0]},
} if {
	count(_claims) == 1
}

facts.disks := {"apiVersion": "sallyport.dev/v1alpha1", "kind": "VirtualDisk", "namespace": input.request.namespace} if count(_claims) > 1

facts.disks := null if count(_claims) == 0

valid_input if {
	input.request.operation in {"CREATE", "UPDATE"}
	input.request.resource.resource in {"virtualmachines", "virtualmachinepools"}
	_known_request
	_known_template
	_known_disks
}

# METADATA
# title: The members of a pool would share a claim
# custom:
#   reason: ClaimShared
#   remedyInMessage: Give each member a disk of its own with spec.virtualDiskTemplates, or mark the disk in the message as shareable.
deny contains {
	"reason": "ClaimShared",
	"message": $"VirtualMachinePool {_name}: {_wanted} members cannot use {one.kind} {one.claim}",
	"cause": "each member would write to it as its own disk",
	"remedy": $"{_instead(one)}",
	"details": {"group": "sallyport.dev", "kind": "VirtualMachinePool", "name": _name, "field": _path(one.field)},
} if {
	_of_pool
	_wanted > 1
	some one in _named
	count({one.volume} & _shared) == 0
}

# METADATA
# title: The claim belongs to a VirtualDisk
# custom:
#   reason: ClaimOfVirtualDisk
#   remedyInMessage: Name the VirtualDisk in spec.blockDeviceRefs instead of its claim; in a pool, use spec.virtualDiskTemplates.
deny contains {
	"reason": "ClaimOfVirtualDisk",
	"message": $"{_path(one.field)}: cannot use {one.kind} {one.claim}",
	"cause": $"it belongs to VirtualDisk {disk.metadata.name}, which only one machine at a time may have",
	"remedy": $"{_named_as(disk)}",
	"details": {"group": "sallyport.dev", "kind": "VirtualDisk", "name": disk.metadata.name, "field": _path(one.field)},
} if {
	some one in _named
	some disk in _owners[one.claim]
}

# The request.

_request := input.request

_of_pool if machines.of_pool(_request)

_scale if _request.subResource == "scale"

_wanted := _replicas(_request.object)

_present := _replicas(_request.oldObject) if _request.operation == "UPDATE"

# The default of replicas is 0, and a Scale to 0 omits the number.
_replicas(of) := object.get(of.spec, "replicas", 0)

_lowest := max([1, _present])

# More members, of which two could be on.
_grows if {
	_of_pool
	_request.operation == "UPDATE"
	_wanted > _lowest
}

_scales_up if {
	_scale
	_grows
}

_name := object.get(_object.metadata, "name", object.get(_object.metadata, "generateName", ""))

# The object whose machines are evaluated.

_object := _request.object if _request.operation == "CREATE"

_object := _request.object if {
	_grows
	not _scale
	object.get(_request.oldObject.metadata, "deletionTimestamp", null) == null
}

_object := input.facts.parent if {
	_scales_up
	object.get(input.facts.parent.metadata, "deletionTimestamp", null) == null
}

_create := machines.spec({"resource": _request.resource, "object": _object}, "object").runtime.kubevirt.create

_volumes := _list(["template", "spec", "volumes"])

_devices := _list(["template", "spec", "domain", "devices", "disks"])

_file_systems := _list(["template", "spec", "domain", "devices", "filesystems"])

# A list in the template, which no schema describes. It is undefined if it is no list of objects with names.
_list(path) := [] if object.get(_create, path, null) == null

_list(path) := all if {
	all := object.get(_create, path, null)
	is_array(all)
	every entry in all { is_string(entry.name) }
}

# The claims that the machine uses. The claim of a DataVolume has its name.
_named := array.concat(
	[{"field": $"disks[{i}]", "volume": disk.name, "kind": kind, "claim": disk[source]} |
		some i, disk in _create.disks
		some source, kind in {"persistentVolumeClaim": "PersistentVolumeClaim", "dataVolume": "DataVolume"}
		object.get(disk, source, "") != ""
	],
	[{"field": $"template.spec.volumes[{i}]", "volume": volume.name, "kind": kind, "claim": claim} |
		some i, volume in _volumes
		some [kind, path] in _sources
		claim := object.get(volume, path, "")
		claim != ""
	],
)

_sources := [
	["PersistentVolumeClaim", ["persistentVolumeClaim", "claimName"]],
	["PersistentVolumeClaim", ["ephemeral", "persistentVolumeClaim", "claimName"]],
	["DataVolume", ["dataVolume", "name"]],
]

_claims := [claim | some claim in {one.claim | some one in _named; _request.operation == "CREATE"}]

# The volumes that machines may share.

_shared contains disk.name if {
	some disk in _devices
	_on_purpose(disk)
}

_shared contains entry.name if some entry in _file_systems

_shared contains volume.name if {
	some volume in _volumes
	volume.ephemeral # KubeVirt writes to a layer above the claim
}

_on_purpose(disk) if disk.shareable == true

_on_purpose(disk) if disk.disk.readonly == true

_on_purpose(disk) if disk.lun.readonly == true

_on_purpose(disk) if {
	disk.cdrom
	object.get(disk.cdrom, "readonly", true) == true
}

# The VirtualDisks by the claims that their statuses record.
_owners[disk.status.diskID] contains disk if {
	some disk in input.facts.disks
	not disk.spec.runtime.vsphere
}

# Messages.

_path(field) := machines.field(_request, $"runtime.kubevirt.create.{field}")

_instead(_) := concat("", [
	$"allowed: kubectl scale svmpool {shell.word(_name)} -n {shell.word(_request.namespace)} --replicas={_lowest}; ",
	"for more members, create a pool with spec.virtualDiskTemplates or diskImage",
]) if _request.operation == "UPDATE"

_instead(one) := concat("", [
	"give each member a disk of its own with spec.virtualDiskTemplates or diskImage, or set spec.replicas to 1; ",
	$"if the guests can share it, set shareable: true for disk {one.volume} in {_path("template.spec.domain.devices.disks")}",
]) if _request.operation == "CREATE"

_named_as(disk) := "remove the entry, and give each member a disk with spec.virtualDiskTemplates" if {
	_of_pool
	disk.spec.runtime.kubevirt
}

_named_as(disk) := $"remove the entry, and add to spec.blockDeviceRefs: \{kind: VirtualDisk, name: {disk.metadata.name}}" if {
	not _of_pool
	disk.spec.runtime.kubevirt
}

_named_as(disk) := "use another claim" if not disk.spec.runtime.kubevirt

# What types do not say.

_known_request if {
	not _scale
	_request.object.metadata
	_known_old
}

# If the pool of a Scale does not exist any more, the API server reports that.
_known_request if {
	_scale
	is_number(_wanted)
	is_number(_present)
}

_known_old if _request.operation == "CREATE"

_known_old if _request.oldObject.metadata

_known_template if not _create.template

_known_template if {
	is_array(_devices)
	is_array(_file_systems)
	every volume in _volumes {
		every source in _sources { is_string(object.get(volume, source[1], "")) }
	}
}

_known_disks if {
	count(_claims) == 0
	input.facts.disks == null
}

_known_disks if {
	count(_claims) > 0
	every disk in input.facts.disks { disk.metadata.name != "" }
}
