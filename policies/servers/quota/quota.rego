# METADATA
# title: Quotas of namespaces in a vCenter
# description: >-
#   The quota of an entry in spec.tenants of a VSphereServer limits the number, the CPUs and the memory of the machines that the
#   namespaces of the entry have in its folders, cloned or adopted. A machine counts with the larger of the size in its spec and the
#   size in status.allocated; without either, it counts only as a machine. A VirtualMachine to clone is allowed if one entry that allows its places has enough quota left. If no entry allows
#   its places, servers-tenancy denies the request. The policy checks creations, and changes that increase or remove spec.cpu or
#   spec.memory.
package sallyport.servers.quota

import data.sallyport.lib.quantity
import data.sallyport.lib.tenants

# METADATA
# title: The VSphereServer of the VirtualMachine
facts["server"] := {
	"apiVersion": "sallyport.dev/v1alpha1",
	"kind": "VSphereServer",
	"name": _server,
} if {
	_judged
}

facts["server"] := null if not _judged

# METADATA
# title: The VirtualMachines on that VSphereServer that can count
# description: >-
#   Those in the namespaces that share a quota with the namespace of the request, so that machines of other tenants neither slow this
#   policy down nor fail it. Not read if no quota applies.
facts["machines"] := {
	"apiVersion": "sallyport.dev/v1alpha1",
	"kind": "VirtualMachine",
	"namespaces": _sharing,
	"fields": {"spec.runtime.vsphere.serverRef.name": _server},
} if {
	_limited
}

facts["machines"] := null if not _limited

# METADATA
# title: All namespaces, for their labels
facts["namespaces"] := {"apiVersion": "v1", "kind": "Namespace"} if _judged

facts["namespaces"] := null if not _judged

valid_input if {
	input.request.operation in {"CREATE", "UPDATE"}
	input.request.object.spec.runtime
	_known_sizes(input.request.object.spec)
	_known_sizes(_old_spec)
	_known
}

# METADATA
# title: The size of the machine is missing
# custom:
#   reason: SizeRequired
#   remedyInMessage: Set the field in the message.
deny contains {
	"reason": "SizeRequired",
	"code": 422,
	"message": $"spec.{resource}: must be set",
	"cause": $"entry {tenant.name} of VSphereServer {_server} has a quota for {resource} in {_namespace}",
	"details": {"kind": "VSphereServer", "name": _server, "field": $"spec.{resource}"},
} if {
	_full
	some tenant in _candidates
	count(_exceeded(tenant)) == 0
	some resource in _unsaid(tenant)
}

# METADATA
# title: The machine would exceed the quota
# custom:
#   reason: QuotaExceeded
#   remedy: Request less, delete a VirtualMachine in the folders of the entry, or ask an administrator for a larger quota.
deny contains {
	"reason": "QuotaExceeded",
	"message": "this machine is not allowed",
	"cause": $"{_namespace} would exceed its quota on VSphereServer {_server}: {_numbers}",
	"details": {"kind": "VSphereServer", "name": _server, "field": "spec.runtime.vsphere.clone"},
} if {
	_full
	every tenant in _candidates { count(_exceeded(tenant)) > 0 }
}

_object := input.request.object

_clone := _object.spec.runtime.vsphere.clone

_server := _object.spec.runtime.vsphere.serverRef.name

_clones if _clone != null

_judged if {
	_clones
	count(_asked) > 0
	not _leaving
	not _made
}

# Sallyport evaluates what is being deleted, as a creation. The API server asks about it only if its spec changes, which counts.
_leaving if {
	input.request.operation == "CREATE"
	_object.metadata.deletionTimestamp != null
}

_rejudged if input.request.userInfo.username == "system:sallyport"

_made if {
	_rejudged
	input.request.operation == "CREATE"
	_object.status.instanceID != ""
}

# The resources that the request adds.
_asked := {"machines", "cpu", "memory"} if input.request.operation == "CREATE"

_asked := {resource | some resource in ["cpu", "memory"]; _grows(resource)} if input.request.operation == "UPDATE"

