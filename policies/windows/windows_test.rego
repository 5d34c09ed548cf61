package sallyport.windows_test

import data.sallyport.windows as policy

# Friday noon in Vienna.
_noon := "2026-11-20T11:00:00.000000000Z"

_night := "2026-11-21T01:00:00.000000000Z"

_nightly := {"name": "nightly", "timeZone": "Europe/Vienna", "hours": {"from": "22:00", "to": "06:00"}}

_weekend := {
	"name": "weekend", "timeZone": "Europe/Vienna", "days": ["Sat"],
	"hours": {"from": "08:00", "to": "06:00", "toDay": "Mon"},
}

_year_end := {"name": "year-end", "timeZone": "Europe/Vienna", "dates": {"from": "2026-11-20", "to": "2027-01-06"}}

_past := {"name": "past", "timeZone": "UTC", "dates": {"from": "2026-01-01", "to": "2026-01-02"}}

_with(windows, freezes) := {"windows": windows, "freezes": freezes}

_user := {"username": "alice", "groups": ["devs", "system:authenticated"]}

_vm := {"group": "sallyport.dev", "version": "v1alpha1", "resource": "virtualmachines"}

_machine := {"kind": "VirtualMachine", "metadata": {"name": "web-1", "labels": {"stage": "production"}}, "spec": {"runPolicy": "Manual"}}

_operation(spec) := {
	"now": _noon,
	"request": {
		"operation": "CREATE", "namespace": "team-a", "userInfo": _user,
		"resource": {"group": "sallyport.dev", "version": "v1alpha1", "resource": "virtualmachineoperations"},
		"object": {
			"kind": "VirtualMachineOperation", "metadata": {"generateName": "web-1-stop-"},
			"spec": object.union({"type": "Stop", "virtualMachineName": "web-1"}, spec),
		},
		"oldObject": null,
	},
	"facts": {"machine": _machine, "parent": null},
}

_request(resource, request) := {
	"now": _noon,
	"request": object.union({"namespace": "team-a", "userInfo": _user, "resource": resource}, request),
	"facts": {"machine": null, "parent": null},
}

_delete := _request(_vm, {"operation": "DELETE", "object": null, "oldObject": _machine})

_update(old, change) := _request(_vm, {"operation": "UPDATE", "object": object.union(old, change), "oldObject": old})

_deployments := {"group": "apps", "version": "v1", "resource": "deployments"}

_web(spec) := {"kind": "Deployment", "metadata": {"name": "web", "labels": {"stage": "production"}}, "spec": spec}

_edit(old, new) := _request(_deployments, {"operation": "UPDATE", "object": _web(new), "oldObject": _web(old)})

_of_scale(spec) := {"kind": "Scale", "metadata": {"name": "web"}, "spec": spec}

_scale(old, new) := object.union(
	_request(_deployments, {"operation": "UPDATE", "subResource": "scale", "object": _of_scale(new), "oldObject": _of_scale(old)}),
	{"facts": {"parent": _web({"replicas": 5})}},
)

_at(now, world) := object.union(world, {"now": now})

_verdict := "not understood" if not policy.valid_input

_verdict := concat(", ", sort({denial.reason | some denial in policy.deny})) if {
	policy.valid_input
	count(policy.deny) > 0
}

_verdict := "allow" if {
	policy.valid_input
	count(policy.deny) == 0
}

