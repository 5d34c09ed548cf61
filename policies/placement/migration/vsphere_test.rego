# Machines in a vCenter.
package sallyport.placement.migration_test

import data.sallyport.placement.migration as policy

_in_vsphere := {
	"metadata": {"name": "web-1", "namespace": "team-a"},
	"spec": {"runtime": _vsphere},
	"status": {"nodeName": "esx-1"},
}

_to_host(name) := _operation("Migrate", {"migrate": {"nodeName": name}})

_host(name, more) := object.union({"name": name, "connected": true, "inMaintenance": false}, more)

_connected := [{"type": "Synced", "status": "False"}, {"type": "Ready", "status": "True", "observedGeneration": 2}]

_vcenter(name, hosts, conditions) := {"metadata": {"name": name, "generation": 2}, "status": {"hosts": hosts, "conditions": conditions}}

_inventory := [_host("esx-1", {}), _host("esx-2", {}), _host("esx-3", {"inMaintenance": true}), _host("esx-4", {"connected": false})]

_vc := _vcenter("vc-1", _inventory, _connected)

# Another vCenter has hosts of the same names, of which none is in maintenance.
_other_vc := _vcenter("vc-2", [_host(name, {}) | some name in ["esx-1", "esx-2", "esx-3", "esx-4", "esx-9"]], _connected)

# What is asked of an operation and of a change of spec.nodeName.
_worlds(to, server, moving) := {
	"an operation": {
		"request": _to_host(to),
		"facts": object.union(_facts(_in_vsphere, null, moving), {"servers": [_other_vc, server]}),
	},
	"a change": {
		"request": _retarget(_in_vsphere, to),
		"facts": object.union(_facts(null, null, moving), {"server": server}),
	},
}

test_host[note] if {
	some to, verdict in {
		"esx-2": "allow",
		"esx-3": "NodeUnschedulable",
		"esx-4": "NodeNotReady",
		"esx-9": "NodeUnknown",
		"not/a node": "NodeUnknown",
	}
	some what, world in _worlds(to, _vc, [])
	note := $"{to}, {what}"
	_verdict == verdict with input as world with data.parameters as _parameters
}

test_disconnected_host_in_maintenance[what] if {
	server := _vcenter("vc-1", [_host("esx-2", {"connected": false, "inMaintenance": true})], _connected)
	some what, world in _worlds("esx-2", server, [])
	_verdict == "NodeNotReady" with input as world with data.parameters as _parameters
}

# A Node with the name of the host is not what the machine is moved to.
test_node_with_the_name_of_a_host if {
	world := _worlds("esx-2", _vc, [])["an operation"]
	node := {"metadata": {"name": "esx-2"}, "spec": {"unschedulable": true}}
	_verdict == "allow" with input as object.union(world, {"facts": {"node": node}}) with data.parameters as _parameters
}

# vCenter decides if the list of hosts may be old, cut off, or not there.
test_vcenter_decides[note] if {
	some state, server in {
		"not ready": _vcenter("vc-1", _inventory, [{"type": "Ready", "status": "False", "observedGeneration": 2}]),
		"not looked at since a change": _vcenter("vc-1", _inventory, [{"type": "Ready", "status": "True", "observedGeneration": 1}]),
		"of an unknown generation": _vcenter("vc-1", _inventory, [{"type": "Ready", "status": "True"}]),
		"never looked at": {"metadata": {"name": "vc-1", "generation": 2}},
	}
	some to in ["esx-3", "esx-4", "esx-9"]
	some what, world in _worlds(to, server, [])
	note := $"{state}, {to}, {what}"
	_verdict == "allow" with input as world with data.parameters as _parameters
}

_digits := [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]

_crowd := [_host($"host-{a}{b}{c}{d}", {}) | some a in [0, 1, 2]; some b in _digits; some c in _digits; some d in _digits]

