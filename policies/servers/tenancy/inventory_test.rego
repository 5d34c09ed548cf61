package sallyport.servers.tenancy_test

import data.sallyport.servers.tenancy as policy

# The places in the vCenter, of those that _maker and _other_maker allow.
_inventory := {
	"folders": {"complete": true, "paths": ["/dc/vm/a", "/dc/vm/a/web"]},
	"resourcePools": {"complete": true, "paths": ["/dc/host/c", "/dc/host/c/Resources", "/dc/host/c/Resources/a"]},
	"datastores": {"complete": true, "paths": ["/dc/datastore/fast", "/secret"]},
	"networks": {"complete": true, "paths": ["/dc/network/a", "/dc/network/b"]},
	"templates": {"complete": true, "paths": ["/dc/vm/templates/t"]},
}

_ready(more) := object.union({"type": "Ready", "status": "True", "observedGeneration": 3}, more)

_seen(inventory, conditions) := object.union(_facts([_other_maker, _maker({})]), {"server": {
	"metadata": {"generation": 3},
	"status": {"conditions": conditions, "inventory": inventory},
}})

_today(inventory) := _seen(object.union(_inventory, inventory), [{"type": "Other", "status": "True", "observedGeneration": 3}, _ready({})])

test_inventory_listed[note] if {
	some note, change in {
		"all of it": {},
		"another case": {"folder": "/dc/vm/a/WEB", "template": {"inventoryPath": "/dc/vm/templates/T"}},
		"the cluster": {"resourcePool": "/dc/host/c"},
	}
	_verdict == "allow" with input as {"request": _cloning(change), "facts": _today({})}
}

# The requested places, the field, its kind, and what is available.
_inventory_denials := {
	"folder": {"change": {"folder": "/dc/vm/a/webb"}, "field": "folder", "kind": "folder", "usable": "/dc/vm/a, /dc/vm/a/web"},
	"resource pool": {
		"change": {"resourcePool": "/dc/host/c/Resources/b"}, "field": "resourcePool", "kind": "resource pool, cluster or host",
		"usable": "/dc/host/c, /dc/host/c/Resources, /dc/host/c/Resources/a",
	},
	"datastore": {"change": {"datastore": "/dc/datastore/fast/er"}, "field": "datastore", "kind": "datastore", "usable": "/dc/datastore/fast"},
	"network": {
		"change": {"networks": ["/dc/network/a", "/dc/network/c"]}, "field": "networks[1]", "kind": "network",
		"usable": "/dc/network/a, /dc/network/b",
	},
	"template": {
		"change": {"template": {"inventoryPath": "/dc/vm/templates/t2"}}, "field": "template.inventoryPath", "kind": "template",
		"usable": "/dc/vm/templates/t",
	},
}

test_inventory_lacks[note] if {
	some note, tc in _inventory_denials
	world := {"request": _cloning(tc.change), "facts": _today({})}
	policy.valid_input with input as world
	request := world.request.object.spec.runtime.vsphere.clone
	path := object.union(
		{"template.inventoryPath": request.template.inventoryPath, "networks[1]": request.networks[1]},
		request,
	)[tc.field]
	policy.deny == {{
		"reason": "PlaceNotFound",
		"code": 422,
		"message": $"spec.runtime.vsphere.clone.{tc.field}: {tc.kind} {path} does not exist on VSphereServer vc-1",
		"remedy": concat("", [
			$"available to namespace team-a: {tc.usable}; new ones appear in status.inventory within a minute: ",
			"kubectl get vsphereserver vc-1 -o yaml",
		]),
		"details": {"kind": "VSphereServer", "name": "vc-1", "field": $"spec.runtime.vsphere.clone.{tc.field}"},
	}} with input as world
}

test_inventory_empty if {
	facts := json.remove(_today({"datastores": {"complete": true, "paths": []}}), ["server/status/inventory/folders/paths"])
	said := {_text(denial) | some denial in policy.deny} with input as {"request": _cloning({}), "facts": facts}
	count(said) == 2
	every text in said { contains(text, "available to namespace team-a: none;") }
}

