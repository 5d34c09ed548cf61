package sallyport.images.references_test

import data.sallyport.images.references as policy

# The text of a denial, as the user sees it.
_text(denial) := concat("", [concat("", [mark, denial[key]]) | some [key, mark] in [["message", ""], ["cause", " because "], ["remedy", "; "]]])

_user := {"username": "alice"}

_request(resource, operation, spec, old) := {
	"operation": operation, "namespace": "team-a", "userInfo": _user, "resource": {"group": "sallyport.dev", "resource": resource},
	"object": {"metadata": {"name": "web"}, "spec": spec}, "oldObject": [null, {"metadata": {"name": "web"}, "spec": old}][_index(operation)],
}

_index("CREATE") := 0

_index("UPDATE") := 1

_machine(of) := _request("virtualmachines", "CREATE", {"diskImage": of}, null)

_disk(source) := _request("virtualdisks", "CREATE", {"source": source}, null)

_pool(of, sources) := _request("virtualmachinepools", "CREATE", _pool_spec(of, sources), null)

_pool_spec(of, sources) := {
	"virtualMachineTemplate": {"spec": {"diskImage": of}},
	"virtualDiskTemplates": [{"name": "cache", "spec": {"source": source}} | some source in sources],
}

_ubuntu := {"ref": {"name": "ubuntu"}}

_abroad := {"ref": {"name": "ubuntu", "namespace": "images"}}

_created := {"ref": {"name": "ubuntu"}, "mode": "CreateIfNotExist", "template": {"url": "https://a.example.org/"}}

_created_abroad := object.union(_created, _abroad)

_with_secret := object.union(_created, {"template": {"secretRef": {"name": "s3"}}})

_image(namespace, more) := object.union({"metadata": {"name": "ubuntu", "namespace": namespace}, "spec": {}}, more)

_nothing := {"image": null, "images": null, "namespace": null, "creatable": null, "readable": null}

_here := object.union(_nothing, {"image": _image("team-a", {})})

_world(request, facts) := {"request": request, "facts": facts}

_none := {"waitNamespaces": []}

_from(allowed) := object.union(_nothing, {
	"image": _image("images", {"spec": {"allowedNamespaces": allowed}}),
	"namespace": {"metadata": {"name": "team-a", "labels": {"stage": "test"}}},
})

_team := {"metadata": {"name": "team-a"}}

test_asks[note] if {
	image := {"apiVersion": "sallyport.dev/v1alpha1", "kind": "VMDiskImage", "namespace": "team-a", "name": "ubuntu"}
	images := {"apiVersion": "sallyport.dev/v1alpha1", "kind": "VMDiskImage", "namespaces": ["images", "team-a"]}
	team := {"apiVersion": "v1", "kind": "Namespace", "name": "team-a"}
	create := {"access": {"verb": "create", "group": "sallyport.dev", "resource": "vmdiskimages", "namespace": "team-a"}}
	get := {"access": {"verb": "get", "group": "", "resource": "secrets", "namespace": "team-a", "name": "s3"}}
	some note, tc in {
		"nothing named": {"request": _request("virtualmachines", "CREATE", {}, null), "asked": {}},
		"a machine": {"request": _machine(_ubuntu), "asked": {"image": image}},
		"a machine that creates it": {"request": _machine(_with_secret), "asked": {"image": image, "creatable": create, "readable": get}},
		"a disk": {"request": _disk({"image": {"name": "ubuntu"}}), "asked": {"image": image}},
		"abroad": {"request": _machine(_abroad), "asked": {"image": object.union(image, {"namespace": "images"}), "namespace": team}},
		"several": {"request": _pool(_ubuntu, [{"image": _abroad.ref}]), "asked": {"images": images, "namespace": team}},
		"unchanged": {"request": _request("virtualmachines", "UPDATE", {"diskImage": _with_secret}, {"diskImage": _with_secret}), "asked": {}},
		"an empty disk": {"request": _request("virtualdisks", "CREATE", {}, null), "asked": {}},
	}
	policy.facts == object.union(_nothing, tc.asked) with input as {"request": tc.request}
}

