# METADATA
# title: Fields that Sallyport sets
# description: >-
#   Sets the requester, the time, the UID of the VirtualMachine and the override in the spec of a new operation. Clients cannot set or
#   change these fields. A new operation that has one of them is left without a time, by which policy operations-copies denies it. Adds a label with the name of the VirtualMachine to operations. Adds the finalizers of VirtualMachines,
#   VirtualDisks, VMDiskImages and VSphereTemplates, without which their deletion would leave objects on the runtime. Sets the run policy of
#   VirtualMachines that have none: by default, a machine that already exists is left as it is.
package sallyport.defaults

import data.sallyport.lib.machines

# METADATA
# title: The VirtualMachine of a new operation, for its UID
# description: >-
#   Read live, because the field is immutable. Read only if the name is a valid object name: the schema denies every other name.
facts["vm"] := {
	"apiVersion": "sallyport.dev/v1alpha1",
	"kind": "VirtualMachine",
	"namespace": input.request.namespace,
	"name": _spec.virtualMachineName,
	"freshness": "live",
} if {
	_names_a_machine
}

facts["vm"] := null if not _names_a_machine

# Checks the request but not the object, which may have any shape.
valid_input if {
	is_string(input.request.resource.resource)
	input.request.operation in {"CREATE", "UPDATE"}
	is_string(input.now)
	regex.match(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z$`, input.now)
	_known_user
	_known_machine
}

# METADATA
# title: Fields of an operation that Sallyport sets
patch contains {"op": "add", "path": $"/spec/{field}", "value": value} if {
	_is_operation
	is_object(_spec)
	some field, value in _stamps
	not _spec[field] == value
}

# METADATA
# title: The same fields without a value from Sallyport, removed
patch contains {"op": "remove", "path": $"/spec/{field}"} if {
	_is_operation
	some field, _ in _spec
	field in _stamped
	not field in object.keys(_stamps)
}

# METADATA
# title: Label of an operation with the name of the VirtualMachine
patch contains {
	"op": "add",
	"path": "/metadata/labels/sallyport.dev~1virtual-machine",
	"value": _spec.virtualMachineName,
} if {
	_labelled
	is_object(_labels)
	not _labels["sallyport.dev/virtual-machine"] == _spec.virtualMachineName
}

# METADATA
# title: The same label, on an operation without labels
patch contains {
	"op": "add",
	"path": "/metadata/labels",
	"value": {"sallyport.dev/virtual-machine": _spec.virtualMachineName},
} if {
	_labelled
	_labels == null
}

# METADATA
# title: Finalizer of a VirtualMachine, VirtualDisk, VMDiskImage or VSphereTemplate
patch contains {"op": "add", "path": "/metadata/finalizers/-", "value": _finalizer} if {
	_finalized
	is_array(_finalizers)
	not _finalizer in _finalizers
}

# METADATA
# title: The same finalizer, on an object without finalizers
patch contains {"op": "add", "path": "/metadata/finalizers", "value": [_finalizer]} if {
	_finalized
	_finalizers == null
}

# METADATA
# title: Run policy of a VirtualMachine without one
patch contains {"op": "add", "path": "/spec/runPolicy", "value": value} if {
	input.request.resource.resource == "virtualmachines"
	is_object(_spec.runtime)
	not _has_run_policy
	value := data.parameters.runPolicies[_origin]
}

_has_run_policy if _spec.runPolicy != null

_origin := "adopted" if machines.adopted(_spec.runtime)

_origin := "created" if not machines.adopted(_spec.runtime)

# The fields of an operation's spec that only this policy writes.
_stamped := {"requestedBy", "requestedAt", "virtualMachineUID", "override"}

# The values of these fields. A field without a value must be absent.
_stamps := object.union_n([_requested, _bound, _overriding]) if {
	input.request.operation == "CREATE"
	not _copied
}

_stamps := object.filter(_requested, ["requestedBy"]) if {
	input.request.operation == "CREATE"
	_copied
}

# A new operation with one of the fields is a copy of an earlier one.
_copied if {
	some field in _stamped
	_spec[field] != null
}

_stamps := object.filter(_old_spec, _stamped) if {
	input.request.operation == "UPDATE"
	is_object(_old_spec)
}

_stamps := {} if {
	input.request.operation == "UPDATE"
	not is_object(_old_spec)
}

_requested := {
	"requestedBy": object.filter(input.request.userInfo, ["username", "uid", "groups", "extra"]),
	"requestedAt": input.now,
}

_bound := {"virtualMachineUID": input.facts.vm.metadata.uid}

_bound := {} if input.facts.vm == null

_overriding := {"override": _override} if _carries_an_override

_overriding := {} if not _carries_an_override

# The policy that denies the request decides whether the override is valid. Here it is any text that fits into the field.
_carries_an_override if {
	is_string(_override)
	_override != ""
	count(_override) <= 1024
}

_override := input.request.object.metadata.annotations["sallyport.dev/override"]

_is_operation if input.request.resource.resource == "virtualmachineoperations"

# The finalizer of each kind with objects on a runtime.
_finalizer := {
	"virtualmachines": "sallyport.dev/virtual-machine",
	"virtualdisks": "sallyport.dev/virtual-disk",
	"vmdiskimages": "sallyport.dev/vm-disk-image",
	"vspheretemplates": "sallyport.dev/vsphere-template",
}[input.request.resource.resource]

_spec := input.request.object.spec

_old_spec := object.get(input.request, ["oldObject", "spec"], null)

# null if absent. In both cases the patch adds the whole map or list.
_labels := object.get(input.request, ["object", "metadata", "labels"], null)

_finalizers := object.get(input.request, ["object", "metadata", "finalizers"], null)

_names_a_machine if {
	_is_operation
	input.request.operation == "CREATE"
	is_string(_spec.virtualMachineName)
	count(_spec.virtualMachineName) <= 253
	regex.match(
		`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`,
		_spec.virtualMachineName,
	)
}

_labelled if {
	_is_operation
	input.request.operation == "CREATE"
	is_object(input.request.object.metadata)
	is_string(_spec.virtualMachineName)
	count(_spec.virtualMachineName) <= 63
	regex.match(`^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`, _spec.virtualMachineName)
}

# Evaluates deletionTimestamp of the stored object, because the API server ignores the value in the request. It denies new
# finalizers on an object that is being deleted.
_finalized if {
	_finalizer
	is_object(input.request.object.metadata)
	not input.request.oldObject.metadata.deletionTimestamp
}

_known_user if {
	user := input.request.userInfo
	is_string(user.username)
	is_string(object.get(user, "uid", ""))
	groups := object.get(user, "groups", [])
	is_array(groups)
	every group in groups { is_string(group) }
	extra := object.get(user, "extra", {})
	is_object(extra)
	every values in extra { is_array(values) }
}

_known_machine if input.facts.vm == null

_known_machine if {
	is_string(input.facts.vm.metadata.uid)
	input.facts.vm.metadata.uid != ""
}
