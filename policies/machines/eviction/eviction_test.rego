package sallyport.machines.eviction_test

import data.sallyport.machines.eviction

# The text of a denial, as the user sees it.
_text(denial) := concat("", [concat("", [mark, denial[key]]) | some [key, mark] in [["message", ""], ["cause", " because "], ["remedy", "; "]]])

_uid := "0b5a1c1e-7f0e-4c55-9a3d-2f6f1f0a9b11"

_pod := $"web-1-{_uid}"

_machine(status) := {"metadata": {"name": "web-1", "uid": _uid}, "spec": {"runtime": {"pod": {}}}, "status": status}

_running := _machine({"phase": "Running", "nodeName": "node-a"})

_owner := {"apiVersion": "sallyport.dev/v1alpha1", "kind": "VirtualMachine", "name": "web-1", "uid": _uid, "controller": true}

_pod_of(owners) := {
	"metadata": {"name": _pod, "uid": "pod-1", "resourceVersion": "7", "ownerReferences": owners},
	"spec": {"nodeName": "node-a"},
}

_of(vms) := {"request": {"name": _pod, "namespace": "ci"}, "facts": {"vms": vms, "pod": _pod_of([_owner])}}

_with_pod(world, pod) := object.union(world, {"facts": {"vms": world.facts.vms, "pod": pod}})

_said(world) := said if {
	denials := eviction.deny with input as world
	said := [{"reason": d.reason, "code": d.code, "message": _text(d), "details": d.details} | some d in denials]
}

_details := {"group": "sallyport.dev", "kind": "VirtualMachine", "name": "web-1"}

# The machine is found by its Pod, whatever the Pod is named.
test_facts if {
	asked := eviction.facts with input as {"request": {"name": _pod, "namespace": "ci"}}
	asked == {
		"pod": {"apiVersion": "v1", "kind": "Pod", "namespace": "ci", "name": _pod},
		"vms": {
			"apiVersion": "sallyport.dev/v1alpha1",
			"kind": "VirtualMachine",
			"namespace": "ci",
			"fields": {"status.instanceID": _pod},
		},
	}
}

test_on if {
	_said(_of([_running])) == [{
		"reason": "MachineIsMoved",
		"code": 429,
		"message": concat("", [
			$"Pod {_pod}: cannot be evicted because that would delete VirtualMachine web-1 (Running); ",
			"if node node-a is cordoned or tainted, Sallyport moves the machine to another node; ",
			"without the chart value webhook.clientCA, this also needs: kubectl label node node-a sallyport.dev/drain=enabled. ",
			"Retry until the Pod is gone, as kubectl drain does.",
		]),
		"details": _details,
	}]
}

# kubectl drain retries the eviction until the Pod does not exist.
test_gone if _said(object.union(_of([_running]), {"facts": {"pod": null}})) == []

test_on_its_way if {
	status := {"phase": "Migrating", "nodeName": "node-a", "migration": {"step": "Release"}}
	[said] := _said(_of([_machine(status)]))
	said.reason == "MachineIsMoved"
	contains(_text(said), "VirtualMachine web-1 (Migrating, step Release); ")
}

# The Pod of a machine that was not reconciled yet is not evicted either, and neither is the other Pod of a machine that is moved.
test_new[what] if {
	some what, tc in {
		"a machine without a status": {"vms": [object.remove(_running, ["status"])], "phase": "Pending"},
		"a machine whose status names another Pod": {"vms": [], "phase": "phase unknown"},
	}
	[said] := _said(_of(tc.vms))
	said.reason == "MachineIsMoved"
	contains(_text(said), $"VirtualMachine web-1 ({tc.phase}); if node node-a is cordoned or tainted")
}

test_off[phase] if {
	some phase in ["Stopped", "Paused", "Failed"]
	_said(_of([_machine({"phase": phase, "nodeName": "node-a"})])) == [{
		"reason": "MachineIsOff",
		"code": 429,
		"message": concat("", [
			$"Pod {_pod}: cannot be evicted because that would delete VirtualMachine web-1 ({phase}); ",
			`to move it off node node-a: kubectl patch svm web-1 -n ci --type merge -p '{"spec":{"nodeName":"NODE"}}'`,
		]),
		"details": _details,
	}]
}

# The name of a Pod has no room for the whole of a long name. The machine is found all the same.
test_long_name if {
	long := replace(sprintf("%0253d", [0]), "0", "a")
	vm := object.union(_machine({"phase": "Stopped"}), {"metadata": {"name": long}})
	[said] := _said(_with_pod(_of([vm]), _pod_of([object.union(_owner, {"name": long})])))
	said.reason == "MachineIsOff"
	said.details.name == long
}

# The state of another VirtualMachine is not that of the one which controls the Pod.
test_another_machine if {
	other := object.union(_machine({"phase": "Stopped"}), {"metadata": {"uid": "u-2"}})
	[said] := _said(_of([other, _running]))
	said.reason == "MachineIsMoved"
}

test_deleted if {
	vm := object.union(_running, {"metadata": {"deletionTimestamp": "2026-11-20T10:31:57Z"}})
	_said(_of([vm])) == []
	eviction.valid_input with input as _of([vm])
}

# A Pod that no VirtualMachine controls is evicted, whatever its name and whatever a VirtualMachine says of it.
test_evicted[what] if {
	some what, owners in {
		"nobody": [],
		"another kind": [object.union(_owner, {"kind": "VirtualMachinePool"})],
		"another group": [object.union(_owner, {"apiVersion": "kubevirt.io/v1"})],
		"an owner that does not control it": [object.remove(_owner, ["controller"])],
		"another owner controls it": [
			object.union(_owner, {"controller": false}),
			{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "r-1", "controller": true},
		],
	}
	world := _with_pod(_of([_running]), _pod_of(owners))
	_said(world) == []
	eviction.valid_input with input as world
}

_with(world, options) := object.union(world, {"request": {"object": {"deleteOptions": options}}})

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
	world := _with(_of([_machine({"phase": status})]), tc.options)
	expected := {r | some given in tc.reasons; r := {"Running": given, "Stopped": replace(given, "Moved", "Off")}[status]}
	expected == {d.reason | some d in eviction.deny} with input as world
}

test_conflict if {
	_said(_with(_of([_running]), {"preconditions": {"uid": "pod-2"}})) == [{
		"reason": "Conflict",
		"code": 409,
		"message": $"Pod {_pod}: cannot be evicted because its uid is pod-1, but deleteOptions.preconditions.uid is pod-2",
		"details": {"kind": "Pod", "name": _pod},
	}]
}

# A dry run is judged as the eviction itself (kubevirt#11532).
test_dry_run if _said(_with(_of([_running]), {"dryRun": ["All"]})) == _said(_of([_running]))
