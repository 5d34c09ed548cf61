package sallyport.operations.supersede_test

import data.sallyport.operations.supersede as policy

# The text of a denial, as the user sees it.
_text(denial) := concat("", [concat("", [mark, denial[key]]) | some [key, mark] in [["message", ""], ["cause", " because "], ["remedy", "; "]]])

# The documented table, row by row: which new operations can supersede the unfinished one. "y" is yes.
_columns := [
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

_matrix := {
	"Start": "- y y - - - - - -",
	"Stop": "- - y - y - - - -",
	"Stop force": "- - - - - - - - -",
	"Restart": "- - y - y - - - -",
	"Restart force": "- - - - - - - - -",
	"Migrate": "- y y y y - - - -",
	"Migrate force": "- y y y y - - - -",
	"Evict": "- y y y y - - - -",
	"Evict force": "- y y y y - - - -",
}

_parameters := {"supersededBy": {
	"Start": ["Stop", "Stop force"],
	"Stop": ["Stop force", "Restart force"],
	"Stop force": [],
	"Restart": ["Stop force", "Restart force"],
	"Restart force": [],
	"Migrate": ["Stop", "Stop force", "Restart", "Restart force"],
	"Migrate force": ["Stop", "Stop force", "Restart", "Restart force"],
	"Evict": ["Stop", "Stop force", "Restart", "Restart force"],
	"Evict force": ["Stop", "Stop force", "Restart", "Restart force"],
}}

_spec(key) := {"virtualMachineName": "web-1", "type": split(key, " ")[0], "force": endswith(key, " force")}

# An operation on web-1, named after what it does: "stop-force-1", UID "uid-stop-force-1".
_operation(key) := {
	"metadata": {"name": _name(key), "uid": $"uid-{_name(key)}"},
	"spec": _spec(key),
	"status": {"phase": "InProgress"},
}

_name(key) := $"{lower(replace(key, " ", "-"))}-1"

_input(key, running, vm) := {
	"request": {"namespace": "team-a", "object": {"metadata": {"name": "new"}, "spec": _spec(key)}},
	"facts": {"unfinished": running, "vm": vm},
}

_vm(status) := {"metadata": {"name": "web-1", "uid": "uid-web-1"}, "status": status}

# The verdict on a request. An input that is not understood is never an allow.
_verdict := "not understood" if not policy.valid_input

_verdict := "deny" if {
	policy.valid_input
	count(policy.deny) > 0
}

_verdict := "allow" if {
	policy.valid_input
	count(policy.deny) == 0
}

_messages := {_text(denial) | some denial in policy.deny}

_cells[note] := cell if {
	some running, row in _matrix
	some i, mark in split(row, " ")
	note := $"{_columns[i]} supersedes {running}: {mark}"
	cell := {"running": running, "new": _columns[i], "superseded": mark == "y"}
}

test_the_matrix_has_81_cells if count(_cells) == 81

test_matrix[note] if {
	some note, cell in _cells
	running := _operation(cell.running)
	superseded := {name | some name in [running.metadata.name]; cell.superseded}
	policy.valid_input with input as _input(cell.new, [running], null) with data.parameters as _parameters
	policy.outcome.supersedes == superseded with input as _input(cell.new, [running], null)
		with data.parameters as _parameters
	denials := policy.deny with input as _input(cell.new, [running], null) with data.parameters as _parameters
	{denial.details.name | some denial in denials} == {running.metadata.name} - superseded
}

test_allow[note] if {
	some note, tc in {
		"an idle machine": {"new": "Start", "running": [], "vm": _vm({"phase": "Stopped"}), "takes": set()},
		"a machine without status": {"new": "Start", "running": [], "vm": {"metadata": {"name": "web-1"}}, "takes": set()},
		"a machine that does not exist, which another policy refuses": {
			"new": "Start",
			"running": [],
			"vm": null,
			"takes": set(),
		},
		"all that runs yields": {
			"new": "Stop force",
			"running": [_operation("Start"), _operation("Stop"), _operation("Migrate force")],
			"vm": null,
			"takes": {"start-1", "stop-1", "migrate-force-1"},
		},
		"what runs is being undone": {
			"new": "Start",
			"running": [_operation("Stop force")],
			"vm": _vm({"undoing": [{"id": "uid-stop-force-1", "origin": "Operation", "name": "stop-force-1"}]}),
			"takes": set(),
		},
		"what is being undone counts by its UID, whatever its name": {
			"new": "Start",
			"running": [_operation("Stop force")],
			"vm": _vm({"undoing": [{"id": "uid-stop-force-1", "origin": "Operation", "name": "another"}]}),
			"takes": set(),
		},
		"only what is not being undone is superseded": {
			"new": "Stop",
			"running": [_operation("Start"), _operation("Restart force")],
			"vm": _vm({"undoing": [{"id": "uid-restart-force-1", "origin": "Operation"}]}),
			"takes": {"start-1"},
		},
		"a claim of an operation that is finished or gone is free": {
			"new": "Start",
			"running": [],
			"vm": _vm({"activeOperation": {"id": "uid-gone", "origin": "Operation", "name": "gone", "type": "Stop"}}),
			"takes": set(),
		},
	}
	policy.valid_input with input as _input(tc.new, tc.running, tc.vm) with data.parameters as _parameters
	policy.deny == set() with input as _input(tc.new, tc.running, tc.vm) with data.parameters as _parameters
	policy.outcome == {"supersedes": tc.takes, "supersedes_origins": set()} with data.parameters as _parameters
		with input as _input(tc.new, tc.running, tc.vm)
}

# A claim of another origin counts as its type without force, whatever its field force.
_held(origin, type) := _vm({"activeOperation": {"id": "an-id", "origin": origin, "type": type, "force": true}})

test_allow_taking_over_a_claim[note] if {
	some note, tc in {
		"of the run policy that starts": {"new": "Stop", "vm": _held("RunPolicy", "Start")},
		"of the run policy that stops": {"new": "Stop force", "vm": _held("RunPolicy", "Stop")},
		"of placement": {"new": "Restart", "vm": _held("Placement", "Migrate")},
		"of a rollout": {"new": "Restart force", "vm": _held("Rollout", "Restart")},
	}
	policy.valid_input with input as _input(tc.new, [], tc.vm) with data.parameters as _parameters
	policy.deny == set() with input as _input(tc.new, [], tc.vm) with data.parameters as _parameters
	policy.outcome.supersedes_origins == {tc.vm.status.activeOperation.origin} with input as _input(tc.new, [], tc.vm)
		with data.parameters as _parameters
}

test_deny_under_a_claim[note] if {
	some note, tc in {
		"of the run policy": {
			"new": "Start",
			"vm": _held("RunPolicy", "Stop"),
			"message": "VirtualMachine web-1: start is not allowed",
			"cause": "Stop by the run policy is in progress",
			"remedy": "allowed now: stop --force, restart --force",
		},
		"of placement": {
			"new": "Evict",
			"vm": _held("Placement", "Migrate"),
			"message": "VirtualMachine web-1: evict is not allowed",
			"cause": "Migrate by placement is in progress",
			"remedy": "allowed now: stop, stop --force, restart, restart --force",
		},
		"of a rollout": {
			"new": "Restart",
			"vm": _held("Rollout", "Restart"),
			"message": "VirtualMachine web-1: restart is not allowed",
			"cause": "Restart by a rollout is in progress",
			"remedy": "allowed now: stop --force, restart --force",
		},
		"of the deletion, which cannot be superseded": {
			"new": "Stop force",
			"vm": _held("Deletion", "Delete"),
			"message": "VirtualMachine web-1: stop --force is not allowed",
			"cause": "its deletion is in progress",
			"remedy": "no operation is allowed until it ends",
		},
	}
	policy.valid_input with input as _input(tc.new, [], tc.vm) with data.parameters as _parameters
	denials := policy.deny with input as _input(tc.new, [], tc.vm) with data.parameters as _parameters
	denials == {{
		"reason": "OperationInProgress",
		"code": 409,
		"message": tc.message,
		"cause": tc.cause,
		"remedy": tc.remedy,
		"details": {"kind": "VirtualMachine", "name": "web-1"},
	}}
	policy.outcome.supersedes_origins == set() with input as _input(tc.new, [], tc.vm)
		with data.parameters as _parameters
}

_travelling(step, status) := _vm(object.union(status, {"migration": {"step": step, "to": {"nodeName": "node-2"}}}))

_mover := {"activeOperation": {"id": "uid-migrate-1", "origin": "Operation", "name": "migrate-1", "type": "Migrate"}}

_holders := {
	"an operation": {"running": [_operation("Migrate")], "status": _mover},
	"an operation that is gone": {"running": [], "status": _mover},
	"placement": {"running": [], "status": _held("Placement", "Migrate").status},
	"nobody": {"running": [], "status": {"phase": "Migrating"}},
	"an operation that waits for the end of the move": {
		"running": [_operation("Stop")],
		"status": {
			"activeOperation": {"id": "uid-stop-1", "origin": "Operation", "name": "stop-1", "type": "Stop"},
			"undoing": [{"id": "uid-migrate-1", "origin": "Operation"}],
		},
	},
}

# While the machine may exist only as a snapshot, no operation can supersede the move, and there is one denial.
test_deny_between_nodes[note] if {
	some what, tc in _holders
	some step in ["Release", "Restore"]
	some new in _columns
	note := $"{new} over {what} in {step}"
	vm := _travelling(step, tc.status)
	policy.valid_input with input as _input(new, tc.running, vm) with data.parameters as _parameters
	denials := policy.deny with input as _input(new, tc.running, vm) with data.parameters as _parameters
	[[denial.reason, denial.code, denial.details] | some denial in denials] == [[
		"OperationInProgress", 409,
		{"kind": "VirtualMachine", "name": "web-1"},
	]]
	policy.outcome == {"supersedes": set(), "supersedes_origins": set()} with data.parameters as _parameters
		with input as _input(new, tc.running, vm)
}

test_deny_between_nodes_says_where_it_goes[note] if {
	some note, tc in {
		"a node": {"to": {"nodeName": "node-2"}, "called": "node node-2"},
		"any node with labels": {"to": {"nodeSelector": {"a": "b"}}, "called": "another node"},
		"any node": {"to": {}, "called": "another node"},
	}
	vm := _vm(object.union(_mover, {"migration": {"step": "Restore", "to": tc.to}}))
	_messages == {concat("", [
		$"VirtualMachine web-1: stop --force is not allowed because the machine is moving to {tc.called} as a snapshot; ",
		"no operation is allowed until it arrives; ",
		"to wait: kubectl wait svm web-1 -n team-a --for=condition=PlacementSettled --timeout=10m",
	])} with input as _input("Stop force", [_operation("Migrate")], vm) with data.parameters as _parameters
}

# Before the machine leaves and after it arrives, the table decides.
test_matrix_of_a_move[note] if {
	some step in ["Hibernate", "Wake", "Discard"]
	some new in _columns
	note := $"{new} in {step}"
	_verdict == "allow" with input as _input(new, [_operation("Migrate")], _travelling(step, _mover))
		with data.parameters as {"supersededBy": object.union(_parameters.supersededBy, {"Migrate": _columns})}
	_verdict == "deny" with input as _input(new, [_operation("Migrate")], _travelling(step, _mover))
		with data.parameters as {"supersededBy": object.union(_parameters.supersededBy, {"Migrate": []})}
}

# The snapshot is lost too: every operation on a lost machine is possible.
test_allow_where_the_machine_is_lost if {
	_verdict == "allow" with input as _input("Stop", [], _travelling("Restore", {"phase": "Failed"})) with data.parameters as _parameters
}

# A new operation waits for the rollback of a move, and is not denied.
test_allow_while_a_move_is_undone if {
	vm := _travelling("Restore", {"phase": "Migrating", "undoing": [{"id": "uid-migrate-1", "origin": "Operation"}]})
	policy.valid_input with input as _input("Stop", [_operation("Migrate")], vm) with data.parameters as _parameters
	policy.deny == set() with input as _input("Stop", [_operation("Migrate")], vm) with data.parameters as _parameters
	policy.outcome.supersedes == set() with input as _input("Stop", [_operation("Migrate")], vm) with data.parameters as _parameters
}

test_deny_deletion_of_what_was_between_nodes if {
	vm := _travelling("Release", _held("Deletion", "Delete").status)
	some message in _messages with input as _input("Stop force", [], vm) with data.parameters as _parameters
	contains(message, "because its deletion is in progress")
}

test_deny_messages[note] if {
	some note, tc in {
		"name the operation, its phase and the ways out": {
			"new": "Start",
			"running": [_operation("Stop")],
			"messages": {concat("", [
				"VirtualMachine web-1: start is not allowed because Stop stop-1 is in progress; ",
				"allowed now: stop --force, restart --force",
			])},
		},
		"say when there is none": {
			"new": "Restart force",
			"running": [_operation("Stop force")],
			"messages": {concat("", [
				"VirtualMachine web-1: restart --force is not allowed because forced Stop stop-force-1 is in progress; ",
				"no operation is allowed until it ends",
			])},
		},
		"count a deleted operation until its end": {
			"new": "Start",
			"running": [object.union(_operation("Start"), {"status": {"phase": "Terminating"}})],
			"messages": {concat("", [
				"VirtualMachine web-1: start is not allowed because Start start-1 is terminating; ",
				"allowed now: stop, stop --force",
			])},
		},
		"call an operation that was not reconciled yet pending": {
			"new": "Start",
			"running": [json.remove(_operation("Start"), ["status"])],
			"messages": {concat("", [
				"VirtualMachine web-1: start is not allowed because Start start-1 is pending; ",
				"allowed now: stop, stop --force",
			])},
		},
		"name each that blocks, and only ways out that all of them leave": {
			"new": "Restart",
			"running": [_operation("Start"), _operation("Restart"), _operation("Evict")],
			"messages": {
				concat("", [
					"VirtualMachine web-1: restart is not allowed because Start start-1 is in progress; ",
					"allowed now: stop --force",
				]),
				concat("", [
					"VirtualMachine web-1: restart is not allowed because Restart restart-1 is in progress; ",
					"allowed now: stop --force",
				]),
			},
		},
	}
	_messages == tc.messages with input as _input(tc.new, tc.running, null) with data.parameters as _parameters
	policy.outcome.supersedes == set() with input as _input(tc.new, tc.running, null) with data.parameters as _parameters
}

test_deny_and_supersede_nothing_unless_all_yield if {
	running := [_operation("Start"), _operation("Stop force")]
	denials := policy.deny with input as _input("Stop", running, _held("Placement", "Migrate"))
		with data.parameters as _parameters
	denials == {{
		"reason": "OperationInProgress",
		"code": 409,
		"message": "VirtualMachine web-1: stop is not allowed",
		"cause": "forced Stop stop-force-1 is in progress",
		"remedy": "no operation is allowed until it ends",
		"details": {"kind": "VirtualMachineOperation", "name": "stop-force-1"},
	}}
	policy.outcome == {"supersedes": set(), "supersedes_origins": set()} with data.parameters as _parameters
		with input as _input("Stop", running, _held("Placement", "Migrate"))
}

test_deny_when_what_is_undone_is_another_operation[note] if {
	some note, tc in {
		"of the same name but another UID": {
			"running": _operation("Stop force"),
			"entry": {"id": "uid-of-yesterday", "origin": "Operation", "name": "stop-force-1"},
		},
	}
	_verdict == "deny" with input as _input("Start", [tc.running], _vm({"undoing": [tc.entry]}))
		with data.parameters as _parameters
}

# Each field that a rule reads, with each wrong type.
_wrong := {
	"null": null, "empty": "", "a number": 0, "a list": [], "an object": {}, "true": true, "unknown": "Bogus",
}

test_not_understood_request[note] if {
	some note, spec in object.union(
		{$"{field} missing": object.remove(_spec("Stop"), [field]) | some field in ["type", "virtualMachineName"]},
		{
			"no spec": {},
			"an unknown type": object.union(_spec("Stop"), {"type": "Bogus"}),
			"an empty name": object.union(_spec("Stop"), {"virtualMachineName": ""}),
		},
	)
	_verdict == "not understood" with data.parameters as _parameters
		with input as {"request": {"object": {"spec": spec}}, "facts": {"unfinished": [], "vm": null}}
}

# Stop can supersede Start, so that only the broken field matters.
test_not_understood_operation[note] if {
	some note, op in object.union_n([
		{$"{field} missing": json.remove(_operation("Start"), [field]) |
			some field in ["metadata", "metadata/name", "metadata/uid", "spec", "spec/type", "spec/virtualMachineName"]
		},
		{$"metadata.{field} empty": object.union(_operation("Start"), {"metadata": {field: ""}}) | some field in ["name", "uid"]},
		{
			"an unknown type": object.union(_operation("Start"), {"spec": {"type": "Bogus"}}),
			"an empty phase": object.union(_operation("Start"), {"status": {"phase": ""}}),
		},
	])
	_verdict == "not understood" with input as _input("Stop", [op], null) with data.parameters as _parameters
}

_claim(change) := {"activeOperation": object.union({"origin": "RunPolicy", "type": "Start"}, change)}

_undoing(change) := {"undoing": [object.union({"id": "an-id", "origin": "Operation"}, change)]}

test_not_understood_claim[note] if {
	some note, status in object.union(
		{$"undoing without {field}": {"undoing": [object.remove(_undoing({}).undoing[0], [field])]} | some field in ["id", "origin"]},
		{
			"undoing with an empty id": _undoing({"id": ""}),
			"undoing of an unknown origin": _undoing({"origin": "Bogus"}),
			"claim without origin": {"activeOperation": {"type": "Start"}},
			"claim without type": {"activeOperation": {"origin": "RunPolicy"}},
			"claim of an unknown origin": _claim({"origin": "Bogus"}),
			"claim of an unknown type": _claim({"type": "Bogus"}),
			"claim of the run policy that deletes": _claim({"type": "Delete"}),
			"claim of the deletion that stops": _claim({"origin": "Deletion", "type": "Stop"}),
			"migration without a step": {"migration": {}},
			"migration in an unknown step": {"migration": {"step": "Bogus"}},
		},
	)
	_verdict == "not understood" with input as _input("Stop", [], _vm(status)) with data.parameters as _parameters
}

test_not_understood_facts[note] if {
	some note, facts in {
		"no facts": {},
		"no list of operations": {"vm": null},
		"no machine, not even null": {"unfinished": []},
		"another machine": {"unfinished": [], "vm": object.union(_vm({}), {"metadata": {"name": "web-2"}})},
	}
	_verdict == "not understood" with data.parameters as _parameters
		with input as object.union(object.remove(_input("Stop", [], null), ["facts"]), {"facts": facts})
}

test_not_understood_parameters[note] if {
	some note, parameters in object.union_n([
		{"no table": {}},
		{$"table {what}": {"supersededBy": value} | some what, value in _wrong},
		{$"no row {row}": {"supersededBy": object.remove(_parameters.supersededBy, [row])} | some row, _ in _matrix},
		{$"row {what}": object.union(_parameters, {"supersededBy": {"Start": value}}) |
			some what, value in _wrong
			what != "a list"
		},
		{$"entry {what}": object.union(_parameters, {"supersededBy": {"Start": ["Stop", value]}}) | some what, value in _wrong},
		{
			"a row for Delete": object.union(_parameters, {"supersededBy": {"Delete": ["Stop"]}}),
			"a row misspelled": object.union(_parameters, {"supersededBy": {"Stop forced": []}}),
		},
	])
	_verdict == "not understood" with input as _input("Stop", [], null) with data.parameters as parameters
}

test_not_understood_without_parameters if _verdict == "not understood" with input as _input("Stop", [], null)

test_verdict_of_a_good_input if {
	_verdict == "allow" with input as _input("Stop", [_operation("Start")], null) with data.parameters as _parameters
}

test_facts if {
	policy.facts == {
		"unfinished": {
			"apiVersion": "sallyport.dev/v1alpha1",
			"kind": "VirtualMachineOperation",
			"namespace": "team-a",
			"fields": {"spec.virtualMachineName": "web-1"},
			"except": {"status.phase": ["Completed", "Failed"]},
		},
		"vm": {
			"apiVersion": "sallyport.dev/v1alpha1",
			"kind": "VirtualMachine",
			"namespace": "team-a",
			"name": "web-1",
		},
	} with input as {"request": {"namespace": "team-a", "object": {"spec": _spec("Stop")}}}
}

# The engine treats an undefined fact as an input that is not understood.
test_facts_are_undefined_without_a_name if {
	not policy.facts.unfinished with input as {"request": {"namespace": "team-a", "object": {"spec": {"type": "Stop"}}}}
	not policy.facts.vm with input as {"request": {"namespace": "team-a", "object": {"spec": {"type": "Stop"}}}}
}
