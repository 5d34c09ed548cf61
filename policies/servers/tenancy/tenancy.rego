# METADATA
# title: What a namespace may use of a vCenter
# description: >-
#   A VirtualMachine in a vCenter needs a VSphereServer with an entry in spec.tenants for its namespace, and may adopt only
#   machines below a folder that such an entry has, if the entry allows adoption. A VirtualMachine that names its machine by
#   instanceUUID alone is judged by the folder once it is known where the machine is. For a machine that is cloned, one entry
#   must allow its folder, resource pool, datastore, networks and template, and the status of the VSphereServer must list them as
#   far as its lists are complete and current. If such a machine leaves its datastore to a storage policy, that entry must have
#   some datastores, and one of them is chosen when the machine is made; for a VirtualDisk one must allow its datastore. A
#   templateRef is judged as the path of the template that the VSphereTemplate keeps in the failure domain. One
#   whose place in the vCenter does not change, or that is being deleted, is not judged again. The template of a
#   VirtualMachinePool is judged as the machines that are made from it, when the pool is created and when that place changes. The
#   first of these that is not met refuses.
package sallyport.servers.tenancy

import data.sallyport.lib.machines
import data.sallyport.lib.tenants

# METADATA
# title: The vCenter that the VirtualMachine names
facts["server"] := {
	"apiVersion": "sallyport.dev/v1alpha1",
	"kind": "VSphereServer",
	"name": _vsphere.serverRef.name,
} if {
	_judged
}

facts["server"] := null if not _judged

# METADATA
# title: The namespace of the VirtualMachine, for its labels
facts["namespace"] := {
	"apiVersion": "v1",
	"kind": "Namespace",
	"name": input.request.namespace,
} if {
	_judged
}

facts["namespace"] := null if not _judged

valid_input if {
	input.request.operation in {"CREATE", "UPDATE"}
	_text(input.request.namespace)
	is_object(_machine.runtime)
	is_object(object.get(_machine.runtime, "vsphere", {}))
	_known
}

# METADATA
# title: There is no such VSphereServer
# custom:
#   reason: VSphereServerNotFound
#   remedy: Name a VSphereServer that an administrator has declared; `kubectl get vsphereservers` lists them.
deny contains {
	"reason": "VSphereServerNotFound",
	"code": 422,
	"message": $"{_at("serverRef.name")}: there is no VSphereServer {_vsphere.serverRef.name}",
	"details": _details(_at("serverRef.name")),
} if {
	_judged
	input.facts.server == null
}

# METADATA
# title: The namespace may not use the vCenter
# custom:
#   reason: NamespaceNotAllowed
#   remedy: Ask an administrator for an entry in spec.tenants of the VSphereServer, or name another one.
deny contains {
	"reason": "NamespaceNotAllowed",
	"message": $"{_namespace} may use nothing of {_server}: no entry of its spec.tenants is for this namespace",
	"details": _details(_at("serverRef.name")),
} if {
	_served
	count(_tenants) == 0
}

# METADATA
# title: The namespace may not adopt machines of the vCenter
# custom:
#   reason: AdoptionNotAllowed
#   remedy: Ask an administrator to set adopt in the entry of spec.tenants that is for the namespace.
deny contains {
	"reason": "AdoptionNotAllowed",
	"message": $"{_namespace} may use {_server}, but may not adopt machines that exist there",
	"details": _details(machines.field(input.request, "runtime.vsphere")),
} if {
	_adopts
	count(_tenants) > 0
	count(_adopting) == 0
}

# METADATA
# title: The inventory path is not written as vCenter writes it
# custom:
#   reason: InventoryPathMalformed
#   remedyInMessage: Write the path without . and .. as elements, and with %2f, %5c and %25 for slash, backslash and percent in names.
deny contains {
	"reason": "InventoryPathMalformed",
	"code": 422,
	"message": $"{_at("inventoryPath")}: {_place} cannot be judged because of {_malformed}; {_namespace} may adopt machines below: {_allowed}",
	"details": _details(_at("inventoryPath")),
} if {
	_placed
	count(_odd) > 0
}

