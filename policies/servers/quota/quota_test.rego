package sallyport.servers.quota_test

import data.sallyport.servers.quota as policy

_places := {
	"folder": "/dc/vm/a", "resourcePool": "/dc/host/c", "datastore": "/dc/datastore/d",
	"template": {"inventoryPath": "/dc/vm/t"}, "networks": ["/dc/network/n"],
}

_runtime(clone) := {"vsphere": {"serverRef": {"name": "vc-1"}, "clone": object.union(_places, clone)}}

_machine(spec) := {
	"metadata": {"name": "web-1", "namespace": "team-a", "uid": "u-5", "creationTimestamp": "2026-11-20T10:00:00Z"},
	"spec": object.union({"runtime": _runtime({})}, spec),
}

_request(spec) := {
	"operation": "CREATE", "namespace": "team-a", "userInfo": {"username": "alice"},
	"object": _machine(spec), "oldObject": null,
}

_update(old, new) := object.union(_request(new), {"operation": "UPDATE", "oldObject": _machine(old)})

_tenant(more) := object.union(
	{
		"name": "a", "namespaces": {"names": ["team-a", "team-a-ci"]},
		"folders": ["/dc/vm/a"], "resourcePools": ["/dc/host/c"], "datastores": ["/dc/datastore/d"],
		"networks": ["/dc/network/n"], "templates": ["/dc/vm/t"],
	},
	more,
)

_limited(quota) := _tenant({"quota": quota})

_server(tenants) := {"metadata": {"name": "vc-1"}, "spec": {"tenants": tenants}}

_other(namespace, folder, more) := {
	"metadata": {"name": "m", "namespace": namespace, "uid": "u-1", "creationTimestamp": "2026-11-20T09:00:00Z"},
	"spec": object.union({"runtime": _runtime({"folder": folder})}, more),
}

_namespaces := [
	{"metadata": {"name": "team-a", "labels": {"team": "a"}}},
	{"metadata": {"name": "team-a-ci", "labels": {"team": "a"}}},
	{"metadata": {"name": "team-b", "labels": {"team": "b"}}},
	{"metadata": {"name": "plain"}},
]

_facts(tenants, machines) := {"server": _server(tenants), "machines": machines, "namespaces": _namespaces}

_small := {"cpu": 2, "memory": "4Gi"}

# Three machines that count, one of them adopted, and others: of another namespace, in another folder.
_crowd := [
	_other("team-a", "/dc/vm/a", _small),
	_other("team-a-ci", "/dc/vm/a/deep/er", {"cpu": 4, "memory": "1536Mi"}),
	_other("team-b", "/dc/vm/a", {"cpu": 64, "memory": "1Ti"}),
	_other("team-a", "/dc/vm/b", {"cpu": 64, "memory": "1Ti"}),
	_other("team-a", "/dc/vm/a2", {"cpu": 64, "memory": "1Ti"}),
	{
		"metadata": {"name": "x", "namespace": "team-a", "uid": "u-2", "creationTimestamp": "2026-11-20T09:00:00Z"},
		"spec": {"runtime": {"vsphere": {"serverRef": {"name": "vc-1"}, "inventoryPath": "/dc/vm/a/x"}}},
	},
]

_verdict := "not understood" if not policy.valid_input

_verdict := concat(", ", [denial.reason | some denial in policy.deny]) if {
	policy.valid_input
	count(policy.deny) > 0
}

_verdict := "allow" if {
	policy.valid_input
	count(policy.deny) == 0
}

_causes := concat("; ", [denial.cause | some denial in policy.deny])

test_facts if {
	policy.facts == {
		"server": {"apiVersion": "sallyport.dev/v1alpha1", "kind": "VSphereServer", "name": "vc-1"},
		"machines": {
			"apiVersion": "sallyport.dev/v1alpha1", "kind": "VirtualMachine", "namespaces": ["team-a", "team-a-ci"],
			"fields": {"spec.runtime.vsphere.serverRef.name": "vc-1"},
		},
		"namespaces": {"apiVersion": "v1", "kind": "Namespace"},
	} with input as {"request": _request(_small), "facts": _known_first([_limited({"machines": 9})])}
}

_known_first(tenants) := object.remove(_facts(tenants, []), ["machines"])

