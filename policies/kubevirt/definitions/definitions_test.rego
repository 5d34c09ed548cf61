package sallyport.kubevirt.definitions_test

import data.sallyport.kubevirt.definitions as policy

# The text of a denial, as the user sees it.
_text(denial) := concat("", [concat("", [mark, denial[key]]) | some [key, mark] in [["message", ""], ["cause", " because "], ["remedy", "; "]]])

_named(names) := [{"metadata": {"namespace": "shop", "name": name}} | some name in names]

_definition := {
	"operation": "DELETE", "name": "kubevirts.kubevirt.io",
	"kind": {"group": "apiextensions.k8s.io", "kind": "CustomResourceDefinition"},
	"resource": {"group": "apiextensions.k8s.io", "resource": "customresourcedefinitions"},
	"userInfo": {"username": "alice"},
	"oldObject": {"metadata": {"name": "kubevirts.kubevirt.io"}, "spec": {"group": "kubevirt.io"}},
}

_kubevirt := {
	"operation": "DELETE", "name": "kubevirt", "namespace": "kubevirt",
	"kind": {"group": "kubevirt.io", "kind": "KubeVirt"},
	"resource": {"group": "kubevirt.io", "resource": "kubevirts"},
	"userInfo": {"username": "alice"},
	"oldObject": {"metadata": {"name": "kubevirt", "namespace": "kubevirt"}},
}

_world(request, machines, instances) := {"request": request, "facts": {"machines": machines, "instances": instances}}

# The reasons of the denials. An input that is not understood is never allowed.
_verdict := "not understood" if not policy.valid_input

_verdict := concat(", ", [denial.reason | some denial in policy.deny]) if policy.valid_input

# A kind that is not served is not read.
test_facts[note] if {
	some note, tc in {
		"KubeVirt is installed": {"definition": {"metadata": {}}, "kinds": ["VirtualMachine", "VirtualMachineInstance"]},
		"its definitions are gone": {"definition": null, "kinds": []},
	}
	facts := policy.facts with input as {"request": _kubevirt, "facts": {"machineDefinition": tc.definition, "instanceDefinition": tc.definition}}
	[fact.kind | some name in ["machines", "instances"]; fact := facts[name]; fact != null] == tc.kinds
	facts.machineDefinition.name == "virtualmachines.kubevirt.io"
	facts.instanceDefinition.name == "virtualmachineinstances.kubevirt.io"
}

test_verdicts[note] if {
	some note, tc in {
		"machines": {"world": _world(_definition, _named(["a"]), []), "verdict": "MachinesExist"},
		"instances without a machine": {"world": _world(_kubevirt, [], _named(["a"])), "verdict": "MachinesExist"},
		"none": {"world": _world(_kubevirt, [], []), "verdict": ""},
		"no definitions": {"world": _world(_definition, null, null), "verdict": ""},
		"a second deletion": {
			"world": _world(
				object.union(_kubevirt, {"oldObject": {"metadata": {"deletionTimestamp": "2026-11-20T10:31:57Z"}}}),
				_named(["a"]), [],
			),
			"verdict": "",
		},
		"a name that is no text": {"world": _world(_definition, _named([1]), []), "verdict": "not understood"},
	}
	_verdict == tc.verdict with input as tc.world
}

test_texts[note] if {
	some note, tc in {
		"a definition": {
			"world": _world(_definition, _named(["a", "b"]), _named(["b"])),
			"text": concat("", [
				"CustomResourceDefinition kubevirts.kubevirt.io: deletion is not allowed because it would also delete the machines of KubeVirt (2): ",
				"shop/a, shop/b; list with: kubectl get virtualmachines.kubevirt.io,virtualmachineinstances.kubevirt.io --all-namespaces; ",
				"to override this policy temporarily: kubectl sallyport override kubevirt-definitions ",
				`customresourcedefinitions.apiextensions.k8s.io kubevirts.kubevirt.io --reason "..."`,
			]),
		},
		"many machines": {
			"world": _world(_kubevirt, _named(["a", "b", "c", "d", "e", "f", "g"]), null),
			"text": concat("", [
				"KubeVirt kubevirt: deletion is not allowed because it would also delete the machines of KubeVirt (7): ",
				"shop/a, shop/b, shop/c, shop/d, shop/e, and 2 more; ",
				"list with: kubectl get virtualmachines.kubevirt.io,virtualmachineinstances.kubevirt.io --all-namespaces; ",
				"to override this policy temporarily: kubectl sallyport override kubevirt-definitions ",
				`kubevirts.kubevirt.io kubevirt -n kubevirt --reason "..."`,
			]),
		},
	}
	denials := policy.deny with input as tc.world
	{_text(denial) | some denial in denials} == {tc.text}
}
