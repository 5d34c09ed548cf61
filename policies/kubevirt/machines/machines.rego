# METADATA
# title: Machines of KubeVirt are not ended while they run, are copied or are moved
# description: >-
#   KubeVirt deletes a VirtualMachine while it runs, also during a snapshot, a restore or a live migration of it. It stops one during a
#   live migration, and during a snapshot unless that changes the run strategy. The policy denies these, and stopping a machine with the
#   label sallyport.dev/deletion-protection: enabled by its run strategy. It applies to kubectl, clients of the API and virtctl, whose
#   requests virt-api carries out by writes of the VirtualMachine. The policy allows deletions by the garbage collector and those in a
#   namespace that is being deleted.
package sallyport.kubevirt.machines

import data.sallyport.lib.override
import data.sallyport.lib.shell

# METADATA
# title: The machine's instance
facts["instance"] := _one("VirtualMachineInstance") if _of_machine

facts["instance"] := null if not _of_machine

# METADATA
# title: The machine of an instance
facts["machine"] := null if _of_machine

facts["machine"] := _one("VirtualMachine") if not _of_machine

# METADATA
# title: The namespace of the machine
# description: Read for deletions by a namespace controller, to verify that the namespace is being deleted.
facts["namespace"] := {"apiVersion": "v1", "kind": "Namespace", "name": _request.namespace} if _emptied

facts["namespace"] := null if not _emptied

_one(kind) := {
	"apiVersion": "kubevirt.io/v1",
	"kind": kind,
	"namespace": _request.namespace,
	"name": _metadata.name,
}

valid_input if {
	_request.operation in {"UPDATE", "DELETE"}
	_request.resource.resource in {"virtualmachines", "virtualmachineinstances"}
	is_string(_metadata.name)
	_known_instance
	_known_jobs
}

# METADATA
# title: The machine is running
# custom:
#   reason: MachineRunning
#   remedyInMessage: Stop the machine with the command in the message, then delete it.
deny contains {
	"reason": "MachineRunning",
	"message": $"{_object}: deletion is not allowed",
	"cause": $"it is not stopped ({_state})",
	"remedy": $"stop it with: {_stop}; {_way_out}",
	"details": _details,
} if {
	_request.operation == "DELETE"
	_of_machine
	_live
	_runs
	not _exempt
}

# METADATA
# title: The machine is protected
# custom:
#   reason: ProtectedMachineHalted
#   remedyInMessage: >-
#     Keep the run strategy, or run the command in the message and then change it with kubectl. It requires the verb override on the
#     RegoPolicy.
deny contains {
	"reason": "ProtectedMachineHalted",
	"message": $"{_object}: its run strategy cannot change to Halted",
	"cause": $"its label {_label} is enabled",
	"remedy": _way_out,
	"details": object.union(_details, {"field": "spec.runStrategy"}),
} if {
	_halts
	object.get(_metadata, ["labels", _label], "") == "enabled"
	not _exempt
}

# METADATA
# title: A snapshot of the machine is being taken
# custom:
#   reason: SnapshotInProgress
#   remedyInMessage: Wait until the snapshot is taken, or delete it with the command in the message.
deny contains {
	"reason": "SnapshotInProgress",
	"message": $"{_object}: {_action}",
	"cause": $"VirtualMachineSnapshot {_snapshot} of it is being taken",
	"remedy": $"wait, or delete the snapshot: kubectl delete vmsnapshot {shell.word(_snapshot)} -n {shell.word(_request.namespace)}",
	"details": _details,
} if {
	_ends
	_snapshot
	not _exempt
}

# METADATA
# title: The machine is being restored
# custom:
#   reason: RestoreInProgress
#   remedyInMessage: Wait until the machine is restored, or delete the restore with the command in the message.
deny contains {
	"reason": "RestoreInProgress",
	"message": $"{_object}: {_action}",
	"cause": $"VirtualMachineRestore {_restore} of it is in progress",
	"remedy": $"wait, or delete the restore: kubectl delete vmrestore {shell.word(_restore)} -n {shell.word(_request.namespace)}",
	"details": _details,
} if {
	_ends
	_restore
	not _exempt
}

