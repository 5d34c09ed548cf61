package sallyport.deletion.references_disks_test

import data.sallyport.deletion.references as policy
import data.sallyport.lib.override

_delete := {
	"operation": "DELETE", "namespace": "team-a", "resource": {"group": "sallyport.dev", "resource": "virtualdisks"},
	"userInfo": {"username": "bob"},
	"oldObject": {
		"metadata": {"name": "data", "namespace": "team-a", "uid": "u-1"}, "spec": {}, "status": {"attachedTo": {"name": "web", "uid": "u-2"}},
	},
}

_free := json.remove(_delete, ["oldObject/status/attachedTo"])

_going := {"metadata": {"deletionTimestamp": "2026-11-20T10:31:57Z"}}

_terminating := object.union(_delete, {"oldObject": _going})

_collected := object.union(_delete, {"userInfo": {"username": "gc"}})

_namespace := {"metadata": {"name": "team-a"}}

_machine := {"metadata": {"name": "web", "uid": "u-2"}}

_facts(namespace, holder) := {"machines": null, "pools": null, "namespace": namespace, "disks": null, "holder": holder}

_deny := {"disks": "Deny", "images": "Defer", "garbageCollectors": ["gc"]}

_defer := object.union(_deny, {"disks": "Defer"})

_verdict := "not understood" if not policy.valid_input

_verdict := concat(", ", array.concat(
	[denial.reason | some denial in policy.deny],
	["warned" | count(policy.warn) > 0],
)) if {
	policy.valid_input
}

test_asks_for_the_machine if {
	policy.facts == _facts(
		{"apiVersion": "v1", "kind": "Namespace", "name": "team-a"},
		{"apiVersion": "sallyport.dev/v1alpha1", "kind": "VirtualMachine", "namespace": "team-a", "name": "web"},
	) with input.request as _delete with data.parameters as _deny
}

test_deleted[note] if {
	some note, tc in {
		"in use": {"request": _delete, "namespace": _namespace, "deny": "DiskInUse", "defer": "warned"},
		"in use, no namespace": {"request": _delete, "namespace": null, "deny": "DiskInUse", "defer": "warned"},
		"with the namespace": {"request": _delete, "namespace": object.union(_namespace, _going), "deny": "", "defer": ""},
	}
	_verdict == tc.deny with input as {"request": tc.request, "facts": _facts(tc.namespace, _machine)} with data.parameters as _deny
	_verdict == tc.defer with input as {"request": tc.request, "facts": _facts(tc.namespace, _machine)} with data.parameters as _defer
}

test_not_in_use[note] if {
	some note, request in {"free": _free, "again": _terminating, "by the garbage collector": _collected}
	every parameters in [_deny, _defer] {
		_verdict == "" with input as {"request": request, "facts": _facts(null, null)} with data.parameters as parameters
	}
}

# The order in which a machine and its disk are deleted does not matter if the machine is first.
test_released_by_itself[note] if {
	some note, machine in {
		"gone": null,
		"being deleted": object.union(_machine, _going),
		"another of its name": object.union(_machine, {"metadata": {"uid": "u-3"}}),
	}
	_verdict == "" with input as {"request": _delete, "facts": _facts(_namespace, machine)} with data.parameters as _deny
	_verdict == "warned" with input as {"request": _delete, "facts": _facts(_namespace, machine)} with data.parameters as _defer
}

test_messages if {
	world := {"request": _delete, "facts": _facts(_namespace, _machine)}
	policy.deny == {{
		"reason": "DiskInUse", "details": {"kind": "VirtualDisk", "name": "data"},
		"message": "VirtualDisk data in namespace team-a: deletion is not allowed",
		"cause": "VirtualMachine web uses it",
		"remedy": concat("", [
			"delete the machine first, or remove the disk from its spec.blockDeviceRefs; to override this policy temporarily: ",
			override.command("deletion-references", _delete, _delete.oldObject.metadata),
		]),
	}} with input as world with data.parameters as _deny
	policy.warn == {concat("", [
		"VirtualDisk data in namespace team-a is used by VirtualMachine web: it is Terminating until the machine releases it, and its data ",
		"is destroyed then, which cannot be undone",
	])} with input as world with data.parameters as _defer
}

_world := {"request": _delete, "facts": _facts(_namespace, _machine)}

# Replaces a field of the request or the facts. An object is replaced as a whole.
_with(path, value) := object.union(json.remove(_world, [path]), json.unmarshal(concat("", [
	concat("", [$"\{{json.marshal(key)}:" | some key in split(path, "/")]),
	json.marshal(value),
	concat("", ["}" | some _ in split(path, "/")]),
])))

test_not_understood_without[path] if {
	_verdict == "DiskInUse" with input as _world with data.parameters as _deny
	some path in [
		"request/operation", "request/namespace", "request/userInfo/username", "request/oldObject/metadata/name",
		"request/oldObject/status/attachedTo/name", "request/oldObject/status/attachedTo/uid", "facts/machines", "facts/pools", "facts/disks",
		"facts/holder", "facts/holder/metadata/name", "facts/holder/metadata/uid", "facts/namespace", "facts/namespace/metadata/name",
	]
	_verdict == "not understood" with input as json.remove(_world, [path]) with data.parameters as _deny
}

test_not_understood[note] if {
	some [path, value] in [
		["request/operation", "UPDATE"], ["request/namespace", ""], ["request/userInfo/username", ""], ["request/oldObject/metadata/name", ""],
		["request/oldObject/status/attachedTo/name", ""], ["request/oldObject/status/attachedTo/uid", ""],
		["facts/machines", []], ["facts/pools", []], ["facts/disks", []],
		["facts/holder/metadata/name", "other"], ["facts/holder/metadata/uid", ""], ["facts/namespace/metadata/name", "other"],
	]
	note := $"{path} {value}"
	_verdict == "not understood" with input as _with(path, value) with data.parameters as _deny
}
