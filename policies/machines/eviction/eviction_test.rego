package sallyport.machines.eviction_test

import data.sallyport.machines.eviction

_uid := "0b5a1c1e-7f0e-4c55-9a3d-2f6f1f0a9b11"

_pod := $"web-1-{_uid}"

_machine(status) := {"metadata": {"name": "web-1", "uid": _uid}, "spec": {"runtime": {"pod": {}}}, "status": status}

_running := _machine({"phase": "Running", "nodeName": "node-a"})

_of(name, vm) := {"request": {"name": name, "namespace": "ci"}, "facts": {"vm": vm, "pod": {"metadata": {"name": name}}}}

_said(world) := said if {
	denials := eviction.deny with input as world
	said := [{"reason": d.reason, "code": d.code, "message": d.message, "details": d.details} | some d in denials]
}

_details := {"group": "sallyport.dev", "kind": "VirtualMachine", "name": "web-1"}

# The name of the Pod identifies the VirtualMachine, before and after a move.
test_names[name] if {
	some name, vm in {_pod: "web-1", $"{_pod}-1a2b3c4d": "web-1", $"a-{_uid}": "a", $"a.b-c-{_uid}": "a.b-c"}
	asked := eviction.facts with input as {"request": {"name": name, "namespace": "ci"}}
	asked == {
		"vm": {"apiVersion": "sallyport.dev/v1alpha1", "kind": "VirtualMachine", "namespace": "ci", "name": vm},
		"pod": {"apiVersion": "v1", "kind": "Pod", "namespace": "ci", "name": name},
	}
}

# There are no facts for names that no machine has.
test_other_names[name] if {
	some name in ["web", "web-5d4f8c7b9d-x2x9z", _uid, "api-server-9a3d-2f6f1f0a9b1"]
	asked := eviction.facts with input as {"request": {"name": name, "namespace": "ci"}}
	asked == {"vm": null, "pod": null}
	eviction.valid_input with input as _of(name, null)
	_said(_of(name, null)) == []
}

test_on if {
	_said(_of(_pod, _running)) == [{
		"reason": "MachineIsMoved",
		"code": 429,
		"message": concat("", [
			$"Pod {_pod}: cannot be evicted because that would delete VirtualMachine web-1 (Running); ",
			"if node node-a is cordoned, Sallyport moves the machine to another node",
		]),
		"details": _details,
	}]
}

# kubectl drain retries the eviction until the Pod does not exist.
test_gone if _said({"request": {"name": _pod, "namespace": "ci"}, "facts": {"vm": _running, "pod": null}}) == []

test_on_its_way if {
	status := {"phase": "Migrating", "nodeName": "node-a", "migration": {"step": "Release"}}
	[said] := _said(_of(_pod, _machine(status)))
	said.reason == "MachineIsMoved"
	contains(said.message, "VirtualMachine web-1 (Migrating, step Release); ")
}

# The Pod of a machine that was not reconciled yet is not evicted either.
test_new if {
	[said] := _said(_of(_pod, {"metadata": {"name": "web-1", "uid": _uid}, "spec": {"runtime": {"pod": {}}}}))
	said.reason == "MachineIsMoved"
}

test_off[phase] if {
	some phase in ["Stopped", "Paused", "Failed"]
	_said(_of(_pod, _machine({"phase": phase, "nodeName": "node-a"}))) == [{
		"reason": "MachineIsOff",
		"code": 429,
		"message": concat("", [
			$"Pod {_pod}: cannot be evicted because that would delete VirtualMachine web-1 ({phase}); ",
			`to move it off node node-a: kubectl patch svm web-1 -n ci --type merge -p '{"spec":{"nodeName":"NODE"}}'`,
		]),
		"details": _details,
	}]
}

# A Pod that is not, or not any more, that of a machine is evicted.
test_evicted[what] if {
	some what, vm in {
		"no VirtualMachine": null,
		"another one of the name": object.union(_running, {"metadata": {"uid": "u-2"}}),
		"a machine in a vCenter": object.union(object.remove(_running, ["spec"]), {"spec": {"runtime": {"vsphere": {}}}}),
		"one that is being deleted": object.union(_running, {"metadata": {"deletionTimestamp": "2026-11-20T10:31:57Z"}}),
	}
	_said(_of(_pod, vm)) == []
	eviction.valid_input with input as _of(_pod, vm)
}