_grows(resource) if {
	_said(_old_spec, resource)
	not _said(_object.spec, resource)
}

_grows(resource) if {
	_said(_object.spec, resource)
	not _said(_old_spec, resource)
}

_grows(resource) if quantity.compare(_object.spec[resource], _old_spec[resource]) > 0

_old_spec := {} if input.request.operation == "CREATE"

_old_spec := input.request.oldObject.spec if input.request.operation == "UPDATE"

_said(spec, resource) if spec[resource] != null

# No entry that allows the places has enough quota left.
_full if {
	_judged
	count(_candidates) > 0
	every tenant in _candidates { count(_exceeded(tenant)) + count(_unsaid(tenant)) > 0 }
}

_candidates := [tenant |
	some tenant in tenants.entries(_tenants, input.request.namespace, _labels(input.request.namespace))
	every place in tenants.places(_clone) { tenants.allows(tenant, place) }
]

# A quota applies if every entry that allows the places has one for a resource that the request adds.
_limited if {
	_judged
	count(_candidates) > 0
	every tenant in _candidates { count(_limits(tenant)) > 0 }
}

_limits(tenant) := [limit | some resource, limit in _quota(tenant); resource in _asked]

_sharing := sort({name | some tenant in _candidates; some name in tenants.members(tenant, _labels_of)})

_tenants := [] if input.facts.server == null

_tenants := object.get(input.facts.server.spec, "tenants", []) if input.facts.server != null

_labels_of := {namespace.metadata.name: object.get(namespace.metadata, "labels", {}) | some namespace in input.facts.namespaces}

_labels(namespace) := object.get(_labels_of, namespace, null)

_quota(tenant) := object.get(tenant, "quota", {})

_unsaid(tenant) := [resource |
	some resource in (_asked - {"machines"})
	_said(_quota(tenant), resource)
	not _said(_object.spec, resource)
]

# The resources that exceed the quota of an entry, with the numbers.
_exceeded(tenant) := [line |
	some resource, limit in _quota(tenant)
	resource in _asked
	line := _excess(tenant, resource, limit)
]

# A size of another machine that is not understood uses up the entries that the machine counts in, and no others.
_excess(tenant, resource, limit) := $"entry {tenant.name}: {resource} used is unknown because spec.{resource} of a VirtualMachine is not a quantity" if {
	_used[tenant.name][resource] == null
} else := $"entry {tenant.name}: {resource} requested {_size(resource)}, used {_shown(resource, used)}, limit {limit}" if {
	used := _used[tenant.name][resource]
	used + quantity.nanos(_size(resource)) > quantity.nanos(limit)
}

# Usage in billionths (nano units), by entry and resource; null if it is unknown.
_used := {tenant.name: amounts |
	some tenant in _candidates
	machines := _counted(tenant)
	amounts := {resource: _total([_amount(machine, resource) | some machine in machines]) | some resource, _ in _quota(tenant)}
}

_total(amounts) := null if null in amounts

_total(amounts) := sum(amounts) if not null in amounts

_size("machines") := 1

_size(resource) := _object.spec[resource] if resource in {"cpu", "memory"}

_numbers := concat("; ", [line | some tenant in _candidates; some line in _exceeded(tenant)])

# When a machine is about to be given the size of its spec, others count with what was allocated to them: what they only ask for in
# their specs is evaluated by itself, one machine at a time.
_settling if {
	_rejudged
	input.request.operation == "UPDATE"
}

# Before a machine is cloned, only older ones count: of two that were admitted at the same time, exactly the older one is cloned.
_queued if {
	_rejudged
	input.request.operation == "CREATE"
}

# Many machines share few folders and sizes, so each of these is checked once.
_counted(tenant) := [machine |
	namespaces := tenants.members(tenant, _labels_of)
	folders := {folder |
		some folder in _folders
		_covers(tenant, folder)
	}
	some machine in _others
	machine.namespace in namespaces
	machine.folder in folders
]

_covers(tenant, folder) if {
	tenants.known_path(folder)
	some allowed in object.get(tenant, "folders", [])
	tenants.within(folder, allowed)
}