# Only the machines of the namespaces that share the quota are read, and none if no quota applies.
test_machines_that_are_read[note] if {
	some note, tc in {
		"by name": {"tenants": [_limited({"machines": 9})], "read": ["team-a", "team-a-ci"]},
		"a namespace that is not known": {"tenants": [_for(["team-a", "gone"])], "read": ["gone", "team-a"]},
		"by labels": {"tenants": [_selecting({"team": "a"})], "read": ["team-a", "team-a-ci"]},
		"all": {"tenants": [_selecting({})], "read": ["plain", "team-a", "team-a-ci", "team-b"]},
		"of two entries": {"tenants": [_for(["team-a", "team-b"]), _limited({"cpu": 9})], "read": ["team-a", "team-a-ci", "team-b"]},
		"no quota": {"tenants": [_tenant({})], "read": null},
		"an empty quota": {"tenants": [_limited({})], "read": null},
		"an entry without a quota": {"tenants": [_limited({"machines": 9}), _tenant({})], "read": null},
		"of another tenant": {"tenants": [object.union(_limited({"machines": 9}), {"namespaces": {"names": ["team-b"]}})], "read": null},
		"no tenants": {"tenants": [], "read": null},
	}
	_read == tc.read with input as {"request": _request(_small), "facts": _known_first(tc.tenants)}
}

# A quota for what the request does not add is no reason to read anything.
test_machines_that_an_update_reads[note] if {
	some note, tc in {
		"of what grows": {"quota": {"cpu": 9}, "read": ["team-a", "team-a-ci"]},
		"of something else": {"quota": {"memory": "9Gi", "machines": 1}, "read": null},
	}
	_read == tc.read with input as {"request": _update(_small, {"cpu": 3, "memory": "4Gi"}), "facts": _known_first([_limited(tc.quota)])}
}

_read := null if policy.facts.machines == null

_read := sort(policy.facts.machines.namespaces) if policy.facts.machines != null

_for(names) := object.union(_limited({"machines": 9}), {"namespaces": {"names": names}})

_selecting(labels) := object.union(
	object.remove(_limited({"machines": 9}), ["namespaces"]),
	{"namespaces": {"selector": {"matchLabels": labels}}},
)

_nothing := {"server": null, "machines": null, "namespaces": null}

_by_us(more) := object.union(
	object.union(_request(_small), {"userInfo": {"username": "system:sallyport"}}),
	{"object": more},
)

test_not_asked[note] if {
	some note, request in {
		"adopted": json.remove(_request({}), ["object/spec/runtime/vsphere/clone"]),
		"another runtime": object.union(json.remove(_request(_small), ["object/spec/runtime"]), {"object": {"spec": {"runtime": {"pod": {}}}}}),
		"nothing changes": _update(_small, _small),
		"it shrinks": _update(_small, {"cpu": 1, "memory": "1Gi"}),
		"the same in other words": _update(_small, {"cpu": 2, "memory": "4096Mi"}),
		"it is being deleted": object.union(_request(_small), {"object": {"metadata": {"deletionTimestamp": "2026-11-20T10:31:57Z"}}}),
		"it was made": _by_us({"status": {"instanceID": "50120a8b-7a3c-4bde-9f00-0123456789ab"}}),
	}
	policy.facts == _nothing with input.request as request
	_verdict == "allow" with input as {"request": request, "facts": _nothing}
}

# 3 machines with 6 CPUs and 5.5 GiB are used, and 1 machine with 2 CPUs and 4 GiB is requested.
test_limits[note] if {
	some note, tc in {
		"none": {"quota": {}, "verdict": "allow"},
		"all just fit": {"quota": {"machines": 4, "cpu": 8, "memory": "9728Mi"}, "verdict": "allow"},
		"machines": {"quota": {"machines": 3, "cpu": 8, "memory": "1Ti"}, "verdict": "QuotaExceeded"},
		"no machine at all": {"quota": {"machines": 0}, "verdict": "QuotaExceeded"},
		"cpu": {"quota": {"machines": 4, "cpu": 7}, "verdict": "QuotaExceeded"},
		"memory": {"quota": {"memory": "9727Mi"}, "verdict": "QuotaExceeded"},
	}
	world := {"request": _request(_small), "facts": _facts([_limited(tc.quota)], _crowd)}
	_verdict == tc.verdict with input as world
}

