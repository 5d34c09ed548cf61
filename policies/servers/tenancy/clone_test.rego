package sallyport.servers.tenancy_test

import data.sallyport.servers.tenancy as policy

_clone := {
	"folder": "/dc/vm/a/web", "resourcePool": "/dc/host/c/Resources/a", "datastore": "/dc/datastore/fast",
	"template": {"inventoryPath": "/dc/vm/templates/t"}, "networks": ["/dc/network/a", "/dc/network/a"],
}

_cloning(more) := _request(_vsphere({"clone": object.union(_clone, more)}))

# Adoption is not required.
_maker(more) := object.union(
	{
		"name": "a", "namespaces": {"names": ["team-a"]},
		"folders": ["/dc/vm/a"], "resourcePools": ["/dc/host/c"], "datastores": ["/dc/datastore/fast"],
		"networks": ["/dc/network"], "templates": ["/dc/vm/templates"], "storagePolicies": ["gold", "silver/%zz"],
	},
	more,
)

_other_maker := object.union(_maker({}), {
	"name": "secret-b", "namespaces": {"names": ["team-b"]},
	"folders": ["/secret"], "resourcePools": ["/secret"], "datastores": ["/secret"], "networks": ["/secret"], "templates": ["/secret"],
})

_found_at(request, folder) := object.union(request, {
	"object": {"spec": {"runtime": {"vsphere": {"clone": {"folder": folder}}}}},
	"userInfo": {"username": "system:sallyport"},
})

test_clone_allowed[note] if {
	some note, tc in {
		"all of it": {"request": _cloning({}), "tenants": [_maker({})]},
		"the folder itself": {"request": _cloning({"folder": "/dc/vm/a"}), "tenants": [_maker({})]},
		"the cluster itself": {"request": _cloning({"resourcePool": "/dc/host/c"}), "tenants": [_maker({})]},
		"the pool itself": {"request": _cloning({}), "tenants": [_maker({"resourcePools": ["/dc/host/c/Resources/a"]})]},
		"the template itself": {"request": _cloning({}), "tenants": [_maker({"templates": ["/dc/vm/templates/t"]})]},
		"the second entry": {"request": _cloning({}), "tenants": [_other_maker, _maker({"folders": []}), _maker({"name": "b"})]},
		"where it was found": {"request": _found_at(_cloning({}), "/dc/vm/a/moved"), "tenants": [_maker({})]},
	}
	_verdict == "allow" with input as {"request": tc.request, "facts": _facts(tc.tenants)}
}

# The requested places, the reason of the denial, the field, and the allowed places.
_clone_denials := {
	"folder": {
		"change": {"folder": "/dc/vm/ab"}, "reason": "FolderNotAllowed", "field": "folder",
		"refused": "/dc/vm/ab", "usable": "/dc/vm/a",
	},
	"resource pool": {
		"change": {"resourcePool": "/dc/host/c2/Resources"}, "reason": "ResourcePoolNotAllowed", "field": "resourcePool",
		"refused": "/dc/host/c2/Resources", "usable": "/dc/host/c",
	},
	"datastore": {
		"change": {"datastore": "/dc/datastore/slow"}, "reason": "DatastoreNotAllowed", "field": "datastore",
		"refused": "/dc/datastore/slow", "usable": "/dc/datastore/fast",
	},
	"network": {
		"change": {"networks": ["/dc/network/a", "/dc/net/b"]}, "reason": "NetworkNotAllowed", "field": "networks[1]",
		"refused": "/dc/net/b", "usable": "/dc/network",
	},
	"template": {
		"change": {"template": {"inventoryPath": "/dc/vm/a/t"}}, "reason": "TemplateNotAllowed", "field": "template.inventoryPath",
		"refused": "/dc/vm/a/t", "usable": "/dc/vm/templates",
	},
}

test_clone_denied[note] if {
	some note, tc in _clone_denials
	world := {"request": _cloning(tc.change), "facts": _facts([_other_maker, _maker({})])}
	policy.valid_input with input as world
	policy.deny == {{
		"reason": tc.reason,
		"message": $"spec.runtime.vsphere.clone.{tc.field}: namespace team-a may not use {tc.refused} on VSphereServer vc-1",
		"remedy": $"allowed: {tc.usable}",
		"details": {"kind": "VSphereServer", "name": "vc-1", "field": $"spec.runtime.vsphere.clone.{tc.field}"},
	}} with input as world
}

# Each denial lists the allowed places of all entries of the namespace.
test_clone_several_denied if {
	world := {
		"request": _cloning({"datastore": "/dc/x", "networks": ["/dc/x", "/dc/y"]}),
		"facts": _facts([_maker({}), _maker({"name": "b", "datastores": ["/dc/datastore/b"]}), _maker({"name": "c", "networks": []})]),
	}
	{denial.details.field | some denial in policy.deny} == {
		"spec.runtime.vsphere.clone.datastore", "spec.runtime.vsphere.clone.networks[0]", "spec.runtime.vsphere.clone.networks[1]",
	} with input as world
	some denial in policy.deny with input as world
	denial.reason == "DatastoreNotAllowed"
	endswith(_text(denial), "allowed: /dc/datastore/b, /dc/datastore/fast")
}