_covers(_, folder) if not tenants.known_path(folder)

# What counts of the other machines, and nothing else: a whole machine in a list is read as a whole.
_others := [counted |
	some machine in input.facts.machines
	_counts(machine)
	counted := {
		"namespace": machine.metadata.namespace, "folder": _folder(machine),
		"cpu": {"spec": [size | size := machine.spec.cpu], "allocated": [size | size := machine.status.allocated.cpu]},
		"memory": {"spec": [size | size := machine.spec.memory], "allocated": [size | size := machine.status.allocated.memory]},
	}
]

# An adopted machine that is named by its instance UUID counts in all entries of its namespace.
_folder(machine) := object.get(machine, ["spec", "runtime", "vsphere", "clone", "folder"], null) if _cloned(machine)

_folder(machine) := _parent(object.get(machine, ["spec", "runtime", "vsphere", "inventoryPath"], null)) if not _cloned(machine)

_cloned(machine) if "clone" in object.keys(machine.spec.runtime.vsphere)

_parent(path) := null if not is_string(path)

_parent(path) := concat("/", array.slice(parts, 0, count(parts) - 1)) if {
	is_string(path)
	parts := split(path, "/")
}

_counts(_) if not _queued

_counts(machine) if {
	_queued
	[machine.metadata.creationTimestamp, machine.metadata.uid] < [_object.metadata.creationTimestamp, _object.metadata.uid]
}

_folders := {machine.folder | some machine in _others}

_nanos := {size: _nanos_of(size) | some machine in _others; some resource in ["cpu", "memory"]; some sizes in machine[resource]; some size in sizes}

_nanos_of(size) := quantity.nanos(size) if quantity.known(size)

_nanos_of(size) := null if not quantity.known(size)

_amount(_, "machines") := 1000000000

_amount(machine, resource) := _largest([_nanos[size] | some size in _asks(machine[resource])]) if resource != "machines"

_largest(amounts) := null if null in amounts

_largest(amounts) := max(array.concat([0], amounts)) if not null in amounts

_asks(sizes) := sizes.allocated if _settled(sizes)

_asks(sizes) := array.concat(sizes.spec, sizes.allocated) if not _settled(sizes)

_settled(sizes) if {
	_settling
	count(sizes.allocated) > 0
}

_shown(resource, nanos) := ceil(nanos / 1000000000) if resource != "memory"

_shown("memory", nanos) := $"{nanos / _gibi}Gi" if nanos % _gibi == 0

_shown("memory", nanos) := $"{ceil(nanos / _mebi)}Mi" if nanos % _gibi != 0

_mebi := 1048576 * 1000000000

_gibi := 1024 * _mebi

_namespace := $"namespace {input.request.namespace}"

_known if not _judged

_known if {
	_judged
	input.request.namespace != ""
	_server != ""
	tenants.known_clone(_clone)
	_known_age
	_known_server
	every namespace in input.facts.namespaces { namespace.metadata.name }
	_known_machines
}

_known_machines if not _limited

_known_machines if {
	_limited
	every machine in input.facts.machines { _known_machine(machine) }
}

# Only what the API server vouches for. What else a machine of another namespace is costs the entries that it counts in.
_known_machine(machine) if {
	machine.metadata.namespace != ""
	machine.metadata.creationTimestamp != null
	machine.metadata.uid != ""
	machine.spec.runtime.vsphere.serverRef.name == _server
}

_sizes(spec) := [size | some resource in ["cpu", "memory"]; size := spec[resource]]

_known_sizes(spec) if {
	every size in _sizes(spec) { quantity.known(size) }
}

_known_age if not _rejudged

_known_age if {
	_object.metadata.creationTimestamp != null
	_object.metadata.uid != ""
}

_known_server if input.facts.server == null

_known_server if {
	input.facts.server.metadata.name == _server
	input.facts.server.spec
	tenants.known(_tenants)
	every tenant in _tenants { _known_quota(_quota(tenant)) }
}

_known_quota(quota) if {
	every limit in quota { quantity.known(limit) }
}
