# METADATA
# title: No copies of operations
# description: >-
#   Denies an operation whose spec already names a VirtualMachine UID, a requester, the time of the request, or an override. Only
#   Sallyport sets these fields. An operation that is created with them is a copy, for example from a backup or an export: without
#   its status it would be carried out once more.
package sallyport.operations.copies

import data.sallyport.lib.shell

valid_input if input.request.object.spec

# METADATA
# title: The operation is a copy
# custom:
#   reason: OperationCopied
#   remedyInMessage: >-
#     Create a new operation with kubectl sallyport, or remove the fields from the manifest. Leave operations out of backups.
#   override: false
deny contains {
	"reason": "OperationCopied",
	"code": 422,
	"message": concat("", [
		"an operation cannot be created with spec.virtualMachineUID, spec.requestedBy, spec.requestedAt or spec.override: only Sallyport ",
		"sets these fields, so this is a copy of an earlier operation, as from a backup, and would be carried out again",
	]),
	"remedy": concat("", [
		"to request it anew, remove the fields, or use kubectl sallyport, for example: ",
		$"kubectl sallyport stop {shell.word(_machine)} -n {shell.word(input.request.namespace)}",
	]),
	"details": {"group": "sallyport.dev", "kind": "VirtualMachineOperation", "field": "spec.requestedAt"},
} if {
	"requestedBy" in object.keys(input.request.object.spec)
	object.get(input.request.object.spec, "requestedAt", "") == ""
}

_machine := object.get(input.request.object.spec, "virtualMachineName", "VM")
