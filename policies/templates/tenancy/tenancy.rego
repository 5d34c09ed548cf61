# METADATA
# title: Access of VSphereTemplates to a vCenter
# description: >-
#   For each failure domain of a VSphereTemplate, a single entry for its namespace in spec.tenants of the VSphereServer must allow the
#   folder, the resource pool, the datastore, the network and the tags. To clone machines from the template, an entry must also list it
#   in templates. A VSphereTemplate whose places and tags do not change, or that is being deleted, is not checked again.
package sallyport.templates.tenancy

import data.sallyport.lib.tenants

# METADATA
# title: The VSphereServer of the VSphereTemplate
facts["server"] := {
	"apiVersion": "sallyport.dev/v1alpha1",
	"kind": "VSphereServer",
	"name": _spec.serverRef.name,
} if {
	_judged
}

facts["server"] := null if not _judged

# METADATA
# title: The namespace of the VSphereTemplate, for its labels
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
	input.request.namespace != ""
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
	"message": $"spec.serverRef.name: {_server} does not exist",
	"details": _details("spec.serverRef.name"),
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
	"details": _details("spec.serverRef.name"),
} if {
	_served
	count(_tenants) == 0
}

# METADATA
# title: A path of a failure domain is not valid
# custom:
#   reason: InventoryPathMalformed
#   remedy: Do not use . or .. as path elements. In names, write %2f, %5c and %25 for slash, backslash and percent.
deny contains {
	"reason": "InventoryPathMalformed",
	"code": 422,
	"message": $"{place.field}: {_shown(place)} is not allowed",
	"cause": $"its path contains {_oddities(place)}",
	"details": _details(place.field),
} if {
	_tenanted
	some place in _places
	count(_odd(place)) > 0
}

# METADATA
# title: The namespace may not use a place of a failure domain, or a tag
# custom:
#   reason: PlaceNotAllowed
#   remedyInMessage: Use a place in the message, or one below it, or ask an administrator to allow another one.
deny contains {
	"reason": "PlaceNotAllowed",
	"message": $"{place.field}: {_namespace} may not use {_shown(place)} on {_server}",
	"remedy": $"allowed: {_usable(place)}",
	"details": _details(place.field),
} if {
	some place in _refused
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
	"message": $"{at}: {_namespace} may not use these places on {_server} together",
	"cause": $"no single entry in its spec.tenants allows all of them: {_shortcomings(at, domain)}",
	"details": _details(at),
} if {
	_tenanted
	_straight
	count(_refused) == 0
	some name, domain in _domains
	at := $"spec.failureDomains[{name}]"
	every tenant in _tenants { count(_lacking(tenant, domain)) > 0 }
}

_spec := input.request.object.spec

# Messages show the paths that the user wrote, and do not reveal where Sallyport found a place that the namespace may not use.
_found if input.request.userInfo.username == "system:sallyport"

# If an administrator removes a folder from an entry, users can still change other fields. The reconciler does not use the folder then.
_unchanged if {
	input.request.operation == "UPDATE"
	input.request.oldObject.spec.serverRef == _spec.serverRef
	input.request.oldObject.spec.failureDomains == _spec.failureDomains
	_tags(input.request.oldObject.spec) == _tags(_spec)
}

_tags(spec) := object.get(spec, "tags", [])

# The API server asks about an update of what is being deleted only if its spec changes.
_leaving if {
	input.request.operation == "CREATE"
	input.request.object.metadata.deletionTimestamp != null
}

_judged if {
	not _unchanged
	not _leaving
}

_served if {
	_judged
	input.facts.server != null
}

_tenanted if {
	_served
	count(_tenants) > 0
}

_tenants := tenants.entries(object.get(input.facts.server.spec, "tenants", []), input.request.namespace, _labels)

_labels := null if input.facts.namespace == null

_labels := object.get(input.facts.namespace.metadata, "labels", {}) if input.facts.namespace != null

# The places of each failure domain by name, with the field of an entry that must allow them. Each has the tags.
_domains := {domain.name: array.concat(places, _tagged) |
	some domain in _spec.failureDomains
	places := [place |
		some field, allowed in _allowing
		domain[field] != ""
		place := {"field": $"spec.failureDomains[{domain.name}].{field}", "path": domain[field], "allowed": allowed}
	]
}

_tagged := [{"field": $"spec.tags[{text}]", "name": tag, "allowed": "tags"} |
	some tag in _tags(_spec)
	text := _named(tag)
]

_allowing := {"folder": "folders", "resourcePool": "resourcePools", "datastore": "datastores", "network": "networks"}

_places := [place |
	some domain in _domains
	some place in domain
]

_straight if {
	every place in _places { count(_odd(place)) == 0 }
}

_refused contains place if {
	_tenanted
	_straight
	some place in _places
	every tenant in _tenants { not tenants.allows(tenant, place) }
}

# A tag has no path that could be ambiguous.
_odd(place) := tenants.odd(object.get(place, "path", "/"))

_lacking(tenant, domain) := [place.field |
	some place in domain
	not tenants.allows(tenant, place)
]

_shortcomings(at, domain) := _cut(
	[$"{tenant.name} does not allow {concat(", ", [trim_prefix(field, $"{at}.") | some field in _lacking(tenant, domain)])}" |
		some tenant in _tenants
	],
	"; ",
)

_shown(place) := place.path if not _found

_shown(place) := "the place" if {
	_found
	place.path
}

_shown(place) := _named(place.name)

# The category and the name of a tag; everything else has one name.
_named(name) := $"{name.category}/{name.name}" if is_object(name)

_named(name) := name if is_string(name)

_oddities(place) := concat(" and ", sort(_odd(place))) if not _found

_oddities(_) := "a name that cannot be checked" if _found

_usable(place) := _cut(_union(place.allowed), ", ") if count(_union(place.allowed)) > 0

_usable(place) := "none" if count(_union(place.allowed)) == 0

_union(field) := sort({_named(place) |
	some tenant in _tenants
	some place in object.get(tenant, field, [])
})

# Long lists are cut to keep messages short.
_cut(list, between) := concat(between, list) if count(list) <= 10

_cut(list, between) := $"{concat(between, array.slice(list, 0, 10))} and {count(list) - 10} more" if count(list) > 10

_namespace := $"namespace {input.request.namespace}"

_server := $"VSphereServer {_spec.serverRef.name}"

_details(field) := {"kind": "VSphereServer", "name": _spec.serverRef.name, "field": field}

_known if not _judged

_known if {
	_judged
	_spec.serverRef.name != ""
	_known_domains
	every tag in _tags(_spec) { tenants.known_tag(tag) }
	_known_server
	_known_namespace
}

_known_domains if {
	count(_spec.failureDomains) > 0
	every domain in _spec.failureDomains {
		domain.name != ""
		every field, _ in _allowing { _known_place(domain[field]) }
	}
}

_known_place(path) if tenants.known_path(path)

_known_place(path) if {
	_found
	path == ""
}

_known_server if input.facts.server == null

_known_server if {
	input.facts.server.metadata.name == _spec.serverRef.name
	input.facts.server.spec
	tenants.known(object.get(input.facts.server.spec, "tenants", []))
}

# A namespace that does not exist, or is not in the cache yet, can match an entry by its name.
_known_namespace if input.facts.namespace == null

_known_namespace if input.facts.namespace.metadata.name == input.request.namespace
