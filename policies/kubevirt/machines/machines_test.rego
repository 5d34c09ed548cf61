package sallyport.kubevirt.machines_test

import data.sallyport.kubevirt.machines as policy

_gc := "system:serviceaccount:kube-system:generic-garbage-collector"

_nc := "system:serviceaccount:kube-system:namespace-controller"

_parameters := {"garbageCollectors": [_gc], "namespaceControllers": [_nc]}

# The text of a denial, as the user sees it.
_text(denial) := concat("", [concat("", [mark, denial[key]]) | some [key, mark] in [["message", ""], ["cause", " because "], ["remedy", "; "]]])

_machine(spec, status) := {"metadata": {"name": "web-1", "namespace": "shop", "uid": "u-1"}, "spec": spec, "status": status}

_always := _machine({"runStrategy": "Always"}, {})

_instance(status) := {"metadata": {"name": "web-1", "namespace": "shop", "uid": "u-2"}, "status": status}

_running := _instance({"phase": "Running", "nodeName": "node-a"})

_migrating := _instance({"phase": "Running", "nodeName": "node-a", "migrationState": {"sourceNode": "node-a", "targetNode": "node-b"}})

_labelled(object_, labels) := object.union(object_, {"metadata": {"labels": labels}})

_adopted := object.union(_always, {"metadata": {
	"labels": {"sallyport.dev/virtual-machine-uid": "u-3"},
	"annotations": {"sallyport.dev/virtual-machine": "web"},
}})

_base := {
	"kind": {"group": "kubevirt.io", "version": "v1", "kind": "VirtualMachine"},
	"resource": {"group": "kubevirt.io", "version": "v1", "resource": "virtualmachines"},
	"namespace": "shop", "name": "web-1",
	"userInfo": {"username": "alice"},
}

_of_instance(request) := object.union(request, {
	"kind": {"kind": "VirtualMachineInstance"},
	"resource": {"resource": "virtualmachineinstances"},
})

_by(who, request) := object.union(request, {"userInfo": {"username": who}})

_delete(old) := object.union(_base, {"operation": "DELETE", "object": null, "oldObject": old})

_update(old, new) := object.union(_base, {"operation": "UPDATE", "object": new, "oldObject": old})

_asks(changes) := _update(
	_machine({"runStrategy": "Manual"}, {"snapshotInProgress": "nightly"}),
	_machine({"runStrategy": "Manual"}, {"snapshotInProgress": "nightly", "stateChangeRequests": changes}),
)

_world(request, facts) := {"request": request, "facts": object.union({"instance": null, "machine": null, "namespace": null}, facts)}

# The reasons of the denials. An input that is not understood is never allowed.
_verdict := "not understood" if not policy.valid_input

_verdict := concat(", ", sort([denial.reason | some denial in policy.deny])) if policy.valid_input

_kinds(facts) := {name: query.kind | some name, query in facts; query != null}

test_facts[note] if {
	some note, tc in {
		"a machine": {"request": _delete(_always), "kinds": {"instance": "VirtualMachineInstance"}},
		"an instance": {"request": _of_instance(_delete(_running)), "kinds": {"machine": "VirtualMachine"}},
		"a namespace that is emptied": {
			"request": _by(_nc, _delete(_always)),
			"kinds": {"instance": "VirtualMachineInstance", "namespace": "Namespace"},
		},
	}
	facts := policy.facts with input as {"request": tc.request} with data.parameters as _parameters
	_kinds(facts) == tc.kinds
	count(facts) == 3
}

test_texts[note] if {
	some note, tc in {
		"running": {
			"world": _world(_delete(_always), {"instance": _running}),
			"text": concat("", [
				"VirtualMachine web-1 in namespace shop: deletion is not allowed because it is not stopped (Running on node node-a); ",
				"stop it with: virtctl stop web-1 -n shop; to override this policy temporarily: ",
				`kubectl sallyport override kubevirt-machines virtualmachines.kubevirt.io web-1 -n shop --reason "..."`,
			]),
		},
		"running, and Sallyport's": {
			"world": _world(_delete(_adopted), {"instance": _running}),
			"text": concat("", [
				"VirtualMachine web-1 in namespace shop: deletion is not allowed because it is not stopped (Running on node node-a); ",
				"stop it with: kubectl sallyport stop web -n shop; to override this policy temporarily: ",
				`kubectl sallyport override kubevirt-machines virtualmachines.kubevirt.io web-1 -n shop --reason "..."`,
			]),
		},
		"protected": {
			"world": _world(_update(_labelled(_always, {"sallyport.dev/deletion-protection": "enabled"}), _machine({"runStrategy": "Halted"}, {})), {}),
			"text": concat("", [
				"VirtualMachine web-1 in namespace shop: its run strategy cannot change to Halted because its label ",
				"sallyport.dev/deletion-protection is enabled; to override this policy temporarily: ",
				`kubectl sallyport override kubevirt-machines virtualmachines.kubevirt.io web-1 -n shop --reason "..."`,
			]),
		},
		"snapshot": {
			"world": _world(_asks([{"action": "Stop", "uid": "u-2"}]), {"instance": _running}),
			"text": concat("", [
				"VirtualMachine web-1 in namespace shop: it cannot be stopped because VirtualMachineSnapshot nightly of it is being taken; ",
				"wait, or delete the snapshot: kubectl delete vmsnapshot nightly -n shop",
			]),
		},
		"restore": {
			"world": _world(_delete(_machine({}, {"restoreInProgress": "back"})), {}),
			"text": concat("", [
				"VirtualMachine web-1 in namespace shop: deletion is not allowed because VirtualMachineRestore back of it is in progress; ",
				"wait, or delete the restore: kubectl delete vmrestore back -n shop",
			]),
		},
		"migration": {
			"world": _world(_of_instance(_delete(_migrating)), {"machine": _always}),
			"text": concat("", [
				"VirtualMachineInstance web-1 in namespace shop: deletion is not allowed because it is being migrated from node node-a to node-b; ",
				"wait, or cancel the migration: virtctl migrate-cancel web-1 -n shop",
			]),
		},
	}
	denials := policy.deny with input as tc.world with data.parameters as _parameters
	{_text(denial) | some denial in denials} == {tc.text}
}

