package sallyport.lib.operations_test

import data.sallyport.lib.operations

test_key_name_and_command[note] if {
	some note, tc in {
		"no force": {"spec": {"type": "Stop"}, "key": "Stop", "name": "Stop", "command": "stop"},
		"force false": {"spec": {"type": "Stop", "force": false}, "key": "Stop", "name": "Stop", "command": "stop"},
		"force true": {"spec": {"type": "Stop", "force": true}, "key": "Stop force", "name": "forced Stop", "command": "stop --force"},
		"forced eviction": {"spec": {"type": "Evict", "force": true}, "key": "Evict force", "name": "forced Evict", "command": "evict --force"},
	}
	operations.key(tc.spec) == tc.key
	operations.name(tc.spec) == tc.name
	operations.command(tc.spec) == tc.command
}

test_every_key_has_a_name_a_command_and_a_type if {
	object.keys(operations.names) == {key | some key in operations.keys}
	object.keys(operations.commands) == {key | some key in operations.keys}
	{split(key, " ")[0] | some key in operations.keys} == operations.types
}

test_known[note] if {
	some note, key in {key: key | some key in operations.keys}
	[type, force] := [split(key, " ")[0], endswith(key, " force")]
	operations.known({"virtualMachineName": "web-1", "type": type, "force": force})
}

test_known_without_force if operations.known({"virtualMachineName": "web-1", "type": "Start"})

test_not_known[note] if {
	some note, spec in {
		"spec null": null,
		"spec a string": "Stop",
		"spec a list": ["Stop"],
		"spec empty": {},
		"type missing": {"virtualMachineName": "web-1"},
		"type null": {"virtualMachineName": "web-1", "type": null},
		"type empty": {"virtualMachineName": "web-1", "type": ""},
		"type a number": {"virtualMachineName": "web-1", "type": 0},
		"type a list": {"virtualMachineName": "web-1", "type": []},
		"type an object": {"virtualMachineName": "web-1", "type": {}},
		"type unknown": {"virtualMachineName": "web-1", "type": "Bogus"},
		"type spelled as a key": {"virtualMachineName": "web-1", "type": "Stop force"},
		"a forced Start": {"virtualMachineName": "web-1", "type": "Start", "force": true},
		"name missing": {"type": "Stop"},
		"name empty": {"virtualMachineName": "", "type": "Stop"},
	}
	not operations.known(spec)
}

test_known_table if operations.known_table({"Running": ["Stop", "Stop force"], "Failed": []})

test_not_known_table[note] if {
	some note, table in {
		"null": null,
		"a list": [],
		"a list of rows": [["Stop"]],
		"a string": "Stop",
		"without rows": {},
		"row null": {"Running": null},
		"row a string": {"Running": "Stop"},
		"row an object": {"Running": {"Stop": "Stop"}},
		"row an empty object": {"Running": {}},
		"entry misspelled": {"Running": ["Stop", "Stop forced"]},
		"entry null": {"Running": [null]},
		"entry a number": {"Running": [0]},
		"one bad row among good ones": {"Running": ["Stop"], "Failed": ["Bogus"]},
	}
	not operations.known_table(table)
}

_steps := {"Hibernate": false, "Wake": false, "Release": true, "Restore": true, "Discard": false}

test_travels[step] if {
	some step, is in _steps
	{true | operations.travels({"step": step})} == {true | is}
	operations.known_migration({"step": step, "to": {"nodeName": "node-2"}})
	operations.known_migration({"step": step})
}

test_no_migration if {
	not operations.travels(null)
	operations.known_migration(null)
}

test_not_known_migration[note] if {
	some note, migration in {
		"a string": "Release",
		"no step": {"to": {"nodeName": "node-2"}},
		"step misspelled": {"step": "Released"},
	}
	not operations.known_migration(migration)
}
