package sallyport.servers.tenancy_test

import data.sallyport.servers.tenancy as policy

# The text of a denial, as the user sees it.
_text(denial) := concat("", [concat("", [mark, denial[key]]) | some [key, mark] in [["message", ""], ["cause", " because "], ["remedy", "; "]]])

_vsphere(more) := object.union({"serverRef": {"name": "vc-1"}}, more)

_at(path) := _vsphere({"inventoryPath": path})

_with_uuid := _vsphere({"instanceUUID": "50120a8b-7a3c-4bde-9f00-0123456789ab"})

_request(vsphere) := {
	"operation": "CREATE", "namespace": "team-a", "oldObject": null,
	"object": {"metadata": {"name": "web-1"}, "spec": {"runtime": {"vsphere": vsphere}}},
}

_change(old, new) := object.union(_request(new), {
	"operation": "UPDATE",
	"oldObject": {"metadata": {"name": "web-1"}, "spec": {"runtime": {"vsphere": old}}},
})

_server(tenants) := {"metadata": {"name": "vc-1"}, "spec": {"url": "https://vc-1", "tenants": tenants}}

_tenant(more) := object.union(
	{"name": "a", "namespaces": {"names": ["team-a"]}, "folders": ["/dc/vm/team-a"], "adopt": true},
	more,
)

_stranger := {
	"name": "secret-b", "namespaces": {"names": ["team-b"]}, "folders": ["/dc/vm/secret-b"], "adopt": true,
}

_namespace(labels) := {"metadata": {"name": "team-a", "labels": labels}}

_plain := _namespace({"kubernetes.io/metadata.name": "team-a"})

_facts(tenants) := {"server": _server(tenants), "namespace": _plain, "template": null}

_ours := _facts([_stranger, _tenant({})])

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

_messages := concat("; ", [_text(denial) | some denial in policy.deny])

test_facts_ask_for_the_server_and_the_namespace if {
	policy.facts == {
		"server": {"apiVersion": "sallyport.dev/v1alpha1", "kind": "VSphereServer", "name": "vc-1"},
		"namespace": {"apiVersion": "v1", "kind": "Namespace", "name": "team-a"},
		"template": null,
	} with input.request as _request(_with_uuid)
}

_nothing := {"server": null, "namespace": null, "template": null}

_elsewhere := {
	"another runtime": {"operation": "CREATE", "namespace": "team-a", "object": {"spec": {"runtime": {"pod": {}}}}},
	"another runtime, changed": {
		"operation": "UPDATE", "namespace": "team-a",
		"object": {"spec": {"runtime": {"pod": {"image": "b"}}}},
		"oldObject": {"spec": {"runtime": {"pod": {"image": "a"}}}},
	},
	"the same place as before": _change(_at("/dc/vm/gone/x"), _at("/dc/vm/gone/x")),
	"the same UUID as before": _change(_with_uuid, _with_uuid),
	"a machine that is being deleted": _deleted("2026-11-20T10:31:57Z"),
}

# What is being deleted is left alone as long as its place stays.
test_another_place_of_what_is_being_deleted if {
	request := object.union(
		_change(_at("/dc/vm/gone/x"), _at("/dc/vm/team-a/x")),
		{"object": {"metadata": {"deletionTimestamp": "2026-11-20T10:31:57Z"}}},
	)
	policy.facts.server.name with input.request as request
}

_deleted(at) := object.union(_request(_at("/dc/vm/gone/x")), {"object": {"metadata": {"deletionTimestamp": at}}})

test_not_asked[note] if {
	some note, request in _elsewhere
	policy.facts == _nothing with input.request as request
	_verdict == "allow" with input as {"request": request, "facts": _nothing}
}

