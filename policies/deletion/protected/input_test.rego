# What the policy does not understand.
package sallyport.deletion.protected_test

import data.sallyport.deletion.protected as policy

_requests := {
	"CREATE": _create(_owned([_owner])),
	"UPDATE": _update(_owned([_owner]), _owned([_owner])),
	"DELETE": _delete(_owned([_owner])),
}

_sides := {"CREATE": ["object"], "UPDATE": ["object", "oldObject"], "DELETE": ["oldObject"]}

test_not_understood_owner[note] if {
	some operation, request in _requests
	some side in _sides[operation]
	some field in ["apiVersion", "kind", "name", "uid"]
	some what, owner in {"missing": object.remove(_owner, [field]), "empty": object.union(_owner, {field: ""})}
	note := $"{operation}: {field} of an owner in {side} {what}"
	_verdict == "not understood" with data.parameters as _parameters
		with input as _asked(object.union(request, {side: {"metadata": {"ownerReferences": [_owner, owner]}}}))
}

test_not_understood_without[note] if {
	some operation, request in _requests
	some path in array.concat(
		["operation"],
		[path | some side in _sides[operation]; some path in [side, $"{side}/metadata"]],
	)
	note := $"{operation}: {path}"
	_verdict == "not understood" with input as _asked(json.remove(request, [path])) with data.parameters as _parameters
}

test_not_understood_name[operation] if {
	some operation in ["UPDATE", "DELETE"]
	every request in [
		json.remove(_requests[operation], ["oldObject/metadata/name"]),
		object.union(_requests[operation], {"oldObject": {"metadata": {"name": ""}}}),
	] {
		_verdict == "not understood" with input as _asked(request) with data.parameters as _parameters
	}
}

test_understood_without[path] if {
	some path in ["name", "namespace", "subResource", "dryRun", "userInfo/groups", "oldObject/metadata/uid", "oldObject/metadata/namespace"]
	_verdict == "DeletionProtected" with input as _asked(json.remove(_requests.DELETE, [path])) with data.parameters as _parameters
}

test_understood_with_null[field] if {
	some field in ["labels", "ownerReferences"]
	request := object.union(_requests.CREATE, {"object": {"metadata": {field: null}}})
	policy.valid_input with input as _asked(request) with data.parameters as _parameters
}

test_not_understood_operation if {
	request := object.union(_requests.CREATE, {"operation": "CONNECT"})
	_verdict == "not understood" with input as _asked(request) with data.parameters as _parameters
}
