package sallyport.placement.migration_test

import data.sallyport.placement.migration as policy

# The text of a denial, as the user sees it.
_text(denial) := concat("", [concat("", [mark, denial[key]]) | some [key, mark] in [["message", ""], ["cause", " because "], ["remedy", "; "]]])

_parameters := {"maxPerNode": 2, "maxPerHost": 3}

_pod := {"pod": {}}

_vsphere := {"vsphere": {"serverRef": {"name": "vc-1"}}}

_vm(runtime, status) := {
	"metadata": {"name": "web-1", "namespace": "team-a"},
	"spec": {"runtime": runtime},
	"status": object.union({"nodeName": "node-1"}, status),
}

_on_node := _vm(_pod, {})

# A machine of another user that moves from one node to another.
_mover(namespace, name, from, to) := {
	"metadata": {"namespace": namespace, "name": name},
	"spec": {"runtime": _pod},
	"status": {
		"nodeName": from,
		"activeOperation": {"origin": "Operation", "type": "Migrate", "name": "m"},
		"migration": {"step": "Hibernate", "was": {"nodeName": from}, "to": {"nodeName": to}},
	},
}

_ready := {"type": "Ready", "status": "True"}

_not_ready := {"type": "Ready", "status": "Unknown"}

_node(more) := object.union(
	{
		"metadata": {"name": "node-2"},
		"spec": {},
		"status": {"conditions": [{"type": "MemoryPressure", "status": "False"}, _ready]},
	},
	more,
)

_facts(vm, node, moving) := {"vm": vm, "node": node, "server": null, "servers": null, "moving": moving}

# Of an operation that names a node.
_naming(vm, node, moving) := object.union(_facts(vm, node, moving), {"servers": []})

_nothing := _facts(null, null, null)

_operation(type, migrate) := {
	"operation": "CREATE", "namespace": "team-a", "resource": {"resource": "virtualmachineoperations"},
	"object": {"metadata": {"name": "new"}, "spec": object.union({"virtualMachineName": "web-1", "type": type}, migrate)},
}

_migrate := _operation("Migrate", {"migrate": {"nodeName": "node-2"}})

_update(old, from, to) := {
	"operation": "UPDATE", "namespace": "team-a", "resource": {"resource": "virtualmachines"},
	"oldObject": object.union(old, {"spec": from}), "object": object.union(old, {"spec": to}),
}

_retarget(old, to) := _update(old, {}, {"nodeName": to})

_verdict := "not understood" if not policy.valid_input

_verdict := concat(", ", sort([denial.reason | some denial in policy.deny])) if {
	policy.valid_input
	count(policy.deny) > 0
}

_verdict := "allow" if {
	policy.valid_input
	count(policy.deny) == 0
}

_ask_vm := {"apiVersion": "sallyport.dev/v1alpha1", "kind": "VirtualMachine", "namespace": "team-a", "name": "web-1"}

_ask_node := {"apiVersion": "v1", "kind": "Node", "name": "node-2"}

_ask_server := {"apiVersion": "sallyport.dev/v1alpha1", "kind": "VSphereServer", "name": "vc-1"}

_ask_servers := {"apiVersion": "sallyport.dev/v1alpha1", "kind": "VSphereServer"}

_asking(vm, node, moving) := object.union(_facts(vm, node, moving), {"servers": _ask_servers})

_ask_moving := {"apiVersion": "sallyport.dev/v1alpha1", "kind": "VirtualMachine", "fields": {"status.phase": "Migrating"}}

_elsewhere := _update(_vm({}, {}), {"runtime": _vsphere}, {"nodeName": "esx-2", "runtime": {"vsphere": {"serverRef": {"name": "vc-2"}}}})

