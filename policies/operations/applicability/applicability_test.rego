package sallyport.operations.applicability_test

import data.sallyport.lib.operations
import data.sallyport.operations.applicability as policy

_keys := [
	"Start",
	"Stop",
	"Stop force",
	"Restart",
	"Restart force",
	"Migrate",
	"Migrate force",
	"Evict",
	"Evict force",
]

# The documented rules as two tables: "y" if the run policy, or the phase, allows the operation of the column.
_run_policies := {
	"AlwaysOn": "- - - y y y y y y",
	"AlwaysOnUnlessStoppedManually": "y y y y y y y y y",
	"Manual": "y y y y y y y y y",
	"AlwaysOff": "- - - - - - - - -",
}

_phases := {
	"Pending": "- y y - y - - - -",
	"WaitingForImage": "- y y - y - - - -",
	"Provisioning": "- - - - - - - - -",
	"Stopped": "y y y - y - - - -",
	"Starting": "- y y y y - - - -",
	"Running": "- y y y y y y y y",
	"Degraded": "- y y y y - - - -",
	"Stopping": "y - y - y - - - -",
	"Migrating": "- y y y y - - - -",
	"Paused": "y - y - y - - - -",
	"Failed": "- y y - - - - - -",
	"Terminating": "- - - - - - - - -",
}

_parameters := {
	"runPolicies": {
		"AlwaysOn": ["Restart", "Restart force", "Migrate", "Migrate force", "Evict", "Evict force"],
		"AlwaysOnUnlessStoppedManually": _keys,
		"Manual": _keys,
		"AlwaysOff": [],
		"Observe": [],
	},
	"phases": {
		"Pending": ["Stop", "Stop force", "Restart force"],
		"WaitingForImage": ["Stop", "Stop force", "Restart force"],
		"Provisioning": [],
		"Stopped": ["Start", "Stop", "Stop force", "Restart force"],
		"Starting": ["Stop", "Stop force", "Restart", "Restart force"],
		"Running": ["Stop", "Stop force", "Restart", "Restart force", "Migrate", "Migrate force", "Evict", "Evict force"],
		"Degraded": ["Stop", "Stop force", "Restart", "Restart force"],
		"Stopping": ["Start", "Stop force", "Restart force"],
		"Migrating": ["Stop", "Stop force", "Restart", "Restart force"],
		"Paused": ["Start", "Stop force", "Restart force"],
		"Failed": ["Stop", "Stop force"],
		"Terminating": [],
	},
}

_spec(key) := {"virtualMachineName": "web-1", "type": split(key, " ")[0], "force": endswith(key, " force")}

_vm(run_policy, phase) := {
	"metadata": {"name": "web-1", "namespace": "team-a"},
	"spec": {"runPolicy": run_policy},
	"status": {"phase": phase},
}

# A machine that somebody else changed on its runtime.
_made_unusable(reason) := object.union(_vm("Manual", "Failed"), {"status": {"conditions": [
	{"type": "Synced", "status": "False", "reason": "InstanceUnusable", "message": "of another condition"},
	{"type": "Ready", "status": "False", "reason": reason, "message": "the machine is marked as a template: convert it"},
]}})

_input(key, vm) := {
	"request": {"namespace": "team-a", "object": {"metadata": {"name": "new"}, "spec": _spec(key)}},
	"facts": {"vm": vm},
}

# The verdict on a request. An input that is not understood is never an allow.
_verdict := "not understood" if not policy.valid_input

_verdict := concat(", ", [denial.reason | some denial in policy.deny]) if {
	policy.valid_input
	count(policy.deny) > 0
}

_verdict := "allow" if {
	policy.valid_input
	count(policy.deny) == 0
}

# Every phase and operation under one run policy.
_cells(run_policy) := {note: cell |
	some phase, marks in _phases
	some i, key in _keys
	note := $"{key} in phase {phase}"
	cell := {
		"key": key,
		"vm": _vm(run_policy, phase),
		"verdict": _expected(split(_run_policies[run_policy], " ")[i], split(marks, " ")[i], phase),
	}
}

# Only the first denial is reported: if the run policy denies the operation, the phase does not matter.
_expected("y", "y", _) := "allow"

_expected("y", "-", phase) := "PhaseForbids" if phase != "Failed"

_expected("y", "-", "Failed") := "InstanceLost"

_expected("-", _, _) := "RunPolicyForbids"

