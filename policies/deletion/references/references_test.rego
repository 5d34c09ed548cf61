package sallyport.deletion.references_test

import data.sallyport.deletion.references as policy
import data.sallyport.lib.override

_template(domains) := {
	"metadata": {"name": "ubuntu", "namespace": "team-a", "uid": "u-1"},
	"spec": {"failureDomains": [{"name": name} | some name in domains]},
}

_delete := {
	"operation": "DELETE", "namespace": "team-a", "resource": {"group": "sallyport.dev", "resource": "vspheretemplates"},
	"oldObject": _template(["a", "b"]),
}

_update(old, new) := object.union(_delete, {"operation": "UPDATE", "oldObject": _template(old), "object": _template(new)})

_spec(ref) := {"runtime": {"vsphere": {"clone": {"template": {"templateRef": object.union({"name": "ubuntu"}, ref)}}}}}

_of(domain) := {"failureDomain": domain}

_vm(name, ref) := {"metadata": {"name": name}, "spec": _spec(ref)}

_pool(name, ref) := {"metadata": {"name": name}, "spec": {"virtualMachineTemplate": {"spec": _spec(ref)}}}

_going := {"metadata": {"deletionTimestamp": "2026-11-20T10:31:57Z"}}

_namespace := {"metadata": {"name": "team-a"}}

_facts(machines, pools) := {"machines": machines, "pools": pools, "namespace": _namespace, "disks": null, "holder": null}

_nothing := {"machines": null, "pools": null, "namespace": null, "disks": null, "holder": null}

_verdict := "not understood" if not policy.valid_input

_verdict := concat(", ", [denial.reason | some denial in policy.deny]) if {
	policy.valid_input
	count(policy.deny) > 0
}

_verdict := "allow" if {
	policy.valid_input
	count(policy.deny) == 0
}

test_asks_who_refers[note] if {
	some note, request in {"deleted": _delete, "a failure domain less": _update(["a", "b"], ["a"]), "one more": _update(["a"], ["a", "b"])}
	policy.facts == {
		"machines": {
			"apiVersion": "sallyport.dev/v1alpha1", "kind": "VirtualMachine", "namespace": "team-a",
			"fields": {"spec.runtime.vsphere.clone.template.templateRef.name": "ubuntu"},
		},
		"pools": {
			"apiVersion": "sallyport.dev/v1alpha1", "kind": "VirtualMachinePool", "namespace": "team-a",
			"fields": {"spec.virtualMachineTemplate.spec.runtime.vsphere.clone.template.templateRef.name": "ubuntu"},
		},
		"namespace": {"apiVersion": "v1", "kind": "Namespace", "name": "team-a"},
		"disks": null, "holder": null,
	} with input.request as request
}

test_not_asked[note] if {
	some note, request in {
		"the same failure domains": _update(["a", "b"], ["b", "a"]),
		"deleted already": object.union(_delete, {"oldObject": _going}),
		"changed while it is deleted": object.union(_update(["a", "b"], ["a"]), {"oldObject": _going}),
	}
	policy.facts == _nothing with input.request as request
	_verdict == "allow" with input as {"request": request, "facts": _nothing}
}

test_deleted[note] if {
	some note, tc in {
		"nobody": {"machines": [], "pools": [], "verdict": "allow"},
		"a machine": {"machines": [_vm("web", {})], "pools": [], "verdict": "TemplateReferenced"},
		"a machine that is made": {
			"machines": [object.union(_vm("web", {}), {"status": {"instanceID": "i"}})],
			"pools": [], "verdict": "allow",
		},
		"a machine that goes": {"machines": [object.union(_vm("web", {}), _going)], "pools": [], "verdict": "allow"},
		"a pool": {"machines": [], "pools": [_pool("ci", {})], "verdict": "TemplateReferenced"},
		"a pool that goes": {"machines": [], "pools": [object.union(_pool("ci", {}), _going)], "verdict": "allow"},
	}
	_verdict == tc.verdict with input as {"request": _delete, "facts": _facts(tc.machines, tc.pools)}
}

# Everything is deleted with its namespace. A namespace that is not found is not treated as being deleted.
test_deleted_with_the_namespace if {
	facts := _facts([_vm("web", {})], [])
	going := object.union(facts, {"namespace": object.union(_namespace, _going)})
	_verdict == "allow" with input as {"request": _delete, "facts": going}
	_verdict == "TemplateReferenced" with input as {"request": _delete, "facts": object.union(facts, {"namespace": null})}
}

