# METADATA
# title: Tenants of a vCenter
# description: >-
#   Which entries in spec.tenants of a VSphereServer match a namespace, and which places in the vCenter an entry allows. The functions
#   need fields of the right types, which the engine checks, and entries that known accepts.
package sallyport.lib.tenants

# METADATA
# description: >-
#   The entries that match a namespace with the given labels. If the labels are unknown (null), no selector matches, not even one
#   for a missing label.
entries(tenants, namespace, labels) := [tenant |
	some tenant in tenants
	includes(tenant, namespace, labels)
]

# METADATA
# description: Whether an entry matches a namespace with these labels.
includes(tenant, namespace, _) if namespace in tenant.namespaces.names

includes(tenant, _, labels) if selects(tenant.namespaces.selector, labels)

# METADATA
# description: >-
#   The namespaces that an entry matches, of those in labels_of, which has the labels of each namespace, and those that the entry names. Its
#   cost grows with the number of both, and not with their product.
members(tenant, labels_of) := {name | some name in tenant.namespaces.names} | {name |
	some name, labels in labels_of
	selects(tenant.namespaces.selector, labels)
}

# METADATA
# description: Whether a label selector matches labels. Labels that are null are not known, and match nothing.
selects(selector, labels) if {
	labels != null
	every key, value in object.get(selector, "matchLabels", {}) { labels[key] == value }
	every term in object.get(selector, "matchExpressions", []) { _meets(term, labels) }
}

_meets(term, labels) if {
	term.operator == "In"
	_has_one(term, labels)
}

_meets(term, labels) if {
	term.operator == "NotIn"
	not _has_one(term, labels)
}

_meets(term, labels) if {
	term.operator == "Exists"
	_has_key(term, labels)
}

_meets(term, labels) if {
	term.operator == "DoesNotExist"
	not _has_key(term, labels)
}

_has_one(term, labels) if labels[term.key] in term.values

_has_key(term, labels) if term.key in object.keys(labels)

# METADATA
# description: >-
#   The places of a cloned machine: the field of spec.runtime.vsphere.clone, its path, and the field of an entry that must allow it.
#   Without a datastore, any datastore that satisfies the storage policy is sufficient. The storage policy is a place with a name
#   instead of a path. A templateRef is a place if it has the path of its template next to it.
places(clone) := array.concat(
	[
		{"field": "folder", "path": clone.folder, "allowed": "folders"},
		{"field": "resourcePool", "path": clone.resourcePool, "allowed": "resourcePools"},
		_storage(clone),
	],
	array.concat(
		array.concat(_policies(clone), _templates(clone.template)),
		[{"field": $"networks[{i}]", "path": path, "allowed": "networks"} | some i, path in clone.networks],
	),
)

_policies(clone) := [{"field": "storagePolicy", "name": name, "allowed": "storagePolicies"} | name := clone.storagePolicy]

_templates(template) := [{"field": "template.inventoryPath", "path": template.inventoryPath, "allowed": "templates"}] if {
	not "templateRef" in object.keys(template)
}

_templates(template) := [{"field": "template.templateRef", "path": path, "allowed": "templates"} | path := template.inventoryPath] if {
	template.templateRef.name != ""
}

_storage(clone) := {"field": "datastore", "path": clone.datastore, "allowed": "datastores"}

_storage(clone) := {"field": "datastore", "path": "/", "any": true, "allowed": "datastores"} if {
	not "datastore" in object.keys(clone)
	clone.storagePolicy != ""
}

# METADATA
# description: >-
#   The places in spec.runtime.vsphere of a cloned machine or of a disk, with the fields below it.
made_at(vsphere) := [object.union(place, {"field": concat(".", ["clone", place.field])}) | some place in places(vsphere.clone)] if vsphere.clone

made_at(vsphere) := [{"field": "datastore", "path": vsphere.datastore, "allowed": "datastores"}] if vsphere.datastore

# METADATA
# description: Whether an entry allows a place, by its path or its name. For a place with any, one allowed place is sufficient.
allows(tenant, place) if {
	some allowed in object.get(tenant, place.allowed, [])
	within(place.path, allowed)
}

allows(tenant, place) if place.name in object.get(tenant, place.allowed, [])

allows(tenant, place) if {
	place.any
	count(object.get(tenant, place.allowed, [])) > 0
}

# METADATA
# description: Whether a path is equal to or below the path of a place.
within(path, place) if {
	elements := _elements(place)
	array.slice(_elements(path), 0, count(elements)) == elements
}

# METADATA
# description: Whether a path is below the path of a place.
below(path, place) if {
	within(path, place)
	count(_elements(path)) > count(_elements(place))
}

# METADATA
# description: >-
#   The ambiguous elements of a path, such as .. or an unusual escape. They could resolve to a place other than the one they appear to
#   name.
odd(path) := {element |
	some element in _elements(path)
	regex.match(`^\.\.?$|%([^25]|2[^5Ff]|5[^Cc]|[25]?$)`, element)
}

# vCenter ignores empty elements in a path, and an escaped slash is part of a name.
_elements(path) := [regex.replace(regex.replace(element, "%2F", "%2f"), "%5C", "%5c") |
	some element in split(path, "/")
	element != ""
]

# METADATA
# description: Whether all entries in spec.tenants of a VSphereServer have the fields that policies read, and valid places and selectors.
known(tenants) if {
	every tenant in tenants { _known_tenant(tenant) }
}

_known_tenant(tenant) if {
	tenant.name != ""
	_known_namespaces(tenant.namespaces)
	every field in ["folders", "resourcePools", "datastores", "networks", "templates"] {
		every place in object.get(tenant, field, []) { _known_place(place) }
	}
	_known_names(object.get(tenant, "storagePolicies", []))
	every tag in object.get(tenant, "tags", []) { known_tag(tag) }
}

# METADATA
# description: Whether a tag has a category and a name and nothing else.
known_tag(tag) if {
	object.keys(tag) == {"category", "name"}
	every text in tag { text != "" }
}

_known_names(names) if {
	every name in names { name != "" }
}

# A path without elements would allow the whole vCenter.
_known_place(place) if regex.match(`^(/[^/]+)+$`, place)

_known_namespaces(namespaces) if {
	_known_names(object.get(namespaces, "names", []))
	every term in object.get(namespaces, ["selector", "matchExpressions"], []) { _known_term(term) }
}

_known_term(term) if {
	term.operator in {"Exists", "DoesNotExist"}
	term.key != ""
}

_known_term(term) if {
	term.operator in {"In", "NotIn"}
	term.key != ""
	count(term.values) > 0
}

# METADATA
# description: Whether a spec.runtime.vsphere.clone has networks and valid places.
known_clone(clone) if {
	count(clone.networks) > 0
	every place in places(clone) { _known_place_of(place) }
}

_known_place_of(place) if known_path(place.path)

_known_place_of(place) if place.name != ""

# METADATA
# description: Whether the spec.runtime.vsphere of a cloned machine or a disk has valid places.
known_made(vsphere) if known_clone(vsphere.clone)

known_made(vsphere) if known_path(vsphere.datastore)

# METADATA
# description: Whether a value is an inventory path. Its elements are not checked.
known_path(path) if {
	is_string(path)
	startswith(path, "/")
}
