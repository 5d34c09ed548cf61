# METADATA
# title: What machines are still to be made from stays
# description: >-
#   A VSphereTemplate is not deleted while a VirtualMachine refers to it that is not made yet, or a VirtualMachinePool does. Nor does it
#   lose the failure domain that such a reference means, or get a second one beside the only one where a reference names none. What is
#   being deleted does not count, and in a namespace that is being deleted everything goes.
package sallyport.deletion.references

import data.sallyport.lib.override
import data.sallyport.lib.templates

# METADATA
# title: The VirtualMachines that refer to it
facts["machines"] := {
	"apiVersion": "sallyport.dev/v1alpha1", "kind": "VirtualMachine", "namespace": input.request.namespace,
	"fields": {"spec.runtime.vsphere.clone.template.templateRef.name": _metadata.name},
} if {
	_judged
}

facts["machines"] := null if not _judged

# METADATA
# title: The VirtualMachinePools that refer to it
facts["pools"] := {
	"apiVersion": "sallyport.dev/v1alpha1", "kind": "VirtualMachinePool", "namespace": input.request.namespace,
	"fields": {"spec.virtualMachineTemplate.spec.runtime.vsphere.clone.template.templateRef.name": _metadata.name},
} if {
	_judged
}

facts["pools"] := null if not _judged

# METADATA
# title: The namespace, which may be being deleted
facts["namespace"] := {"apiVersion": "v1", "kind": "Namespace", "name": input.request.namespace} if _judged

facts["namespace"] := null if not _judged

valid_input if {
	input.request.operation in {"UPDATE", "DELETE"}
	_text(input.request.namespace)
	_text(_metadata.name)
	_known_time(_metadata)
	_known_domains(input.request.oldObject.spec)
	_known_change
	_known_facts
}

# METADATA
# title: Machines are still to be made from the VSphereTemplate
# custom:
#   reason: TemplateReferenced
#   remedyInMessage: Wait until the machines are made and delete the pools, or ask somebody who holds the verb override on the policy.
deny contains {
	"reason": "TemplateReferenced",
	"message": concat("", [
		$"VSphereTemplate {_metadata.name} in namespace {input.request.namespace} is needed by {_users}: wait until the machines are made, ",
		$"and delete what is not needed any more. {_way_out}, and delete it then",
	]),
	"details": {"kind": "VSphereTemplate", "name": _metadata.name},
} if {
	input.request.operation == "DELETE"
	count(_needing) > 0
}

# METADATA
# title: Machines are still to be made from the template of a failure domain
# custom:
#   reason: FailureDomainReferenced
#   remedyInMessage: Leave the failure domains as they are for now, or ask somebody who holds the verb override on the policy.
deny contains {
	"reason": "FailureDomainReferenced",
	"message": concat("", [
		$"spec.failureDomains: with these, VSphereTemplate {_metadata.name} would have no template for {_users}, whose templateRef has ",
		$"{_named}. Leave the failure domains as they are until the machines are made and the pools deleted. {_way_out}, and change them then",
	]),
	"details": {"kind": "VSphereTemplate", "name": _metadata.name, "field": "spec.failureDomains"},
} if {
	input.request.operation == "UPDATE"
	count(_needing) > 0
}

_metadata := input.request.oldObject.metadata

_live(metadata) if object.get(metadata, "deletionTimestamp", null) == null

_judged if {
	_live(_metadata)
	_takes
}

_takes if input.request.operation == "DELETE"

_takes if {
	input.request.operation == "UPDATE"
	_names(input.request.object.spec) != _names(input.request.oldObject.spec)
}

_names(spec) := {domain.name | some domain in spec.failureDomains}

# What could not be made any more that can be made now.
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

_emptied if _text(input.facts.namespace.metadata.deletionTimestamp)

_machines := [{"kind": "VirtualMachine", "name": vm.metadata.name, "ref": _ref(vm.spec)} |
	some vm in input.facts.machines
	_live(vm.metadata)
	not _made(vm)
]

_made(vm) if _text(vm.status.instanceID)

_pools := [{"kind": "VirtualMachinePool", "name": pool.metadata.name, "ref": _ref(pool.spec.virtualMachineTemplate.spec)} |
	some pool in input.facts.pools
	_live(pool.metadata)
]

_ref(spec) := spec.runtime.vsphere.clone.template.templateRef

_number := count(_needing)

# A message is for reading.
_users := concat(", ", array.concat(
	[$"{user.kind} {user.name}" | some user in array.slice(_needing, 0, 5)],
	[$"and {_number - 5} more" | _number > 5],
))

_named := concat(" or ", sort({text | some user in _needing; text := _domain(user.ref)}))

_domain(ref) := $"failureDomain {ref.failureDomain}" if ref.failureDomain

_domain(ref) := "no failureDomain" if not ref.failureDomain

_way_out := concat("", [
	"Somebody who holds the verb override on RegoPolicy deletion-references can write ",
	$"`{override.command("deletion-references", input.request, _metadata)}`",
])

# Types.

_known_time(metadata) if object.get(metadata, "deletionTimestamp", null) == null

_known_time(metadata) if _text(metadata.deletionTimestamp)

_known_domains(spec) if {
	is_array(spec.failureDomains)
	every domain in spec.failureDomains { _text(domain.name) }
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
	is_array(input.facts.machines)
	every vm in input.facts.machines { _known_user(vm.metadata, vm.spec) }
	is_array(input.facts.pools)
	every pool in input.facts.pools { _known_user(pool.metadata, pool.spec.virtualMachineTemplate.spec) }
	_known_namespace(input.facts.namespace)
}

_known_user(metadata, spec) if {
	_text(metadata.name)
	_known_time(metadata)
	_ref(spec).name == _metadata.name
}

_known_namespace(null)

_known_namespace(namespace) if {
	namespace.metadata.name == input.request.namespace
	_known_time(namespace.metadata)
}

_text(value) if {
	is_string(value)
	value != ""
}