test_the_columns_are_all_operations if _keys == operations.keys

test_the_tables_have_a_cell_for_each_phase_and_operation if {
	every run_policy, _ in _run_policies { count(_cells(run_policy)) == 12 * 9 }
}

test_table_of_always_on[note] if {
	some note, cell in _cells("AlwaysOn")
	_verdict == cell.verdict with input as _input(cell.key, cell.vm) with data.parameters as _parameters
}

test_table_of_always_on_unless_stopped_manually[note] if {
	some note, cell in _cells("AlwaysOnUnlessStoppedManually")
	_verdict == cell.verdict with input as _input(cell.key, cell.vm) with data.parameters as _parameters
}

test_table_of_manual[note] if {
	some note, cell in _cells("Manual")
	_verdict == cell.verdict with input as _input(cell.key, cell.vm) with data.parameters as _parameters
}

test_table_of_always_off[note] if {
	some note, cell in _cells("AlwaysOff")
	_verdict == cell.verdict with input as _input(cell.key, cell.vm) with data.parameters as _parameters
}

test_allow_pending_where_no_phase_was_observed[note] if {
	some note, vm in {
		"no status": object.remove(_vm("Manual", ""), ["status"]),
		"no phase": object.union(object.remove(_vm("Manual", ""), ["status"]), {"status": {}}),
		"phase empty": _vm("Manual", ""),
	}
	_verdict == "allow" with input as _input("Stop", vm) with data.parameters as _parameters
	_verdict == "PhaseForbids" with input as _input("Migrate", vm) with data.parameters as _parameters
}

_terminating(vm) := object.union(vm, {"metadata": {"deletionTimestamp": "2026-11-20T10:31:57Z"}})

_deleted := {
	"reason": "VirtualMachineTerminating",
	"code": 409,
	"message": "VirtualMachine web-1: stop is not allowed",
	"cause": "it is being deleted (since 2026-11-20T10:31:57Z)",
	"remedy": "no operation is allowed; to see what the deletion waits for: kubectl sallyport why svm web-1 -n team-a",
	"details": {"kind": "VirtualMachine", "name": "web-1"},
}

