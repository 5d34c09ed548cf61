package sallyport.machines.running_test

import data.sallyport.lib.override
import data.sallyport.machines.running as policy

_request(runtime, phase) := {
	"operation": "DELETE", "name": "web-1", "namespace": "team-a",
	"userInfo": {"username": "alice", "groups": ["dev"]},
	"resource": {"group": "sallyport.dev", "version": "v1alpha1", "resource": "virtualmachines"}, "object": null,
	"oldObject": {"metadata": {"name": "web-1", "uid": "u-1"}, "spec": {"runtime": runtime}, "status": {"phase": phase}},
}

_clone := {"vsphere": {"clone": {}}}

_nobody := {"exempt": {"users": [], "groups": []}}

# The verdict about a request. An invalid input is never allowed.
_verdict := "not understood" if not policy.valid_input

_verdict := concat(", ", [denial.reason | some denial in policy.deny]) if {
	policy.valid_input
	count(policy.deny) > 0
}

_verdict := "allow" if {
	policy.valid_input
	count(policy.deny) == 0
}

test_denial if {
	request := _request(_clone, "Running")
	policy.deny == {{
		"reason": "MachineRunning",
		"message": "VirtualMachine web-1: deletion is not allowed",
		"cause": "its machine is in phase Running and would be deleted with its disks",
		"remedy": concat("", [
			"stop it first: kubectl sallyport stop web-1 -n team-a; to override this policy temporarily: ",
			override.command("machines-running", request, request.oldObject.metadata),
		]),
		"details": {"kind": "VirtualMachine", "name": "web-1"},
	}} with input.request as request with data.parameters as _nobody
}

test_phases[phase] if {
	some phase, verdict in {
		"Pending": "allow", "WaitingForImage": "allow", "Provisioning": "allow", "Stopped": "allow", "Starting": "MachineRunning",
		"Running": "MachineRunning", "Degraded": "MachineRunning", "Stopping": "MachineRunning", "Migrating": "MachineRunning",
		"Paused": "MachineRunning", "Failed": "allow", "Terminating": "allow",
	}
	_verdict == verdict with input.request as _request(_clone, phase) with data.parameters as _nobody
}

test_runtimes[note] if {
	some note, tc in {
		"a clone": {"runtime": _clone, "verdict": "MachineRunning"},
		"a pod": {"runtime": {"pod": {}}, "verdict": "MachineRunning"},
		"created on KubeVirt": {"runtime": {"kubevirt": {"create": {}}}, "verdict": "MachineRunning"},
		"adopted in a vCenter": {"runtime": {"vsphere": {"inventoryPath": "/DC0/vm/web-1"}}, "verdict": "allow"},
		"adopted on KubeVirt": {"runtime": {"kubevirt": {"name": "web-1"}}, "verdict": "allow"},
	}
	_verdict == tc.verdict with input.request as _request(tc.runtime, "Running") with data.parameters as _nobody
}

test_allow[note] if {
	running := _request(_clone, "Running")
	some note, tc in {
		"not reconciled yet": {"request": json.remove(running, ["oldObject/status"]), "exempt": _nobody.exempt},
		"being deleted": {
			"request": object.union(running, {"oldObject": {"metadata": {"deletionTimestamp": "2026-11-20T10:31:57Z"}}}),
			"exempt": _nobody.exempt,
		},
		"an exempt user": {"request": running, "exempt": {"users": ["alice"], "groups": []}},
		"an exempt group": {"request": running, "exempt": {"users": [], "groups": ["dev"]}},
	}
	_verdict == "allow" with input.request as tc.request with data.parameters.exempt as tc.exempt
}

test_not_understood[note] if {
	some note, request in {
		"another operation": object.union(_request(_clone, "Running"), {"operation": "UPDATE"}),
		"no name": object.union(_request(_clone, "Running"), {"oldObject": {"metadata": {"name": ""}}}),
		"no runtime": json.remove(_request(_clone, "Running"), ["oldObject/spec/runtime"]),
		"a phase that is no text": _request(_clone, 1),
	}
	_verdict == "not understood" with input.request as request with data.parameters as _nobody
}