# The path of the machine, and the verdict for a namespace with folder /dc/vm/team-a.
_paths := {
	"/dc/vm/team-a/x": "allow",
	"/dc/vm/team-a/deep/er/x": "allow",
	"/dc/vm/team-a/x/": "allow",
	"//dc///vm/team-a//x//": "allow",
	"/dc/vm/team-a/a%2fb": "allow",
	"/dc/vm/team-a/a%2Fb%5C100%25": "allow",
	"/dc/vm/team-a/...": "allow",
	"/dc/vm/team-a/.x": "allow",
	"/dc/vm/team-a/*": "allow",
	"/dc/vm/team-a": "FolderNotAllowed",
	"/dc/vm/team-a/": "FolderNotAllowed",
	"/dc/vm/team-a2/x": "FolderNotAllowed",
	"/dc/vm/team/x": "FolderNotAllowed",
	"/dc/vm/Team-A/x": "FolderNotAllowed",
	"/dc/vm/team-a%2fx": "FolderNotAllowed",
	"/dc/vm%2fteam-a/x": "FolderNotAllowed",
	"/dc/vm/*/x": "FolderNotAllowed",
	"/dc/vm/secret-b/x": "FolderNotAllowed",
	"/vm/team-a/x": "FolderNotAllowed",
	"/other/dc/vm/team-a/x": "FolderNotAllowed",
	"/dc/vm": "FolderNotAllowed",
	"/": "FolderNotAllowed",
	"/dc/vm/team-a/../secret-b/x": "InventoryPathMalformed",
	"/dc/vm/team-a/..": "InventoryPathMalformed",
	"/dc/vm/team-a/./x": "InventoryPathMalformed",
	"/dc/vm/secret-b/../team-a/x": "InventoryPathMalformed",
	"/dc/vm/team-a/%2e%2e/secret-b/x": "InventoryPathMalformed",
	"/dc/vm/team-a/100%": "InventoryPathMalformed",
	"/dc/vm/team-a/100%2": "InventoryPathMalformed",
	"/dc/vm/team-a/%5d": "InventoryPathMalformed",
}

test_paths[path] if {
	some path, verdict in _paths
	_verdict == verdict with input as {"request": _request(_at(path)), "facts": _ours}
}

# Messages do not reveal where Sallyport found a machine that the namespace may not use, not even a part of the path.
test_found_places_are_not_told[path] if {
	some path in ["/dc/vm/secret-b/x", "/dc/vm/secret-b/%zz/x", "/dc/vm/secret-b/../x"]
	some vsphere in [_at(path), object.union(_with_uuid, {"inventoryPath": path})]
	world := {"request": object.union(_request(vsphere), {"userInfo": {"username": "system:sallyport"}}), "facts": _ours}
	_verdict == _paths_of_strangers[path] with input as world
	said := _messages with input as world
	count([part | some part in ["/dc/vm/secret-b", "secret", "zz", ".."]; contains(said, part)]) == 0
	names_folders := _paths_of_strangers[path] == "FolderNotAllowed"
	contains(said, "may not adopt the machine because it is not below a folder") == names_folders
}

_paths_of_strangers := {
	"/dc/vm/secret-b/x": "FolderNotAllowed",
	"/dc/vm/secret-b/%zz/x": "InventoryPathMalformed",
	"/dc/vm/secret-b/../x": "InventoryPathMalformed",
}

# Escapes in folders are compared regardless of their case.
test_escapes_in_folders if {
	facts := _facts([_tenant({"folders": ["/dc/vm/a%2Fb"]})])
	_verdict == "allow" with input as {"request": _request(_at("/dc/vm/a%2fb/x")), "facts": facts}
	_verdict == "FolderNotAllowed" with input as {"request": _request(_at("/dc/vm/a/b/x")), "facts": facts}
}