test_deny[note] if {
	some note, tc in {
		"a machine that does not exist": {"new": "Start", "vm": null, "denial": {
			"reason": "VirtualMachineNotFound",
			"code": 422,
			"message": "spec.virtualMachineName: VirtualMachine web-1 does not exist in namespace team-a",
			"remedy": "list VirtualMachines with: kubectl get svm -n team-a",
			"details": {"kind": "VirtualMachine", "name": "web-1", "field": "spec.virtualMachineName"},
		}},
		"a machine that is being deleted": {"new": "Stop", "vm": _terminating(_vm("Manual", "Running")), "denial": _deleted},
		"a machine that is being deleted, whatever its phase": {
			"new": "Stop",
			"vm": _terminating(_vm("Manual", "Terminating")),
			"denial": _deleted,
		},
		"a machine that is being deleted, whatever its run policy": {
			"new": "Stop",
			"vm": _terminating(_vm("AlwaysOff", "Running")),
			"denial": _deleted,
		},
		"a run policy that keeps the machine on": {"new": "Stop", "vm": _vm("AlwaysOn", "Starting"), "denial": {
			"reason": "RunPolicyForbids",
			"message": "VirtualMachine web-1: stop is not allowed",
			"cause": "its run policy is AlwaysOn",
			"remedy": concat("", ["allowed in phase Starting: restart, restart --force", _told_to_manual]),
			"details": {"kind": "VirtualMachine", "name": "web-1"},
		}},
		"a run policy and a phase with nothing in common": {"new": "Start", "vm": _vm("AlwaysOn", "Failed"), "denial": {
			"reason": "RunPolicyForbids",
			"message": "VirtualMachine web-1: start is not allowed",
			"cause": "its run policy is AlwaysOn",
			"remedy": concat("", ["no operation is allowed in phase Failed", _told_to_manual]),
			"details": {"kind": "VirtualMachine", "name": "web-1"},
		}},
		"a run policy that allows nothing": {"new": "Stop force", "vm": _vm("AlwaysOff", "Running"), "denial": {
			"reason": "RunPolicyForbids",
			"message": "VirtualMachine web-1: stop --force is not allowed",
			"cause": "its run policy is AlwaysOff",
			"remedy": concat("", ["no operation is allowed under this run policy", _told_to_manual]),
			"details": {"kind": "VirtualMachine", "name": "web-1"},
		}},
		"a machine that is only observed": {"new": "Stop", "vm": _vm("Observe", "Running"), "denial": {
			"reason": "MachineObserved",
			"message": "VirtualMachine web-1: stop is not allowed",
			"cause": "its run policy is Observe, so Sallyport changes nothing on its runtime",
			"remedy": replace(_told_to_manual, "; to allow every operation:", "to have Sallyport manage the machine:"),
			"details": {"kind": "VirtualMachine", "name": "web-1"},
		}},
		"a phase in which the operation means nothing": {"new": "Evict", "vm": _vm("Manual", "Stopped"), "denial": {
			"reason": "PhaseForbids",
			"code": 409,
			"message": "VirtualMachine web-1: evict is not allowed",
			"cause": "its phase is Stopped",
			"remedy": "allowed in phase Stopped: start, stop, stop --force, restart --force",
			"details": {"kind": "VirtualMachine", "name": "web-1"},
		}},
		"a guest that hears nothing (machine-controller#299)": {"new": "Stop", "vm": _vm("Manual", "Paused"), "denial": {
			"reason": "PhaseForbids",
			"code": 409,
			"message": "VirtualMachine web-1: stop is not allowed",
			"cause": "its phase is Paused",
			"remedy": "allowed in phase Paused: start, stop --force, restart --force",
			"details": {"kind": "VirtualMachine", "name": "web-1"},
		}},
		"a machine that is lost": {"new": "Start", "vm": _vm("Manual", "Failed"), "denial": {
			"reason": "InstanceLost",
			"code": 409,
			"message": "VirtualMachine web-1: start is not allowed",
			"cause": "its machine does not exist on the runtime any more (phase Failed)",
			"remedy": concat("", [
				"allowed in phase Failed: stop, stop --force; ",
				"restore the machine on the runtime, or delete the VirtualMachine and create it again",
			]),
			"details": {"kind": "VirtualMachine", "name": "web-1"},
		}},
		"a machine that is a template now": {"new": "Stop", "vm": _made_unusable("InstanceUnusable"), "denial": {
			"reason": "InstanceUnusable",
			"code": 409,
			"message": "VirtualMachine web-1: stop is not allowed",
			"cause": "the machine is marked as a template: convert it",
			"remedy": "undo that, and then request the operation again",
			"details": {"kind": "VirtualMachine", "name": "web-1"},
		}},
		"a machine that is not ready for another reason": {"new": "Start", "vm": _made_unusable("InstanceLost"), "denial": {
			"reason": "InstanceLost",
			"code": 409,
			"message": "VirtualMachine web-1: start is not allowed",
			"cause": "its machine does not exist on the runtime any more (phase Failed)",
			"remedy": concat("", [
				"allowed in phase Failed: stop, stop --force; ",
				"restore the machine on the runtime, or delete the VirtualMachine and create it again",
			]),
			"details": {"kind": "VirtualMachine", "name": "web-1"},
		}},
		"a phase in which nothing is possible": {"new": "Stop", "vm": _vm("Manual", "Provisioning"), "denial": {
			"reason": "PhaseForbids",
			"code": 409,
			"message": "VirtualMachine web-1: stop is not allowed",
			"cause": "its phase is Provisioning",
			"remedy": "no operation is allowed in phase Provisioning",
			"details": {"kind": "VirtualMachine", "name": "web-1"},
		}},
	}
	policy.valid_input with input as _input(tc.new, tc.vm) with data.parameters as _parameters
	policy.deny == {tc.denial} with input as _input(tc.new, tc.vm) with data.parameters as _parameters
}

test_a_run_policy_with_one_operation_that_the_phase_forbids if {
	some denial in policy.deny with input as _input("Start", _vm("AlwaysOn", "Stopped"))
		with data.parameters as object.union(_parameters, {"runPolicies": {"AlwaysOn": ["Migrate"]}})
	denial.remedy == concat("", ["no operation is allowed in phase Stopped", _told_to_manual])
}

_wrong := {"null": null, "empty": "", "a number": 0, "a list": [], "an object": {}, "true": true, "unknown": "Bogus"}

_request := {"namespace": "team-a", "object": {"metadata": {"name": "new"}, "spec": _spec("Stop")}}