# For a machine with a storage policy instead of a datastore, the quotas of entries with datastores count.
test_datastore_left_to_a_policy[note] if {
	some note, tc in {
		"some": {"tenant": {"datastores": ["/dc/datastore/e"]}, "verdict": "QuotaExceeded"},
		"none": {"tenant": {"datastores": []}, "verdict": "allow"},
	}
	left := object.union(
		json.remove(_request(_small), ["object/spec/runtime/vsphere/clone/datastore"]),
		{"object": {"spec": {"runtime": {"vsphere": {"clone": {"storagePolicy": "gold"}}}}}},
	)
	tenant := object.union_n([_limited({"machines": 2}), {"storagePolicies": ["gold"]}, tc.tenant])
	_verdict == tc.verdict with input as {"request": left, "facts": _facts([tenant], _crowd)}
}

test_exceeded if {
	quota := {"machines": 3, "cpu": 7, "memory": "8Gi"}
	policy.deny == {{
		"reason": "QuotaExceeded",
		"message": "this machine is not allowed",
		"cause": concat("", [
			"namespace team-a would exceed its quota on VSphereServer vc-1: ",
			"entry a: cpu requested 2, used 6, limit 7; entry a: machines requested 1, used 3, limit 3; ",
			"entry a: memory requested 4Gi, used 5632Mi, limit 8Gi",
		]),
		"details": {"kind": "VSphereServer", "name": "vc-1", "field": "spec.runtime.vsphere.clone"},
	}} with input as {"request": _request(_small), "facts": _facts([_limited(quota)], _crowd)}
}

test_whole_gibibytes_are_shown_as_such if {
	said := _causes with input as {
		"request": _request({"memory": "2Gi"}),
		"facts": _facts([_limited({"memory": "5Gi"})], [_other("team-a", "/dc/vm/a", {"memory": "4096Mi"})]),
	}
	contains(said, "memory requested 2Gi, used 4Gi, limit 5Gi")
}

# Machines without a size count as machines.
test_machines_of_unknown_size if {
	facts := _facts([_limited({"machines": 2, "cpu": 2, "memory": "4Gi"})], [_other("team-a", "/dc/vm/a", {})])
	_verdict == "allow" with input as {"request": _request(_small), "facts": facts}
}

test_size_required[note] if {
	some note, tc in {
		"cpu": {"spec": {"memory": "4Gi"}, "quota": {"cpu": 8}, "fields": {"spec.cpu"}},
		"memory": {"spec": {"cpu": 2}, "quota": {"memory": "8Gi"}, "fields": {"spec.memory"}},
		"both": {"spec": {}, "quota": {"cpu": 8, "memory": "8Gi"}, "fields": {"spec.cpu", "spec.memory"}},
	}
	world := {"request": _request(tc.spec), "facts": _facts([_limited(tc.quota)], [])}
	policy.valid_input with input as world
	{denial.reason | some denial in policy.deny} == {"SizeRequired"} with input as world
	{denial.details.field | some denial in policy.deny} == tc.fields with input as world
}

test_size_required_message if {
	some denial in policy.deny with input as {"request": _request({}), "facts": _facts([_limited({"cpu": 8})], [])}
	denial == {
		"reason": "SizeRequired",
		"code": 422,
		"message": "spec.cpu: must be set",
		"cause": "entry a of VSphereServer vc-1 has a quota for cpu in namespace team-a",
		"details": {"kind": "VSphereServer", "name": "vc-1", "field": "spec.cpu"},
	}
}

# An exceeded quota is reported before a missing size.
test_size_is_not_required_where_there_is_no_room if {
	facts := _facts([_limited({"machines": 0, "cpu": 8})], [])
	_verdict == "QuotaExceeded" with input as {"request": _request({}), "facts": facts}
}

test_several_entries[note] if {
	some note, tc in {
		"one has room": {"tenants": [_limited({"machines": 0}), _tenant({"name": "b"})], "verdict": "allow"},
		"one has room, and does not allow the places": {
			"tenants": [_limited({"machines": 0}), _tenant({"name": "b", "datastores": []})],
			"verdict": "QuotaExceeded",
		},
		"one has room, and is for others": {
			"tenants": [_limited({"machines": 0}), _tenant({"name": "b", "namespaces": {"names": ["team-b"]}})],
			"verdict": "QuotaExceeded",
		},
		"none": {"tenants": [_limited({"machines": 0}), _tenant({"name": "b", "quota": {"cpu": 1}})], "verdict": "QuotaExceeded"},
		"one needs to know": {"tenants": [_limited({"machines": 0}), _tenant({"name": "b", "quota": {"memory": 1}})], "verdict": "SizeRequired"},
		"none allows the places": {"tenants": [_tenant({"folders": ["/dc/vm/b"], "quota": {"machines": 0}})], "verdict": "allow"},
		"no entries": {"tenants": [], "verdict": "allow"},
	}
	_verdict == tc.verdict with input as {"request": _request({"cpu": 2}), "facts": _facts(tc.tenants, [])}
}