test_facts[note] if {
	some note, tc in {
		"a Migrate to a node": {"request": _migrate, "facts": _asking(_ask_vm, _ask_node, _ask_moving)},
		"a Migrate to any node": {"request": _operation("Migrate", {}), "facts": _facts(_ask_vm, null, _ask_moving)},
		"a Migrate to what no Node is called": {
			"request": _operation("Migrate", {"migrate": {"nodeName": "a/../b"}}),
			"facts": _asking(_ask_vm, null, _ask_moving),
		},
		"an Evict": {"request": _operation("Evict", {}), "facts": _facts(_ask_vm, null, _ask_moving)},
		"a Stop": {"request": _operation("Stop", {}), "facts": _nothing},
		"another node": {"request": _retarget(_on_node, "node-2"), "facts": _facts(null, _ask_node, _ask_moving)},
		"no node any more": {"request": _update(_on_node, {"nodeName": "node-2"}, {}), "facts": _nothing},
		"another host": {
			"request": _retarget(_vm(_vsphere, {}), "esx-2"),
			"facts": object.union(_facts(null, null, _ask_moving), {"server": _ask_server}),
		},
		"a host of another vCenter": {"request": _elsewhere, "facts": _facts(null, null, _ask_moving)},
		"no host any more": {"request": _update(_vm(_vsphere, {}), {"nodeName": "esx-2"}, {}), "facts": _nothing},
		"something else of a machine in a vCenter": {
			"request": _update(_vm(_vsphere, {}), {"nodeName": "esx-2", "cpu": 1}, {"nodeName": "esx-2", "cpu": 2}),
			"facts": _nothing,
		},
		"the same node": {"request": _update(_on_node, {"nodeName": "node-2"}, {"nodeName": "node-2"}), "facts": _nothing},
		"something else": {"request": _update(_on_node, {"cpu": 1}, {"cpu": 2}), "facts": _nothing},
	}
	policy.facts == tc.facts with input.request as tc.request
}

# What is not about where a machine is.
test_not_judged[note] if {
	some note, request in {
		"a Stop": _operation("Stop", {}),
		"something else": _update(_vm(_pod, {"undoing": [{"type": "Stop", "origin": "Operation", "name": "stop-1"}]}), {"cpu": 1}, {"cpu": 2}),
		"no node any more": _update(_on_node, {"nodeName": "node-2"}, {}),
		"no host any more": _update(_vm(_vsphere, {}), {"nodeName": "esx-2"}, {}),
	}
	_verdict == "allow" with input as {"request": request, "facts": _nothing} with data.parameters as _parameters
}

_targets := {
	"a good one": {"node": _node({}), "verdict": "allow"},
	"none": {"node": null, "verdict": "NodeUnknown"},
	"a cordoned one": {"node": _node({"spec": {"unschedulable": true}}), "verdict": "NodeUnschedulable"},
	"one that is not ready": {"node": _node({"status": {"conditions": [_not_ready]}}), "verdict": "NodeNotReady"},
	"one that has never been ready": {"node": json.remove(_node({}), ["status"]), "verdict": "NodeNotReady"},
	"one that is being deleted": {"node": _node({"metadata": {"deletionTimestamp": "2026-11-20T10:31:57Z"}}), "verdict": "NodeNotReady"},
	"a cordoned one that is not ready": {
		"node": _node({"spec": {"unschedulable": true}, "status": {"conditions": []}}),
		"verdict": "NodeNotReady",
	},
}

test_node_of_an_operation[note] if {
	some note, tc in _targets
	some runtime in [_pod, {"kubevirt": {}}]
	_verdict == tc.verdict with input as {"request": _migrate, "facts": _naming(_vm(runtime, {}), tc.node, [])}
		with data.parameters as _parameters
}

test_node_of_a_change[note] if {
	some note, tc in _targets
	_verdict == tc.verdict with input as {"request": _retarget(_on_node, "node-2"), "facts": _facts(null, tc.node, [])}
		with data.parameters as _parameters
}

# A name that no Node can have is asked about nowhere.
test_impossible_node[name] if {
	some name in ["a/b", "..", "Node", "-", replace("aaaaaaaaaaaaaaaa", "a", "xxxxxxxxxxxxxxxx")]
	request := _operation("Migrate", {"migrate": {"nodeName": name}})
	_verdict == "NodeUnknown" with input as {"request": request, "facts": _naming(_on_node, null, [])} with data.parameters as _parameters
}

test_no_machine if {
	_verdict == "allow" with input as {"request": _migrate, "facts": _naming(null, null, [])} with data.parameters as _parameters
}

# What spec.nodeName or the run policy has begun, and what is undone of it, is no operation.
test_change_of_what_no_operation_holds[origin] if {
	some origin in ["Placement", "RunPolicy"]
	held := {"activeOperation": {"origin": origin, "type": "Migrate"}, "undoing": [{"origin": origin, "type": "Start"}]}
	_verdict == "allow" with input as {"request": _retarget(_vm(_pod, held), "node-2"), "facts": _facts(null, _node({}), [])}
		with data.parameters as _parameters
}