# What each request does. A window and a freeze with one action deny it if the request does it.
_requests := {
	"a stop": {"world": _operation({}), "does": ["Stop"]},
	"a forced restart": {"world": _operation({"type": "Restart", "force": true}), "does": ["Restart"]},
	"a move": {"world": _operation({"type": "Migrate"}), "does": ["Migrate"]},
	"an operation on a machine that does not exist": {
		"world": object.union(_operation({}), {"facts": {"machine": null}}), "does": ["Stop"],
	},
	"a deletion": {"world": _delete, "does": ["Delete"]},
	"a deletion of what is being deleted": {
		"world": object.union(_delete, {"request": {"oldObject": {"metadata": {"deletionTimestamp": "2026-11-20T10:31:57Z"}}}}), "does": [],
	},
	"a change": {"world": _update(_machine, {"spec": {"runPolicy": "AlwaysOff"}}), "does": ["Change"]},
	"a change of what is being deleted": {
		"world": _update(object.union(_machine, {"metadata": {"deletionTimestamp": "2026-11-20T10:31:57Z"}}), {"spec": {"runPolicy": "AlwaysOff"}}),
		"does": [],
	},
	"a new field": {"world": _update(_machine, {"data": {"a": "b"}}), "does": ["Change"]},
	"a field that goes": {
		"world": _request(_vm, {"operation": "UPDATE", "object": object.remove(_machine, ["spec"]), "oldObject": _machine}), "does": ["Change"],
	},
	"a label": {"world": _update(_machine, {"metadata": {"labels": {"stage": "test"}}}), "does": ["Change"]},
	"the first label": {
		"world": _update(json.remove(_machine, ["metadata/labels"]), {"metadata": {"labels": {"stage": "test"}}}), "does": ["Change"],
	},
	"an annotation, such as an override": {"world": _update(_machine, {"metadata": {"annotations": {"a": "b"}}}), "does": []},
	"a finalizer": {"world": _update(_machine, {"metadata": {"finalizers": ["a/b"]}}), "does": []},
	"a status": {"world": _update(_machine, {"status": {"phase": "Running"}}), "does": []},
	"nothing": {"world": _update(_machine, {}), "does": []},
	"scaled down": {"world": _scale({"replicas": 5}, {"replicas": 2}), "does": ["ScaleDown"]},
	"scaled to none": {"world": _scale({"replicas": 5}, {}), "does": ["ScaleDown"]},
	"scaled up": {"world": _scale({"replicas": 5}, {"replicas": 6}), "does": []},
	"scaled to as many": {"world": _scale({"replicas": 5}, {"replicas": 5}), "does": []},
	"scaled, and gone meanwhile": {"world": object.union(_scale({"replicas": 5}, {}), {"facts": {"parent": null}}), "does": []},
	"fewer replicas": {"world": _edit({"replicas": 5}, {"replicas": 2}), "does": ["ScaleDown", "Change"]},
	"more replicas": {"world": _edit({"replicas": 5}, {"replicas": 6}), "does": ["Change"]},
	"no number of replicas any more": {"world": _edit({"replicas": 5}, {}), "does": ["ScaleDown", "Change"]},
	"one instead of the default": {"world": _edit({}, {"replicas": 1}), "does": ["Change"]},
	"none instead of the default": {"world": _edit({}, {"replicas": 0}), "does": ["ScaleDown", "Change"]},
	"replicas that are no number": {"world": _edit({"replicas": {"min": 1}}, {"replicas": 2}), "does": ["Change"]},
	"no number instead of replicas": {"world": _edit({"replicas": 2}, {"replicas": null}), "does": ["Change"]},
	"fewer replicas of another kind": {
		"world": object.union(_edit({"replicas": 1}, {}), {"request": {"resource": {"group": "example.com", "resource": "fleets"}}}),
		"does": ["ScaleDown", "Change"],
	},
	"a creation": {"world": _request(_vm, {"operation": "CREATE", "object": _machine, "oldObject": null}), "does": []},
	"another subresource": {
		"world": object.union(_update(_machine, {"spec": {"runPolicy": "AlwaysOff"}}), {"request": {"subResource": "status"}}), "does": [],
	},
}

_every_action := ["Start", "Stop", "Restart", "Migrate", "Evict", "Delete", "ScaleDown", "Change"]

_denied(true, reason) := reason

_denied(false, _) := "allow"

test_actions[case] if {
	some note, tc in _requests
	some action in _every_action
	case := $"{note}: {action}"
	window := _with([object.union(_nightly, {"actions": [action]})], [])
	freeze := _with([], [object.union(_year_end, {"actions": [action]})])
	_verdict == _denied(action in tc.does, "WindowClosed") with input as tc.world with data.parameters as window
	_verdict == _denied(action in tc.does, "FreezeActive") with input as tc.world with data.parameters as freeze
}

test_any_action[note] if {
	some note, tc in _requests
	does := count(tc.does) > 0
	_verdict == _denied(does, "WindowClosed") with input as tc.world with data.parameters as _with([_nightly], [])
	_verdict == "allow" with input as tc.world with data.parameters as _with([], [])
}