_denials := {
	"a server that does not exist": {"vsphere": _at("/dc/vm/team-a/x"), "facts": {"server": null, "namespace": _plain, "template": null}, "denial": {
		"reason": "VSphereServerNotFound",
		"code": 422,
		"message": "spec.runtime.vsphere.serverRef.name: VSphereServer vc-1 does not exist",
		"details": {"kind": "VSphereServer", "name": "vc-1", "field": "spec.runtime.vsphere.serverRef.name"},
	}},
	"a server for others": {"vsphere": _at("/dc/vm/secret-b/x"), "facts": _facts([_stranger]), "denial": {
		"reason": "NamespaceNotAllowed",
		"message": "namespace team-a has no access to VSphereServer vc-1",
		"cause": "no entry in its spec.tenants matches the namespace",
		"details": {"kind": "VSphereServer", "name": "vc-1", "field": "spec.runtime.vsphere.serverRef.name"},
	}},
	"a tenant that may not adopt": {"vsphere": _at("/dc/vm/team-a/x"), "facts": _facts([_stranger, _tenant({"adopt": false})]), "denial": {
		"reason": "AdoptionNotAllowed",
		"message": "namespace team-a may not adopt machines of VSphereServer vc-1",
		"cause": "no entry for the namespace in its spec.tenants allows adoption",
		"details": {"kind": "VSphereServer", "name": "vc-1", "field": "spec.runtime.vsphere"},
	}},
	"a folder of others": {"vsphere": _at("/dc/vm/secret-b/x"), "facts": _ours, "denial": {
		"reason": "FolderNotAllowed",
		"message": "namespace team-a may not adopt /dc/vm/secret-b/x",
		"cause": "it is not below a folder that VSphereServer vc-1 allows",
		"remedy": "allowed folders: /dc/vm/team-a",
		"details": {"kind": "VSphereServer", "name": "vc-1", "field": "spec.runtime.vsphere.inventoryPath"},
	}},
	"a path that goes up": {"vsphere": _at("/dc/vm/team-a/../%2e/x"), "facts": _ours, "denial": {
		"reason": "InventoryPathMalformed",
		"code": 422,
		"message": "spec.runtime.vsphere.inventoryPath: /dc/vm/team-a/../%2e/x is not allowed",
		"cause": "its path contains %2e and ..",
		"remedy": "allowed folders: /dc/vm/team-a",
		"details": {"kind": "VSphereServer", "name": "vc-1", "field": "spec.runtime.vsphere.inventoryPath"},
	}},
}

test_deny[note] if {
	some note, tc in _denials
	policy.valid_input with input as {"request": _request(tc.vsphere), "facts": tc.facts}
	policy.deny == {tc.denial} with input as {"request": _request(tc.vsphere), "facts": tc.facts}
}

test_tenants[note] if {
	some note, tc in {
		"no tenants at all": {"tenants": [], "verdict": "NamespaceNotAllowed"},
		"the second of two": {"tenants": [_stranger, _tenant({})], "verdict": "allow"},
		"adopt is not said": {"tenants": [object.remove(_tenant({}), ["adopt"])], "verdict": "AdoptionNotAllowed"},
		"adoption is for other folders": {
			"tenants": [_tenant({"adopt": false}), _tenant({"name": "b", "folders": ["/dc/vm/other"]})],
			"verdict": "FolderNotAllowed",
		},
		"one of two allows": {"tenants": [_tenant({"adopt": false}), _tenant({"name": "b"})], "verdict": "allow"},
		"the folder of others is not lent": {
			"tenants": [_tenant({"folders": ["/dc/vm/mine"]}), object.union(_stranger, {"folders": ["/dc/vm/team-a"]})],
			"verdict": "FolderNotAllowed",
		},
		"no folders": {"tenants": [object.remove(_tenant({}), ["folders"])], "verdict": "FolderNotAllowed"},
	}
	_verdict == tc.verdict with input as {"request": _request(_at("/dc/vm/team-a/x")), "facts": _facts(tc.tenants)}
}

test_server_without_tenants if {
	facts := {"server": {"metadata": {"name": "vc-1"}, "spec": {}}, "namespace": _plain, "template": null}
	_verdict == "NamespaceNotAllowed" with input as {"request": _request(_with_uuid), "facts": facts}
}