_with(world, options) := object.union(world, {"request": {"object": {"deleteOptions": options}}})

_pod_as_it_is := {"metadata": {"name": _pod, "uid": "pod-1", "resourceVersion": "7"}, "spec": {"nodeName": "node-a"}}

# An eviction is of the Pod that its preconditions name (kubernetes#137543).
test_preconditions[what] if {
	some what, tc in {
		"none": {"options": {}, "reasons": {"MachineIsMoved"}},
		"null": {"options": {"preconditions": null}, "reasons": {"MachineIsMoved"}},
		"this Pod": {"options": {"preconditions": {"uid": "pod-1", "resourceVersion": "7"}}, "reasons": {"MachineIsMoved"}},
		"another Pod": {"options": {"preconditions": {"uid": "pod-2"}}, "reasons": {"Conflict"}},
		"no Pod": {"options": {"preconditions": {"uid": ""}}, "reasons": {"Conflict"}},
		"an earlier state": {"options": {"preconditions": {"uid": "pod-1", "resourceVersion": "6"}}, "reasons": {"Conflict"}},
	}
	some status in ["Running", "Stopped"]
	world := _with(_of(_pod, _machine({"phase": status})), tc.options)
	expected := {r | some given in tc.reasons; r := {"Running": given, "Stopped": replace(given, "Moved", "Off")}[status]}
	expected == {d.reason | some d in eviction.deny} with input as object.union(world, {"facts": {"pod": _pod_as_it_is}})
}

test_conflict if {
	world := _with(_of(_pod, _running), {"preconditions": {"uid": "pod-2"}})
	_said(object.union(world, {"facts": {"pod": _pod_as_it_is}})) == [{
		"reason": "Conflict",
		"code": 409,
		"message": $"Pod {_pod}: cannot be evicted because its uid is pod-1, but deleteOptions.preconditions.uid is pod-2",
		"details": {"kind": "Pod", "name": _pod},
	}]
}

# A dry run is judged as the eviction itself (kubevirt#11532).
test_dry_run if _said(_with(_of(_pod, _running), {"dryRun": ["All"]})) == _said(_of(_pod, _running))

_long := replace(sprintf("%0220d", [0]), "0", "a")

_cut_pod := $"{substring(_long, 0, 216)}-{_uid}"

_owned(owner) := object.union(_pod_as_it_is, {"metadata": {"name": _cut_pod, "ownerReferences": [object.union(
	{"apiVersion": "sallyport.dev/v1alpha1", "kind": "VirtualMachine", "name": _long, "uid": _uid, "controller": true},
	owner,
)]}})

# The name of the Pod has only the beginning of a long name.
test_long_names[what] if {
	some what, vm in {"nobody has that name": null, "another one has": object.union(_running, {"metadata": {"uid": "u-2"}})}
	[said] := _said(object.union(_of(_cut_pod, vm), {"facts": {"pod": _owned({})}}))
	said.reason == "MachineIsMoved"
	said.details.name == _long
	contains(said.message, $"VirtualMachine {_long} (phase unknown); if node node-a is cordoned")
}

test_a_long_name_on_no_node if {
	[said] := _said(object.union(_of(_cut_pod, null), {"facts": {"pod": json.remove(_owned({}), ["spec/nodeName"])}}))
	contains(said.message, "(phase unknown); if node  is cordoned")
}

test_not_a_long_name[what] if {
	some what, owner in {
		"another UID": {"uid": "u-2"},
		"another kind": {"kind": "Deployment"},
		"another group": {"apiVersion": "kubevirt.io/v1"},
		"no controller": {"controller": false},
		"another name": {"name": "b"},
		"one that was deleted": {"name": substring(_long, 0, 216)},
	}
	_said(object.union(_of(_cut_pod, null), {"facts": {"pod": _owned(owner)}})) == []
}

test_unknown_input[what] if {
	some what, world in {
		"no name": {"request": {"namespace": "ci"}, "facts": {"vm": null}},
		"no namespace": {"request": {"name": _pod}, "facts": {"vm": null}},
		"a machine without a UID": _of(_pod, {"metadata": {"name": "web-1"}}),
		"a phase that is none": _of(_pod, _machine({"phase": 1})),
		"a node that is none": _of(_pod, _machine({"nodeName": 1})),
		"a status that is none": _of(_pod, _machine("x")),
	}
	not eviction.valid_input with input as world
}
