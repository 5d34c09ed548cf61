# METADATA
# title: KubeVirt is not deleted while machines exist
# description: >-
#   Denies the deletion of a CustomResourceDefinition of KubeVirt or CDI, and of the KubeVirt object, while VirtualMachines or
#   VirtualMachineInstances exist in any namespace. The API server or virt-operator would delete these without asking a policy about each
#   of them. Objects that are already being deleted count, because they may still run.
package sallyport.kubevirt.definitions

import data.sallyport.lib.override

# METADATA
# title: The definition of VirtualMachines
# description: Without it, KubeVirt has no machines, and their kind cannot be read.
facts["machineDefinition"] := _definition("virtualmachines.kubevirt.io")

# METADATA
# title: The definition of VirtualMachineInstances
facts["instanceDefinition"] := _definition("virtualmachineinstances.kubevirt.io")

# METADATA
# title: The VirtualMachines of all namespaces
facts["machines"] := _all("VirtualMachine") if input.facts.machineDefinition != null

facts["machines"] := null if input.facts.machineDefinition == null

# METADATA
# title: The VirtualMachineInstances of all namespaces
facts["instances"] := _all("VirtualMachineInstance") if input.facts.instanceDefinition != null

facts["instances"] := null if input.facts.instanceDefinition == null

_definition(name) := {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "name": name}

_all(kind) := {"apiVersion": "kubevirt.io/v1", "kind": kind}

valid_input if {
	input.request.operation == "DELETE"
	is_string(_metadata.name)
	every of in _places { is_string(of.name) }
}

# METADATA
# title: Machines exist
# custom:
#   reason: MachinesExist
#   remedyInMessage: >-
#     Delete the machines first, or override this policy temporarily. An override requires the verb override on the RegoPolicy.
deny contains {
	"reason": "MachinesExist",
	"message": $"{input.request.kind.kind} {_metadata.name}: deletion is not allowed",
	"cause": $"it would also delete the machines of KubeVirt ({count(_places)}): {_first}",
	"remedy": concat("", [
		"list with: kubectl get virtualmachines.kubevirt.io,virtualmachineinstances.kubevirt.io --all-namespaces; ",
		$"to override this policy temporarily: {override.command("kubevirt-definitions", input.request, _metadata)}",
	]),
	"details": {"group": input.request.kind.group, "kind": input.request.kind.kind, "name": _metadata.name},
} if {
	count(_places) > 0
	not _metadata.deletionTimestamp
}

_metadata := input.request.oldObject.metadata

# A machine and its instance have one name.
_places := {{"namespace": of.metadata.namespace, "name": of.metadata.name} |
	some list in [input.facts.machines, input.facts.instances]
	list != null
	some of in list
}

_named := sort([$"{of.namespace}/{of.name}" | some of in _places])

_first := concat(", ", array.concat(
	array.slice(_named, 0, 5),
	[$"and {count(_named) - 5} more" | count(_named) > 5],
))
