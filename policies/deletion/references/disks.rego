# VirtualDisks that VirtualMachines use.
package sallyport.deletion.references

# METADATA
# title: The VirtualMachine that uses the VirtualDisk
facts["holder"] := {
	"apiVersion": "sallyport.dev/v1alpha1", "kind": "VirtualMachine", "namespace": input.request.namespace, "name": _holder.name,
} if {
	_disk_judged
}

facts["holder"] := null if not _disk_judged

valid_input if {
	_of_disks
	input.request.operation == "DELETE"
	input.request.namespace != ""
	input.request.userInfo.username != ""
	_metadata.name != ""
	_known_holder(_holder)
	_known_disk_facts
}

# METADATA
# title: A VirtualMachine uses the VirtualDisk
# description: Only if the parameter disks is Deny.
# custom:
#   reason: DiskInUse
#   remedyInMessage: >-
#     Delete the machine, or remove the disk from its spec.blockDeviceRefs, or override this policy temporarily. An override requires the verb
#     override on the RegoPolicy.
deny contains {
	"reason": "DiskInUse",
	"message": $"VirtualDisk {_metadata.name} in namespace {input.request.namespace}: deletion is not allowed",
	"cause": $"VirtualMachine {_holder.name} uses it",
	"remedy": $"delete the machine first, or remove the disk from its spec.blockDeviceRefs; {_way_out}",
	"details": {"kind": "VirtualDisk", "name": _metadata.name},
} if {
	data.parameters.disks == "Deny"
	_held
	not _released
}

# METADATA
# title: The deletion of the VirtualDisk is deferred
# description: Only if the parameter disks is Defer.
warn contains concat("", [
	$"VirtualDisk {_metadata.name} in namespace {input.request.namespace} is used by VirtualMachine {_holder.name}: it is Terminating until ",
	"the machine releases it, and its data is destroyed then, which cannot be undone",
]) if {
	data.parameters.disks == "Defer"
	_held
}

_of_disks if input.request.resource.resource == "virtualdisks"

_holder := object.get(input.request.oldObject, ["status", "attachedTo"], null)

# The garbage collector deletes a disk because its owner was deleted.
_disk_judged if {
	_of_disks
	input.request.operation == "DELETE"
	_live(_metadata)
	_holder != null
	not _collected
}

_collected if input.request.userInfo.username in data.parameters.garbageCollectors

_held if {
	_disk_judged
	not _emptied
}

# A VirtualMachine that is being deleted, or is gone, releases the disk by itself.
_released if input.facts.holder == null

_released if input.facts.holder.metadata.uid != _holder.uid

_released if input.facts.holder.metadata.deletionTimestamp != null

_known_holder(null)

_known_holder(holder) if {
	holder.name != ""
	holder.uid != ""
}

_known_machine(null)

_known_machine(vm) if {
	vm.metadata.name == _holder.name
	vm.metadata.uid != ""
}

_known_disk_facts if {
	_no_users
	not _disk_judged
	input.facts.holder == null
	input.facts.namespace == null
}

_known_disk_facts if {
	_no_users
	_disk_judged
	_known_machine(input.facts.holder)
	_known_namespace(input.facts.namespace)
}

_no_users if {
	input.facts.machines == null
	input.facts.pools == null
	input.facts.disks == null
}