# With a UUID alone the folder is not known yet. With the path that was found, the machine is checked like any other.
test_by_instance_uuid[note] if {
	some note, tc in {
		"adoption allowed": {"vsphere": _with_uuid, "tenants": [_tenant({})], "verdict": "allow"},
		"adoption not allowed": {"vsphere": _with_uuid, "tenants": [_tenant({"adopt": false})], "verdict": "AdoptionNotAllowed"},
		"not a tenant": {"vsphere": _with_uuid, "tenants": [_stranger], "verdict": "NamespaceNotAllowed"},
		"found inside": {
			"vsphere": object.union(_with_uuid, _at("/dc/vm/team-a/x")),
			"tenants": [_tenant({})], "verdict": "allow",
		},
		"found outside": {
			"vsphere": object.union(_with_uuid, _at("/dc/vm/secret-b/x")),
			"tenants": [_tenant({})], "verdict": "FolderNotAllowed",
		},
		"neither, so nothing is adopted": {"vsphere": _vsphere({}), "tenants": [_tenant({"adopt": false})], "verdict": "allow"},
	}
	_verdict == tc.verdict with input as {"request": _request(tc.vsphere), "facts": _facts(tc.tenants)}
}

test_updates[note] if {
	some note, tc in {
		"to an allowed place": {"request": _change(_at("/dc/vm/gone/x"), _at("/dc/vm/team-a/x")), "verdict": "allow"},
		"to a forbidden place": {"request": _change(_at("/dc/vm/team-a/x"), _at("/dc/vm/gone/x")), "verdict": "FolderNotAllowed"},
		"of nothing known": {
			"request": object.remove(_change(_at("/dc/vm/gone/x"), _at("/dc/vm/gone/x")), ["oldObject"]),
			"verdict": "FolderNotAllowed",
		},
		"that is said to be a creation": {
			"request": object.union(_change(_at("/dc/vm/gone/x"), _at("/dc/vm/gone/x")), {"operation": "CREATE"}),
			"verdict": "FolderNotAllowed",
		},
	}
	_verdict == tc.verdict with input as {"request": tc.request, "facts": _ours}
}

_by_selector(selector) := object.union(
	object.remove(_tenant({}), ["namespaces"]),
	{"namespaces": {"selector": selector}},
)

test_selectors[note] if {
	some note, tc in {
		"a label": {"selector": {"matchLabels": {"team": "a"}}, "verdict": "allow"},
		"another value": {"selector": {"matchLabels": {"team": "b"}}, "verdict": "NamespaceNotAllowed"},
		"does not exist": {"selector": {"matchExpressions": [_bare("x", "DoesNotExist")]}, "verdict": "allow"},
	}
	facts := {"server": _server([_by_selector(tc.selector)]), "namespace": _namespace({"team": "a"}), "template": null}
	_verdict == tc.verdict with input as {"request": _request(_at("/dc/vm/team-a/x")), "facts": facts}
}

_bare(key, operator) := {"key": key, "operator": operator}

# Unknown labels are not missing labels: a selector for their absence does not match.
test_namespace_not_known[note] if {
	some note, tc in {
		"by name": {"tenant": _tenant({}), "verdict": "allow"},
		"by every label": {"tenant": _by_selector({}), "verdict": "NamespaceNotAllowed"},
		"by a missing label": {
			"tenant": _by_selector({"matchExpressions": [_bare("x", "DoesNotExist")]}),
			"verdict": "NamespaceNotAllowed",
		},
	}
	facts := {"server": _server([tc.tenant]), "namespace": null, "template": null}
	_verdict == tc.verdict with input as {"request": _request(_at("/dc/vm/team-a/x")), "facts": facts}
}

test_namespace_without_labels if {
	facts := {"server": _server([_by_selector({})]), "namespace": {"metadata": {"name": "team-a"}}, "template": null}
	_verdict == "allow" with input as {"request": _request(_at("/dc/vm/team-a/x")), "facts": facts}
}

