package sallyport.machines.access_test

import data.sallyport.machines.access as policy

_request(kubevirt) := {
	"operation": "CREATE", "namespace": "shop", "userInfo": {"username": "alice"},
	"resource": {"group": "sallyport.dev", "resource": "virtualmachines"},
	"object": _machine(kubevirt),
}

_machine(kubevirt) := {"metadata": {"name": "db"}, "spec": {"runtime": {"kubevirt": kubevirt}}}

_update(old, new) := object.union(_request(new), {"operation": "UPDATE", "oldObject": _machine(old)})

_as_pod(request) := object.union(json.remove(request, ["object/spec/runtime"]), {"object": {"spec": {"runtime": {"pod": {}}}}})

_created := {"create": {"disks": [{"name": "root", "persistentVolumeClaim": "root"}]}}

_access(more) := {"access": object.union({"group": "kubevirt.io", "resource": "virtualmachines", "namespace": "shop"}, more)}

_create := _access({"verb": "create"})

test_asks_for_the_right_of_the_requester[note] if {
	some note, tc in {
		"the machine of its own name": {"request": _request({}), "access": _access({"verb": "update", "name": "db"})},
		"another one": {"request": _request({"name": "postgres"}), "access": _access({"verb": "update", "name": "postgres"})},
		"one that is created": {"request": _request(_created), "access": _create},
		"changed": {"request": _update({"name": "a"}, {"name": "b"}), "access": _access({"verb": "update", "name": "b"})},
		"a name is removed": {"request": _update({"name": "a"}, {}), "access": _access({"verb": "update", "name": "db"})},
		"created later": {"request": _update({}, _created), "access": _create},
		"another runtime before": {
			"request": object.union(_request({}), {"operation": "UPDATE", "oldObject": {"spec": {"runtime": {"pod": {}}}}}),
			"access": _access({"verb": "update", "name": "db"}),
		},
		"a pool": {"request": _pool("CREATE", _created, {}), "access": _create},
		"the template of a pool changes": {"request": _pool("UPDATE", _created, {"create": {}}), "access": _create},
	}
	policy.facts == {"allowed": tc.access} with input.request as tc.request
	policy.valid_input with input as {"request": tc.request, "facts": {"allowed": true}}
	count(policy.deny) == 0 with input as {"request": tc.request, "facts": {"allowed": true}}
	count(policy.deny) == 1 with input as {"request": tc.request, "facts": {"allowed": false}}
	count(policy.deny) == 1 with input as {"request": tc.request, "facts": {"allowed": null}}
}

test_nothing_to_ask[note] if {
	some note, request in {
		"a Pod": _as_pod(_request({})),
		"unchanged": _update({"name": "a"}, {"name": "a"}),
		"unchanged, created": _update(_created, _created),
		"no longer one of KubeVirt": _as_pod(_update({}, {})),
		"an unchanged template": _pool("UPDATE", _created, _created),
	}
	policy.facts == {"allowed": null} with input.request as request
	policy.valid_input with input as {"request": request, "facts": {"allowed": null}}
	count(policy.deny) == 0 with input as {"request": request, "facts": {"allowed": null}}
}

test_adoption_is_denied if {
	policy.deny == {{
		"reason": "KubeVirtNotAllowed",
		"message": "spec.runtime.kubevirt: cannot adopt VirtualMachine postgres of KubeVirt",
		"cause": "alice may not update virtualmachines.kubevirt.io/postgres in namespace shop",
		"remedy": concat("", [
			"ask an administrator of the namespace for that right; to check: ",
			"kubectl auth can-i update virtualmachines.kubevirt.io/postgres -n shop",
		]),
		"details": {"group": "kubevirt.io", "kind": "VirtualMachine", "name": "postgres", "field": "spec.runtime.kubevirt"},
	}} with input as {"request": _request({"name": "postgres"}), "facts": {"allowed": false}}
}

test_creation_is_denied if {
	policy.deny == {{
		"reason": "KubeVirtNotAllowed",
		"message": "spec.virtualMachineTemplate.spec.runtime.kubevirt: cannot create a VirtualMachine of KubeVirt",
		"cause": "alice may not create virtualmachines.kubevirt.io in namespace shop",
		"remedy": concat("", [
			"ask an administrator of the namespace for that right; to check: ",
			"kubectl auth can-i create virtualmachines.kubevirt.io -n shop",
		]),
		"details": {"group": "kubevirt.io", "kind": "VirtualMachine", "field": "spec.virtualMachineTemplate.spec.runtime.kubevirt"},
	}} with input as {"request": _pool("CREATE", _created, {}), "facts": {"allowed": false}}
}

test_not_understood[note] if {
	some note, request in {
		"no name": json.remove(_request({}), ["object/metadata/name"]),
		"an empty name": _request({"name": ""}),
		"a name that is no text": _request({"name": 7}),
		"no runtime": json.remove(_request({}), ["object/spec/runtime"]),
		"no user": json.remove(_request({}), ["userInfo/username"]),
		"a pool that adopts": _pool("CREATE", {"name": "a"}, {}),
	}
	every allowed in [true, false, null] { not policy.valid_input with input as {"request": request, "facts": {"allowed": allowed}} }
}

# The template of a pool, with the permissions of the user who writes it.
_pool(operation, kubevirt, old) := {
	"operation": operation, "namespace": "shop", "userInfo": {"username": "alice"},
	"resource": {"group": "sallyport.dev", "resource": "virtualmachinepools"},
	"object": _template(kubevirt), "oldObject": _template(old),
}

_template(kubevirt) := {
	"metadata": {"name": "ci"},
	"spec": {"virtualMachineTemplate": {"spec": {"runtime": {"kubevirt": kubevirt}}}},
}
