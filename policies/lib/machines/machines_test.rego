package sallyport.lib.machines_test

import data.sallyport.lib.machines

_machine := {"spec": {"cpu": 2}}

_pool := {"spec": {"replicas": 3, "virtualMachineTemplate": {"spec": {"cpu": 2}}}}

_request(resource, operation, of) := {
	"operation": operation, "resource": {"group": "sallyport.dev", "resource": resource},
	"object": of, "oldObject": of,
}

test_a_machine if {
	request := _request("virtualmachines", "UPDATE", _machine)
	machines.spec(request, "object") == {"cpu": 2}
	machines.spec(request, "oldObject") == {"cpu": 2}
	machines.field(request, "runtime") == "spec.runtime"
	not machines.of_pool(request)
	not machines.makes(request)
	machines.makes(_request("virtualmachines", "CREATE", _machine))
}

test_a_pool if {
	request := _request("virtualmachinepools", "UPDATE", _pool)
	machines.spec(request, "object") == {"cpu": 2}
	machines.spec(request, "oldObject") == {"cpu": 2}
	machines.field(request, "runtime") == "spec.virtualMachineTemplate.spec.runtime"
	machines.of_pool(request)
	machines.makes(request)
	machines.makes(_request("virtualmachinepools", "CREATE", _pool))
}

# There is no spec without an object.
test_nothing if {
	not machines.spec(_request("virtualmachines", "CREATE", _machine), "other")
	not machines.spec(_request("virtualmachinepools", "CREATE", _machine), "object")
	not machines.spec({"object": {}}, "object")
}

test_adopted[note] if {
	some note, tc in {
		"a path in a vCenter": {"runtime": {"vsphere": {"inventoryPath": "/DC0/vm/web-1"}}, "adopted": true},
		"a name on KubeVirt": {"runtime": {"kubevirt": {"name": "web-1"}}, "adopted": true},
		"a creation that is null": {"runtime": {"vsphere": {"clone": null}}, "adopted": true},
		"a clone": {"runtime": {"vsphere": {"clone": {}}}, "adopted": false},
		"created on KubeVirt": {"runtime": {"kubevirt": {"create": {}}}, "adopted": false},
		"a pod": {"runtime": {"pod": {}}, "adopted": false},
		"another shape": {"runtime": {"vsphere": "x"}, "adopted": false},
		"no object": {"runtime": "x", "adopted": false},
		"nothing": {"runtime": null, "adopted": false},
	}
	adopted := {true | machines.adopted(tc.runtime)}
	adopted == {true | tc.adopted}
}