test_clone_nothing_allowed if {
	world := {"request": _cloning({}), "facts": _facts([_other_maker, {"name": "a", "namespaces": {"names": ["team-a"]}}])}
	count(policy.deny) == 6 with input as world
	every denial in policy.deny { endswith(_text(denial), "allowed: none") } with input as world
}

_anywhere := _request(_vsphere({"clone": object.union(object.remove(_clone, ["datastore"]), {"storagePolicy": "gold"})}))

# A machine with a storage policy instead of a datastore gets the datastores of the entries that allow its other places.
test_clone_with_a_storage_policy if {
	world := {
		"request": _anywhere,
		"facts": _facts([_other_maker, _maker({"datastores": ["/dc/datastore/b", "/dc/datastore/a"]}), _maker({"name": "b", "folders": []})]),
	}
	_verdict == "allow" with input as world
	policy.outcome == {"datastores": {"/dc/datastore/a", "/dc/datastore/b"}} with input as world
	policy.outcome == {"datastores": set()} with input as {"request": _cloning({"storagePolicy": "gold"}), "facts": world.facts}
}

test_clone_with_a_storage_policy_denied if {
	none := {"request": _anywhere, "facts": _facts([_other_maker, _maker({"datastores": []})])}
	policy.outcome == {"datastores": set()} with input as none
	policy.deny == {{
		"reason": "DatastoreNotAllowed",
		"message": "spec.runtime.vsphere.clone.datastore: namespace team-a may not use any datastore on VSphereServer vc-1",
		"remedy": "allowed: none",
		"details": {"kind": "VSphereServer", "name": "vc-1", "field": "spec.runtime.vsphere.clone.datastore"},
	}} with input as none
	apart := {"request": _anywhere, "facts": _facts([_maker({"datastores": []}), _maker({"name": "b", "networks": []})])}
	policy.outcome == {"datastores": set()} with input as apart
	_verdict == "CombinationNotAllowed" with input as apart
	said := _messages with input as apart
	endswith(said, "a does not allow datastore; b does not allow networks[0], networks[1]")
}

# With a datastore or without, an entry must allow the storage policy by its name.
test_clone_storage_policies[note] if {
	some note, tc in {
		"allowed": {"policy": "gold", "tenants": [_other_maker, _maker({})], "verdict": "allow"},
		"a name that is no path": {"policy": "silver/%zz", "tenants": [_maker({})], "verdict": "allow"},
		"another": {"policy": "Gold", "tenants": [_maker({})], "verdict": "StoragePolicyNotAllowed"},
		"none": {"policy": "gold", "tenants": [_maker({"storagePolicies": []})], "verdict": "StoragePolicyNotAllowed"},
		"of others": {"policy": "secret", "tenants": [object.union(_other_maker, {"storagePolicies": ["secret"]}), _maker({})], "verdict": "StoragePolicyNotAllowed"},
		"not together": {
			"policy": "gold", "tenants": [_maker({"storagePolicies": []}), _maker({"name": "b", "networks": []})],
			"verdict": "CombinationNotAllowed",
		},
	}
	_verdict == tc.verdict with input as {"request": _cloning({"storagePolicy": tc.policy}), "facts": _facts(tc.tenants)}
}

test_clone_storage_policy_message if {
	said := _messages with input as {"request": _cloning({"storagePolicy": "platinum"}), "facts": _facts([_maker({})])}
	said == concat("", [
		"spec.runtime.vsphere.clone.storagePolicy: namespace team-a may not use platinum on VSphereServer vc-1; ",
		"allowed: gold, silver/%zz",
	])
}

# An entry that no longer allows the policy does not keep Sallyport from a machine that exists.
test_clone_storage_policy_of_a_machine_that_exists[note] if {
	some note, tc in {
		"exists": {"status": {"instanceID": "i-1"}, "verdict": "allow"},
		"is to be created": {"status": {}, "verdict": "StoragePolicyNotAllowed"},
	}
	request := object.union(_found_at(_cloning({"storagePolicy": "old"}), "/dc/vm/a"), {"object": {"status": tc.status}})
	_verdict == tc.verdict with input as {"request": request, "facts": _facts([_maker({})])}
	theirs := object.union(request, {"userInfo": {"username": "ann"}})
	_verdict == "StoragePolicyNotAllowed" with input as {"request": theirs, "facts": _facts([_maker({})])}
}

test_clone_not_a_tenant if {
	_verdict == "NamespaceNotAllowed" with input as {"request": _cloning({}), "facts": _facts([_other_maker])}
	nowhere := {"request": _cloning({}), "facts": {"server": null, "namespace": _plain, "template": null}}
	_verdict == "VSphereServerNotFound" with input as nowhere
}

test_clone_long_lists_are_cut if {
	many := [$"/dc/vm/f{n}" | some n in ["01", "02", "03", "04", "05", "06", "07", "08", "09", "10", "11"]]
	said := _messages with input as {"request": _cloning({}), "facts": _facts([_maker({"folders": many})])}
	endswith(said, "/dc/vm/f09, /dc/vm/f10 and 1 more")
}