test_changed[note] if {
	some note, tc in {
		"the one that is meant is taken out": {"old": ["a", "b"], "new": ["b"], "ref": _of("a"), "verdict": "FailureDomainReferenced"},
		"another one is taken out": {"old": ["a", "b"], "new": ["a"], "ref": _of("a"), "verdict": "allow"},
		"a second one, where none is named": {"old": ["a"], "new": ["a", "b"], "ref": {}, "verdict": "FailureDomainReferenced"},
		"a second one, where the first is named": {"old": ["a"], "new": ["a", "b"], "ref": _of("a"), "verdict": "allow"},
		"another one in its place, where none is named": {"old": ["a"], "new": ["b"], "ref": {}, "verdict": "allow"},
		"what meant nothing before": {"old": ["a", "b"], "new": ["a"], "ref": _of("c"), "verdict": "allow"},
	}
	_verdict == tc.verdict with input as {"request": _update(tc.old, tc.new), "facts": _facts([], [_pool("ci", tc.ref)])}
}

_way_out := $"to override this policy temporarily: {override.command("deletion-references", _delete, _delete.oldObject.metadata)}"

test_denials if {
	policy.deny == {{
		"reason": "TemplateReferenced", "details": {"kind": "VSphereTemplate", "name": "ubuntu"},
		"message": "VSphereTemplate ubuntu in namespace team-a: deletion is not allowed",
		"cause": concat("", [
			"it is needed by VirtualMachine web, VirtualMachinePool p1, VirtualMachinePool p2, VirtualMachinePool p3, ",
			"VirtualMachinePool p4, and 1 more",
		]),
		"remedy": $"wait until the machines are cloned, and delete pools that are no longer needed; {_way_out}",
	}} with input as {"request": _delete, "facts": _facts([_vm("web", {})], [_pool($"p{i}", {}) | some i in [1, 2, 3, 4, 5]])}
	policy.deny == {{
		"reason": "FailureDomainReferenced",
		"details": {"kind": "VSphereTemplate", "name": "ubuntu", "field": "spec.failureDomains"},
		"message": "spec.failureDomains: this change of VSphereTemplate ubuntu is not allowed",
		"cause": concat("", [
			"it would leave no template for VirtualMachine web, VirtualMachinePool ci, ",
			"whose templateRef has failureDomain a or no failureDomain",
		]),
		"remedy": $"keep the failure domains until the machines are cloned and the pools are deleted; {_way_out}",
	}} with input as {"request": _update(["a"], ["b", "c"]), "facts": _facts([_vm("web", _of("a"))], [_pool("ci", {})])}
}

_world := {"request": _update(["a"], ["b"]), "facts": _facts([_vm("web", _of("a"))], [_pool("ci", {})])}

# Replaces a field of the request or the facts. An object is replaced as a whole.
_with(part, path, value) := object.union(json.remove(_world, [$"{part}/{path}"]), {part: json.unmarshal(concat("", [
	concat("", [$"\{{json.marshal(key)}:" | some key in split(path, "/")]),
	json.marshal(value),
	concat("", ["}" | some _ in split(path, "/")]),
]))})

test_not_understood_without[path] if {
	_verdict == "FailureDomainReferenced" with input as _world
	some path in [
		"request/resource", "request/resource/resource", "request/operation", "request/namespace", "request/oldObject/metadata/name",
		"request/oldObject/spec/failureDomains", "request/object/spec/failureDomains", "facts/disks", "facts/holder", "facts/machines",
		"facts/pools", "facts/namespace", "facts/namespace/metadata/name",
	]
	_verdict == "not understood" with input as json.remove(_world, [path])
}

test_not_understood[note] if {
	some [part, path, value] in [
		["request", "resource/resource", "pods"], ["request", "operation", "CREATE"], ["request", "namespace", ""],
		["request", "oldObject/metadata/name", ""], ["facts", "disks", []], ["facts", "holder", {}], ["facts", "namespace/metadata/name", "other"],
	]
	note := $"{part}/{path} {value}"
	_verdict == "not understood" with input as _with(part, path, value)
}

_elements := {
	"request/oldObject/spec/failureDomains": {"name": "a"}, "request/object/spec/failureDomains": {"name": "b"},
	"facts/machines": _vm("web", _of("a")), "facts/pools": _pool("ci", {}),
}

test_not_understood_elements[where] if {
	some where, good in _elements
	[part, path] := split(replace(replace(where, "request/", "request:"), "facts/", "facts:"), ":")
	_verdict != "not understood" with input as _with(part, path, [good])
	broken := [json.remove(good, [field]) | some field in ["name", "metadata/name", "spec"]]
	every value in [element | some element in broken; element != good] {
		_verdict == "not understood" with input as _with(part, path, [good, value])
	}
}

test_facts_of_nothing_asked if {
	_verdict == "not understood" with input as {"request": _update(["a"], ["a"]), "facts": _facts([], [])}
	_verdict == "not understood" with input as {"request": _delete, "facts": _nothing}
}