# Rows that are for some requests only.
_rows := {
	"the kind of the machine": {"row": {"kinds": ["virtualmachines.sallyport.dev"]}, "stop": true, "scale": false},
	"the kind of the workload": {"row": {"kinds": ["statefulsets.apps", "deployments.apps"]}, "stop": false, "scale": true},
	"the namespace": {"row": {"namespaces": ["team-a", "team-b"]}, "stop": true, "scale": true},
	"another namespace": {"row": {"namespaces": ["team-b"]}, "stop": false, "scale": false},
	"a label": {"row": {"selector": {"matchLabels": {"stage": "production"}}}, "stop": true, "scale": true},
	"another label": {"row": {"selector": {"matchLabels": {"stage": "test"}}}, "stop": false, "scale": false},
	"an expression": {
		"row": {"selector": {"matchExpressions": [{"key": "stage", "operator": "In", "values": ["production"]}]}}, "stop": true, "scale": true,
	},
	"an expression that excludes": {
		"row": {"selector": {"matchExpressions": [{"key": "stage", "operator": "DoesNotExist"}]}}, "stop": false, "scale": false,
	},
	"all of it": {
		"row": {"kinds": ["virtualmachines.sallyport.dev"], "namespaces": ["team-a"], "actions": ["Stop"], "selector": {"matchLabels": {"stage": "production"}}},
		"stop": true, "scale": false,
	},
	"all but one of it": {
		"row": {"kinds": ["virtualmachines.sallyport.dev"], "namespaces": ["team-a"], "actions": ["Start"], "selector": {"matchLabels": {"stage": "production"}}},
		"stop": false, "scale": false,
	},
	"an exempt user": {"row": {"exempt": {"users": ["alice"]}}, "stop": false, "scale": false},
	"an exempt group": {"row": {"exempt": {"groups": ["ops", "devs"]}}, "stop": false, "scale": false},
	"others are exempt": {"row": {"exempt": {"users": ["devs"], "groups": ["alice"]}}, "stop": true, "scale": true},
}

test_rows[note] if {
	some note, tc in _rows
	every one in [{"world": _operation({}), "denied": tc.stop}, {"world": _scale({"replicas": 5}, {"replicas": 2}), "denied": tc.scale}] {
		window := _with([object.union(_nightly, tc.row)], [])
		freeze := _with([], [object.union(_year_end, tc.row)])
		_verdict == _denied(one.denied, "WindowClosed") with input as one.world with data.parameters as window
		_verdict == _denied(one.denied, "FreezeActive") with input as one.world with data.parameters as freeze
	}
}

# The labels before the request count: with others, it would leave the freeze.
test_labels_before_the_request if {
	production := _with([], [object.union(_year_end, {"selector": {"matchLabels": {"stage": "production"}}})])
	world := _update(_machine, {"metadata": {"labels": {"stage": "test"}}})
	_verdict == "FreezeActive" with input as world with data.parameters as production
	into := _update(object.union(_machine, {"metadata": {"labels": {"stage": "test"}}}), {"metadata": {"labels": {"stage": "production"}}})
	_verdict == "allow" with input as into with data.parameters as production
}

test_what_is_in_no_namespace if {
	world := json.remove(_delete, ["request/namespace"])
	_verdict == "WindowClosed" with input as world with data.parameters as _with([_nightly], [])
	_verdict == "allow" with input as world with data.parameters as _with([object.union(_nightly, {"namespaces": ["team-a"]})], [])
}

