# METADATA
# title: Deletion of namespaces that still contain protected objects
# description: >-
#   Denies the deletion of a namespace that contains objects with the label sallyport.dev/deletion-protection: enabled, or VMDiskImages
#   that disks of other namespaces use. The namespace controller would delete these objects. The policy checks the kinds in spec.reads.
#   Objects that are already being deleted do not count.
package sallyport.deletion.cascade

import data.sallyport.lib.override
import data.sallyport.lib.shell

# METADATA
# title: Protected Deployments in the namespace
facts["deployments"] := _protected("apps/v1", "Deployment")

# METADATA
# title: Protected StatefulSets in the namespace
facts["statefulsets"] := _protected("apps/v1", "StatefulSet")

# METADATA
# title: Protected DaemonSets in the namespace
facts["daemonsets"] := _protected("apps/v1", "DaemonSet")

# METADATA
# title: Protected CronJobs in the namespace
facts["cronjobs"] := _protected("batch/v1", "CronJob")

# METADATA
# title: Protected Jobs in the namespace
facts["jobs"] := _protected("batch/v1", "Job")

# METADATA
# title: Protected Pods in the namespace
facts["pods"] := _protected("v1", "Pod")

# METADATA
# title: Protected Services in the namespace
facts["services"] := _protected("v1", "Service")

# METADATA
# title: Protected PersistentVolumeClaims in the namespace
facts["claims"] := _protected("v1", "PersistentVolumeClaim")

# METADATA
# title: Protected VirtualMachines in the namespace
facts["machines"] := _protected("sallyport.dev/v1alpha1", "VirtualMachine")

# METADATA
# title: Protected VirtualMachineOperations in the namespace
facts["operations"] := _protected("sallyport.dev/v1alpha1", "VirtualMachineOperation")

# METADATA
# title: Protected VirtualMachinePools in the namespace
facts["pools"] := _protected("sallyport.dev/v1alpha1", "VirtualMachinePool")

# METADATA
# title: Protected VirtualDisks in the namespace
facts["disks"] := _protected("sallyport.dev/v1alpha1", "VirtualDisk")

# METADATA
# title: Protected VMDiskImages in the namespace
facts["images"] := _protected("sallyport.dev/v1alpha1", "VMDiskImage")

# METADATA
# title: Protected VSphereTemplates in the namespace
facts["templates"] := _protected("sallyport.dev/v1alpha1", "VSphereTemplate")

# METADATA
# title: The VirtualDisks of all namespaces that use a VMDiskImage of the namespace
facts["borrowers"] := {
	"apiVersion": "sallyport.dev/v1alpha1", "kind": "VirtualDisk",
	"fields": {"status.image.namespace": _name},
} if {
	_empties
}

facts["borrowers"] := null if not _empties

valid_input if {
	input.request.operation == "DELETE"
	_name != ""
	_of_namespaces
	_known_facts
}

# METADATA
# title: The namespace contains objects that are protected from deletion
# custom:
#   reason: NamespaceHoldsProtected
#   remedyInMessage: >-
#     Delete the protected objects first (see deletion-protected), or override this policy temporarily. An override requires the verb
#     override on the RegoPolicy.
deny contains {
	"reason": "NamespaceHoldsProtected",
	"message": $"Namespace {_name}: deletion is not allowed",
	"cause": $"it contains {_count} with the label {_label}=enabled ({_counts}): {_first}",
	"remedy": $"list with: {_list}; {_way_out}",
	"details": {"kind": "Namespace", "name": _name},
} if {
	_empties
	count(_held) > 0
}

# METADATA
# title: Disks of other namespaces use VMDiskImages of the namespace
# custom:
#   reason: NamespaceHoldsUsedImages
#   remedyInMessage: >-
#     Wait until the disks are deleted, or override this policy temporarily. An override requires the verb override on the RegoPolicy.
deny contains {
	"reason": "NamespaceHoldsUsedImages",
	"message": $"Namespace {_name}: deletion is not allowed",
	"cause": $"disks of other namespaces use its images: {_used_images}",
	"remedy": $"to see them: kubectl get vmdiskimages --namespace {shell.word(_name)}; {_way_out}",
	"details": {"kind": "Namespace", "name": _name},
} if {
	_empties
	count(_borrowed) > 0
}