# Messages reveal nothing about other tenants, and limit the number of folders.
test_messages_are_the_namespaces_own[note] if {
	folders := [$"/dc/vm/f{n}" | some n in ["01", "02", "03", "04", "05", "06", "07", "08", "09", "10", "11", "12"]]
	some note, tc in {
		"all": {"tenant": _tenant({"folders": array.slice(folders, 0, 10)}), "end": "/dc/vm/f09, /dc/vm/f10"},
		"too many": {"tenant": _tenant({"folders": folders}), "end": "/dc/vm/f09, /dc/vm/f10 and 2 more"},
		"none": {"tenant": _tenant({"folders": []}), "end": "allowed folders: none"},
		"those without adoption are left out": {"tenant": _tenant({"folders": ["/dc/vm/m"]}), "end": "allowed folders: /dc/vm/m"},
	}
	others := object.union(_tenant({"adopt": false, "folders": ["/dc/vm/z"]}), {"name": "z"})
	said := _messages with input as {"request": _request(_at("/x/y")), "facts": _facts([_stranger, tc.tenant, others])}
	endswith(said, tc.end)
	not contains(said, "secret-b")
}

_good := _request(object.union(_with_uuid, _at("/dc/vm/team-a/x")))

test_not_understood_request[note] if {
	some note, request in object.union(
		{$"{path} missing": json.remove(_good, [path]) |
			some path in [
				"operation", "namespace", "object", "object/spec", "object/spec/runtime", "object/spec/runtime/vsphere/serverRef",
				"object/spec/runtime/vsphere/serverRef/name",
			]
		},
		{
			"another operation": object.union(_good, {"operation": "Bogus"}),
			"no namespace": object.union(_good, {"namespace": ""}),
			"no server": _request(object.union(_with_uuid, {"serverRef": {"name": ""}})),
			"an empty path": _request(object.union(_with_uuid, _at(""))),
			"a relative path": _request(object.union(_with_uuid, _at("Bogus"))),
			"an empty UUID": _request(object.union(_with_uuid, {"instanceUUID": ""})),
		},
	)
	_verdict == "not understood" with input as {"request": request, "facts": _ours}
}

# A server or a namespace other than the one that was asked for is not a valid fact.
test_not_understood_server[note] if {
	some note, server in object.union(
		{$"{path} missing": json.remove(_server([_tenant({})]), [path]) | some path in ["metadata", "metadata/name", "spec"]},
		{
			"another server": object.union(_server([_tenant({})]), {"metadata": {"name": "vc-2"}}),
			"a folder that is no path": _server([_tenant({"folders": ["dc"]})]),
		},
	)
	_verdict == "not understood" with input as {"request": _good, "facts": {"server": server, "namespace": _plain, "template": null}}
}

test_not_understood_namespace[note] if {
	some note, namespace in {
		"no metadata": json.remove(_plain, ["metadata"]), "no name": json.remove(_plain, ["metadata/name"]),
		"another": object.union(_plain, {"metadata": {"name": "team-b"}}),
	}
	facts := {"server": _server([_tenant({})]), "namespace": namespace, "template": null}
	_verdict == "not understood" with input as {"request": _good, "facts": facts}
}

test_not_understood_without_facts[note] if {
	some note, facts in {
		"none": {}, "no server": object.remove(_ours, ["server"]), "no namespace": object.remove(_ours, ["namespace"]),
		"no template": object.remove(_ours, ["template"]),
	}
	_verdict == "not understood" with input as {"request": _good, "facts": facts}
}

# If a field is missing, a fact is undefined, and the engine treats the input as invalid.
test_unasked_without[note] if {
	some note, request in {
		"a name": json.remove(_good, ["object/spec/runtime/vsphere/serverRef/name"]),
		"a reference": json.remove(_good, ["object/spec/runtime/vsphere/serverRef"]),
	}
	not policy.facts.server with input.request as request
}

