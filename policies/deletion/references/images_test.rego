package sallyport.deletion.references_images_test

import data.sallyport.deletion.references as policy
import data.sallyport.lib.override

_delete := {
	"operation": "DELETE", "namespace": "team-a", "resource": {"group": "sallyport.dev", "resource": "vmdiskimages"},
	"oldObject": {"metadata": {"name": "ubuntu", "namespace": "team-a", "uid": "u-1"}, "spec": {}},
}

_going := {"metadata": {"deletionTimestamp": "2026-11-20T10:31:57Z"}}

_terminating := object.union(_delete, {"oldObject": _going})

_namespace := {"metadata": {"name": "team-a"}}

_disk(namespace, name) := {"metadata": {"namespace": namespace, "name": name}, "status": {"image": {"uid": "u-1"}}}

_facts(disks) := {"machines": null, "pools": null, "namespace": _namespace, "disks": disks, "holder": null}

_nothing := {"machines": null, "pools": null, "namespace": null, "disks": null, "holder": null}

_deny := {"images": "Deny"}

_defer := {"images": "Defer"}

_verdict := "not understood" if not policy.valid_input

_verdict := concat(", ", array.concat(
	[denial.reason | some denial in policy.deny],
	["warned" | count(policy.warn) > 0],
)) if {
	policy.valid_input
}

test_asks_who_uses_it if {
	policy.facts == {
		"machines": null, "holder": null, "pools": null,
		"namespace": {"apiVersion": "v1", "kind": "Namespace", "name": "team-a"},
		"disks": {"apiVersion": "sallyport.dev/v1alpha1", "kind": "VirtualDisk", "fields": {"status.image.uid": "u-1"}},
	} with input.request as _delete
}

test_not_asked if {
	policy.facts == _nothing with input.request as _terminating
	_verdict == "" with input as {"request": _terminating, "facts": _nothing} with data.parameters as _deny
}

test_deleted[note] if {
	some note, tc in {
		"by nobody": {"disks": [], "deny": "", "defer": ""},
		"by a disk": {"disks": [_disk("team-a", "data")], "deny": "ImageReferenced", "defer": "warned"},
		"by a disk elsewhere": {"disks": [_disk("team-b", "data")], "deny": "ImageReferenced", "defer": "warned"},
		"by a disk that goes": {
			"disks": [object.union(_disk("team-a", "data"), _going)], "deny": "ImageReferenced", "defer": "warned",
		},
	}
	_verdict == tc.deny with input as {"request": _delete, "facts": _facts(tc.disks)} with data.parameters as _deny
	_verdict == tc.defer with input as {"request": _delete, "facts": _facts(tc.disks)} with data.parameters as _defer
}

# Everything is deleted with its namespace. A namespace that is not found is not treated as being deleted.
test_deleted_with_the_namespace[note] if {
	facts := _facts([_disk("team-b", "data")])
	some note, parameters in {"deny": _deny, "defer": _defer}
	_verdict == "" with data.parameters as parameters
		with input as {"request": _delete, "facts": object.union(facts, {"namespace": object.union(_namespace, _going)})}
	_verdict != "" with data.parameters as parameters
		with input as {"request": _delete, "facts": object.union(facts, {"namespace": null})}
}

test_messages[note] if {
	some note, tc in {
		"near": {"disks": [_disk("team-a", "b"), _disk("team-a", "a")], "users": "VirtualDisk b, VirtualDisk a"},
		"far": {"disks": [_disk("team-b", "secret")], "users": "1 VirtualDisks of other namespaces"},
		"many": {
			"disks": array.concat([_disk("team-a", $"d{i}") | some i in [1, 2, 3, 4, 5, 6, 7]], [_disk("team-b", "secret")]),
			"users": concat("", [
				"VirtualDisk d1, VirtualDisk d2, VirtualDisk d3, VirtualDisk d4, VirtualDisk d5, ",
				"2 more VirtualDisks of the namespace, 1 VirtualDisks of other namespaces",
			]),
		},
	}
	world := {"request": _delete, "facts": _facts(tc.disks)}
	policy.deny == {{
		"reason": "ImageReferenced", "details": {"kind": "VMDiskImage", "name": "ubuntu"},
		"message": "VMDiskImage ubuntu in namespace team-a: deletion is not allowed",
		"cause": $"it is used by {tc.users}",
		"remedy": concat("", [
			"delete the disks first, or keep the image and admit no new disks: kubectl patch vmdiskimages ubuntu -n team-a --type=merge ",
			`-p '{"spec":{"retired":true}}'; to override this policy temporarily: `,
			override.command("deletion-references", _delete, _delete.oldObject.metadata),
		]),
	}} with input as world with data.parameters as _deny
	policy.warn == {concat("", [
		$"VMDiskImage ubuntu in namespace team-a is used by {tc.users}: it is Terminating until they are deleted, ",
		"which cannot be undone; no new disk can use it",
	])} with input as world with data.parameters as _defer
}

_world := {"request": _delete, "facts": _facts([_disk("team-a", "data")])}

# Replaces a field of the request or the facts. An object is replaced as a whole.
_with(path, value) := object.union(json.remove(_world, [path]), json.unmarshal(concat("", [
	concat("", [$"\{{json.marshal(key)}:" | some key in split(path, "/")]),
	json.marshal(value),
	concat("", ["}" | some _ in split(path, "/")]),
])))

test_not_understood_without[path] if {
	_verdict == "ImageReferenced" with input as _world with data.parameters as _deny
	some path in [
		"request/operation", "request/namespace", "request/resource", "request/resource/resource", "request/oldObject/metadata/name",
		"request/oldObject/metadata/uid", "facts/machines", "facts/pools", "facts/disks", "facts/holder", "facts/namespace",
		"facts/namespace/metadata/name",
	]
	_verdict == "not understood" with input as json.remove(_world, [path]) with data.parameters as _deny
}

test_not_understood[note] if {
	some [path, value] in [
		["request/operation", "UPDATE"], ["request/namespace", ""], ["request/resource/resource", "pods"],
		["request/oldObject/metadata/name", ""], ["request/oldObject/metadata/uid", ""],
		["facts/machines", []], ["facts/pools", []], ["facts/holder", {}], ["facts/namespace/metadata/name", "other"],
	]
	note := $"{path} {value}"
	_verdict == "not understood" with input as _with(path, value) with data.parameters as _deny
}

test_not_understood_disks if {
	good := _disk("team-a", "data")
	broken := [json.remove(good, [field]) | some field in ["metadata/name", "metadata/namespace", "status"]]
	changes := [{"metadata": {"name": ""}}, {"metadata": {"namespace": ""}}, {"status": {"image": {"uid": "u-2"}}}]
	every disk in array.concat(broken, [object.union(good, change) | some change in changes]) {
		_verdict == "not understood" with input as _with("facts/disks", [good, disk]) with data.parameters as _deny
	}
}

test_facts_of_nothing_asked if {
	_verdict == "not understood" with input as {"request": _terminating, "facts": _facts([])} with data.parameters as _deny
	_verdict == "not understood" with input as {"request": _delete, "facts": _nothing} with data.parameters as _deny
}