# No datastore is requested that could be missing.
test_inventory_with_a_storage_policy if {
	_verdict == "allow" with input as {"request": _anywhere, "facts": _today({"datastores": {"complete": true, "paths": []}})}
}

# Incomplete or outdated lists deny nothing.
test_inventory_not_relied_on[note] if {
	none := {field: {"complete": true, "paths": []} | some field, _ in _inventory}
	some note, facts in {
		"not complete": _today({field: {"complete": false, "paths": []} | some field, _ in _inventory}),
		"not there": json.remove(_today({}), ["server/status/inventory"]),
		"no status": json.remove(_today({}), ["server/status"]),
		"not ready": _seen(none, [_ready({"status": "False"})]),
		"of another spec": _seen(none, [_ready({"observedGeneration": 2})]),
		"another condition": _seen(none, [_ready({"type": "Other"})]),
		"no condition": _seen(none, []),
		"conditions missing": json.remove(_seen(none, []), ["server/status/conditions"]),
	}
	_verdict == "allow" with input as {"request": _cloning({}), "facts": facts}
}

# An admitted machine that is about to be cloned is not denied if a place disappears.
test_inventory_only_of_what_is_new[note] if {
	facts := _today({"templates": {"complete": true, "paths": []}})
	same := _vsphere({"clone": _clone})
	some note, request in {
		"ours": object.union(_cloning({}), {"userInfo": {"username": "system:sallyport"}}),
		"changed": _change(object.union(same, {"serverRef": {"name": "vc-2"}}), same),
	}
	_verdict == "allow" with input as {"request": request, "facts": facts}
}

# A namespace that may not use a place cannot find out whether it exists.
test_inventory_of_others_is_not_told if {
	_verdict == "DatastoreNotAllowed" with input as {"request": _cloning({"datastore": "/secret2"}), "facts": _today({})}
	said := _messages with input as {"request": _cloning({"datastore": "/dc/datastore/fast/er"}), "facts": _today({})}
	not contains(said, "secret")
}

test_inventory_not_understood[note] if {
	some note, facts in object.union(
		{$"without {field}": _seen(object.remove(_inventory, [field]), [_ready({})]) | some field, _ in _inventory},
		{$"{field} without complete": _seen(json.remove(_inventory, [$"{field}/complete"]), [_ready({})]) | some field, _ in _inventory},
	)
	_verdict == "not understood" with input as {"request": _cloning({}), "facts": facts}
}

_with_hosts(hosts) := object.union(_today({}), {"server": object.union(_today({}).server, {
	"status": object.union(_today({}).server.status, {"hosts": hosts}),
})})

_on(host, request) := object.union(request, {"object": object.union(request.object, {
	"spec": object.union(request.object.spec, {"nodeName": host}),
})})

_hosts := [{"name": "esx-2"}, {"name": "esx-1"}]

test_host_listed[note] if {
	some note, request in {
		"named": _on("esx-1", _cloning({})),
		"left to vCenter": _on("", _cloning({})),
		"about to be made": object.union(_on("esx-9", _cloning({})), {"userInfo": {"username": "system:sallyport"}}),
	}
	_verdict == "allow" with input as {"request": request, "facts": _with_hosts(_hosts)}
}

test_host_not_listed[note] if {
	some note, tc in {
		"two": {"hosts": _hosts, "has": "esx-1, esx-2"},
		"none": {"hosts": [], "has": "none"},
	}
	policy.deny == {{
		"reason": "HostNotFound",
		"code": 422,
		"message": "spec.nodeName: host esx-9 does not exist on VSphereServer vc-1",
		"remedy": $"available: {tc.has}; leave the field empty to let vCenter choose one",
		"details": {"kind": "VSphereServer", "name": "vc-1", "field": "spec.nodeName"},
	}} with input as {"request": _on("esx-9", _cloning({})), "facts": _with_hosts(tc.hosts)}
}

test_hosts_not_understood if {
	_verdict == "not understood" with input as {"request": _cloning({}), "facts": _with_hosts([{}])}
}