test_cut_off_list[note] if {
	some hosts, verdict in {2499: "NodeUnknown", 2500: "allow"}
	inventory := array.slice(_crowd, 0, hosts)
	some what, world in _worlds("esx-9", _vcenter("vc-1", inventory, _connected), [])
	note := $"{hosts}, {what}"
	_verdict == verdict with input as world with data.parameters as _parameters
}

test_no_vcenter[what] if {
	some what, world in {
		"an operation": {
			"request": _to_host("esx-9"), "facts": object.union(_facts(_in_vsphere, null, []), {"servers": [_other_vc]}),
		},
		"a change": {"request": _retarget(_in_vsphere, "esx-9"), "facts": _facts(null, null, [])},
		"a change of the vCenter": {"request": _elsewhere, "facts": _facts(null, null, [])},
	}
	_verdict == "allow" with input as world with data.parameters as _parameters
}

# spec.nodeName of a machine that was never seen is the host that it is created on.
test_host_of_a_new_machine[to] if {
	some to, verdict in {"esx-2": "allow", "esx-3": "NodeUnschedulable", "esx-9": "NodeUnknown"}
	request := _retarget(json.remove(_in_vsphere, ["status"]), to)
	moving := [_in_vcenter("vc-1", _mover("team-b", $"b-{i}", to, "esx-5")) | some i in [1, 2, 3]]
	_verdict == verdict with input as {"request": request, "facts": object.union(_facts(null, null, moving), {"server": _vc})}
		with data.parameters as _parameters
}

_on_esx(server, name, from, to) := _in_vcenter(server, {
	"metadata": {"namespace": "team-b", "name": name}, "spec": {},
	"status": {
		"nodeName": from,
		"activeOperation": {"origin": "Operation", "type": "Migrate", "name": "m", "nodeName": to},
	},
})

_host_limits := {
	"nothing": {"moving": [], "verdict": "allow"},
	"two from the host and one to it": {
		"moving": [_on_esx("vc-1", "b-1", "esx-2", "esx-1"), _on_esx("vc-1", "b-2", "esx-2", "esx-5"), _on_esx("vc-1", "b-3", "esx-5", "esx-2")],
		"verdict": "TooManyMigrations",
	},
	"three from the present host": {
		"moving": [_on_esx("vc-1", $"b-{i}", "esx-1", "esx-5") | some i in [1, 2, 3]],
		"verdict": "TooManyMigrations",
	},
	"two": {"moving": [_on_esx("vc-1", $"b-{i}", "esx-1", "esx-2") | some i in [1, 2]], "verdict": "allow"},
	"three elsewhere": {"moving": [_on_esx("vc-1", $"b-{i}", "esx-5", "esx-6") | some i in [1, 2, 3]], "verdict": "allow"},
	"three in another vCenter": {"moving": [_on_esx("vc-2", $"b-{i}", "esx-1", "esx-2") | some i in [1, 2, 3]], "verdict": "allow"},
	"three in the cluster": {"moving": [_mover("team-b", $"b-{i}", "esx-1", "esx-2") | some i in [1, 2, 3]], "verdict": "allow"},
	"two, and the machine itself": {
		"moving": array.concat(
			[_on_esx("vc-1", $"b-{i}", "esx-1", "esx-2") | some i in [1, 2]],
			[object.union(_on_esx("vc-1", "web-1", "esx-1", "esx-2"), {"metadata": {"namespace": "team-a"}})],
		),
		"verdict": "allow",
	},
}

test_host_limits[note] if {
	some moves, tc in _host_limits
	some what, world in _worlds("esx-2", _vc, tc.moving)
	note := $"{moves}, {what}"
	_verdict == tc.verdict with input as world with data.parameters as _parameters
}

test_host_limit_of_an_evict[moves] if {
	some moves, verdict in {"three from the present host": "TooManyMigrations", "two from the host and one to it": "allow"}
	facts := _facts(_in_vsphere, null, _host_limits[moves].moving)
	_verdict == verdict with input as {"request": _operation("Evict", {}), "facts": facts} with data.parameters as _parameters
}