# Who names the node that a machine is on pins it there, or takes back a move that has not left it.
_cordoned := _node({"spec": {"unschedulable": true}})

test_present_node[note] if {
	placement := {"activeOperation": {"origin": "Placement", "type": "Migrate"}}
	travels := object.union(placement, {"migration": {"step": "Restore", "was": {"nodeName": "node-2"}}})
	on := {"nodeName": "node-2"}
	some note, tc in {
		"pinned": {"request": _retarget(_vm(_pod, on), "node-2"), "verdict": "allow"},
		"a move taken back": {
			"request": _update(_vm(_pod, object.union(placement, on)), {"nodeName": "node-3"}, {"nodeName": "node-2"}),
			"verdict": "allow",
		},
		"a move taken back too late": {
			"request": _update(_vm(_pod, object.union(travels, on)), {"nodeName": "node-3"}, {"nodeName": "node-2"}),
			"verdict": "NodeUnschedulable",
		},
	}
	_verdict == tc.verdict with input as {"request": tc.request, "facts": _facts(null, _cordoned, [])} with data.parameters as _parameters
}

test_already_on_node[note] if {
	some note, tc in {
		"a Pod": {"runtime": _pod, "place": "node", "of": ""},
		"in a vCenter": {"runtime": _vsphere, "place": "host", "of": " of VSphereServer vc-1"},
	}
	moving := [_mover("b", "x", "node-2", "node-1"), _mover("b", "y", "node-2", "node-1")]
	facts := _naming(_vm(tc.runtime, {"nodeName": "node-2"}), _cordoned, moving)
	policy.valid_input with input as {"request": _migrate, "facts": facts} with data.parameters as _parameters
	policy.deny == {{
		"reason": "AlreadyOnNode",
		"code": 422,
		"message": $"spec.migrate.nodeName: VirtualMachine web-1 is already on {tc.place} node-2{tc.of}",
		"remedy": $"to move it to any other {tc.place}: kubectl sallyport evict web-1 -n team-a",
		"details": {"kind": "VirtualMachine", "name": "web-1", "field": "spec.migrate.nodeName"},
	}} with input as {"request": _migrate, "facts": facts} with data.parameters as _parameters
}

test_in_progress[note] if {
	some note, tc in {
		"an operation": {
			"status": {"activeOperation": {"origin": "Operation", "type": "Migrate", "name": "migrate-1"}},
			"busy": "Migrate migrate-1 of VirtualMachine web-1 is in progress",
		},
		"an operation that is undone": {
			"status": {"undoing": [{"origin": "Operation", "type": "Stop", "name": "stop-1"}]},
			"busy": "Stop stop-1 of VirtualMachine web-1 is rolling back",
		},
	}
	some runtime in [_pod, _vsphere]
	some to in ["node-2", ""]
	request := _update(_vm(runtime, tc.status), {"nodeName": "node-3"}, {"nodeName": to})
	denials := [denial | some denial in policy.deny; denial.reason == "OperationInProgress"] with data.parameters as _parameters
		with input as {"request": request, "facts": _facts(null, null, [])}
	denials == [{
		"reason": "OperationInProgress",
		"message": "spec.nodeName: cannot be changed",
		"cause": tc.busy,
		"remedy": "to see its progress: kubectl sallyport why svm web-1 -n team-a",
		"details": {"kind": "VirtualMachine", "name": "web-1", "field": "spec.nodeName"},
	}]
}

# An operation is judged by operations-supersede, and a claim of another origin does not go by spec.nodeName.
test_not_in_progress[note] if {
	held := {"activeOperation": {"origin": "Operation", "type": "Stop", "name": "stop-1"}}
	some note, world in {
		"for an operation": {"request": _migrate, "facts": _naming(_vm(_pod, held), _node({}), [])},
		"a placement": {
			"request": _retarget(_vm(_pod, {"activeOperation": {"origin": "Placement", "type": "Migrate"}}), "node-2"),
			"facts": _facts(null, _node({}), []),
		},
		"the run policy": {
			"request": _retarget(_vm(_pod, {"activeOperation": {"origin": "RunPolicy", "type": "Start"}}), "node-2"),
			"facts": _facts(null, _node({}), []),
		},
	}
	_verdict == "allow" with input as world with data.parameters as _parameters
}

_leaves := _mover("team-b", "b-1", "node-2", "node-3")

_enters := _mover("team-b", "b-2", "node-3", "node-2")