# METADATA
# title: The machine is being migrated
# custom:
#   reason: MigrationInProgress
#   remedyInMessage: Wait until the migration ends, or cancel it with the command in the message.
deny contains {
	"reason": "MigrationInProgress",
	"message": $"{_object}: {_action}",
	"cause": $"it is being migrated from node {_route.from} to {_route.to}",
	"remedy": $"wait, or cancel the migration: virtctl migrate-cancel {_arguments}",
	"details": _details,
} if {
	_ends
	_route
	not _exempt
}

_label := "sallyport.dev/deletion-protection"

_request := input.request

_metadata := _request.oldObject.metadata

_of_machine if _request.resource.resource == "virtualmachines"

_live if not _metadata.deletionTimestamp

# Requests that end the machine, and what the denial calls them.

_ends if {
	_live
	_action
}

_action := "deletion is not allowed" if _request.operation == "DELETE"

_action := "it cannot be stopped" if _stops

_stops if _halts

# virt-api asks virt-controller to stop or to restart a machine by a change request in the status.
_stops if {
	some change in _request.object.status.stateChangeRequests
	change.action == "Stop"
	not change in _earlier
}

# A set, because the list may be long.
_earlier := {change | some change in _request.oldObject.status.stateChangeRequests}

_halts if {
	_request.operation == "UPDATE"
	_halted(_request.object.spec)
	not _halted(_request.oldObject.spec)
}

_halted(spec) if spec.runStrategy == "Halted"

_halted(spec) if spec.running == false

# The state of the machine.

_machine := _request.oldObject if _of_machine

_machine := input.facts.machine if not _of_machine

_instance := input.facts.instance if _of_machine

_instance := _request.oldObject if not _of_machine

_runs if {
	_instance.metadata.name
	not _phase in {"Succeeded", "Failed"}
}

_phase := object.get(_instance, ["status", "phase"], "Pending")

_state := $"{_phase} on node {_instance.status.nodeName}" if _instance.status.nodeName

_state := _phase if not _instance.status.nodeName

_snapshot := _machine.status.snapshotInProgress

_restore := _machine.status.restoreInProgress

# KubeVirt keeps the state of the last migration. It is completed also if it failed.
_route := {"from": _node("sourceNode"), "to": _node("targetNode")} if {
	_instance.status.migrationState
	not _instance.status.migrationState.completed
	not _instance.status.migrationState.failed
}

_node(field) := object.get(_instance.status.migrationState, field, "another")

# Allowed requesters.

_who := _request.userInfo.username

_exempt if {
	_request.operation == "DELETE"
	_who in data.parameters.garbageCollectors
	_metadata.ownerReferences != []
}

_exempt if {
	_emptied
	_ending
}

_emptied if {
	_request.operation == "DELETE"
	_who in data.parameters.namespaceControllers
}

# A namespace that does not exist any longer is deleted.
_ending if input.facts.namespace == null

_ending if input.facts.namespace.metadata.deletionTimestamp

# Messages.

_object := $"{_request.kind.kind} {_metadata.name} in namespace {_request.namespace}"

_arguments := $"{shell.word(_metadata.name)} -n {shell.word(_request.namespace)}"

_stop := $"virtctl stop {_arguments}" if not _svm

# Sallyport starts one again that virtctl has stopped.
_stop := $"kubectl sallyport stop {shell.word(_svm)} -n {shell.word(_request.namespace)}" if _svm

# The name of the VirtualMachine of Sallyport that the machine belongs to.
_svm := _metadata.annotations["sallyport.dev/virtual-machine"] if _metadata.labels["sallyport.dev/virtual-machine-uid"]

_way_out := $"to override this policy temporarily: {override.command("kubevirt-machines", _request, _metadata)}"

_details := {"group": "kubevirt.io", "kind": _request.kind.kind, "name": _metadata.name}

# Types.

_known_instance if _instance == null

_known_instance if {
	is_string(_phase)
	is_object(object.get(_instance, ["status", "migrationState"], {}))
}

_known_jobs if _machine == null

_known_jobs if {
	is_string(object.get(_machine, ["status", "snapshotInProgress"], ""))
	is_string(object.get(_machine, ["status", "restoreInProgress"], ""))
}