# Without quotas, the other machines are not checked.
test_no_quota if {
	_verdict == "allow" with input as {"request": _request({}), "facts": _facts([_tenant({})], ["Bogus"])}
}

test_no_server if {
	facts := {"server": null, "machines": [], "namespaces": _namespaces}
	_verdict == "allow" with input as {"request": _request(_small), "facts": facts}
}

test_server_without_tenants if {
	facts := {"server": {"metadata": {"name": "vc-1"}, "spec": {}}, "machines": [], "namespaces": []}
	_verdict == "allow" with input as {"request": _request(_small), "facts": facts}
}

# A selector counts the machines of all namespaces that match now, and none of a namespace with unknown labels.
test_by_labels[note] if {
	some note, tc in {
		"all of them": {"machines": 3, "verdict": "QuotaExceeded"},
		"room for one more": {"machines": 4, "verdict": "allow"},
	}
	tenant := object.union(
		object.remove(_limited({"machines": tc.machines}), ["namespaces"]),
		{"namespaces": {"selector": {"matchLabels": {"team": "a"}}}},
	)
	crowd := array.concat(_crowd, [_other("gone", "/dc/vm/a", {}), _other("plain", "/dc/vm/a", {})])
	_verdict == tc.verdict with input as {"request": _request(_small), "facts": _facts([tenant], crowd)}
}

# Only increases are checked, against the usage of the other machines.
test_updates[note] if {
	some note, tc in {
		"cpu grows into the room": {"old": _small, "new": {"cpu": 4, "memory": "4Gi"}, "quota": {"cpu": 10}, "verdict": "allow"},
		"cpu grows out of it": {"old": _small, "new": {"cpu": 5, "memory": "4Gi"}, "quota": {"cpu": 10}, "verdict": "QuotaExceeded"},
		"memory grows": {"old": _small, "new": {"cpu": 2, "memory": "5Gi"}, "quota": {"memory": "10Gi"}, "verdict": "QuotaExceeded"},
		"cpu grows, memory is exceeded": {
			"old": _small, "new": {"cpu": 4, "memory": "4Gi"},
			"quota": {"cpu": 10, "memory": "1Gi", "machines": 0}, "verdict": "allow",
		},
		"said at last": {"old": {}, "new": _small, "quota": {"cpu": 7}, "verdict": "QuotaExceeded"},
		"not said any more": {"old": _small, "new": {"cpu": 2}, "quota": {"memory": "1Ti"}, "verdict": "SizeRequired"},
	}
	some leaving in [{}, {"object": {"metadata": {"deletionTimestamp": "2026-11-20T10:31:57Z"}}}] # what it is counts until it is gone
	request := object.union(_update(tc.old, tc.new), leaving)
	_verdict == tc.verdict with input as {"request": request, "facts": _facts([_limited(tc.quota)], _crowd)}
}

# What another namespace's machine is never decides whether a request is understood: an odd size uses up the entries that it counts in,
# and no others.
test_others_that_are_not_understood[note] if {
	some note, tc in {
		"another entry": {"namespace": "team-b", "folder": "/dc/vm/a", "size": "8gi", "verdict": "allow"},
		"another folder": {"namespace": "team-a", "folder": "/dc/vm/b", "size": "8gi", "verdict": "allow"},
		"the same entry": {"namespace": "team-a-ci", "folder": "/dc/vm/a", "size": "8gi", "verdict": "QuotaExceeded"},
		"other words for 8Gi": {"namespace": "team-a-ci", "folder": "/dc/vm/a", "size": "00000000000000000000008Gi", "verdict": "allow"},
		"nothing": {"namespace": "team-a-ci", "folder": "/dc/vm/a", "size": null, "verdict": "QuotaExceeded"},
	}
	facts := _facts([_limited({"memory": "12Gi"})], [_other(tc.namespace, tc.folder, {"memory": tc.size})])
	_verdict == tc.verdict with input as {"request": _request(_small), "facts": facts}
}

test_others_that_are_not_understood_message if {
	facts := _facts([_limited({"memory": "1Ti", "cpu": 9})], [_other("team-a-ci", "/dc/vm/a", {"memory": "8gi"})])
	endswith(_causes, ": entry a: memory used is unknown because spec.memory of a VirtualMachine is not a quantity") with input as {
		"request": _request(_small), "facts": facts,
	}
}