_placed := {
	"metadata": {"namespace": "team-b", "name": "b-3"}, "spec": {"runtime": _pod, "nodeName": "node-2"},
	"status": {"nodeName": "node-3", "activeOperation": {"origin": "Placement", "type": "Migrate"}},
}

# The claim names the target before status.migration does.
_claimed := {
	"metadata": {"namespace": "team-b", "name": "b-6"}, "spec": {"runtime": _pod},
	"status": {
		"nodeName": "node-3",
		"activeOperation": {"origin": "Operation", "type": "Migrate", "name": "m", "nodeName": "node-2"},
	},
}

_put_back := object.union(_placed, {
	"spec": {"nodeName": "node-4"}, "status": {"placement": {"nodeName": "node-2", "inPlaceOf": "node-4"}},
})

_put_elsewhere := object.union(_placed, {"status": {"placement": {"nodeName": "node-4", "inPlaceOf": "node-3"}}})

_in_vcenter(server, vm) := object.union(
	json.remove(vm, ["spec/runtime"]),
	{"spec": {"runtime": {"vsphere": {"serverRef": {"name": server}}}}},
)

_evicted := {
	"metadata": {"namespace": "team-b", "name": "b-4"}, "spec": {"runtime": _pod, "nodeName": "node-3"},
	"status": {"nodeName": "node-2", "activeOperation": {"origin": "Operation", "type": "Evict", "name": "e"}},
}

_limits := {
	"nobody else": {"moving": [], "verdict": "allow"},
	"one that leaves": {"moving": [_leaves], "verdict": "allow"},
	"one that leaves and one that enters": {"moving": [_leaves, _enters], "verdict": "TooManyMigrations"},
	"those of which no more is known than the claim": {"moving": [_placed, _evicted], "verdict": "TooManyMigrations"},
	"an operation that has just claimed its machine": {"moving": [_enters, _claimed], "verdict": "TooManyMigrations"},
	"one that is elsewhere": {"moving": [_leaves, _mover("team-b", "b-5", "node-3", "node-4")], "verdict": "allow"},
	"the machine itself": {"moving": [_leaves, _mover("team-a", "web-1", "node-1", "node-2")], "verdict": "allow"},
	"one of that name elsewhere": {"moving": [_leaves, _mover("team-b", "web-1", "node-1", "node-2")], "verdict": "TooManyMigrations"},
	"two at the other end": {
		"moving": [_mover("team-b", "b-1", "node-1", "node-3"), _mover("team-b", "b-2", "node-3", "node-1")],
		"verdict": "TooManyMigrations",
	},
	"one that is moved back to where an operation has put it": {"moving": [_leaves, _put_back], "verdict": "TooManyMigrations"},
	"one that an operation had put elsewhere": {"moving": [_leaves, _put_elsewhere], "verdict": "TooManyMigrations"},
	"machines in a vCenter": {"moving": [_in_vcenter("vc-1", vm) | some vm in [_leaves, _enters]], "verdict": "allow"},
}

test_limit_of_an_operation[note] if {
	some note, tc in _limits
	_verdict == tc.verdict with input as {"request": _migrate, "facts": _naming(_on_node, _node({}), tc.moving)}
		with data.parameters as _parameters
}

test_limit_of_a_change[note] if {
	some note, tc in _limits
	_verdict == tc.verdict with input as {"request": _retarget(_on_node, "node-2"), "facts": _facts(null, _node({}), tc.moving)}
		with data.parameters as _parameters
}

test_limit_of_an_evict if {
	leaving := [_mover("team-b", "b-1", "node-1", "node-9"), _mover("team-b", "b-2", "node-1", "node-9")]
	_verdict == "TooManyMigrations" with input as {"request": _operation("Evict", {}), "facts": _facts(_on_node, null, leaving)}
		with data.parameters as _parameters
	_verdict == "allow" with input as {"request": _operation("Evict", {}), "facts": _facts(_on_node, null, [_leaves, _enters])}
		with data.parameters as _parameters
}