_denied := {
	"missing": {"request": _machine(_ubuntu), "facts": _nothing, "reasons": {"ImageMissing"}},
	"missing, abroad": {
		"request": _machine(_abroad), "facts": object.union(_nothing, {"namespace": _team}), "reasons": {"ImageNotAllowed"},
	},
	"a disk, missing": {"request": _disk({"image": {"name": "ubuntu"}}), "facts": _nothing, "reasons": {"ImageMissing"}},
	"one of several missing": {
		"request": _pool(_ubuntu, [{"image": {"name": "other"}}]), "reasons": {"ImageMissing"},
		"facts": object.union(_nothing, {"images": [_image("team-a", {}), _image("team-b", {})]}),
	},
	"terminating": {
		"request": _machine(_ubuntu), "reasons": {"ImageTerminating"},
		"facts": object.union(_nothing, {"image": _image("team-a", {"metadata": {"deletionTimestamp": "2026-11-26T01:00:00Z"}})}),
	},
	"terminating, and may be created": {
		"request": _machine(_created), "reasons": {"ImageTerminating"},
		"facts": object.union(_nothing, {
			"image": _image("team-a", {"metadata": {"deletionTimestamp": "2026-11-26T01:00:00Z"}}),
			"creatable": true,
		}),
	},
	"retired": {
		"request": _machine(_ubuntu), "facts": object.union(_nothing, {"image": _image("team-a", {"spec": {"retired": true}})}),
		"reasons": {"ImageRetired"},
	},
	"abroad, same": {"request": _machine(_abroad), "facts": _from({"from": "Same"}), "reasons": {"ImageNotAllowed"}},
	"abroad, unsaid": {"request": _machine(_abroad), "facts": _from({}), "reasons": {"ImageNotAllowed"}},
	"abroad, others": {
		"request": _machine(_abroad), "facts": _from({"from": "Selector", "selector": {"matchLabels": {"stage": "prod"}}}),
		"reasons": {"ImageNotAllowed"},
	},
	"abroad, no selector": {"request": _machine(_abroad), "facts": _from({"from": "Selector"}), "reasons": {"ImageNotAllowed"}},
	"abroad, created, without the right": {
		"request": _machine(_created_abroad), "facts": object.union(_nothing, {"namespace": _team, "creatable": false}),
		"reasons": {"ImageCreationNotAllowed", "ImageNotAllowed"},
	},
	"abroad, created, but there for others": {
		"request": _machine(_created_abroad), "facts": object.union(_from({"from": "Same"}), {"creatable": true}),
		"reasons": {"ImageNotAllowed"},
	},
	"no right to create": {
		"request": _machine(_created), "facts": object.union(_nothing, {"creatable": false}), "reasons": {"ImageCreationNotAllowed"},
	},
	"no right to create what exists": {
		"request": _machine(_created), "facts": object.union(_here, {"creatable": false}), "reasons": {"ImageCreationNotAllowed"},
	},
	"no right to the Secret": {
		"request": _machine(_with_secret), "facts": object.union(_nothing, {"creatable": true, "readable": false}),
		"reasons": {"SecretNotAllowed"},
	},
	"a disk of a pool that is added": {
		"request": _request("virtualmachinepools", "UPDATE", _pool_spec(_ubuntu, [{"image": {"name": "other"}}]), _pool_spec(_ubuntu, [])),
		"facts": _nothing, "reasons": {"ImageMissing"},
	},
}

test_denied[note] if {
	some note, tc in _denied
	policy.valid_input with input as _world(tc.request, tc.facts) with data.parameters as _none
	reasons := {denial.reason | some denial in policy.deny} with input as _world(tc.request, tc.facts) with data.parameters as _none
	reasons == tc.reasons
}

test_allowed[note] if {
	some note, tc in {
		"there": {"request": _machine(_ubuntu), "facts": _here},
		"a disk": {"request": _disk({"image": {"name": "ubuntu", "namespace": "team-a"}}), "facts": _here},
		"nothing named": {"request": _request("virtualmachines", "CREATE", {}, null), "facts": _nothing},
		"an empty disk": {"request": _request("virtualdisks", "CREATE", {"source": null}, null), "facts": _nothing},
		"abroad, all": {"request": _machine(_abroad), "facts": _from({"from": "All"})},
		"abroad, selected": {
			"request": _machine(_abroad),
			"facts": _from({"from": "Selector", "selector": {"matchLabels": {"stage": "test"}}}),
		},
		"abroad, created": {
			"request": _machine(_created_abroad), "facts": object.union(_nothing, {"namespace": _team, "creatable": true}),
		},
		"created": {"request": _machine(_with_secret), "facts": object.union(_nothing, {"creatable": true, "readable": true})},
		"unchanged": {
			"request": _request("virtualmachines", "UPDATE", {"diskImage": _created}, {"diskImage": _created}), "facts": _nothing,
		},
		"several": {
			"request": _pool(_ubuntu, [{"image": _abroad.ref}, null]),
			"facts": object.union(_from({"from": "All"}), {
				"image": null,
				"images": [_image("team-a", {}), _image("images", {"spec": {"allowedNamespaces": {"from": "All"}}})],
			}),
		},
	}
	policy.valid_input with input as _world(tc.request, tc.facts) with data.parameters as _none
	count(policy.deny) == 0 with input as _world(tc.request, tc.facts) with data.parameters as _none
}

