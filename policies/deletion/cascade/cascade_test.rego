package sallyport.deletion.cascade_test

import data.sallyport.deletion.cascade as policy
import data.sallyport.lib.override

_label := "sallyport.dev/deletion-protection"

_ended := "2026-11-20T10:31:57Z"

_namespace := {"metadata": {"name": "team-a", "uid": "u-1"}}

# A request for a Namespace has the name of the Namespace as its namespace.
_of_namespace(old) := {
	"operation": "DELETE", "name": "team-a", "namespace": "team-a",
	"resource": {"group": "", "version": "v1", "resource": "namespaces"}, "object": null, "oldObject": old,
}

_terminating(object_) := object.union(object_, {"metadata": {"deletionTimestamp": _ended}})

_nothing := {fact: null | some fact in (object.keys(_kinds) | {"borrowers"})}

_empty := {fact: [] | some fact in object.keys(_nothing)}

_kinds := {
	"deployments": ["apps/v1", "Deployment"],
	"statefulsets": ["apps/v1", "StatefulSet"],
	"daemonsets": ["apps/v1", "DaemonSet"],
	"cronjobs": ["batch/v1", "CronJob"],
	"jobs": ["batch/v1", "Job"],
	"pods": ["v1", "Pod"],
	"services": ["v1", "Service"],
	"claims": ["v1", "PersistentVolumeClaim"],
	"machines": ["sallyport.dev/v1alpha1", "VirtualMachine"],
	"operations": ["sallyport.dev/v1alpha1", "VirtualMachineOperation"],
	"pools": ["sallyport.dev/v1alpha1", "VirtualMachinePool"],
	"disks": ["sallyport.dev/v1alpha1", "VirtualDisk"],
	"images": ["sallyport.dev/v1alpha1", "VMDiskImage"],
	"templates": ["sallyport.dev/v1alpha1", "VSphereTemplate"],
}

_some(facts) := object.union(_empty, facts)

_named(names) := [{"metadata": {"name": name, "namespace": "team-a", "labels": {_label: "enabled"}}} | some name in names]

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

test_facts_of_a_namespace if {
	policy.facts == object.union_n([
		_nothing, {fact: query |
			some fact, kind in _kinds
			query := {
				"apiVersion": kind[0], "kind": kind[1], "namespace": "team-a",
				"labels": {_label: "enabled"},
			}
		},
		{"borrowers": {
			"apiVersion": "sallyport.dev/v1alpha1", "kind": "VirtualDisk",
			"fields": {"status.image.namespace": "team-a"},
		}},
	]) with input.request as _of_namespace(_namespace)
}

_unasked := {
	"a namespace that is being deleted": _of_namespace(_terminating(_namespace)),
}

test_nothing_is_asked[note] if {
	some note, request in _unasked
	policy.facts == _nothing with input.request as request
	_verdict == "allow" with input as {"request": request, "facts": _nothing}
}

test_allow[note] if {
	some note, facts in {
		"an empty namespace": _empty,
		"one with what is being deleted": _some({"pods": [_terminating(pod) | some pod in _named(["a", "b"])]}),
	}
	_verdict == "allow" with input as {"request": _of_namespace(_namespace), "facts": facts}
}

test_each_kind_counts[fact] if {
	some fact in object.keys(_kinds)
	_verdict == "NamespaceHoldsProtected" with input as {
		"request": _of_namespace(_namespace),
		"facts": _some({fact: _named(["a"])}),
	}
}

_override(request) := concat("", [
	"to override this policy temporarily: ",
	override.command("deletion-cascade", request, request.oldObject.metadata),
])

test_denial_of_a_namespace[note] if {
	some note, tc in {
		"with one object": {
			"facts": {"services": _named(["web"])}, "list": "services",
			"holds": "1 object with the label sallyport.dev/deletion-protection=enabled (services: 1): services/web",
		},
		"with as many as are named": {
			"facts": {"pods": _named(["a", "b", "c", "d", "e"])}, "list": "pods",
			"holds": concat("", [
				"5 objects with the label sallyport.dev/deletion-protection=enabled ",
				"(pods: 5): pods/a, pods/b, pods/c, pods/d, pods/e",
			]),
		},
		"with more, and with some that are being deleted": {
			"facts": {
				"deployments": array.concat([_terminating(one) | some one in _named(["gone"])], _named(["web", "api"])),
				"pods": _named(["c", "a", "b"]),
				"machines": _named(["vm-1", "vm-2"]),
			},
			"holds": concat("", [
				"7 objects with the label sallyport.dev/deletion-protection=enabled ",
				"(deployments.apps: 2, pods: 3, virtualmachines.sallyport.dev: 2): ",
				"deployments.apps/web, deployments.apps/api, pods/c, pods/a, pods/b, and 2 more",
			]),
			"list": "deployments.apps,pods,virtualmachines.sallyport.dev",
		},
	}
	policy.deny == {{
		"reason": "NamespaceHoldsProtected",
		"message": "Namespace team-a: deletion is not allowed",
		"cause": $"it contains {tc.holds}",
		"remedy": concat("", [
			"list with: kubectl get ", tc.list, " --namespace team-a --selector sallyport.dev/deletion-protection=enabled; ",
			_override(_of_namespace(_namespace)),
		]),
		"details": {"kind": "Namespace", "name": "team-a"},
	}} with input as {"request": _of_namespace(_namespace), "facts": _some(tc.facts)}
}

