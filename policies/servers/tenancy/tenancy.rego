# METADATA
# title: Access of namespaces to a vCenter
# description: |-
#   A VirtualMachine in a vCenter requires a VSphereServer with an entry in spec.tenants that matches its namespace.
#
#   Adoption: an entry with adopt: true must have a folder above the machine. If the VirtualMachine identifies the machine only by
#   instanceUUID, the folder is checked as soon as the location of the machine is known.
#
#   Cloning: a single entry must allow the folder, resource pool, datastore, storage policy, networks and template of the machine. The
#   status of the VSphereServer must list the paths, if its lists are complete and current. If the machine has a storage policy instead
#   of a datastore, the entry must have datastores, from which one is chosen when the machine is cloned. A templateRef is checked as the
#   path of the template in the failure domain of the VSphereTemplate. For a VirtualDisk, an entry must allow its datastore.
#
#   The template of a VirtualMachinePool is checked like a VirtualMachine. Objects whose place in the vCenter does not change, and
#   objects that are being deleted, are not checked again. The first requirement that is not met denies the request.
package sallyport.servers.tenancy

import data.sallyport.lib.machines
import data.sallyport.lib.tenants

# METADATA
# title: The VSphereServer of the object
facts["server"] := {
	"apiVersion": "sallyport.dev/v1alpha1",
	"kind": "VSphereServer",
	"name": _vsphere.serverRef.name,
} if {
	_judged
}

facts["server"] := null if not _judged

# METADATA
# title: The namespace of the object, for its labels
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
	_machine.runtime
	_known
}

# METADATA
# title: The VSphereServer does not exist
# custom:
#   reason: VSphereServerNotFound
#   remedy: Use an existing VSphereServer. To list them, run `kubectl get vsphereservers`.
deny contains {
	"reason": "VSphereServerNotFound",
	"code": 422,
	"message": $"{_at("serverRef.name")}: {_server} does not exist",
	"details": _details(_at("serverRef.name")),
} if {
	_judged
	input.facts.server == null
}

# METADATA
# title: The namespace has no access to the VSphereServer
# custom:
#   reason: NamespaceNotAllowed
#   remedy: Ask an administrator for an entry in spec.tenants of the VSphereServer, or use another VSphereServer.
deny contains {
	"reason": "NamespaceNotAllowed",
	"message": $"{_namespace} has no access to {_server}",
	"cause": "no entry in its spec.tenants matches the namespace",
	"details": _details(_at("serverRef.name")),
} if {
	_served
	count(_tenants) == 0
}

# METADATA
# title: The namespace may not adopt machines of the VSphereServer
# custom:
#   reason: AdoptionNotAllowed
#   remedy: Ask an administrator to set adopt to true in the entry of spec.tenants for the namespace.
deny contains {
	"reason": "AdoptionNotAllowed",
	"message": $"{_namespace} may not adopt machines of {_server}",
	"cause": "no entry for the namespace in its spec.tenants allows adoption",
	"details": _details(machines.field(input.request, "runtime.vsphere")),
} if {
	_adopts
	count(_tenants) > 0
	count(_adopting) == 0
}

# METADATA
# title: The inventory path is not valid
# custom:
#   reason: InventoryPathMalformed
#   remedyInMessage: Do not use . or .. as path elements. In names, write %2f, %5c and %25 for slash, backslash and percent.
deny contains {
	"reason": "InventoryPathMalformed",
	"code": 422,
	"message": $"{_at("inventoryPath")}: {_place} is not allowed",
	"cause": $"its path contains {_malformed}",
	"remedy": $"allowed folders: {_allowed}",
	"details": _details(_at("inventoryPath")),
} if {
	_placed
	count(_odd) > 0
}

# METADATA
# title: The machine is not in a folder that the namespace may use
# custom:
#   reason: FolderNotAllowed
#   remedyInMessage: Use a machine below a folder in the message, or ask an administrator to allow another folder.
deny contains {
	"reason": "FolderNotAllowed",
	"message": $"{_namespace} may not adopt {_place}",
	"cause": $"it is not below a folder that {_server} allows",
	"remedy": $"allowed folders: {_allowed}",
	"details": _details(_at("inventoryPath")),
} if {
	_placed
	count(_odd) == 0
	not _inside
}

_machine := machines.spec(input.request, "object")

_vsphere := _machine.runtime.vsphere

# The path of a field below runtime.vsphere, as the user writes it.
_at(path) := machines.field(input.request, $"runtime.vsphere.{path}")

_names_a_place if _vsphere != null

# If an administrator removes a folder from an entry, users can still change other fields of a VirtualMachine. The reconciler does not
# touch the machine until an entry allows it again.
_unchanged if {
	input.request.operation == "UPDATE"
	machines.spec(input.request, "oldObject").runtime.vsphere == _vsphere
}

# A VirtualMachine can always be deleted. Otherwise removing an entry would block its deletion forever. The API server asks about one
# that is being deleted only if its spec changes.
_leaving if {
	input.request.operation == "CREATE"
	input.request.object.metadata.deletionTimestamp != null
}

_judged if {
	_names_a_place
	not _unchanged
	not _leaving
}

_served if {
	_judged
	input.facts.server != null
}

# Both fields identify an existing machine.
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

# The entries for this namespace. Messages must not reveal the entries of other namespaces.
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

_malformed := "a name that cannot be checked" if _found

# Messages do not reveal where a machine was found: a user who guesses an instance UUID could read the folders of other namespaces.
# Paths from the spec may be shown.
_place := _vsphere.inventoryPath if not _found

_place := "the machine" if _found

_found if input.request.userInfo.username == "system:sallyport"

_allowed := _cut(_folders, ", ") if count(_folders) > 0

_allowed := "none" if count(_folders) == 0

# Long lists are cut to keep messages short.
_cut(list, separator) := concat(separator, list) if count(list) <= 10

_cut(list, separator) := $"{concat(separator, array.slice(list, 0, 10))} and {count(list) - 10} more" if count(list) > 10

_namespace := $"namespace {input.request.namespace}"

_server := $"VSphereServer {_vsphere.serverRef.name}"

_details(field) := {"kind": "VSphereServer", "name": _vsphere.serverRef.name, "field": field}

_known if not _judged

_known if {
	_judged
	_vsphere.serverRef.name != ""
	object.get(_vsphere, "instanceUUID", "none") != ""
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
	input.facts.server.spec
	tenants.known(object.get(input.facts.server.spec, "tenants", []))
	_known_inventory
	_known_hosts
}

# A namespace that does not exist, or is not in the cache yet, can match an entry by its name.
_known_namespace if input.facts.namespace == null

_known_namespace if input.facts.namespace.metadata.name == input.request.namespace