_cases := {
	"a machine that is off": {"world": _world(_delete(_always), {}), "verdict": ""},
	"one that has ended": {"world": _world(_delete(_always), {"instance": _instance({"phase": "Succeeded"})}), "verdict": ""},
	"one that begins": {"world": _world(_delete(_always), {"instance": _instance({})}), "verdict": "MachineRunning"},
	"one without a node": {"world": _world(_delete(_always), {"instance": _instance({"phase": "Pending"})}), "verdict": "MachineRunning"},
	"one that is migrated": {"world": _world(_delete(_always), {"instance": _migrating}), "verdict": "MachineRunning, MigrationInProgress"},
	"one that was migrated": {
		"world": _world(
			_of_instance(_delete(_instance({"phase": "Running", "migrationState": {"completed": true}}))),
			{"machine": _always},
		),
		"verdict": "",
	},
	"a migration that failed": {
		"world": _world(
			_of_instance(_delete(_instance({"phase": "Running", "migrationState": {"failed": true}}))),
			{"machine": null},
		),
		"verdict": "",
	},
	"a second deletion": {
		"world": _world(_delete(object.union(_always, {"metadata": {"deletionTimestamp": "2026-11-20T10:31:57Z"}})), {"instance": _migrating}),
		"verdict": "",
	},
	"the garbage collector, without an owner": {"world": _world(_by(_gc, _delete(_always)), {"instance": _running}), "verdict": "MachineRunning"},
	"the garbage collector": {
		"world": _world(
			_by(_gc, _delete(object.union(_always, {"metadata": {"ownerReferences": [{"name": "pool"}]}}))),
			{"instance": _running},
		),
		"verdict": "",
	},
	"a namespace that ends": {
		"world": _world(_by(_nc, _delete(_always)), {
			"instance": _running, "namespace": {"metadata": {"deletionTimestamp": "2026-11-20T10:31:57Z"}},
		}),
		"verdict": "",
	},
	"a namespace that is gone": {"world": _world(_by(_nc, _delete(_always)), {"instance": _running}), "verdict": ""},
	"a namespace that stays": {
		"world": _world(_by(_nc, _delete(_always)), {"instance": _running, "namespace": {"metadata": {"name": "shop"}}}),
		"verdict": "MachineRunning",
	},
	"halted without protection": {"world": _world(_update(_always, _machine({"runStrategy": "Halted"}, {})), {"instance": _running}), "verdict": ""},
	"halted by the older field": {
		"world": _world(
			_update(_labelled(_machine({"running": true}, {}), {"sallyport.dev/deletion-protection": "enabled"}), _machine({"running": false}, {})),
			{"instance": _migrating},
		),
		"verdict": "MigrationInProgress, ProtectedMachineHalted",
	},
	"halted before": {
		"world": _world(
			_update(_labelled(_machine({"runStrategy": "Halted"}, {}), {"sallyport.dev/deletion-protection": "enabled"}), _machine({"running": false}, {})),
			{"instance": _migrating},
		),
		"verdict": "",
	},
	"a start": {"world": _world(_asks([{"action": "Start"}]), {}), "verdict": ""},
	"a restart": {"world": _world(_asks([{"action": "Stop", "uid": "u-2"}, {"action": "Start"}]), {"instance": _running}), "verdict": "SnapshotInProgress"},
	"a stop that was asked for before": {
		"world": _world(
			_update(
				_machine({}, {"snapshotInProgress": "nightly", "stateChangeRequests": [{"action": "Stop"}]}),
				_machine({}, {"snapshotInProgress": "nightly", "stateChangeRequests": [{"action": "Stop"}, {"action": "Start"}]}),
			),
			{"instance": _running},
		),
		"verdict": "",
	},
	"a phase that is no text": {"world": _world(_delete(_always), {"instance": _instance({"phase": 1})}), "verdict": "not understood"},
	"a snapshot that is no text": {"world": _world(_delete(_machine({}, {"snapshotInProgress": 1})), {}), "verdict": "not understood"},
}

test_verdicts[note] if {
	some note, tc in _cases
	_verdict == tc.verdict with input as tc.world with data.parameters as _parameters
}
