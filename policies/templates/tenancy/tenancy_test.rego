package sallyport.templates.tenancy_test

import data.sallyport.templates.tenancy as policy

# The text of a denial, as the user sees it.
_text(denial) := concat("", [concat("", [mark, denial[key]]) | some [key, mark] in [["message", ""], ["cause", " because "], ["remedy", "; "]]])

_domain(more) := object.union(
	{
		"name": "a", "folder": "/dc/vm/templates/a", "resourcePool": "/dc/host/c/Resources", "datastore": "/dc/datastore/fast",
		"network": "/dc/network/a",
	},
	more,
)

_object(domains) := {"metadata": {"name": "ubuntu"}, "spec": {"serverRef": {"name": "vc-1"}, "failureDomains": domains}}

_request(domains) := {
	"operation": "CREATE", "namespace": "team-a", "userInfo": {"username": "ann"}, "oldObject": null, "object": _object(domains),
}

_change(old, new) := object.union(_request(new), {"operation": "UPDATE", "oldObject": _object(old)})

_ours(request) := object.union(request, {"userInfo": {"username": "system:sallyport"}})

_tenant(more) := object.union(
	{
		"name": "a", "namespaces": {"names": ["team-a"]}, "folders": ["/dc/vm/templates"], "resourcePools": ["/dc/host/c"],
		"datastores": ["/dc/datastore"], "networks": ["/dc/network/a"],
	},
	more,
)

_stranger := _tenant({"name": "b", "namespaces": {"names": ["team-b"]}, "folders": ["/secret"]})

_facts(tenants) := {
	"server": {"metadata": {"name": "vc-1"}, "spec": {"tenants": tenants}},
	"namespace": {"metadata": {"name": "team-a", "labels": {}}},
}

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

test_facts if {
	policy.facts == {
		"server": {"apiVersion": "sallyport.dev/v1alpha1", "kind": "VSphereServer", "name": "vc-1"},
		"namespace": {"apiVersion": "v1", "kind": "Namespace", "name": "team-a"},
	} with input.request as _request([_domain({})])
}

test_not_judged[note] if {
	leaving := {"object": {"metadata": {"deletionTimestamp": "2026-11-23T00:00:00Z"}}}
	some note, request in {
		"nothing of it changes": _change([_domain({"folder": "/secret"})], [_domain({"folder": "/secret"})]),
		"it is being deleted": object.union(_request([_domain({"folder": "/secret"})]), leaving),
	}
	nothing := {"server": null, "namespace": null}
	policy.facts == nothing with input.request as request
	_verdict == "allow" with input as {"request": request, "facts": nothing}
}

# What is being deleted is left alone as long as its places stay.
test_another_place_of_what_is_being_deleted if {
	request := object.union(
		_change([_domain({})], [_domain({"folder": "/secret"})]),
		{"object": {"metadata": {"deletionTimestamp": "2026-11-23T00:00:00Z"}}},
	)
	policy.facts.server.name with input.request as request
}

test_allowed[note] if {
	some note, tc in {
		"one": {"domains": [_domain({})], "tenants": [_stranger, _tenant({})]},
		"the namespace is not known": {"domains": [_domain({})], "tenants": [_tenant({})], "namespace": null},
		"each by an entry of its own": {
			"domains": [_domain({}), _domain({"name": "b", "folder": "/dc2/vm/t"})],
			"tenants": [_tenant({}), _tenant({"name": "c", "folders": ["/dc2/vm"]})],
		},
	}
	facts := object.union(_facts(tc.tenants), {"namespace": object.get(tc, "namespace", _facts([]).namespace)})
	_verdict == "allow" with input as {"request": _request(tc.domains), "facts": facts}
}

test_found if {
	untouched := _domain({"resourcePool": "", "datastore": "", "network": ""})
	_verdict == "allow" with input as {"request": _ours(_request([untouched])), "facts": _facts([_tenant({})])}
	_verdict == "not understood" with input as {"request": _request([untouched]), "facts": _facts([_tenant({})])}
	elsewhere := {"request": _ours(_request([_domain({"folder": "/secret/x"})])), "facts": _facts([_tenant({})])}
	_verdict == "PlaceNotAllowed" with input as elsewhere
	said := _messages with input as elsewhere
	not contains(said, "secret")
	odd := {"request": _ours(_request([_domain({"folder": "/secret/%zz"})])), "facts": _facts([_tenant({})])}
	_verdict == "InventoryPathMalformed" with input as odd
	oddly := _messages with input as odd
	not contains(oddly, "zz")
}

test_denied[field] if {
	some field, tc in {
		"folder": {"path": "/dc/vm/other", "usable": "/dc/vm/templates"},
		"resourcePool": {"path": "/dc/host/d", "usable": "/dc/host/c"},
		"datastore": {"path": "/dc/slow", "usable": "/dc/datastore"},
		"network": {"path": "/dc/network/b", "usable": "/dc/network/a"},
	}
	world := {"request": _request([_domain({field: tc.path})]), "facts": _facts([_stranger, _tenant({})])}
	policy.deny == {{
		"reason": "PlaceNotAllowed",
		"message": $"spec.failureDomains[a].{field}: namespace team-a may not use {tc.path} on VSphereServer vc-1",
		"remedy": $"allowed: {tc.usable}",
		"details": {"kind": "VSphereServer", "name": "vc-1", "field": $"spec.failureDomains[a].{field}"},
	}} with input as world
	policy.valid_input with input as world
}