test_several[note] if {
	some note, tc in {
		"an open window": {"now": _night, "windows": [_nightly], "freezes": [], "verdict": "allow"},
		"one of two is open": {"now": _night, "windows": [_weekend, _nightly], "freezes": [], "verdict": "allow"},
		"none of two": {"now": _noon, "windows": [_weekend, _nightly], "freezes": [], "verdict": "WindowClosed"},
		"the open one is for others": {
			"now": _night, "windows": [_weekend, object.union(_nightly, {"namespaces": ["team-b"]})], "freezes": [], "verdict": "WindowClosed",
		},
		"a freeze in an open window": {"now": _night, "windows": [_nightly], "freezes": [_year_end], "verdict": "FreezeActive"},
		"a freeze and a closed window": {"now": _noon, "windows": [_nightly], "freezes": [_year_end], "verdict": "FreezeActive, WindowClosed"},
		"a freeze that is over": {"now": _noon, "windows": [], "freezes": [_past], "verdict": "allow"},
		"exempt from one window": {
			"now": _noon, "windows": [_weekend, object.union(_nightly, {"exempt": {"users": ["alice"]}})], "freezes": [], "verdict": "allow",
		},
		"exempt from one freeze": {
			"now": _noon, "windows": [], "verdict": "FreezeActive",
			"freezes": [object.union(_year_end, {"name": "b"}), object.union(_year_end, {"exempt": {"users": ["alice"]}})],
		},
		"exempt from the window in a freeze": {
			"now": _noon, "windows": [object.union(_nightly, {"exempt": {"users": ["alice"]}})], "freezes": [_year_end], "verdict": "FreezeActive",
		},
	}
	_verdict == tc.verdict with input as _at(tc.now, _operation({})) with data.parameters as _with(tc.windows, tc.freezes)
}

test_without_groups if {
	world := json.remove(_operation({}), ["request/userInfo/groups"])
	window := _with([object.union(_nightly, {"exempt": {"groups": ["devs"]}})], [])
	_verdict == "WindowClosed" with input as world with data.parameters as window
}

_of_machine := {"group": "sallyport.dev", "kind": "VirtualMachine", "name": "web-1"}

_of_web := {"group": "apps", "kind": "Deployment", "name": "web"}

_denials := {
	"an operation": {"world": _operation({"type": "Restart", "force": true}), "parameters": _with([_nightly], []), "denial": {
		"reason": "WindowClosed", "message": "VirtualMachine web-1: restart --force is not allowed",
		"cause": "maintenance window nightly is closed until Fri 2026-11-20 22:00 Europe/Vienna",
		"remedy": `wait until then; to override this policy once: kubectl sallyport restart --force web-1 -n team-a --override "windows: REASON"`,
		"details": _of_machine,
	}},
	"a deletion": {"world": _delete, "parameters": _with([_weekend, _past, _nightly], []), "denial": {
		"reason": "WindowClosed", "message": "VirtualMachine web-1: deletion is not allowed",
		"cause": "maintenance windows weekend, past, nightly are closed until Fri 2026-11-20 22:00 Europe/Vienna (nightly)",
		"remedy": concat("", [
			"wait until then; to override this policy once: ",
			`kubectl sallyport override windows virtualmachines.sallyport.dev web-1 -n team-a --reason "..."`,
		]),
		"details": _of_machine,
	}},
	"windows that open at once": {
		"world": _delete, "parameters": _with([_nightly, object.union(_nightly, {"name": "other"})], []), "denial": {
			"reason": "WindowClosed", "message": "VirtualMachine web-1: deletion is not allowed",
			"cause": "maintenance windows nightly, other are closed until Fri 2026-11-20 22:00 Europe/Vienna (nightly)",
			"remedy": concat("", [
				"wait until then; to override this policy once: ",
				`kubectl sallyport override windows virtualmachines.sallyport.dev web-1 -n team-a --reason "..."`,
			]),
			"details": _of_machine,
		},
	},
	"a window that does not open": {"world": _scale({"replicas": 5}, {"replicas": 2}), "parameters": _with([_past], []), "denial": {
		"reason": "WindowClosed", "message": "Deployment web: cannot scale from 5 to 2",
		"cause": "maintenance window past is closed, with no next opening",
		"remedy": `to override this policy once: kubectl sallyport override windows deployments.apps web -n team-a --reason "..."`,
		"details": _of_web,
	}},
	"a window that opens in a freeze": {
		"world": _delete, "parameters": _with([_nightly], [object.union(_year_end, {"dates": {"from": "2026-11-20T13:00"}})]), "denial": {
			"reason": "WindowClosed", "message": "VirtualMachine web-1: deletion is not allowed",
			"cause": "maintenance window nightly is closed until Fri 2026-11-20 22:00 Europe/Vienna, which is during freeze year-end",
			"remedy": concat("", [
				"to override this policy once: ",
				`kubectl sallyport override windows virtualmachines.sallyport.dev web-1 -n team-a --reason "..."`,
			]),
			"details": _of_machine,
		},
	},
	"a freeze": {"world": _edit({"replicas": 5}, {"replicas": 2}), "parameters": _with([], [_year_end]), "denial": {
		"reason": "FreezeActive", "message": "Deployment web: cannot scale from 5 to 2",
		"cause": "freeze year-end lasts until Thu 2027-01-07 00:00 Europe/Vienna",
		"remedy": concat("", [
			"wait until then; to override this policy once: ",
			`kubectl sallyport override windows deployments.apps web -n team-a --reason "..."`,
		]),
		"details": _of_web,
	}},
	"a freeze without end": {
		"world": _edit({"paused": true}, {}),
		"parameters": _with([], [{"name": "all-days", "timeZone": "UTC", "days": ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]}]),
		"denial": {
			"reason": "FreezeActive", "message": "Deployment web: changes are not allowed",
			"cause": "freeze all-days does not end within two weeks",
			"remedy": `to override this policy once: kubectl sallyport override windows deployments.apps web -n team-a --reason "..."`,
			"details": _of_web,
		},
	},
}

