package sallyport.machines.secrets_test

import data.sallyport.machines.secrets as policy

_request(clone) := {
	"operation": "CREATE", "namespace": "team-a", "userInfo": {"username": "alice"},
	"object": {"metadata": {"name": "web-1"}, "spec": {"runtime": {"vsphere": {"serverRef": {"name": "vc-1"}, "clone": clone}}}},
}

_named := _request({"folder": "/dc/vm/a", "cloudInit": {"secretRef": {"name": "web-cloud-init"}}})

_runtime(runtime) := object.union(json.remove(_named, ["object/spec/runtime"]), {"object": {"spec": {"runtime": runtime}}})

test_asks_for_the_right_of_the_requester if {
	policy.facts == {"readable": {"access": {
		"verb": "get", "group": "", "resource": "secrets", "namespace": "team-a", "name": "web-cloud-init",
	}}} with input.request as _named
}

test_allowed if {
	world := {"request": _named, "facts": {"readable": true}}
	policy.valid_input with input as world
	count(policy.deny) == 0 with input as world
}

test_denied if {
	world := {"request": _named, "facts": {"readable": false}}
	policy.valid_input with input as world
	policy.deny == {{
		"reason": "SecretNotAllowed",
		"message": "spec.runtime.vsphere.clone.cloudInit.secretRef.name: cannot use Secret web-cloud-init",
		"cause": "alice may not get it in namespace team-a",
		"remedy": "name a Secret that you may get; to check: kubectl auth can-i get secrets/NAME -n team-a",
		"details": {
			"kind": "Secret", "name": "web-cloud-init",
			"field": "spec.runtime.vsphere.clone.cloudInit.secretRef.name",
		},
	}} with input as world
}

test_kubevirt[note] if {
	named := _runtime({"kubevirt": {"create": {"cloudInit": {"secretRef": {"name": "web-cloud-init"}}}}})
	some note, denied in {"may": set(), "may not": {"spec.runtime.kubevirt.create.cloudInit.secretRef.name"}}
	policy.facts.readable.access.name == "web-cloud-init" with input.request as named
	world := {"request": named, "facts": {"readable": note == "may"}}
	policy.valid_input with input as world
	fields := {denial.details.field | some denial in policy.deny} with input as world
	fields == denied
}

# A machine that is a Pod may name another Secret later. An unchanged runtime is not evaluated again.
_snapshots(operation, name, old) := object.union(
	_runtime({"pod": {"snapshotSecretRef": {"name": name}}}),
	{"operation": operation, "oldObject": _runtime({"pod": old}).object},
)

test_snapshots[note] if {
	field := "spec.runtime.pod.snapshotSecretRef.name"
	some note, tc in {
		"created": {"request": _snapshots("CREATE", "registry", {}), "denied": [field]},
		"named later": {"request": _snapshots("UPDATE", "registry", {}), "denied": [field]},
		"another one": {"request": _snapshots("UPDATE", "registry", {"snapshotSecretRef": {"name": "mine"}}), "denied": [field]},
		"another image": {"request": _snapshots("UPDATE", "registry", {"image": "a", "snapshotSecretRef": {"name": "registry"}}), "denied": [field]},
		"unchanged": {"request": _snapshots("UPDATE", "registry", {"snapshotSecretRef": {"name": "registry"}}), "denied": []},
	}
	asked := {access.name | access := policy.facts.readable.access} with input.request as tc.request
	asked == {"registry" | count(tc.denied) > 0}
	readable := [false, null][1 - count(tc.denied)]
	policy.valid_input with input as {"request": tc.request, "facts": {"readable": readable}}
	fields := [denial.details.field | some denial in policy.deny] with input as {"request": tc.request, "facts": {"readable": readable}}
	fields == tc.denied
	count(policy.deny) == 0 with input as {"request": tc.request, "facts": {"readable": true}}
}

