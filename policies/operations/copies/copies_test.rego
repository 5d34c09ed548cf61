package sallyport.operations.copies_test

import data.sallyport.operations.copies

_create(spec) := {"request": {"operation": "CREATE", "namespace": "team-a", "object": {"metadata": {"name": "stop-1"}, "spec": spec}}}

_by := {"username": "bob"}

test_new[note] if {
	some note, spec in {
		"with a time": {"virtualMachineName": "web-1", "requestedBy": _by, "requestedAt": "2026-11-20T10:31:57.123456789Z"},
		"not seen by the policy defaults": {"virtualMachineName": "web-1"},
	}
	copies.valid_input with input as _create(spec)
	count(copies.deny) == 0 with input as _create(spec)
}

# The policy defaults left the time out, because the client set a field.
test_copied[note] if {
	some note, tc in {
		"of a machine": {"spec": {"virtualMachineName": "web-1", "requestedBy": _by}, "command": "kubectl sallyport stop web-1 -n team-a"},
		"an empty time": {"spec": {"virtualMachineName": "web-1", "requestedBy": _by, "requestedAt": ""}, "command": "stop web-1 -n team-a"},
		"of no machine": {"spec": {"requestedBy": _by}, "command": "stop VM -n team-a"},
	}
	world := _create(tc.spec)
	copies.valid_input with input as world
	[denial.reason | some denial in copies.deny] == ["OperationCopied"] with input as world
	[endswith(denial.remedy, tc.command) | some denial in copies.deny] == [true] with input as world
}

test_not_understood if {
	not copies.valid_input with input as {"request": {"object": {}}}
}