test_denials[note] if {
	some note, tc in _denials
	policy.valid_input with input as tc.world with data.parameters as tc.parameters
	policy.deny == {tc.denial} with input as tc.world with data.parameters as tc.parameters
}

test_facts[note] if {
	some note, tc in {
		"an operation": {"world": _operation({}), "facts": {"parent": null, "machine": {
			"apiVersion": "sallyport.dev/v1alpha1", "kind": "VirtualMachine", "namespace": "team-a", "name": "web-1",
		}}},
		"a Scale": {"world": _scale({"replicas": 5}, {"replicas": 2}), "facts": {"parent": {"parent": true}, "machine": null}},
		"a deletion": {"world": _delete, "facts": {"parent": null, "machine": null}},
	}
	policy.facts == tc.facts with input as tc.world
}

_broken := object.union_n([
	{$"operation: {path} missing": json.remove(_operation({}), [path]) |
		some path in [
			"now", "request", "request/resource", "request/userInfo", "request/userInfo/username", "request/object", "request/object/spec",
			"request/object/spec/type", "request/object/spec/virtualMachineName", "facts", "facts/machine", "facts/machine/metadata",
			"facts/machine/metadata/name",
		]
	},
	{$"deletion: {path} missing": json.remove(_delete, [path]) |
		some path in [
			"request/operation", "request/oldObject", "request/oldObject/kind", "request/oldObject/metadata", "request/oldObject/metadata/name",
		]
	},
	{$"update: {path} missing": json.remove(_update(_machine, {}), [path]) |
		some path in ["request/object", "request/object/metadata", "request/object/metadata/name", "request/oldObject", "request/oldObject/kind"]
	},
	{$"scale: {path} missing": json.remove(_scale({}, {}), [path]) |
		some path in ["facts/parent", "facts/parent/kind", "facts/parent/metadata", "facts/parent/metadata/name"]
	},
	{$"now {now}": _at(now, _delete) | some now in ["2026-11-20T22:30:00Z", "2026-11-20T22:30:00.000000000+01:00", ""]},
	{
		"another type of operation": _operation({"type": "Explode"}),
		"another machine": object.union(_operation({}), {"facts": {"machine": {"metadata": {"name": "web-2"}}}}),
		"no user": object.union(_delete, {"request": {"userInfo": {"username": ""}}}),
		"a connection": object.union(_delete, {"request": {"operation": "CONNECT"}}),
	},
])

test_not_understood[note] if {
	some note, world in _broken
	_verdict == "not understood" with input as world with data.parameters as _with([_nightly], [_year_end])
}

# The API allows null in metadata.
test_null_is_absent if {
	old := object.union(_machine, {"metadata": {"labels": null, "deletionTimestamp": null}})
	world := _update(old, {"spec": {"runPolicy": "AlwaysOff"}})
	_verdict == "WindowClosed" with input as world with data.parameters as _with([_nightly], [])
	same := _request(_vm, {"operation": "UPDATE", "object": json.remove(old, ["metadata/labels"]), "oldObject": old})
	_verdict == "allow" with input as same with data.parameters as _with([_nightly], [])
}