test_others_of_any_shape[note] if {
	some note, machines in _odd_machines
	_verdict == "allow" with input as {"request": _request(_small), "facts": object.union(_good, {"machines": machines})}
}

_odd_machines := {$"machine's {path} {what}": [_replaced(_other("team-a", "/dc/vm/a", _small), path, value)] |
	some path in ["spec/runtime/vsphere/clone", "spec/runtime/vsphere/clone/folder", "spec/cpu", "spec/memory"]
	some what, value in _wrong
}

# It counts in all entries of its namespace.
test_a_folder_that_is_not_understood[note] if {
	some note, tc in {
		"the entry of its namespace": {"namespace": "team-a-ci", "verdict": "QuotaExceeded"},
		"another entry": {"namespace": "team-b", "verdict": "allow"},
	}
	facts := _facts([_limited({"machines": 1})], [_replaced(_other(tc.namespace, "/dc/vm/a", {}), "spec/runtime/vsphere/clone/folder", 7)])
	_verdict == tc.verdict with input as {"request": _request(_small), "facts": facts}
}

# When the reconciler evaluates the policy again, only older machines count: by time, then by UID.
test_older_ones_count[note] if {
	some note, tc in {
		"an older one": {"uid": "u-9", "at": "2026-11-20T09:59:59Z", "verdict": "QuotaExceeded"},
		"as old, with a smaller UID": {"uid": "u-4", "at": "2026-11-20T10:00:00Z", "verdict": "QuotaExceeded"},
		"as old, with a larger UID": {"uid": "u-6", "at": "2026-11-20T10:00:00Z", "verdict": "allow"},
		"a younger one": {"uid": "u-1", "at": "2026-11-20T10:00:01Z", "verdict": "allow"},
	}
	other := object.union(_other("team-a", "/dc/vm/a", {}), {"metadata": {"uid": tc.uid, "creationTimestamp": tc.at}})
	facts := _facts([_limited({"machines": 1})], [other])
	_verdict == tc.verdict with input as {"request": _by_us({}), "facts": facts}
	_verdict == "QuotaExceeded" with input as {"request": _request(_small), "facts": facts}
}

_wrong := {
	"null": null, "empty": "", "a list": [], "an object": {}, "true": true, "unknown": "Bogus", "less than nothing": "-",
}

_replaced(document, path, value) := object.union(document, json.unmarshal(concat("", [
	concat("", [$"\{{json.marshal(key)}:" | some key in split(path, "/")]),
	json.marshal(value),
	concat("", ["}" | some _ in split(path, "/")]),
])))

test_not_understood_request[note] if {
	some note, request in object.union(
		{$"{path} missing": json.remove(_request(_small), [path]) |
			some path in [
				"operation", "namespace", "object", "object/spec", "object/spec/runtime", "object/spec/runtime/vsphere/serverRef",
				"object/spec/runtime/vsphere/serverRef/name", "object/spec/runtime/vsphere/clone/folder",
			]
		},
		{$"{path} {value}": _replaced(_request(_small), path, value) |
			some [path, value] in [
				["operation", "Bogus"], ["namespace", ""], ["object/spec/cpu", "Bogus"], ["object/spec/memory", ""], ["object/spec/memory", "-"],
				["object/spec/runtime/vsphere/serverRef/name", ""], ["object/spec/runtime/vsphere/clone/folder", "Bogus"],
			]
		},
	)
	_verdict == "not understood" with input as {"request": request, "facts": _facts([_limited({"machines": 9})], [])}
}

test_not_understood_update[note] if {
	some note, request in {
		"no old object": object.remove(_update({}, _small), ["oldObject"]),
		"an odd size now": _update(_small, {"cpu": 2, "memory": "Bogus"}),
		"an odd size before": _update({"cpu": 2, "memory": "Bogus"}, _small),
		"nobody knows how old": object.union(_by_us({}), {"object": {"metadata": {"creationTimestamp": null}}}),
		"nobody knows who": object.union(_by_us({}), {"object": {"metadata": {"uid": ""}}}),
	}
	_verdict == "not understood" with input as {"request": request, "facts": _facts([_limited({"machines": 9})], [])}
}

_good := _facts([_limited({"machines": 9})], _crowd)