# Two moves of a namespace use up its share of three or four, and no other namespace's.
test_share_of_a_namespace[note] if {
	ours := [_mover("team-a", $"a-{i}", "node-1", "node-9") | some i in [1, 2, 3, 4]]
	others := [_mover("team-b", $"b-{i}", "node-1", "node-9") | some i in [1, 2, 3, 4]]
	some note, tc in {
		"half of three": {"max": 3, "moving": array.slice(ours, 0, 2), "verdict": "TooManyMigrations"},
		"less than half of three": {"max": 3, "moving": array.slice(ours, 0, 1), "verdict": "allow"},
		"half of four": {"max": 4, "moving": array.slice(ours, 0, 2), "verdict": "TooManyMigrations"},
		"half of one": {"max": 1, "moving": [], "verdict": "allow"},
		"another one's": {"max": 4, "moving": array.slice(others, 0, 3), "verdict": "allow"},
		"both": {"max": 4, "moving": array.concat([ours[0]], array.slice(others, 0, 2)), "verdict": "allow"},
		"at another node": {"max": 4, "moving": [_mover("team-a", "a-1", "node-8", "node-9"), ours[1]], "verdict": "allow"},
		"without a limit": {"max": 0, "moving": ours, "verdict": "allow"},
	}
	_verdict == tc.verdict with input as {"request": _operation("Evict", {}), "facts": _facts(_on_node, null, tc.moving)}
		with data.parameters as {"maxPerNode": tc.max, "maxPerHost": 1, "maxPercentPerNamespace": 50}
}

test_share_of_a_namespace_message if {
	ours := [_mover("team-a", $"a-{i}", "node-1", "node-9") | some i in [1, 2]]
	{_text(denial) | some denial in policy.deny} == {concat("", [
		"VirtualMachine web-1: cannot be moved because namespace team-a has reached its share of the moves from or to node node-1: ",
		"2 in progress (a-1, a-2), maxPercentPerNamespace is 50 and maxPerNode is 4; ",
		"list moves with: kubectl get svm -n team-a --field-selector status.phase=Migrating",
	])} with input as {"request": _operation("Evict", {}), "facts": _facts(_on_node, null, ours)}
		with data.parameters as {"maxPerNode": 4, "maxPerHost": 1, "maxPercentPerNamespace": 50}
}

_kubevirt := {"kubevirt": {}}

_elsewhere_on(namespace, runtime, numbers) := [object.union(
	_mover(namespace, $"{namespace}-{i}", $"node-{i}1", $"node-{i}2"),
	{"spec": {"runtime": runtime}},
) |
	some i in numbers
]

# KubeVirt moves some machines at a time, wherever they are, and one namespace does not use all of them.
test_limit_on_kubevirt[note] if {
	some note, tc in {
		"the limit": {"moving": array.concat(_elsewhere_on("team-a", _kubevirt, [1, 2]), _elsewhere_on("team-b", _kubevirt, [3, 4, 5])), "verdict": "TooManyMigrations"},
		"less": {"moving": array.concat(_elsewhere_on("team-a", _kubevirt, [1, 2]), _elsewhere_on("team-b", _kubevirt, [3, 4])), "verdict": "allow"},
		"the share": {"moving": _elsewhere_on("team-a", _kubevirt, [1, 2, 3]), "verdict": "TooManyMigrations"},
		"another one's share": {"moving": _elsewhere_on("team-b", _kubevirt, [1, 2, 3, 4]), "verdict": "allow"},
		"of Pods": {"moving": _elsewhere_on("team-a", _pod, [1, 2, 3, 4, 5]), "verdict": "allow"},
		"a Pod": {"runtime": _pod, "moving": _elsewhere_on("team-b", _kubevirt, [1, 2, 3, 4, 5]), "verdict": "allow"},
		"without a limit": {"most": 0, "moving": _elsewhere_on("team-a", _kubevirt, [1, 2, 3, 4, 5]), "verdict": "allow"},
	}
	facts := _facts(_vm(object.get(tc, "runtime", _kubevirt), {}), null, tc.moving)
	_verdict == tc.verdict with input as {"request": _operation("Evict", {}), "facts": facts}
		with data.parameters as {"maxPerNode": 4, "maxPerHost": 1, "maxOnKubeVirt": object.get(tc, "most", 5), "maxPercentPerNamespace": 50}
}