# A namespace may have the name of a resource.
test_a_namespace_that_is_called_pods if {
	request := object.union(_of_namespace({"metadata": {"name": "pods"}}), {"name": "pods", "namespace": "pods"})
	_verdict == "allow" with input as {"request": request, "facts": _empty}
	_verdict == "NamespaceHoldsProtected" with input as {"request": request, "facts": _some({"pods": _named(["a"])})}
}

_borrower(namespace, image) := {"metadata": {"name": "secret", "namespace": namespace}, "status": {"image": {"name": image}}}

test_images_that_are_used_elsewhere[note] if {
	some note, tc in {
		"not at all": {"disks": [], "images": ""},
		"in the namespace itself": {"disks": [_borrower("team-a", "ubuntu")], "images": ""},
		"by a disk that is being deleted": {"disks": [_terminating(_borrower("team-b", "ubuntu"))], "images": ""},
		"by several": {
			"disks": [_borrower("team-b", "ubuntu"), _borrower("team-c", "ubuntu"), _borrower("team-b", "debian"), _borrower("team-a", "own")],
			"images": "debian (disks: 1), ubuntu (disks: 2)",
		},
		"many": {
			"disks": [_borrower("team-b", $"i{i}") | some i in [1, 2, 3, 4, 5, 6, 7]],
			"images": "i1 (disks: 1), i2 (disks: 1), i3 (disks: 1), i4 (disks: 1), i5 (disks: 1), and 2 more",
		},
	}
	denials := policy.deny with input as {"request": _of_namespace(_namespace), "facts": _some({"borrowers": tc.disks})}
	denials == {denial |
		tc.images != ""
		denial := {
			"reason": "NamespaceHoldsUsedImages",
			"message": "Namespace team-a: deletion is not allowed",
			"cause": $"disks of other namespaces use its images: {tc.images}",
			"remedy": $"to see them: kubectl get vmdiskimages --namespace team-a; {_override(_of_namespace(_namespace))}",
			"details": {"kind": "Namespace", "name": "team-a"},
		}
	}
}

test_not_understood_borrowers[note] if {
	some note, facts in {
		"not asked": object.union(_empty, {"borrowers": null}), "missing": object.remove(_empty, ["borrowers"]),
		"no image": _some({"borrowers": [{"metadata": {"name": "secret"}, "status": {}}]}),
		"no name of an image": _some({"borrowers": [_borrower("team-b", "")]}),
		"no name": _some({"borrowers": [{"metadata": {}, "status": {"image": {"name": "ubuntu"}}}]}),
	}
	_verdict == "not understood" with input as {"request": _of_namespace(_namespace), "facts": facts}
}

_request := {"request": _of_namespace(_namespace), "facts": _some({"pods": _named(["a"])})}

test_not_understood_request[note] if {
	some note, change in {
		"another operation": {"operation": "UPDATE"}, "another resource": {"resource": {"resource": "pods"}},
		"another group": {"resource": {"group": "apps"}}, "no name": {"oldObject": {"metadata": {"name": ""}}},
	}
	_verdict == "not understood" with input as object.union(_request, {"request": change})
}

test_not_understood_without[path] if {
	some path in [
		"operation", "resource", "resource/group", "resource/resource", "oldObject", "oldObject/metadata",
		"oldObject/metadata/name",
	]
	_verdict == "not understood" with input as json.remove(_request, [$"request/{path}"])
}

test_understood_without_a_uid if {
	_verdict == "NamespaceHoldsProtected" with input as json.remove(_request, ["request/oldObject/metadata/uid"])
}

test_not_understood_facts[note] if {
	some fact, _ in _kinds
	some what, facts in {
		"missing": object.remove(_request.facts, [fact]),
		"null": object.union(_request.facts, {fact: null}),
	}
	note := $"{fact} {what}"
	_verdict == "not understood" with input as object.union(_of(_request), {"facts": facts})
}

_of(asked) := object.remove(asked, ["facts"])

test_not_understood_facts_where_none_are_wanted[note] if {
	some note, request in _unasked
	some fact in object.keys(_nothing)
	_verdict == "not understood" with input as {"request": request, "facts": object.union(_nothing, {fact: []})}
}

test_not_understood_object_without[note] if {
	some note, found in {"its name": {"metadata": {}}, "a name": {"metadata": {"name": ""}}, "its metadata": {}}
	_verdict == "not understood" with input as object.union(_of(_request), {"facts": _some({"pods": [found]})})
}