_broken_facts := object.union_n([
	{$"{fact} missing": object.remove(_good, [fact]) | some fact, _ in _good},
	{"the server's name missing": json.remove(_good, ["server/metadata/name"]), "the server's spec missing": json.remove(_good, ["server/spec"])},
	{"another server": object.union(_good, {"server": {"metadata": {"name": "vc-2"}}})},
	{$"limit {value}": _facts([_limited({"cpu": value})], []) | some value in ["", "Bogus", "-"]},
	{$"machine without {path}": object.union(_good, {"machines": [json.remove(_other("team-a", "/dc/vm/a", _small), [path])]}) |
		some path in ["metadata/namespace", "metadata/uid", "metadata/creationTimestamp", "spec/runtime/vsphere"]
	},
	{$"machine with {path} {value}": object.union(_good, {"machines": [_replaced(_other("team-a", "/dc/vm/a", _small), path, value)]}) |
		some [path, value] in [["metadata/namespace", ""], ["metadata/uid", ""], ["metadata/creationTimestamp", null]]
	},
	{"a namespace without a name": object.union(_good, {"namespaces": [{"metadata": {}}]})},
])

test_not_understood_facts[note] if {
	some note, facts in _broken_facts
	_verdict == "not understood" with input as {"request": _request(_small), "facts": facts}
}

# An adopted machine counts in the folder of its path; one that is named by its instance UUID counts in all entries of its namespace.
test_adopted_machines_count[note] if {
	some note, tc in {
		"in the folder": {"runtime": {"inventoryPath": "/dc/vm/a/deep/x"}, "verdict": "QuotaExceeded"},
		"elsewhere": {"runtime": {"inventoryPath": "/dc/vm/b/x"}, "verdict": "allow"},
		"anywhere": {"runtime": {"instanceUUID": "50120a8b-7a3c-4bde-9f00-0123456789ab"}, "verdict": "QuotaExceeded"},
		"an odd path": {"runtime": {"inventoryPath": 7}, "verdict": "QuotaExceeded"},
	}
	other := object.union(json.remove(_other("team-a", "", {}), ["spec/runtime/vsphere/clone"]), {"spec": {"runtime": {"vsphere": tc.runtime}}})
	_verdict == tc.verdict with input as {"request": _request(_small), "facts": _facts([_limited({"machines": 1})], [other])}
}

_given(spec, allocated) := object.union(_other("team-a", "/dc/vm/a", spec), {"status": {"allocated": allocated}})

# A machine counts with what it asks for and with what it still has.
test_the_larger_size_counts[note] if {
	some note, tc in {
		"to grow": {"other": _given({"cpu": 6}, {"cpu": 2}), "verdict": "QuotaExceeded"},
		"to shrink": {"other": _given({"cpu": 2}, {"cpu": 6}), "verdict": "QuotaExceeded"},
		"as it is": {"other": _given({"cpu": 2}, {"cpu": 2}), "verdict": "allow"},
		"not said any more": {"other": _given({}, {"cpu": 6}), "verdict": "QuotaExceeded"},
		"an odd status": {"other": _given({"cpu": 2}, "x"), "verdict": "allow"},
		"an odd size": {"other": _given({"cpu": 2}, {"cpu": "x"}), "verdict": "QuotaExceeded"},
	}
	_verdict == tc.verdict with input as {"request": _request(_small), "facts": _facts([_limited({"cpu": 5})], [tc.other])}
}

# Before a machine is given its size, others count with what they were given, however old they are: of two that were resized at the same
# time, each of which was admitted, the first is given its size, and the second is not.
test_resized_at_once[note] if {
	some note, tc in {
		"the first": {"other": _given({"cpu": 4}, {"cpu": 2}), "verdict": "allow"},
		"the second": {"other": _given({"cpu": 4}, {"cpu": 4}), "verdict": "QuotaExceeded"},
		"of nothing is known": {"other": _other("team-a", "/dc/vm/a", {"cpu": 4}), "verdict": "QuotaExceeded"},
		"memory alone is known": {"other": _given({"cpu": 4}, {"memory": "1Gi"}), "verdict": "QuotaExceeded"},
	}
	some at in ["2026-11-20T09:59:59Z", "2026-11-20T10:00:01Z"]
	other := object.union(tc.other, {"metadata": {"creationTimestamp": at}})
	resized := object.union(_update({"cpu": 2}, {"cpu": 4}), {
		"userInfo": {"username": "system:sallyport"},
		"object": {"status": {"instanceID": "50120a8b-7a3c-4bde-9f00-0123456789ab"}},
	})
	_verdict == tc.verdict with input as {"request": resized, "facts": _facts([_limited({"cpu": 7})], [other])}
}
