# METADATA
# title: Deletion of VSphereTemplates, VMDiskImages and VirtualDisks that are still needed
# description: >-
#   Denies the deletion of a VirtualDisk that a VirtualMachine uses, if the parameter disks is Deny. With Defer, it warns, and the disk stays
#   until the machine releases it. With Deny, a disk can still be deleted by the garbage collector, and after the deletion of its machine.
#   Denies the deletion of a VMDiskImage that VirtualDisks use, if the parameter images is Deny. With Defer, it warns, and the data stays
#   until the last disk is deleted.
#   Denies the deletion of a VSphereTemplate that is referenced by a VirtualMachine whose machine is not cloned yet, or by a
#   VirtualMachinePool. It also denies removing the failure domain that such a reference resolves to, and adding a second failure
#   domain while a reference names none. Objects that are being deleted do not count. The policy allows everything in a namespace
#   that is being deleted.
package sallyport.deletion.references

import data.sallyport.lib.override
import data.sallyport.lib.templates

# METADATA
# title: The VirtualMachines that reference the VSphereTemplate
facts["machines"] := {
	"apiVersion": "sallyport.dev/v1alpha1", "kind": "VirtualMachine", "namespace": input.request.namespace,
	"fields": {"spec.runtime.vsphere.clone.template.templateRef.name": _metadata.name},
} if {
	_judged
}

facts["machines"] := null if not _judged

# METADATA
# title: The VirtualMachinePools that reference the VSphereTemplate
facts["pools"] := {
	"apiVersion": "sallyport.dev/v1alpha1", "kind": "VirtualMachinePool", "namespace": input.request.namespace,
	"fields": {"spec.virtualMachineTemplate.spec.runtime.vsphere.clone.template.templateRef.name": _metadata.name},
} if {
	_judged
}

facts["pools"] := null if not _judged

# METADATA
# title: The namespace, to check whether it is being deleted
facts["namespace"] := {"apiVersion": "v1", "kind": "Namespace", "name": input.request.namespace} if _any_judged

facts["namespace"] := null if not _any_judged

valid_input if {
	_of_templates
	input.facts.disks == null
	input.facts.holder == null
	input.request.operation in {"UPDATE", "DELETE"}
	input.request.namespace != ""
	_metadata.name != ""
	_known_domains(input.request.oldObject.spec)
	_known_change
	_known_facts
}

# METADATA
# title: The VSphereTemplate is still needed
# custom:
#   reason: TemplateReferenced
#   remedyInMessage: >-
#     Wait until the machines are cloned and delete the pools, or override this policy temporarily. An override requires the verb override
#     on the RegoPolicy.
deny contains {
	"reason": "TemplateReferenced",
	"message": $"VSphereTemplate {_metadata.name} in namespace {input.request.namespace}: deletion is not allowed",
	"cause": $"it is needed by {_users}",
	"remedy": $"wait until the machines are cloned, and delete pools that are no longer needed; {_way_out}",
	"details": {"kind": "VSphereTemplate", "name": _metadata.name},
} if {
	input.request.operation == "DELETE"
	count(_needing) > 0
}

# METADATA
# title: A failure domain is still needed
# custom:
#   reason: FailureDomainReferenced
#   remedyInMessage: >-
#     Keep the failure domains until the machines are cloned and the pools are deleted, or override this policy temporarily. An override
#     requires the verb override on the RegoPolicy.
deny contains {
	"reason": "FailureDomainReferenced",
	"message": $"spec.failureDomains: this change of VSphereTemplate {_metadata.name} is not allowed",
	"cause": $"it would leave no template for {_users}, whose templateRef has {_named}",
	"remedy": $"keep the failure domains until the machines are cloned and the pools are deleted; {_way_out}",
	"details": {"kind": "VSphereTemplate", "name": _metadata.name, "field": "spec.failureDomains"},
} if {
	input.request.operation == "UPDATE"
	count(_needing) > 0
}

_metadata := input.request.oldObject.metadata

_live(metadata) if object.get(metadata, "deletionTimestamp", null) == null

_of_templates if input.request.resource.resource == "vspheretemplates"

_any_judged if _judged

_any_judged if _image_judged

_any_judged if _disk_judged

_judged if {
	_of_templates
	_live(_metadata)
	_takes
}

_takes if input.request.operation == "DELETE"

_takes if {
	input.request.operation == "UPDATE"
	_names(input.request.object.spec) != _names(input.request.oldObject.spec)
}

_names(spec) := {domain.name | some domain in spec.failureDomains}

# VirtualMachines and pools whose template can be resolved now, and not after the request.
_needing := [user |
	_judged
	not _emptied
	some user in array.concat(_machines, _pools)
	_loses(user.ref)
]

_loses(_) if input.request.operation == "DELETE"

_loses(ref) if {
	input.request.operation == "UPDATE"
	templates.meant(input.request.oldObject.spec, ref)
	not _still_meant(ref)
}

_still_meant(ref) if templates.meant(input.request.object.spec, ref)

_emptied if input.facts.namespace.metadata.deletionTimestamp != null

_machines := [{"kind": "VirtualMachine", "name": vm.metadata.name, "ref": _ref(vm.spec)} |
	some vm in input.facts.machines
	_live(vm.metadata)
	not _made(vm)
]

_made(vm) if vm.status.instanceID != ""

_pools := [{"kind": "VirtualMachinePool", "name": pool.metadata.name, "ref": _ref(pool.spec.virtualMachineTemplate.spec)} |
	some pool in input.facts.pools
	_live(pool.metadata)
]

_ref(spec) := spec.runtime.vsphere.clone.template.templateRef

_number := count(_needing)

# Limited to keep the message short.
_users := concat(", ", array.concat(
	[$"{user.kind} {user.name}" | some user in array.slice(_needing, 0, 5)],
	[$"and {_number - 5} more" | _number > 5],
))

_named := concat(" or ", sort({text | some user in _needing; text := _domain(user.ref)}))

_domain(ref) := $"failureDomain {ref.failureDomain}" if ref.failureDomain

_domain(ref) := "no failureDomain" if not ref.failureDomain

_way_out := $"to override this policy temporarily: {override.command("deletion-references", input.request, _metadata)}"

_known_domains(spec) if {
	every domain in spec.failureDomains { domain.name != "" }
}

_known_change if input.request.operation == "DELETE"

_known_change if _known_domains(input.request.object.spec)

_known_facts if {
	not _judged
	input.facts.machines == null
	input.facts.pools == null
	input.facts.namespace == null
}

_known_facts if {
	_judged
	every vm in input.facts.machines { _known_user(vm.metadata, vm.spec) }
	every pool in input.facts.pools { _known_user(pool.metadata, pool.spec.virtualMachineTemplate.spec) }
	_known_namespace(input.facts.namespace)
}

_known_user(metadata, spec) if {
	metadata.name != ""
	_ref(spec).name == _metadata.name
}

_known_namespace(null)

_known_namespace(namespace) if namespace.metadata.name == input.request.namespace