_tagged(request, tags) := object.union(request, {"object": {"spec": {"tags": tags}}})

_tag(category, name) := {"category": category, "name": name}

test_tags[note] if {
	kinds := _tenant({"tags": [_tag("kind", "image"), _tag("team/x", "50%")]})
	may := "namespace team-a may"
	some note, tc in {
		"allowed": {"tags": [_tag("team/x", "50%"), _tag("kind", "image")], "tenants": [_stranger, kinds], "message": ""},
		"no tags": {"tags": [], "tenants": [_tenant({})], "message": ""},
		"another": {
			"tags": [_tag("kind", "image"), _tag("kind", "Image")], "tenants": [kinds],
			"message": $"spec.tags[kind/Image]: {may} not use kind/Image on VSphereServer vc-1; allowed: kind/image, team/x/50%",
		},
		"of another category": {
			"tags": [_tag("team", "x/50%")], "tenants": [kinds],
			"message": $"spec.tags[team/x/50%]: {may} not use team/x/50% on VSphereServer vc-1; allowed: kind/image, team/x/50%",
		},
		"none": {
			"tags": [_tag("kind", "image")], "tenants": [_tenant({}), object.union(_stranger, {"tags": [_tag("kind", "image")]})],
			"message": $"spec.tags[kind/image]: {may} not use kind/image on VSphereServer vc-1; allowed: none",
		},
	}
	world := {"request": _tagged(_request([_domain({})]), tc.tags), "facts": _facts(tc.tenants)}
	said := _messages with input as world
	said == tc.message
	policy.valid_input with input as world
}

test_changed_tags_are_judged if {
	same := _tagged(_change([_domain({})], [_domain({})]), [_tag("kind", "image")])
	_verdict == "PlaceNotAllowed" with input as {"request": same, "facts": _facts([_tenant({})])}
	kept := object.union(same, {"oldObject": {"spec": {"tags": [_tag("kind", "image")]}}})
	_verdict == "allow" with input as {"request": kept, "facts": {"server": null, "namespace": null}}
}

# Tags are asked about by themselves, after the import.
test_tags_alone if {
	nowhere := _domain({"folder": "", "resourcePool": "", "datastore": "", "network": ""})
	ours := _tagged(_ours(_request([nowhere])), [_tag("kind", "image")])
	_verdict == "allow" with input as {"request": ours, "facts": _facts([_tenant({"tags": [_tag("kind", "image")], "folders": []})])}
	said := _messages with input as {"request": ours, "facts": _facts([_tenant({})])}
	said == "spec.tags[kind/image]: namespace team-a may not use kind/image on VSphereServer vc-1; allowed: none"
}

test_denied_otherwise[note] if {
	some note, tc in {
		"VSphereServerNotFound": {"domains": [_domain({})], "facts": {"server": null, "namespace": null}},
		"NamespaceNotAllowed": {"domains": [_domain({})], "facts": _facts([_stranger])},
		"InventoryPathMalformed": {"domains": [_domain({"folder": "/dc/vm/templates/../x"})], "facts": _facts([_tenant({})])},
		"CombinationNotAllowed": {
			"domains": [_domain({})],
			"facts": _facts([_tenant({"networks": []}), _tenant({"name": "c", "folders": []})]),
		},
	}
	_verdict == note with input as {"request": _request(tc.domains), "facts": tc.facts}
}

test_messages if {
	odd := _messages with input as {"request": _request([_domain({"folder": "/a/.."})]), "facts": _facts([_tenant({})])}
	odd == "spec.failureDomains[a].folder: /a/.. is not allowed because its path contains .."
	none := _messages with input as {"request": _request([_domain({})]), "facts": _facts([_tenant({"networks": []})])}
	endswith(none, "allowed: none")
	many := [$"/dc/n{n}" | some n in ["01", "02", "03", "04", "05", "06", "07", "08", "09", "10", "11"]]
	cut := _messages with input as {"request": _request([_domain({})]), "facts": _facts([_tenant({"networks": many})])}
	endswith(cut, "/dc/n10 and 1 more")
}

test_not_understood[note] if {
	good := _request([_domain({})])
	some note, domains in object.union_n([
		{$"{field} is empty": [_domain({field: ""})] | some field, _ in _domain({})},
		{$"{field} is missing": [object.remove(_domain({}), [field])] | some field, _ in _domain({})},
		{"a relative path": [_domain({"folder": "Bogus"})], "no failure domains": []},
	])
	_verdict == "not understood" with input as {"request": object.union(good, {"object": {"spec": {"failureDomains": domains}}}), "facts": _facts([_tenant({})])}
}

test_not_understood_otherwise[note] if {
	good := {"request": _request([_domain({})]), "facts": _facts([_tenant({})])}
	some note, world in {
		"the operation": object.union(good, {"request": {"operation": "DELETE"}}),
		"the namespace": object.union(good, {"request": {"namespace": ""}}),
		"a tag": object.union(good, {"request": _tagged(good.request, [{"category": "kind"}])}),
		"the server's name": object.union(good, {"request": {"object": {"spec": {"serverRef": {"name": ""}}}}}),
		"another server": object.union(good, {"facts": {"server": {"metadata": {"name": "vc-2"}}}}),
		"another namespace": object.union(good, {"facts": {"namespace": {"metadata": {"name": "team-b"}}}}),
	}
	_verdict == "not understood" with input as world
}