test_no_host_limit[what] if {
	some what, world in _worlds("esx-2", _vc, _host_limits["three from the present host"].moving)
	_verdict == "allow" with input as world with data.parameters as {"maxPerNode": 1, "maxPerHost": 0}
}

test_host_messages[note] if {
	crowd := [_host($"esx-{i}", {}) | some i in [1, 2, 3, 5, 6, 7, 8]]
	ours := object.union(_on_esx("vc-1", "web-2", "esx-1", "esx-5"), {"metadata": {"namespace": "team-a"}})
	some note, tc in {
		"no such host": {
			"to": "esx-9", "server": _vc, "moving": [],
			"message": concat("", [
				"spec.nodeName: VSphereServer vc-1 has no host esx-9; use another host (available: esx-2). ",
				"A host that is added to vCenter is listed within a minute",
			]),
		},
		"many hosts": {
			"to": "esx-9", "server": _vcenter("vc-1", crowd, _connected), "moving": [],
			"message": concat("", [
				"spec.nodeName: VSphereServer vc-1 has no host esx-9; ",
				"use another host (available: esx-2, esx-3, esx-5, esx-6, esx-7 and 1 more). ",
				"A host that is added to vCenter is listed within a minute",
			]),
		},
		"in maintenance": {
			"to": "esx-3", "server": _vc, "moving": [],
			"message": concat("", [
				"spec.nodeName: VirtualMachine web-1 cannot be moved because host esx-3 of VSphereServer vc-1 is in maintenance mode; ",
				"end maintenance mode in vCenter, or use another host (available: esx-2)",
			]),
		},
		"not connected": {
			"to": "esx-4", "server": _vcenter("vc-1", [_host("esx-1", {}), _host("esx-4", {"connected": false})], _connected), "moving": [],
			"message": concat("", [
				"spec.nodeName: VirtualMachine web-1 cannot be moved because host esx-4 of VSphereServer vc-1 is not connected; ",
				"connect it in vCenter, or use another host (none is available now)",
			]),
		},
		"too many": {
			"to": "esx-2", "server": _vc,
			"moving": array.concat([ours], [_on_esx("vc-1", $"b-{i}", "esx-1", "esx-5") | some i in [1, 2]]),
			"message": concat("", [
				"VirtualMachine web-1: cannot be moved because the limit of moves from or to host esx-1 of VSphereServer vc-1 is reached: ",
				"3 in progress (web-2), maxPerHost is 3; list moves with: kubectl get svm -A --field-selector status.phase=Migrating",
			]),
		},
	}
	world := _worlds(tc.to, tc.server, tc.moving)["a change"]
	denials := policy.deny with input as world with data.parameters as _parameters
	{_text(denial) | some denial in denials} == {tc.message}
	{[denial.details.kind, denial.details.name] | some denial in denials} == {["VSphereServer", "vc-1"]}
}

test_not_understood_server[note] if {
	some path in ["metadata/name", "metadata/generation"]
	some about, world in _worlds("esx-2", _without(_vc, path), [])
	note := $"{path}, {about}"
	_verdict == "not understood" with input as world with data.parameters as _parameters
}

test_not_understood_part_of_a_server[note] if {
	condition := {"type": "Ready", "status": "True", "observedGeneration": 2}
	some part, server in object.union(
		{$"host without {field}": _vcenter("vc-1", [_without(_host("esx-2", {}), field)], _connected) | some field in ["name", "connected", "inMaintenance"]},
		{$"condition without {field}": _vcenter("vc-1", _inventory, [_without(condition, field)]) | some field in ["type", "status"]},
	)
	some about, world in _worlds("esx-2", server, [])
	note := $"{part}, {about}"
	_verdict == "not understood" with input as world with data.parameters as _parameters
}