# METADATA
# title: The machine is not below a folder that the namespace may use
# custom:
#   reason: FolderNotAllowed
#   remedyInMessage: Name a machine below a folder that the message names, or ask an administrator for another folder.
deny contains {
	"reason": "FolderNotAllowed",
	"message": $"{_place} is not below a folder of {_server} that {_namespace} may use; it may adopt machines below: {_allowed}",
	"details": _details(_at("inventoryPath")),
} if {
	_placed
	count(_odd) == 0
	not _inside
}

_machine := machines.spec(input.request, "object")

_vsphere := _machine.runtime.vsphere

# What users call a field below that.
_at(path) := machines.field(input.request, $"runtime.vsphere.{path}")

_names_a_place if _vsphere != null

# Somebody whose folder was taken away can still change everything else of the VirtualMachine; the machine itself is out of
# reach until the reconciler is told otherwise.
_unchanged if {
	input.request.operation == "UPDATE"
	machines.spec(input.request, "oldObject").runtime.vsphere == _vsphere
}

# What is its own can always be given back, or an entry that was taken away would keep a VirtualMachine for good.
_leaving if _text(input.request.object.metadata.deletionTimestamp)

_judged if {
	_names_a_place
	not _unchanged
	not _leaving
}

_served if {
	_judged
	input.facts.server != null
}

# Both name a machine that exists.
_adopts if {
	_served
	some field in ["inventoryPath", "instanceUUID"]
	_vsphere[field] != null
}

_placed if {
	_adopts
	count(_adopting) > 0
	_vsphere.inventoryPath != null
}

# The entries for this namespace. What those for others allow must not show in a message.
_tenants := tenants.entries(object.get(input.facts.server.spec, "tenants", []), input.request.namespace, _labels)

_labels := null if input.facts.namespace == null

_labels := object.get(input.facts.namespace.metadata, "labels", {}) if input.facts.namespace != null

_adopting := [tenant |
	some tenant in _tenants
	tenant.adopt == true
]

_folders := sort({folder |
	some tenant in _adopting
	some folder in object.get(tenant, "folders", [])
})

_inside if {
	some folder in _folders
	tenants.below(_vsphere.inventoryPath, folder)
}

_odd := tenants.odd(_vsphere.inventoryPath)

_malformed := concat(" and ", sort(_odd)) if not _found

_malformed := "what a folder of it is called" if _found

# Where a machine was found is no business of a namespace that may not use the place: whoever has guessed an instance UUID would
# read the folders of others. What they have written themselves they know.
_place := _vsphere.inventoryPath if not _found

_place := "the machine" if _found

_found if input.request.userInfo.username == "system:sallyport"

_allowed := _cut(_folders, ", ") if count(_folders) > 0

_allowed := "no folder at all" if count(_folders) == 0

# Longer lists are cut: a message is for reading.
_cut(list, separator) := concat(separator, list) if count(list) <= 10

_cut(list, separator) := $"{concat(separator, array.slice(list, 0, 10))} and {count(list) - 10} more" if count(list) > 10

_namespace := $"namespace {input.request.namespace}"

_server := $"VSphereServer {_vsphere.serverRef.name}"

_details(field) := {"kind": "VSphereServer", "name": _vsphere.serverRef.name, "field": field}

_known if not _judged

_known if {
	_judged
	_text(_vsphere.serverRef.name)
	_text(object.get(_vsphere, "instanceUUID", "none"))
	tenants.known_path(object.get(_vsphere, "inventoryPath", "/none"))
	_known_clone
	_known_template
	_known_server
	_known_namespace
}

_known_clone if not _clones

_known_clone if tenants.known_made(_vsphere)

_known_server if input.facts.server == null

_known_server if {
	input.facts.server.metadata.name == _vsphere.serverRef.name
	is_object(input.facts.server.spec)
	tenants.known(object.get(input.facts.server.spec, "tenants", []))
	_known_status
}

# A namespace that is gone, or so new that the cache does not have it, can be a tenant by its name.
_known_namespace if input.facts.namespace == null

_known_namespace if {
	input.facts.namespace.metadata.name == input.request.namespace
	tenants.known_labels(_labels)
}

_text(value) if {
	is_string(value)
	value != ""
}