_label := "sallyport.dev/deletion-protection"

_protected(version, kind) := {
	"apiVersion": version, "kind": kind, "namespace": _name,
	"labels": {_label: "enabled"},
} if {
	_empties
}

_protected(_, _) := null if not _empties

_name := input.request.oldObject.metadata.name

_empties if {
	_of_namespaces
	_live(input.request.oldObject)
}

_of_namespaces if {
	input.request.resource.group == ""
	input.request.resource.resource == "namespaces"
}

_live(object_) if object.get(object_.metadata, "deletionTimestamp", null) == null

# The objects that would be deleted, by resource name as in kubectl.
_kept := [
	{"resource": "deployments.apps", "objects": input.facts.deployments},
	{"resource": "statefulsets.apps", "objects": input.facts.statefulsets},
	{"resource": "daemonsets.apps", "objects": input.facts.daemonsets},
	{"resource": "cronjobs.batch", "objects": input.facts.cronjobs},
	{"resource": "jobs.batch", "objects": input.facts.jobs},
	{"resource": "pods", "objects": input.facts.pods},
	{"resource": "services", "objects": input.facts.services},
	{"resource": "persistentvolumeclaims", "objects": input.facts.claims},
	{"resource": "virtualmachines.sallyport.dev", "objects": input.facts.machines},
	{"resource": "virtualmachineoperations.sallyport.dev", "objects": input.facts.operations},
	{"resource": "virtualmachinepools.sallyport.dev", "objects": input.facts.pools},
	{"resource": "virtualdisks.sallyport.dev", "objects": input.facts.disks},
	{"resource": "vmdiskimages.sallyport.dev", "objects": input.facts.images},
	{"resource": "vspheretemplates.sallyport.dev", "objects": input.facts.templates},
]

_held := [{"resource": fact.resource, "metadata": held.metadata} |
	some fact in _kept
	fact.objects != null
	some held in fact.objects
	_live(held)
]

_number := count(_held)

_count := "1 object" if _number == 1

_count := $"{_number} objects" if _number != 1

# In the order of the kinds above, without duplicates.
_resources := [fact.resource |
	some fact in _kept
	fact.resource in {held.resource | some held in _held}
]

_counts := concat(", ", [$"{resource}: {number}" |
	some resource in _resources
	number := count([held | some held in _held; held.resource == resource])
])

# The oldest objects of each kind, limited to keep the message short.
_first := concat(", ", array.concat(
	[$"{held.resource}/{held.metadata.name}" | some held in array.slice(_held, 0, 5)],
	[$"and {_number - 5} more" | _number > 5],
))

_list := $"kubectl get {shell.word(concat(",", _resources))} --namespace {shell.word(_name)} --selector {_label}=enabled"

_way_out := $"to override this policy temporarily: {override.command("deletion-cascade", input.request, input.request.oldObject.metadata)}"

# The images that disks of other namespaces use. The disks are counted, not named.
_borrowed := [disk.status.image.name |
	some disk in input.facts.borrowers
	disk.metadata.namespace != _name
	_live(disk)
]

_used_names := sort({name | some name in _borrowed})

_used_images := concat(", ", array.concat(
	[$"{name} (disks: {count([other | some other in _borrowed; other == name])})" | some name in array.slice(_used_names, 0, 5)],
	[$"and {count(_used_names) - 5} more" | count(_used_names) > 5],
))

# Facts are present exactly where the policy asked for them.
_known_facts if {
	_empties
	every fact in _kept { _known_list(fact.objects) }
	_known_list(input.facts.borrowers)
	every disk in input.facts.borrowers { disk.status.image.name != "" }
}

_known_facts if {
	not _empties
	every fact in _kept { fact.objects == null }
	input.facts.borrowers == null
}

_known_list(list) if {
	every held in list { held.metadata.name != "" }
}
