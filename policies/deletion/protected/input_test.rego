# Each field that a rule reads, missing and with each wrong type.
package sallyport.deletion.protected_test

import data.sallyport.deletion.protected as policy

_wrong := {
	"null": null, "empty": "", "a number": 0, "a list": [], "an object": {}, "true": true, "a list of null": [null],
}

_at([a], value) := {a: value}

_at([a, b], value) := {a: {b: value}}

_at([a, b, c], value) := {a: {b: {c: value}}}

_at([a, b, c, d], value) := {a: {b: {c: {d: value}}}}

_requests := {
	"CREATE": _create(_owned([_owner])),
	"UPDATE": _update(_owned([_owner]), _owned([_owner])),
	"DELETE": _delete(_owned([_owner])),
}

# The paths, and which of the wrong values are valid there.
_everywhere := {
	["operation"]: set(),
	["kind"]: {"an object"},
	["kind", "group"]: {"empty"},
	["kind", "kind"]: set(),
	["resource"]: {"an object"},
	["resource", "group"]: {"empty"},
	["resource", "resource"]: set(),
	["namespace"]: {"empty"},
	["subResource"]: {"empty"},
	["userInfo"]: {"an object"},
	["userInfo", "username"]: {"empty"},
	["userInfo", "groups"]: {"a list"},
}

_metadata(object_) := {
	[object_]: {"an object"},
	[object_, "metadata"]: {"an object"},
	[object_, "metadata", "name"]: {"empty"},
	[object_, "metadata", "generateName"]: {"empty"},
	[object_, "metadata", "uid"]: {"empty"},
	[object_, "metadata", "deletionTimestamp"]: {"null"},
	[object_, "metadata", "labels"]: {"null", "an object"},
	[object_, "metadata", "labels", _label]: {"empty"},
	[object_, "metadata", "ownerReferences"]: {"null", "a list"},
}

_stored := object.union(_metadata("oldObject"), {["oldObject", "metadata", "name"]: set()})

_fields := {
	"CREATE": object.union(_everywhere, _metadata("object")),
	"UPDATE": object.union_n([_everywhere, _metadata("object"), _stored]),
	"DELETE": object.union(_everywhere, _stored),
}

test_not_understood_request[note] if {
	some operation, request in _requests
	some path, fine in _fields[operation]
	some what, wrong in _wrong
	not what in fine
	note := $"{operation}: {concat(".", path)} {what}"
	_verdict == "not understood" with input as _asked(object.union(request, _at(path, wrong)))
		with data.parameters as _parameters
}

test_not_understood_owner[note] if {
	some operation, request in _requests
	some side in ({"object", "oldObject"} & object.keys(_fields_of[operation]))
	some field in ["apiVersion", "kind", "name", "uid"]
	some what, wrong in object.union(_wrong, {"missing": null})
	note := $"{operation}: {field} of an owner in {side} {what}"
	owner := object.union(object.remove(_owner, [field]), {f: wrong | some f in [field]; what != "missing"})
	_verdict == "not understood" with data.parameters as _parameters
		with input as _asked(object.union(request, {side: {"metadata": {"ownerReferences": [_owner, owner]}}}))
}

_fields_of := {
	"CREATE": {"object": true},
	"UPDATE": {"object": true, "oldObject": true},
	"DELETE": {"oldObject": true},
}

_needed := [
	["operation"], ["kind"], ["kind", "group"], ["kind", "kind"], ["resource"], ["resource", "group"],
	["resource", "resource"], ["userInfo"], ["userInfo", "username"],
]

_needed_of := {
	"CREATE": [["object"], ["object", "metadata"]],
	"UPDATE": [
		["object"], ["object", "metadata"], ["oldObject"], ["oldObject", "metadata"],
		["oldObject", "metadata", "name"],
	],
	"DELETE": [["oldObject"], ["oldObject", "metadata"], ["oldObject", "metadata", "name"]],
}

test_not_understood_without[note] if {
	some operation, request in _requests
	some path in array.concat(_needed, _needed_of[operation])
	note := $"{operation}: {concat(".", path)}"
	_verdict == "not understood" with input as _asked(json.remove(request, [path])) with data.parameters as _parameters
}

test_understood_without[note] if {
	some path in [
		["name"], ["namespace"], ["subResource"], ["dryRun"], ["userInfo", "groups"], ["oldObject", "metadata", "uid"],
		["oldObject", "metadata", "namespace"], ["oldObject", "metadata", "ownerReferences"],
	]
	note := concat(".", path)
	_verdict == "DeletionProtected" with input as _asked(json.remove(_requests.DELETE, [path]))
		with data.parameters as _parameters
}

test_not_understood_operation if {
	request := object.union(_requests.CREATE, {"operation": "CONNECT"})
	_verdict == "not understood" with input as _asked(request) with data.parameters as _parameters
}

test_not_understood_namespace[note] if {
	some note, facts in object.union_n([
		{$"namespace {what}": {"namespace": wrong} | some what, wrong in _wrong; what != "null"},
		{$"metadata {what}": {"namespace": {"metadata": wrong}} | some what, wrong in _wrong},
		{$"name {what}": {"namespace": _namespace({"name": wrong})} | some what, wrong in _wrong},
		{$"deletionTimestamp {what}": {"namespace": _namespace({"deletionTimestamp": wrong})} |
			some what, wrong in _wrong
			what != "null"
		},
		{"another one": {"namespace": object.union(_ended, {"metadata": {"name": "team-b"}})}, "no facts": {}},
	])
	_verdict == "not understood" with input as {"request": _by(_nc, _delete(_enabled)), "facts": facts}
		with data.parameters as _parameters
}

test_not_understood_namespace_that_was_not_asked_for if {
	_verdict == "not understood" with input as {"request": _delete(_enabled), "facts": {"namespace": _ended}}
		with data.parameters as _parameters
}

test_not_understood_parameters[note] if {
	some note, parameters in object.union_n([
		{$"no {field}": object.remove(_parameters, [field]) | some field, _ in _parameters},
		{$"{field} {what}": object.union(_parameters, {field: wrong}) |
			some field, _ in _parameters
			some what, wrong in _wrong
			what != "a list"
		},
		{$"row {what}": object.union(_parameters, {"exempt": [wrong]}) | some what, wrong in _wrong},
		{$"{field} of a row {what}": object.union(_parameters, {"exempt": [object.union(_rows, {field: wrong})]}) |
			some field, _ in _rows
			some what, wrong in _wrong
			not [field, what] in {["users", "a list"], ["groups", "a list"]}
		},
		{"no resources of a row": object.union(_parameters, {"exempt": [object.remove(_rows, ["resources"])]})},
	])
	_verdict == "not understood" with input as _asked(_delete(_plain)) with data.parameters as parameters
	not policy.valid_parameters with data.parameters as parameters
}

_rows := {"resources": ["pods"], "users": ["a"], "groups": ["b"]}

test_understood_parameters[note] if {
	some note, parameters in {
		"all of it": _parameters,
		"nobody": {"garbageCollectors": [], "namespaceControllers": [], "exempt": []},
		"a row of nobody": {"garbageCollectors": [], "namespaceControllers": [], "exempt": [{"resources": ["pods"]}]},
		"a row of both": {"garbageCollectors": [], "namespaceControllers": [], "exempt": [_rows]},
	}
	policy.valid_parameters with data.parameters as parameters
}

test_not_understood_without_parameters if _verdict == "not understood" with input as _asked(_delete(_plain))