# Where objects may wait for an image that does not exist; other denials stand.
test_waits[note] if {
	some note, tc in {
		"all": {"namespaces": ["*"], "waits": true},
		"this one": {"namespaces": ["team-b", "team-a"], "waits": true},
		"another one": {"namespaces": ["team-b"], "waits": false},
	}
	parameters := {"waitNamespaces": tc.namespaces}
	denied := {denial.reason | some denial in policy.deny} with input as _world(_machine(_ubuntu), _nothing) with data.parameters as parameters
	denied == {reason | some reason in ["ImageMissing"]; not tc.waits}
	tc_terminating := _denied.terminating
	count(policy.deny) == 1 with input as _world(tc_terminating.request, tc_terminating.facts) with data.parameters as parameters
}

# What a tool restores waits for its image, in whatever order it is restored. The requester's rights are still required.
test_restored[note] if {
	label := "velero.io/restore-name"
	restored := {"object": {"metadata": {"labels": {label: "team-a-1"}}}}
	of_rights := {"ImageCreationNotAllowed", "SecretNotAllowed"}
	some note, tc in _denied
	some labels, waits in {{label}: true, {"example.com/restored"}: false}
	world := _world(object.union(tc.request, restored), tc.facts)
	parameters := {"waitNamespaces": [], "restoreLabels": [key | some key in labels]}
	policy.valid_input with input as world with data.parameters as parameters
	reasons := {denial.reason | some denial in policy.deny} with input as world with data.parameters as parameters
	reasons == {reason | some reason in tc.reasons; not _passes(waits, tc.request.operation, reason in of_rights)}
}

_passes(waits, operation, of_rights) if {
	waits
	operation == "CREATE"
	not of_rights
}

test_messages[note] if {
	some note, tc in {
		"missing": concat("", [
			"spec.diskImage.ref: VMDiskImage ubuntu does not exist in namespace team-a; create it first, or name another one; ",
			"to list images: kubectl get vmdi -n team-a",
		]),
		"retired": concat("", [
			"spec.diskImage.ref: VMDiskImage ubuntu in namespace team-a is retired: nothing new may use it; name another one; its owner can ",
			`reverse this: kubectl patch vmdi ubuntu -n team-a --type=merge -p '{"spec":{"retired":false}}'`,
		]),
		"terminating": concat("", [
			"spec.diskImage.ref: VMDiskImage ubuntu in namespace team-a is being deleted; name another one, or create it again once it is ",
			"gone; to see what it waits for: kubectl describe vmdi ubuntu -n team-a",
		]),
		"abroad, same": concat("", [
			"spec.diskImage.ref: there is no VMDiskImage ubuntu in namespace images that namespace team-a may use; ",
			"use an image of the same namespace; the owner of the image can allow others: ",
			`kubectl patch vmdi ubuntu -n images --type=merge -p '{"spec":{"allowedNamespaces":{"from":"All"}}}'`,
		]),
		"no right to create": concat("", [
			"spec.diskImage.mode: CreateIfNotExist is not allowed because alice may not create VMDiskImages in namespace team-a; use ",
			"FailIfNotExist; to check: kubectl auth can-i create vmdiskimages.sallyport.dev -n team-a",
		]),
		"no right to the Secret": concat("", [
			"spec.diskImage.template.secretRef.name: cannot use Secret s3 because alice may not get it in namespace team-a; ",
			"name a Secret that you may get; to check: kubectl auth can-i get secrets/NAME -n team-a",
		]),
		"a disk of a pool that is added": concat("", [
			"spec.virtualDiskTemplates[0].spec.source.image: VMDiskImage other does not exist in namespace team-a; create it first, or name ",
			"another one; to list images: kubectl get vmdi -n team-a",
		]),
	}
	case := _denied[note]
	messages := {_text(denial) | some denial in policy.deny} with input as _world(case.request, case.facts) with data.parameters as _none
	messages == {tc}
}

test_not_understood[note] if {
	refs := [{}, {"name": ""}]
	some note, request in array.concat(
		[request | some ref in refs; some request in [_machine({"ref": ref}), _disk({"image": ref}), _pool(_ubuntu, [{"image": ref}])]],
		[
			_machine({}),
			_disk({}),
			_machine(object.union(_created, {"mode": "Bogus"})),
			_machine(object.union(_created, {"template": {"secretRef": {"name": ""}}})),
			_machine(object.union(_created, {"template": {"secretRef": {}}})),
			json.remove(_machine(_ubuntu), ["object/spec"]),
			json.remove(_pool(_ubuntu, []), ["object/spec/virtualMachineTemplate"]),
			json.remove(_request("virtualmachines", "UPDATE", {}, {}), ["oldObject/spec"]),
			object.union(_machine(_ubuntu), {"operation": "DELETE"}),
		],
	)
	not policy.valid_input with input as _world(request, _nothing) with data.parameters as _none
}

test_not_understood_facts[field] if {
	some field in ["name", "namespace"]
	image := json.remove(_image("team-a", {}), [$"metadata/{field}"])
	not policy.valid_input with input as _world(_machine(_ubuntu), object.union(_nothing, {"image": image})) with data.parameters as _none
}
