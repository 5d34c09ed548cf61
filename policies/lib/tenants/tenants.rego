# METADATA
# title: Tenants of a vCenter
# description: >-
#   Which entries in spec.tenants of a VSphereServer match a namespace, and which places in the vCenter an entry allows. The functions
#   are undefined for entries of an unexpected shape, so call known first.
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

includes(tenant, _, labels) if {
	is_object(labels)
	_selects(tenant.namespaces.selector, labels)
}

# METADATA
# description: >-
#   The namespaces that an entry matches, of those in labels_of, which has the labels of each namespace, and those that the entry names. Its
#   cost grows with the number of both, and not with their product.
members(tenant, labels_of) := {name | some name in tenant.namespaces.names} | {name |
	some name, labels in labels_of
	_selects(tenant.namespaces.selector, labels)
}

_selects(selector, labels) if {
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
	is_object(template)
	not "templateRef" in object.keys(template)
}

_templates(template) := [{"field": "template.templateRef", "path": path, "allowed": "templates"} | path := template.inventoryPath] if {
	_text(template.templateRef.name)
}

_storage(clone) := {"field": "datastore", "path": clone.datastore, "allowed": "datastores"}

_storage(clone) := {"field": "datastore", "path": "/", "any": true, "allowed": "datastores"} if {
	not "datastore" in object.keys(clone)
	_text(clone.storagePolicy)
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
# description: Whether a value is a valid spec.tenants of a VSphereServer.
known(tenants) if {
	is_array(tenants)
	every tenant in tenants { _known_tenant(tenant) }
}

_known_tenant(tenant) if {
	_text(tenant.name)
	_known_namespaces(tenant.namespaces)
	is_boolean(object.get(tenant, "adopt", false))
	every field in ["folders", "resourcePools", "datastores", "networks", "templates"] {
		_known_places(object.get(tenant, field, []))
	}
	every field in ["storagePolicies", "libraries"] { _known_names(object.get(tenant, field, [])) }
	_known_tags(object.get(tenant, "tags", []))
}

_known_tags(tags) if {
	is_array(tags)
	every tag in tags { known_tag(tag) }
}

# METADATA
# description: Whether a value is a tag, with a category and a name and nothing else.
known_tag(tag) if {
	is_object(tag)
	object.keys(tag) == {"category", "name"}
	every text in tag { _text(text) }
}

_known_names(names) if {
	is_array(names)
	every name in names { _text(name) }
}

_known_places(places) if {
	is_array(places)
	every place in places { _known_place(place) }
}

# A path without elements would allow the whole vCenter.
_known_place(place) if {
	is_string(place)
	regex.match(`^(/[^/]+)+$`, place)
}

_known_namespaces(namespaces) if {
	is_object(namespaces)
	_known_names(object.get(namespaces, "names", []))
	_known_selector(object.get(namespaces, "selector", {}))
}

_known_selector(selector) if {
	is_object(selector)
	known_labels(object.get(selector, "matchLabels", {}))
	terms := object.get(selector, "matchExpressions", [])
	is_array(terms)
	every term in terms { _known_term(term) }
}

_known_term(term) if {
	term.operator in {"Exists", "DoesNotExist"}
	_text(term.key)
}

_known_term(term) if {
	term.operator in {"In", "NotIn"}
	_text(term.key)
	is_array(term.values)
	count(term.values) > 0
	every value in term.values { is_string(value) }
}

# METADATA
# description: Whether a value is a valid set of labels.
known_labels(labels) if {
	is_object(labels)
	every value in labels { is_string(value) }
}

# METADATA
# description: Whether a value is a spec.runtime.vsphere.clone with valid places.
known_clone(clone) if {
	is_object(clone)
	is_array(clone.networks)
	count(clone.networks) > 0
	every place in places(clone) { _known_place_of(place) }
}

_known_place_of(place) if known_path(place.path)

_known_place_of(place) if _text(place.name)

# METADATA
# description: Whether a value is the spec.runtime.vsphere of a cloned machine or a disk, with valid places.
known_made(vsphere) if known_clone(vsphere.clone)

known_made(vsphere) if known_path(vsphere.datastore)

# METADATA
# description: Whether a value is an inventory path. Its elements are not checked.
known_path(path) if {
	is_string(path)
	startswith(path, "/")
}

_text(value) if {
	is_string(value)
	value != ""
}
