# New machines and disks: a single entry must allow all of their places.
package sallyport.servers.tenancy

import data.sallyport.lib.tenants

# METADATA
# title: A path of a new machine or disk is not valid
# custom:
#   reason: InventoryPathMalformed
#   remedyInMessage: Do not use . or .. as path elements. In names, write %2f, %5c and %25 for slash, backslash and percent.
deny contains {
	"reason": "InventoryPathMalformed",
	"code": 422,
	"message": $"{_field(place)}: {_shown(place)} is not allowed",
	"cause": $"its path contains {_oddities(place)}",
	"remedy": $"allowed: {_usable(place)}",
	"details": _details(_field(place)),
} if {
	_cloned
	some place in _places
	count(tenants.odd(place.path)) > 0
}

# METADATA
# title: The namespace may not use the folder
# custom:
#   reason: FolderNotAllowed
#   remedyInMessage: Use a folder in the message, or one below it, or ask an administrator to allow another folder.
deny contains {
	"reason": "FolderNotAllowed",
	"message": _not_allowed(place),
	"remedy": $"allowed: {_usable(place)}",
	"details": _details(_field(place)),
} if {
	some place in _refused
	place.allowed == "folders"
}

# METADATA
# title: The namespace may not use the resource pool
# custom:
#   reason: ResourcePoolNotAllowed
#   remedyInMessage: Use a resource pool in the message, or one below it, or ask an administrator to allow another one.
deny contains {
	"reason": "ResourcePoolNotAllowed",
	"message": _not_allowed(place),
	"remedy": $"allowed: {_usable(place)}",
	"details": _details(_field(place)),
} if {
	some place in _refused
	place.allowed == "resourcePools"
}

# METADATA
# title: The namespace may not use the datastore
# custom:
#   reason: DatastoreNotAllowed
#   remedyInMessage: Use a datastore in the message, or one below a folder in it, or ask an administrator to allow another one.
deny contains {
	"reason": "DatastoreNotAllowed",
	"message": _not_allowed(place),
	"remedy": $"allowed: {_usable(place)}",
	"details": _details(_field(place)),
} if {
	some place in _refused
	place.allowed == "datastores"
}

# METADATA
# title: The namespace may not use the storage policy
# custom:
#   reason: StoragePolicyNotAllowed
#   remedyInMessage: Use a storage policy in the message, or none, or ask an administrator to allow another one.
deny contains {
	"reason": "StoragePolicyNotAllowed",
	"message": _not_allowed(place),
	"remedy": $"allowed: {_usable(place)}",
	"details": _details(_field(place)),
} if {
	some place in _refused
	place.allowed == "storagePolicies"
}

# METADATA
# title: The namespace may not use the network
# custom:
#   reason: NetworkNotAllowed
#   remedyInMessage: Use a network in the message, or one below a folder in it, or ask an administrator to allow another one.
deny contains {
	"reason": "NetworkNotAllowed",
	"message": _not_allowed(place),
	"remedy": $"allowed: {_usable(place)}",
	"details": _details(_field(place)),
} if {
	some place in _refused
	place.allowed == "networks"
}

# METADATA
# title: The namespace may not use the template
# custom:
#   reason: TemplateNotAllowed
#   remedyInMessage: Use a template in the message, or one below a folder in it, or ask an administrator to allow another one.
deny contains {
	"reason": "TemplateNotAllowed",
	"message": _not_allowed(place),
	"remedy": $"allowed: {_usable(place)}",
	"details": _details(_field(place)),
} if {
	some place in _refused
	place.allowed == "templates"
}

# METADATA
# title: The namespace may not use the places together
# custom:
#   reason: CombinationNotAllowed
#   remedyInMessage: >-
#     Choose an entry in the message and change the fields that it does not allow, or ask an administrator for an entry that allows
#     all of them.
deny contains {
	"reason": "CombinationNotAllowed",
	"message": $"{_at("clone")}: {_namespace} may not use these places on {_server} together",
	"cause": $"no single entry in its spec.tenants allows all of them: {_shortcomings}",
	"details": _details(_at("clone")),
} if {
	_cloned
	_straight
	count(_refused) == 0
	every tenant in _tenants { count(_lacking(tenant)) > 0 }
}

# METADATA
# title: The datastores from which one is chosen
# description: The datastores of the entries that allow all other places of a machine with a storage policy instead of a datastore.
outcome.datastores contains path if {
	_cloned
	some place in _places
	place.any
	some tenant in _tenants
	count(_lacking(tenant)) == 0
	some path in tenant.datastores
}

_clones if {
	some field in ["clone", "datastore"]
	field in object.keys(_vsphere)
}

_cloned if {
	_served
	_clones
	count(_tenants) > 0
}

_places := [place | some place in tenants.made_at(_located); not _applied(place)]

# The storage policy of a machine that exists was applied when it was created.
_applied(place) if {
	_found
	place.allowed == "storagePolicies"
	input.request.object.status.instanceID != ""
}

# A name has no path that could be ambiguous.
_straight if {
	every place in _places { count(tenants.odd(object.get(place, "path", "/"))) == 0 }
}

# Places that no entry allows.
_refused contains place if {
	_cloned
	_straight
	some place in _places
	every tenant in _tenants { not tenants.allows(tenant, place) }
}

_lacking(tenant) := [trim_prefix(place.field, "clone.") |
	some place in _places
	not tenants.allows(tenant, place)
]

_shortcomings := _cut([$"{tenant.name} does not allow {concat(", ", _lacking(tenant))}" | some tenant in _tenants], "; ")

_not_allowed(place) := $"{_field(place)}: {_namespace} may not use {_shown(place)} on {_server}"

_field(place) := _at(place.field)

# For an existing machine, the folder is the one in which it was found.
_hidden(place) if {
	_found
	place.field == "clone.folder"
}

_shown(place) := place.path if {
	not _hidden(place)
	not place.any
}

_shown(place) := place.name

_shown(place) := "any datastore" if place.any

_shown(place) := "the machine's folder" if _hidden(place)

_oddities(place) := concat(" and ", sort(tenants.odd(place.path))) if not _hidden(place)

_oddities(place) := "a name that cannot be checked" if _hidden(place)

_usable(place) := _cut(list, ", ") if {
	list := _union(place.allowed)
	count(list) > 0
}

_usable(place) := "none" if count(_union(place.allowed)) == 0

_union(field) := sort({path |
	some tenant in _tenants
	some path in object.get(tenant, field, [])
})
