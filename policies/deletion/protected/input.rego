# What the rules rely on besides types. Without its identity, an owner would not be noticed.
package sallyport.deletion.protected

_known_objects if {
	_request.operation == "CREATE"
	_known_metadata(_request.object.metadata)
}

_known_objects if {
	_request.operation == "UPDATE"
	_known_metadata(_request.object.metadata)
	_known_metadata(_request.oldObject.metadata)
	_request.oldObject.metadata.name != ""
}

_known_objects if {
	_request.operation == "DELETE"
	_known_metadata(_request.oldObject.metadata)
	_request.oldObject.metadata.name != ""
}

_known_metadata(metadata) if _known_owners(object.get(metadata, "ownerReferences", null))

_known_owners(null)

_known_owners(owners) if {
	every owner in owners {
		every field in ["apiVersion", "kind", "name", "uid"] { owner[field] != "" }
	}
}