test_nothing_named[note] if {
	some note, request in {
		"no cloud-init": _request({"folder": "/dc/vm/a"}),
		"an adopted machine": _runtime({"vsphere": {"inventoryPath": "/dc/vm/a/b"}}),
		"a machine of KubeVirt": _runtime({"kubevirt": {"create": {"disks": []}}}),
		"an adopted machine of KubeVirt": _runtime({"kubevirt": {}}),
		"a Pod": _runtime({"pod": {"image": "a"}}),
	}
	policy.facts == {"readable": null} with input.request as request
	world := {"request": request, "facts": {"readable": null}}
	policy.valid_input with input as world
	count(policy.deny) == 0 with input as world
}

test_not_understood[note] if {
	some note, request in {
		"no name of a pull secret": _runtime({"pod": {"snapshotSecretRef": {}}}),
		"an empty name of a pull secret": _runtime({"pod": {"snapshotSecretRef": {"name": ""}}}),
		"cloud-init from nowhere": _request({"cloudInit": {}}),
		"no name for cloud-init": _request({"cloudInit": {"secretRef": {}}}),
		"an empty name for cloud-init": _request({"cloudInit": {"secretRef": {"name": ""}}}),
		"no name for cloud-init of KubeVirt": _runtime({"kubevirt": {"create": {"cloudInit": {"secretRef": {"name": ""}}}}}),
		"two runtimes": _runtime(object.union(_named.object.spec.runtime, {"pod": {"snapshotSecretRef": {"name": "registry"}}})),
		"no object": object.remove(_named, ["object"]),
	}
	not policy.valid_input with input as {"request": request, "facts": {"readable": true}}
}

# The same clone in the template of a pool, with the permissions of the user who writes it.
_pool(operation, object_, old) := {
	"operation": operation, "namespace": "team-a", "userInfo": {"username": "alice"},
	"resource": {"group": "sallyport.dev", "resource": "virtualmachinepools"}, "object": _template(object_), "oldObject": _template(old),
}

_template(null) := null

_template(of) := {"metadata": {"name": "ci"}, "spec": {"virtualMachineTemplate": {"spec": of.spec}}} if of != null

_unnamed := _request({"folder": "/dc/vm/a"})

test_pools[note] if {
	some note, tc in {
		"created": {"request": _pool("CREATE", _named.object, null), "readable": true, "denied": false},
		"created, not readable": {"request": _pool("CREATE", _named.object, null), "readable": false, "denied": true},
		"changed": {"request": _pool("UPDATE", _named.object, _unnamed.object), "readable": false, "denied": true},
		"unchanged": {"request": _pool("UPDATE", _named.object, _named.object), "readable": null, "denied": false},
		"taken out": {"request": _pool("UPDATE", _unnamed.object, _named.object), "readable": null, "denied": false},
	}
	world := {"request": tc.request, "facts": {"readable": tc.readable}}
	policy.valid_input with input as world
	asked := {true | policy.facts.readable != null} with input as world
	asked == {true | tc.readable != null}
	fields := {denial.details.field | some denial in policy.deny} with input as world
	fields == {field |
		some field in ["spec.virtualMachineTemplate.spec.runtime.vsphere.clone.cloudInit.secretRef.name"]
		tc.denied
	}
}

test_pools_of_pods if {
	request := _pool("CREATE", _snapshots("CREATE", "registry", {}).object, null)
	some denial in policy.deny with input as {"request": request, "facts": {"readable": false}}
	denial.details.field == "spec.virtualMachineTemplate.spec.runtime.pod.snapshotSecretRef.name"
}

test_pools_not_understood[note] if {
	some note, request in {
		"a machine": object.union(_named, {"resource": {"resource": "virtualmachinepools"}}),
		"no template": json.remove(_pool("CREATE", _named.object, null), ["object/spec/virtualMachineTemplate"]),
	}
	every readable in [true, false, null] { not policy.valid_input with input as {"request": request, "facts": {"readable": readable}} }
}