# The template of a pool instead of a machine.
_template(of) := {"metadata": {"name": "ci"}, "spec": {"replicas": 3, "virtualMachineTemplate": {"spec": of.spec}}}

_of_pool(request) := object.union(
	object.union(object.remove(request, ["object", "oldObject"]), {"resource": {"group": "sallyport.dev", "resource": "virtualmachinepools"}}),
	{side: _template(of) |
		some side in ["object", "oldObject"]
		of := request[side]
		of != null
	},
)

# A pool gets the same denials as its machines, with the fields of its template.
test_pools_are_judged_as_their_machines[note] if {
	some note, tc in {
		"allowed": {"request": _cloning({}), "facts": _today({}), "reason": ""},
		"no server": {"request": _cloning({}), "facts": object.union(_today({}), {"server": null}), "reason": "VSphereServerNotFound"},
		"not a tenant": {"request": _cloning({}), "facts": _facts([_stranger]), "reason": "NamespaceNotAllowed"},
		"another folder": {"request": _cloning({"folder": "/dc/vm/other"}), "facts": _today({}), "reason": "FolderNotAllowed"},
		"a place that is not there": {"request": _cloning({"folder": "/dc/vm/a/webb"}), "facts": _today({}), "reason": "PlaceNotFound"},
		"upwards": {"request": _cloning({"folder": "/dc/vm/a/../b"}), "facts": _today({}), "reason": "InventoryPathMalformed"},
		"a host that is not there": {
			"request": object.union(_cloning({}), {"object": {"spec": {"nodeName": "esx-9"}}}), "facts": _today({}),
			"reason": "HostNotFound",
		},
		"adopted": {"request": _request(_at("/dc/vm/team-a/../x")), "facts": _ours, "reason": "InventoryPathMalformed"},
	}
	said := policy.deny with input as {"request": tc.request, "facts": tc.facts}
	pool := {"request": _of_pool(tc.request), "facts": tc.facts}
	policy.valid_input with input as pool
	{denial.reason | some denial in said} == {reason | some reason in [tc.reason]; reason != ""}
	as_pool := json.unmarshal(replace(
		replace(json.marshal(said), "spec.runtime", "spec.virtualMachineTemplate.spec.runtime"),
		"spec.nodeName", "spec.virtualMachineTemplate.spec.nodeName",
	))
	policy.deny == {denial | some denial in as_pool} with input as pool
}

# A template whose place changes is checked as for new machines. Otherwise it is not checked.
test_pools_are_judged_again[note] if {
	some note, tc in {
		"another place": {"old": {"folder": "/dc/vm/a"}, "new": {"folder": "/dc/vm/a/webb"}, "verdict": "PlaceNotFound"},
		"the same place": {"old": {"folder": "/dc/vm/a/webb"}, "new": {"folder": "/dc/vm/a/webb"}, "verdict": "allow"},
	}
	request := object.union(_cloning(tc.new), {"operation": "UPDATE", "oldObject": _cloning(tc.old).object})
	facts := object.union(_today({}), {fact: null | some fact in ["server", "namespace", "template"]; tc.verdict == "allow"})
	_verdict == tc.verdict with input as {"request": _of_pool(request), "facts": facts}
	asked := policy.facts with input.request as _of_pool(request)
	{true | asked == _nothing} == {true | tc.verdict == "allow"}
}

test_pools_not_understood[note] if {
	some note, request in {
		"no template": json.remove(_of_pool(_cloning({})), ["object/spec/virtualMachineTemplate"]),
		"a template without spec": json.remove(_of_pool(_cloning({})), ["object/spec/virtualMachineTemplate/spec"]),
		"a machine": object.union(_cloning({}), {"resource": {"resource": "virtualmachinepools"}}),
	}
	every facts in [_nothing, _today({})] { _verdict == "not understood" with input as {"request": request, "facts": facts} }
}