test_not_understood_request[field] if {
	some field in ["object", "object/spec", "object/spec/type", "object/spec/virtualMachineName"]
	_verdict == "not understood" with data.parameters as _parameters
		with input as {"request": json.remove(_request, [field]), "facts": {"vm": _vm("Manual", "Running")}}
}

_running := _vm("Manual", "Running")

# Stop would be allowed, so that only the broken field matters.
test_not_understood_machine[note] if {
	some note, vm in object.union_n([
		{$"{field} missing": json.remove(_running, [field]) | some field in ["metadata", "spec"]},
		{
			"an unknown run policy": object.union(_running, {"spec": {"runPolicy": "Bogus"}}),
			"an unknown phase": object.union(_running, {"status": {"phase": "Bogus"}}),
			"another name": object.union(_running, {"metadata": {"name": "web-2"}}),
		},
	])
	_verdict == "not understood" with input as _input("Stop", vm) with data.parameters as _parameters
}

test_without_a_run_policy_as_under_manual if {
	_verdict == "allow" with input as _input("Stop", json.remove(_running, ["spec/runPolicy"])) with data.parameters as _parameters
}

test_an_override_that_the_run_policy_undoes[note] if {
	some note, tc in {
		"a stop under AlwaysOn": {"new": "Stop", "policy": "AlwaysOn", "override": "operations-applicability; uid=", "warns": true},
		"a start under AlwaysOff": {"new": "Start", "policy": "AlwaysOff", "override": "operations-applicability; uid=", "warns": true},
		"of another policy": {"new": "Stop", "policy": "AlwaysOn", "override": "operations-supersede; uid=", "warns": false},
		"without an override": {"new": "Stop", "policy": "AlwaysOn", "override": "", "warns": false},
		"of what is allowed": {"new": "Restart", "policy": "AlwaysOn", "override": "operations-applicability; uid=", "warns": false},
	}
	asked := object.union(_input(tc.new, _vm(tc.policy, "Running")), {"request": {"object": {"spec": {"override": tc.override}}}})
	warned := policy.warn with input as asked with data.parameters as _parameters
	warned == {warning |
		tc.warns
		warning := $"run policy {tc.policy} will undo this: to keep it, {trim_prefix(_told_to_manual, "; to allow every operation: ")}"
	}
}

test_not_understood_without_facts if {
	_verdict == "not understood" with data.parameters as _parameters with input as {"request": _request, "facts": {}}
}

test_not_understood_parameters[note] if {
	some note, parameters in object.union_n([
		{$"no {table}": object.remove(_parameters, [table]) | some table, _ in _parameters},
		{$"{table} {what}": object.union(_parameters, {table: value}) |
			some table, _ in _parameters
			some what, value in _wrong
			what != "an object"
		},
		{$"row of {table} {what}": object.union(_parameters, {table: {row: value}}) |
			some table, row in {"runPolicies": "AlwaysOff", "phases": "Failed"}
			some what, value in _wrong
			what != "a list"
		},
		{$"entry of {table} {what}": object.union(_parameters, {table: {row: ["Stop", value]}}) |
			some table, row in {"runPolicies": "AlwaysOff", "phases": "Failed"}
			some what, value in _wrong
		},
		{
			"no row of the machine's run policy": json.remove(_parameters, ["runPolicies/Manual"]),
			"no row of the machine's phase": json.remove(_parameters, ["phases/Running"]),
		},
	])
	_verdict == "not understood" with input as _input("Stop", _running) with data.parameters as parameters
}

test_not_understood_without_parameters if _verdict == "not understood" with input as _input("Stop", _running)

test_allow_a_good_input if {
	_verdict == "allow" with input as _input("Stop", _running) with data.parameters as _parameters
}

test_facts if {
	policy.facts == {"vm": {
		"apiVersion": "sallyport.dev/v1alpha1",
		"kind": "VirtualMachine",
		"namespace": "team-a",
		"name": "web-1",
	}} with input as {"request": _request}
}

# The engine treats an undefined fact as an input that is not understood.
test_facts_are_undefined_without_a_name if {
	not policy.facts.vm with input as {"request": json.remove(_request, ["object/spec/virtualMachineName"])}
}

_told_to_manual := `; to allow every operation: kubectl patch svm web-1 -n team-a --type=merge -p '{"spec":{"runPolicy":"Manual"}}'`
