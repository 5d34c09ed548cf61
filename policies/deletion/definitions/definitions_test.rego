package sallyport.deletion.definitions_test

import data.sallyport.deletion.definitions as policy
import data.sallyport.lib.override

_ended := "2026-11-20T10:31:57Z"

_definition(plural) := {
	"metadata": {"name": $"{plural}.sallyport.dev", "uid": "u-2"},
	"spec": {"group": "sallyport.dev", "names": {"plural": plural}},
}

_stranger := {"metadata": {"name": "widgets.example.com", "uid": "u-3"}, "spec": {"group": "example.com"}}

# For a collection, the API server sends one request per object, without a name.
_of_definition(old) := {
	"operation": "DELETE", "name": "",
	"resource": {"group": "apiextensions.k8s.io", "version": "v1", "resource": "customresourcedefinitions"},
	"object": null, "oldObject": old,
}

_terminating(object_) := object.union(object_, {"metadata": {"deletionTimestamp": _ended}})

_named(names) := [{"metadata": {"name": name, "namespace": "team-a"}} | some name in names]

_asked(instances) := {"request": _of_definition(_definition("virtualmachines")), "facts": {"instances": instances}}

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

test_facts[plural] if {
	some plural, kind in {
		"virtualmachines": "VirtualMachine", "virtualmachineoperations": "VirtualMachineOperation",
		"virtualmachinepools": "VirtualMachinePool", "virtualdisks": "VirtualDisk", "vmdiskimages": "VMDiskImage",
		"vspheretemplates": "VSphereTemplate",
		"vsphereservers": "VSphereServer", "regopolicies": "RegoPolicy",
	}
	policy.facts == {"instances": {"apiVersion": "sallyport.dev/v1alpha1", "kind": kind}}
		with input.request as _of_definition(_definition(plural))
}

# Undefined: the engine treats the input as invalid.
test_facts_of_a_definition_of_ours_that_is_not_known if {
	not policy.facts.instances with input.request as _of_definition(_definition("virtualdrives"))
}

_unasked := {
	"a definition that is being deleted": _of_definition(_terminating(_definition("virtualmachines"))),
	"the definition of another product": _of_definition(_stranger),
}

test_nothing_is_asked[note] if {
	some note, request in _unasked
	policy.facts == {"instances": null} with input.request as request
	_verdict == "allow" with input as {"request": request, "facts": {"instances": null}}
	_verdict == "not understood" with input as {"request": request, "facts": {"instances": []}}
}

test_allow[note] if {
	some note, instances in {
		"without objects": [],
		"with one that is being deleted": [_terminating(machine) | some machine in _named(["web-1"])],
	}
	_verdict == "allow" with input as _asked(instances)
}

test_denial[note] if {
	some note, tc in {
		"of what is in namespaces": {
			"plural": "virtualmachines", "instances": _named(["web-1", "web-2"]),
			"text": "2 objects: team-a/web-1, team-a/web-2",
		},
		"of what is in none": {
			"plural": "vsphereservers", "instances": [{"metadata": {"name": "vc-1"}}],
			"text": "1 object: vc-1",
		},
		"of many": {
			"plural": "virtualmachines", "instances": _named(["a", "b", "c", "d", "e", "f", "g"]),
			"text": "7 objects: team-a/a, team-a/b, team-a/c, team-a/d, team-a/e, and 2 more",
		},
	}
	name := $"{tc.plural}.sallyport.dev"
	request := _of_definition(_definition(tc.plural))
	policy.deny == {{
		"reason": "DefinitionHasObjects",
		"message": $"CustomResourceDefinition {name}: deletion is not allowed",
		"cause": $"it would also delete {tc.text}",
		"remedy": concat("", [
			$"list with: kubectl get {name} --all-namespaces; to override this policy temporarily: ",
			override.command("deletion-definitions", request, request.oldObject.metadata),
		]),
		"details": {"group": "apiextensions.k8s.io", "kind": "CustomResourceDefinition", "name": name},
	}} with input as {"request": request, "facts": {"instances": tc.instances}}
}

test_not_understood_request[note] if {
	some note, change in {
		"another operation": {"operation": "UPDATE"}, "another resource": {"resource": {"resource": "pods"}},
		"another group": {"resource": {"group": "apps"}}, "no name": {"oldObject": {"metadata": {"name": ""}}},
		"no group of the definition": {"oldObject": {"spec": {"group": ""}}},
	}
	_verdict == "not understood" with input as object.union(_asked(_named(["a"])), {"request": change})
}

test_not_understood_without[path] if {
	some path in [
		"request/operation", "request/resource", "request/resource/group", "request/resource/resource", "request/oldObject",
		"request/oldObject/metadata", "request/oldObject/metadata/name", "request/oldObject/spec", "request/oldObject/spec/group",
		"facts/instances",
	]
	_verdict == "not understood" with input as json.remove(_asked(_named(["a"])), [path])
}

test_not_understood_object_without[note] if {
	some note, found in {"its name": {"metadata": {}}, "a name": {"metadata": {"name": ""}}, "its metadata": {}}
	_verdict == "not understood" with input as _asked([found])
}
