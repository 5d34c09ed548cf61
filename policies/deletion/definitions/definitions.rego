# METADATA
# title: Deletion of CustomResourceDefinitions of Sallyport that have objects
# description: >-
#   Denies the deletion of a CustomResourceDefinition of Sallyport that has objects. The API server would delete the objects without asking
#   a policy about each of them, and Sallyport then their machines and disks. Objects that are already being deleted do not count.
package sallyport.deletion.definitions

import data.sallyport.lib.override
import data.sallyport.lib.shell

# METADATA
# title: All objects of the kind whose definition is deleted
facts["instances"] := {"apiVersion": "sallyport.dev/v1alpha1", "kind": _ours[_name]} if _defines

facts["instances"] := null if not _defines

valid_input if {
	input.request.operation == "DELETE"
	input.request.resource.group == "apiextensions.k8s.io"
	input.request.resource.resource == "customresourcedefinitions"
	_name != ""
	input.request.oldObject.spec.group != ""
	_known_facts
}

# METADATA
# title: Objects of the kind exist
# custom:
#   reason: DefinitionHasObjects
#   remedyInMessage: >-
#     Delete the objects first, or override this policy temporarily. An override requires the verb override on the RegoPolicy.
deny contains {
	"reason": "DefinitionHasObjects",
	"message": $"CustomResourceDefinition {_name}: deletion is not allowed",
	"cause": $"it would also delete {_count}: {_first}",
	"remedy": $"list with: kubectl get {shell.word(_name)} --all-namespaces; {_way_out}",
	"details": {"group": "apiextensions.k8s.io", "kind": "CustomResourceDefinition", "name": _name},
} if {
	_defines
	_number > 0
}

# A definition of the group sallyport.dev that is not in this table makes the input invalid. It is not treated as empty.
_ours := {
	"virtualmachines.sallyport.dev": "VirtualMachine",
	"virtualmachineoperations.sallyport.dev": "VirtualMachineOperation",
	"virtualmachinepools.sallyport.dev": "VirtualMachinePool",
	"virtualdisks.sallyport.dev": "VirtualDisk",
	"vmdiskimages.sallyport.dev": "VMDiskImage",
	"vspheretemplates.sallyport.dev": "VSphereTemplate",
	"vsphereservers.sallyport.dev": "VSphereServer",
	"regopolicies.sallyport.dev": "RegoPolicy",
}

_name := input.request.oldObject.metadata.name

_defines if {
	_live(input.request.oldObject)
	input.request.oldObject.spec.group == "sallyport.dev"
}

_live(object_) if object.get(object_.metadata, "deletionTimestamp", null) == null

_held := [held.metadata | some held in input.facts.instances; _live(held)]

_number := count(_held)

_count := "1 object" if _number == 1

_count := $"{_number} objects" if _number != 1

# The oldest objects, limited to keep the message short.
_first := concat(", ", array.concat(
	[_called(metadata) | some metadata in array.slice(_held, 0, 5)],
	[$"and {_number - 5} more" | _number > 5],
))

_called(metadata) := $"{metadata.namespace}/{metadata.name}" if object.get(metadata, "namespace", "") != ""

_called(metadata) := metadata.name if object.get(metadata, "namespace", "") == ""

_way_out := $"to override this policy temporarily: {override.command("deletion-definitions", input.request, input.request.oldObject.metadata)}"

# The fact is present exactly where the policy asked for it.
_known_facts if {
	_defines
	every held in input.facts.instances { held.metadata.name != "" }
}

_known_facts if {
	not _defines
	input.facts.instances == null
}
