# The fields that the rules read have the expected types.
package sallyport.deletion.protected

_known_request if {
	_request.operation in {"CREATE", "UPDATE", "DELETE"}
	_known_kind(_request.kind.group, _request.kind.kind)
	_known_kind(_request.resource.group, _request.resource.resource)
	is_string(object.get(_request, "namespace", ""))
	is_string(object.get(_request, "subResource", ""))
	is_string(_request.userInfo.username)
	_known_strings(object.get(_request.userInfo, "groups", []))
}

_known_kind(group, name) if {
	is_string(group)
	_text(name)
}

_known_objects if {
	_request.operation == "CREATE"
	_known_metadata(_request.object.metadata)
}

_known_objects if {
	_request.operation == "UPDATE"
	_known_metadata(_request.object.metadata)
	_known_metadata(_request.oldObject.metadata)
	_text(_request.oldObject.metadata.name)
}

_known_objects if {
	_request.operation == "DELETE"
	_known_metadata(_request.oldObject.metadata)
	_text(_request.oldObject.metadata.name)
}

_known_metadata(metadata) if {
	is_object(metadata)
	is_string(object.get(metadata, "name", ""))
	is_string(object.get(metadata, "generateName", ""))
	is_string(object.get(metadata, "uid", ""))
	_known_time(object.get(metadata, "deletionTimestamp", null))
	_known_labels(object.get(metadata, "labels", null))
	_known_owners(object.get(metadata, "ownerReferences", null))
}

_known_time(null)

_known_time(time) if _text(time)

_known_labels(null)

_known_labels(labels) if {
	is_object(labels)
	every value in labels { is_string(value) }
}

_known_owners(null)

_known_owners(owners) if {
	is_array(owners)
	every owner in owners { _known_owner(owner) }
}

_known_owner(owner) if {
	every field in ["apiVersion", "kind", "name", "uid"] { _text(owner[field]) }
}

_known_namespace if {
	not _emptied
	input.facts.namespace == null
}

_known_namespace if {
	_emptied
	_known_fact(input.facts.namespace)
}

_known_fact(null)

_known_fact(namespace) if {
	namespace.metadata.name == _request.namespace
	_known_time(object.get(namespace.metadata, "deletionTimestamp", null))
}

_known_row(row) if {
	is_object(row)
	_known_texts(row.resources)
	count(row.resources) > 0
	_known_texts(object.get(row, "users", []))
	_known_texts(object.get(row, "groups", []))
}

_known_texts(list) if {
	is_array(list)
	every text in list { _text(text) }
}

_known_strings(list) if {
	is_array(list)
	every text in list { is_string(text) }
}

_text(value) if {
	is_string(value)
	value != ""
}
