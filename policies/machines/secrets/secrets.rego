# METADATA
# title: Which Secrets a machine may use
# description: >-
#   A VirtualMachine may name a Secret only if the requester may get that Secret, whether or not it exists. Secrets are named for
#   cloud-init of a machine in a vCenter or of KubeVirt, and for the snapshots of a machine that is a Pod. The same applies to the template
#   of a VirtualMachinePool. The policy evaluates creations, and updates that change the runtime.
package sallyport.machines.secrets

import data.sallyport.lib.machines
import data.sallyport.lib.shell

# METADATA
# title: Whether the requester may get the Secret
# description: Evaluated only if the request names a Secret.
facts["readable"] := {"access": {
	"verb": "get",
	"group": "",
	"resource": "secrets",
	"namespace": input.request.namespace,
	"name": _secret.name,
}} if {
	_names_one
}

facts["readable"] := null if not _names_one

valid_input if {
	_runtime
	_known_cloud_init
	_known_snapshots
	count(_named) < 2
}

# METADATA
# title: The requester may not get the Secret
# custom:
#   reason: SecretNotAllowed
#   remedyInMessage: Name a Secret that you may get, or ask an administrator of the namespace for the verb get on this Secret.
deny contains {
	"reason": "SecretNotAllowed",
	"message": $"{_field}: cannot use Secret {_secret.name}",
	"cause": $"{_who} may not get it in namespace {input.request.namespace}",
	"remedy": $"name a Secret that you may get; to check: kubectl auth can-i get secrets/NAME -n {shell.word(input.request.namespace)}",
	"details": {"kind": "Secret", "name": _secret.name, "field": _field},
} if {
	_names_one
	not input.facts.readable == true
}

_field := machines.field(input.request, _secret.field)

_who := input.request.userInfo.username

_runtime := machines.spec(input.request, "object").runtime

# The fields that name a Secret. A machine has one runtime, and so it names at most one Secret.
_named contains {"field": "runtime.vsphere.clone.cloudInit.secretRef.name", "name": _runtime.vsphere.clone.cloudInit.secretRef.name}

_named contains {"field": "runtime.kubevirt.create.cloudInit.secretRef.name", "name": _runtime.kubevirt.create.cloudInit.secretRef.name}

_named contains {"field": "runtime.pod.snapshotSecretRef.name", "name": _runtime.pod.snapshotSecretRef.name}

_secret := [named | some named in _named][0]

_names_one if {
	_secret
	not _unchanged
}

# An unchanged runtime was evaluated when it was written.
_unchanged if {
	input.request.operation == "UPDATE"
	machines.spec(input.request, "oldObject").runtime == _runtime
}

# A Secret without a name would not be noticed.

_known_cloud_init if {
	not _runtime.vsphere.clone.cloudInit
	not _runtime.kubevirt.create.cloudInit
}

_known_cloud_init if _runtime.vsphere.clone.cloudInit.secretRef.name != ""

_known_cloud_init if _runtime.kubevirt.create.cloudInit.secretRef.name != ""

_known_snapshots if not _runtime.pod.snapshotSecretRef

_known_snapshots if _runtime.pod.snapshotSecretRef.name != ""