test_clone_no_single_entry if {
	world := {
		"request": _cloning({}),
		"facts": _facts([_other_maker, _maker({"networks": [], "folders": []}), _maker({"name": "b", "datastores": ["/dc/other"]})]),
	}
	policy.deny == {{
		"reason": "CombinationNotAllowed",
		"message": "spec.runtime.vsphere.clone: namespace team-a may not use these places on VSphereServer vc-1 together",
		"cause": concat("", [
			"no single entry in its spec.tenants allows all of them: ",
			"a does not allow folder, networks[0], networks[1]; b does not allow datastore",
		]),
		"details": {"kind": "VSphereServer", "name": "vc-1", "field": "spec.runtime.vsphere.clone"},
	}} with input as world
}

test_clone_malformed[field] if {
	some field, change in {
		"folder": {"folder": "/dc/vm/a/../secret"},
		"resourcePool": {"resourcePool": "/dc/host/c/.."},
		"datastore": {"datastore": "/dc/datastore/./fast"},
		"template.inventoryPath": {"template": {"inventoryPath": "/dc/vm/templates/%2e%2e"}},
		"networks[1]": {"networks": ["/dc/network/a", "/dc/network/100%"]},
	}
	world := {"request": _cloning(change), "facts": _facts([_maker({})])}
	_verdict == "InventoryPathMalformed" with input as world
	some denial in policy.deny with input as world
	denial.code == 422
	denial.details.field == $"spec.runtime.vsphere.clone.{field}"
}

test_clone_malformed_message if {
	said := _messages with input as {"request": _cloning({"datastore": "/dc/../%2e"}), "facts": _facts([_maker({})])}
	said == concat("", [
		"spec.runtime.vsphere.clone.datastore: /dc/../%2e is not allowed because its path contains %2e and ..; ",
		"allowed: /dc/datastore/fast",
	])
}

# Messages do not reveal where the machine was found, but show what its spec has.
test_clone_found_places_are_not_told[folder] if {
	some folder, reason in {
		"/secret/x": "FolderNotAllowed", "/secret/../x": "InventoryPathMalformed", "/secret/%zz": "InventoryPathMalformed",
	}
	world := {"request": _found_at(_cloning({}), folder), "facts": _facts([_other_maker, _maker({})])}
	_verdict == reason with input as world
	said := _messages with input as world
	contains(said, "the machine's folder")
	endswith(said, "allowed: /dc/vm/a")
	count([part | some part in ["secret", "zz", ".."]; contains(said, part)]) == 0
}

test_clone_found_elsewhere_is_told if {
	request := object.union(_cloning({"datastore": "/dc/x"}), {"userInfo": {"username": "system:sallyport"}})
	said := _messages with input as {"request": request, "facts": _facts([_maker({})])}
	contains(said, "may not use /dc/x on VSphereServer vc-1;")
}

test_clone_unchanged_is_not_judged_again if {
	same := _vsphere({"clone": _clone})
	policy.facts == _nothing with input.request as _change(same, same)
	_verdict == "FolderNotAllowed" with input as {
		"request": _change(same, _vsphere({"clone": object.union(_clone, {"folder": "/dc/vm/b"})})),
		"facts": _facts([_maker({})]),
	}
}

test_clone_not_understood[note] if {
	some note, clone in object.union(
		{$"{field} missing": object.remove(_clone, [field]) | some field, _ in _clone},
		{$"{field} {value}": object.union(_clone, {field: value}) |
			some field in ["folder", "resourcePool", "datastore"]
			some value in ["", "Bogus"]
		},
	)
	_verdict == "not understood" with input as {"request": _request(_vsphere({"clone": clone})), "facts": _facts([_maker({})])}
}

_disk(datastore) := {
	"operation": "CREATE", "namespace": "team-a", "resource": {"group": "sallyport.dev", "resource": "virtualdisks"}, "oldObject": null,
	"object": {"metadata": {"name": "data"}, "spec": {"size": "1Gi", "runtime": {"vsphere": _vsphere({"datastore": datastore})}}},
}

test_disk_allowed if {
	_verdict == "allow" with input as {"request": _disk("/dc/datastore/fast"), "facts": _facts([_maker({})])}
}

test_disk_denied if {
	world := {"request": _disk("/secret"), "facts": _facts([_other_maker, _maker({})])}
	policy.valid_input with input as world
	policy.deny == {{
		"reason": "DatastoreNotAllowed",
		"message": "spec.runtime.vsphere.datastore: namespace team-a may not use /secret on VSphereServer vc-1",
		"remedy": "allowed: /dc/datastore/fast",
		"details": {"kind": "VSphereServer", "name": "vc-1", "field": "spec.runtime.vsphere.datastore"},
	}} with input as world
	_verdict == "not understood" with input as {"request": _disk("here"), "facts": _facts([_maker({})])}
	_verdict == "NamespaceNotAllowed" with input as {"request": _disk("/dc/datastore/fast"), "facts": _facts([_other_maker])}
}