test_limit_on_kubevirt_message if {
	moving := [object.union(_mover(namespace, $"web-{i}", "node-8", "node-9"), {"spec": {"runtime": _kubevirt}}) |
		some i, namespace in ["team-a", "team-b"]
	]
	{[_text(denial), denial.details] | some denial in policy.deny} == {[
		concat("", [
			"VirtualMachine web-1: cannot be moved because the limit of moves on KubeVirt is reached: ",
			"2 in progress (web-0), maxOnKubeVirt is 2; list moves with: kubectl get svm -A --field-selector status.phase=Migrating",
		]),
		{"kind": "VirtualMachine", "name": "web-1"},
	]} with input as {"request": _operation("Evict", {}), "facts": _facts(_vm(_kubevirt, {}), null, moving)}
		with data.parameters as {"maxPerNode": 4, "maxPerHost": 1, "maxOnKubeVirt": 2}
}

# A move that does not get on counts for its own namespace only.
test_stalled_moves[note] if {
	some note, tc in {
		"stalled": {"since": "2026-11-25T11:44:59.000000Z", "verdict": "allow"},
		"without fractions": {"since": "2026-11-25T11:44:59Z", "verdict": "allow"},
		"not yet": {"since": "2026-11-25T11:45:00.000000Z", "verdict": "TooManyMigrations"},
		"at an unknown time": {"since": "yesterday", "verdict": "TooManyMigrations"},
	}
	some namespace in ["team-a", "team-b"]
	moving := [object.union(_mover(namespace, $"m-{i}", "node-1", "node-9"), {"status": {"migration": {"since": tc.since}}}) | some i in [1, 2]]
	verdict := {"team-a": "TooManyMigrations", "team-b": tc.verdict}[namespace]
	_verdict == verdict with data.parameters as _parameters with input as {
		"request": _operation("Evict", {}), "facts": _facts(_on_node, null, moving),
		"now": "2026-11-25T12:00:00.000000000Z",
	}
}

test_no_limit if {
	_verdict == "allow" with input as {"request": _migrate, "facts": _naming(_on_node, _node({}), [_leaves, _enters])}
		with data.parameters as {"maxPerNode": 0, "maxPerHost": 1}
}

# A machine that was never seen on a node leaves none.
test_machine_without_a_node if {
	vm := json.remove(_on_node, ["status"])
	_verdict == "allow" with input as {"request": _retarget(vm, "node-2"), "facts": _facts(null, _node({}), [_leaves, _enters])}
		with data.parameters as _parameters
}

test_messages[note] if {
	ours := [_mover("team-a", $"web-{i}", "node-1", "node-3") | some i in [2, 3, 4, 5]]
	some note, tc in {
		"no such node": {
			"facts": _naming(_on_node, null, []),
			"message": "spec.migrate.nodeName: node node-2 does not exist; list nodes with: kubectl get nodes",
		},
		"not ready": {
			"facts": _naming(_on_node, _node({"status": {"conditions": []}}), []),
			"message": concat("", [
				"spec.migrate.nodeName: VirtualMachine web-1 cannot be moved because node node-2 is not ready; ",
				"list nodes with: kubectl get nodes",
			]),
		},
		"deleted": {
			"facts": _naming(_on_node, _node({"metadata": {"deletionTimestamp": "2026-11-20T10:31:57Z"}}), []),
			"message": concat("", [
				"spec.migrate.nodeName: VirtualMachine web-1 cannot be moved because node node-2 is being deleted; ",
				"list nodes with: kubectl get nodes",
			]),
		},
		"cordoned": {
			"facts": _naming(_on_node, _cordoned, []),
			"message": concat("", [
				"spec.migrate.nodeName: VirtualMachine web-1 cannot be moved because node node-2 is cordoned; ",
				"to allow it: kubectl uncordon node-2",
			]),
		},
		"too many, without the names of others": {
			"facts": _naming(_on_node, _node({}), array.concat([_leaves, _mover("team-b", "b-9", "node-1", "node-3")], ours)),
			"message": concat("", [
				"VirtualMachine web-1: cannot be moved because the limit of moves from or to node node-1 is reached: ",
				"5 in progress (web-2, web-3, web-4), maxPerNode is 2; ",
				"list moves with: kubectl get svm -A --field-selector status.phase=Migrating",
			]),
		},
		"too many of others": {
			"facts": _naming(_on_node, _node({}), [_leaves, _enters]),
			"message": concat("", [
				"VirtualMachine web-1: cannot be moved because the limit of moves from or to node node-2 is reached: ",
				"2 in progress, maxPerNode is 2; list moves with: kubectl get svm -A --field-selector status.phase=Migrating",
			]),
		},
	}
	{_text(denial) | some denial in policy.deny} == {tc.message} with input as {"request": _migrate, "facts": tc.facts}
		with data.parameters as _parameters
}
