# Machines and disks that are made: one entry must allow all of their places.
package sallyport.servers.tenancy

import data.sallyport.lib.tenants

# METADATA
# title: A path of what is made is not written as vCenter writes it
# custom:
#   reason: InventoryPathMalformed
#   remedyInMessage: Write the path without . and .. as elements, and with %2f, %5c and %25 for slash, backslash and percent in names.
deny contains {
	"reason": "InventoryPathMalformed",
	"code": 422,
	"message": $"{_field(place)}: {_shown(place)} cannot be judged because of {_oddities(place)}; {_namespace} may use: {_usable(place)}",
	"details": _details(_field(place)),
} if {
	_cloned
	some place in _places
	count(tenants.odd(place.path)) > 0
}

# METADATA
# title: The machine would be in a folder that the namespace may not use
# custom:
#   reason: FolderNotAllowed
#   remedyInMessage: Name a folder that the message names, or one below, or ask an administrator for another folder.
deny contains {
	"reason": "FolderNotAllowed",
	"message": _not_allowed(place),
	"details": _details(_field(place)),
} if {
	some place in _refused
	place.allowed == "folders"
}

# METADATA
# title: The machine would be in a resource pool that the namespace may not use
# custom:
#   reason: ResourcePoolNotAllowed
#   remedyInMessage: Name a resource pool that the message names, or one below, or ask an administrator for another one.
deny contains {
	"reason": "ResourcePoolNotAllowed",
	"message": _not_allowed(place),
	"details": _details(_field(place)),
} if {
	some place in _refused
	place.allowed == "resourcePools"
}

# METADATA
# title: The machine or disk would be on a datastore that the namespace may not use
# custom:
#   reason: DatastoreNotAllowed
#   remedyInMessage: Name a datastore that the message names, or one in a folder that it names, or ask an administrator for another one.
deny contains {
	"reason": "DatastoreNotAllowed",
	"message": _not_allowed(place),
	"details": _details(_field(place)),
} if {
	some place in _refused
	place.allowed == "datastores"
}

# METADATA
# title: The machine would be on a network that the namespace may not use
# custom:
#   reason: NetworkNotAllowed
#   remedyInMessage: Name a network that the message names, or one in a folder that it names, or ask an administrator for another one.
deny contains {
	"reason": "NetworkNotAllowed",
	"message": _not_allowed(place),
	"details": _details(_field(place)),
} if {
	some place in _refused
	place.allowed == "networks"
}

# METADATA
# title: The machine would be made from a template that the namespace may not use
# custom:
#   reason: TemplateNotAllowed
#   remedyInMessage: Name a template that the message names, or one in a folder that it names, or ask an administrator for another one.
deny contains {
	"reason": "TemplateNotAllowed",
	"message": _not_allowed(place),
	"details": _details(_field(place)),
} if {
	some place in _refused
	place.allowed == "templates"
}

# METADATA
# title: The namespace may use each of the places, but not together
# custom:
#   reason: CombinationNotAllowed
#   remedyInMessage: Change the fields that one of the entries in the message does not allow, or ask an administrator for an entry with all of it.
deny contains {
	"reason": "CombinationNotAllowed",
	"message": concat("", [
		$"{_at("clone")}: {_namespace} may use each of these places on {_server}, but no entry of its spec.tenants ",
		$"allows all of them together: {_shortcomings}",
	]),
	"details": _details(_at("clone")),
} if {
	_cloned
	_straight
	count(_refused) == 0
	every tenant in _tenants { count(_lacking(tenant)) > 0 }
}

# METADATA
# title: The datastores that one is chosen of
# description: Those of the entries that allow everything else of a machine which leaves its datastore to a storage policy.
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

_places := tenants.made_at(_located)

_straight if {
	every place in _places { count(tenants.odd(place.path)) == 0 }
}

# What no entry allows, whatever else it allows.
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

_not_allowed(place) := $"{_field(place)}: on {_server} {_namespace} may not use {_shown(place)}; it may use: {_usable(place)}"

_field(place) := _at(place.field)

# The folder is where the machine was found, once it exists.
_hidden(place) if {
	_found
	place.field == "clone.folder"
}

_shown(place) := place.path if {
	not _hidden(place)
	not place.any
}

_shown(place) := "any datastore" if place.any

_shown(place) := "the machine's folder" if _hidden(place)

_oddities(place) := concat(" and ", sort(tenants.odd(place.path))) if not _hidden(place)

_oddities(place) := "what it is called" if _hidden(place)

_usable(place) := _cut(list, ", ") if {
	list := _union(place.allowed)
	count(list) > 0
}

_usable(place) := "none" if count(_union(place.allowed)) == 0

_union(field) := sort({path |
	some tenant in _tenants
	some path in object.get(tenant, field, [])
})
