package sallyport.machines.disks_test

import data.sallyport.machines.disks as policy

# The text of a denial, as the user sees it.
_text(denial) := concat("", [concat("", [mark, denial[key]]) | some [key, mark] in [["message", ""], ["cause", " because "], ["remedy", "; "]]])

_kubevirt(create) := {"runtime": {"kubevirt": {"create": create}}}

_machine(create) := {"metadata": {"name": "web"}, "spec": _kubevirt(create)}

_pool(replicas, create) := {
	"metadata": {"name": "web", "uid": "u-pool"},
	"spec": {"replicas": replicas, "virtualMachineTemplate": {"spec": _kubevirt(create)}},
}

_disks(all) := {"disks": all}

_root := _disks([{"name": "root", "persistentVolumeClaim": "web-root"}])

_volume(of) := {"template": {"spec": {"volumes": [object.union({"name": "data"}, of)]}}}

# The disk root, and what the template has of its device.
_device(of) := object.union(_root, {"template": {"spec": {"domain": {"devices": {"disks": [object.union({"name": "root"}, of)]}}}}})

_request(resource, operation, new, old) := {
	"operation": operation, "namespace": "team-a", "resource": {"group": "sallyport.dev", "resource": resource}, "object": new, "oldObject": old,
}

_world(request, facts) := {"request": request, "facts": object.union({"parent": null, "disks": null}, facts)}

_creates(create, owners) := _world(_request("virtualmachines", "CREATE", _machine(create), null), {"disks": owners})

_creates_pool(replicas, create) := _world(_request("virtualmachinepools", "CREATE", _pool(replicas, create), null), {"disks": []})

_edits_pool(before, after, create) := _world(_request("virtualmachinepools", "UPDATE", _pool(after, create), _pool(before, create)), {})

_scale_of(replicas) := {"metadata": {"name": "web", "uid": "u-pool"}, "spec": {"replicas": replicas}}

_scales(before, after, parent) := _world(
	object.union(_request("virtualmachinepools", "UPDATE", _scale_of(after), _scale_of(before)), {"subResource": "scale"}),
	{"parent": parent},
)

_leaving := {"metadata": {"deletionTimestamp": "2026-11-20T10:00:00Z"}}

_owner(runtime) := {
	"metadata": {"name": "cache", "namespace": "team-a"}, "spec": {"runtime": runtime}, "status": {"diskID": "web-root"},
}

_of_kubevirt := _owner({"kubevirt": {}})

_verdict := "not understood" if not policy.valid_input

_verdict := concat(", ", sort([denial.reason | some denial in policy.deny])) if policy.valid_input

test_verdicts[note] if {
	some note, tc in {
		"a machine with a claim of nobody": {"world": _creates(_root, []), "want": ""},
		"a machine with the claim of a VirtualDisk": {"world": _creates(_root, [_of_kubevirt]), "want": "ClaimOfVirtualDisk"},
		"by a DataVolume": {"world": _creates(_disks([{"name": "root", "dataVolume": "web-root"}]), [_of_kubevirt]), "want": "ClaimOfVirtualDisk"},
		"in the template": {
			"world": _creates(_volume({"persistentVolumeClaim": {"claimName": "web-root"}}), [_of_kubevirt]), "want": "ClaimOfVirtualDisk",
		},
		"in the template, by a DataVolume": {"world": _creates(_volume({"dataVolume": {"name": "web-root"}}), [_of_kubevirt]), "want": "ClaimOfVirtualDisk"},
		"in the template, below a layer": {
			"world": _creates(_volume({"ephemeral": {"persistentVolumeClaim": {"claimName": "web-root"}}}), [_of_kubevirt]),
			"want": "ClaimOfVirtualDisk",
		},
		"shareable": {"world": _creates(_device({"shareable": true}), [_of_kubevirt]), "want": "ClaimOfVirtualDisk"},
		"a VirtualDisk of Pods": {"world": _creates(_root, [_owner({"pod": {}})]), "want": "ClaimOfVirtualDisk"},
		"a VirtualDisk in a vCenter, whose ID is no claim": {"world": _creates(_root, [_owner({"vsphere": {}})]), "want": ""},
		"another VirtualDisk": {"world": _creates(_root, [object.union(_of_kubevirt, {"status": {"diskID": "other"}})]), "want": ""},
		"a VirtualDisk that is not made": {"world": _creates(_root, [object.remove(_of_kubevirt, ["status"])]), "want": ""},
		"a machine without claims": {"world": _creates(_disks([{"name": "root", "containerDisk": "a"}]), null), "want": ""},
		"a machine that is adopted": {
			"world": _world(_request("virtualmachines", "CREATE", {"metadata": {"name": "web"}, "spec": {"runtime": {"kubevirt": {}}}}, null), {}),
			"want": "",
		},
		"an update of a machine": {"world": _world(_request("virtualmachines", "UPDATE", _machine(_root), _machine(_root)), {}), "want": ""},
		"a pool of three": {"world": _creates_pool(3, _root), "want": "ClaimShared"},
		"a pool of one": {"world": _creates_pool(1, _root), "want": ""},
		"a pool with the claim of a VirtualDisk": {
			"world": object.union(_creates_pool(1, _root), {"facts": {"disks": [_of_kubevirt]}}), "want": "ClaimOfVirtualDisk",
		},
		"a pool, by a DataVolume": {"world": _creates_pool(2, _disks([{"name": "root", "dataVolume": "web-root"}])), "want": "ClaimShared"},
		"a pool, in the template": {"world": _creates_pool(2, _volume({"persistentVolumeClaim": {"claimName": "a"}})), "want": "ClaimShared"},
		"a pool, in the template, by a DataVolume": {"world": _creates_pool(2, _volume({"dataVolume": {"name": "a"}})), "want": "ClaimShared"},
		"a pool without claims": {"world": _world(_request("virtualmachinepools", "CREATE", _pool(3, {}), null), {}), "want": ""},
		"a pool of others": {
			"world": _world(
				_request(
					"virtualmachinepools", "CREATE", {
						"metadata": {"generateName": "web-"},
						"spec": {"replicas": 3, "virtualMachineTemplate": {"spec": {"runtime": {"pod": {}}}}},
					},
					null,
				),
				{},
			),
			"want": "",
		},
		"a pool that grows": {"world": _edits_pool(1, 2, _root), "want": "ClaimShared"},
		"a pool that grows to one": {"world": _edits_pool(0, 1, _root), "want": ""},
		"a pool that shrinks": {"world": _edits_pool(5, 3, _root), "want": ""},
		"a pool that stays": {"world": _edits_pool(3, 3, _root), "want": ""},
		"a pool that is being deleted": {
			"world": object.union(_edits_pool(1, 2, _root), {"request": {"oldObject": _leaving}}), "want": "",
		},
		"a Scale": {"world": _scales(1, 3, _pool(1, _root)), "want": "ClaimShared"},
		"a Scale to one": {"world": _scales(0, 1, null), "want": ""},
		"a Scale down": {"world": _scales(3, 2, null), "want": ""},
		"a Scale of a pool without claims": {"world": _scales(1, 3, _pool(1, {})), "want": ""},
		"a Scale of a pool that is being deleted": {"world": _scales(1, 3, object.union(_pool(1, _root), _leaving)), "want": ""},
		"a Scale of nothing": {"world": _scales(1, 3, null), "want": ""},
	}
	_verdict == tc.want with input as tc.world
}

# One claim for several members, on purpose or not.
test_shared[note] if {
	some note, tc in {
		"shareable": {"create": _device({"shareable": true, "disk": {}}), "want": ""},
		"not shareable": {"create": _device({"shareable": false}), "want": "ClaimShared"},
		"read-only": {"create": _device({"disk": {"readonly": true}}), "want": ""},
		"a disk that is written": {"create": _device({"disk": {"bus": "sata"}}), "want": "ClaimShared"},
		"a LUN, read-only": {"create": _device({"lun": {"readonly": true}}), "want": ""},
		"a LUN": {"create": _device({"lun": {}}), "want": "ClaimShared"},
		"a cdrom": {"create": _device({"cdrom": {"bus": "sata"}}), "want": ""},
		"a cdrom that is written": {"create": _device({"cdrom": {"readonly": false}}), "want": "ClaimShared"},
		"another disk is shareable": {"create": _device({"name": "data", "shareable": true}), "want": "ClaimShared"},
		"ephemeral": {"create": _volume({"ephemeral": {"persistentVolumeClaim": {"claimName": "a"}}}), "want": ""},
		"a file system": {
			"create": object.union(_volume({"persistentVolumeClaim": {"claimName": "a"}}), {"template": {"spec": {"domain": {"devices": {"filesystems": [{"name": "data"}]}}}}}),
			"want": "",
		},
	}
	_verdict == tc.want with input as _creates_pool(2, tc.create)
}

test_asks[note] if {
	disks := {"apiVersion": "sallyport.dev/v1alpha1", "kind": "VirtualDisk", "namespace": "team-a"}
	some note, tc in {
		"a claim": {"world": _creates(_root, null), "disks": object.union(disks, {"fields": {"status.diskID": "web-root"}}), "parent": null},
		"one claim, twice": {
			"world": _creates(_disks([{"name": "a", "persistentVolumeClaim": "a"}, {"name": "b", "dataVolume": "a"}]), null),
			"disks": object.union(disks, {"fields": {"status.diskID": "a"}}), "parent": null,
		},
		"several": {
			"world": _creates(_disks([{"name": "a", "persistentVolumeClaim": "a"}, {"name": "b", "dataVolume": "b"}]), null),
			"disks": disks, "parent": null,
		},
		"no claim": {"world": _creates({}, null), "disks": null, "parent": null},
		"a pool that grows": {"world": _edits_pool(1, 2, _root), "disks": null, "parent": null},
		"a Scale": {"world": _scales(1, 3, _pool(1, _root)), "disks": null, "parent": {"parent": true}},
		"a Scale down": {"world": _scales(3, 1, null), "disks": null, "parent": null},
	}
	policy.facts == {"disks": tc.disks, "parent": tc.parent} with input as tc.world
}

test_messages[note] if {
	some note, tc in {
		"a machine": {
			"world": _creates(_root, [_of_kubevirt]),
			"want": concat("", [
				"spec.runtime.kubevirt.create.disks[0]: cannot use PersistentVolumeClaim web-root because it belongs to VirtualDisk cache, which only ",
				"one machine at a time may have; remove the entry, and add to spec.blockDeviceRefs: {kind: VirtualDisk, name: cache}",
			]),
		},
		"a disk of Pods": {
			"world": _creates(_volume({"persistentVolumeClaim": {"claimName": "web-root"}}), [_owner({"pod": {}})]),
			"want": concat("", [
				"spec.runtime.kubevirt.create.template.spec.volumes[0]: cannot use PersistentVolumeClaim web-root because it belongs to ",
				"VirtualDisk cache, which only one machine at a time may have; use another claim",
			]),
		},
		"a pool with the claim of a disk": {
			"world": object.union(_creates_pool(1, _root), {"facts": {"disks": [_of_kubevirt]}}),
			"want": concat("", [
				"spec.virtualMachineTemplate.spec.runtime.kubevirt.create.disks[0]: cannot use PersistentVolumeClaim web-root because it belongs to ",
				"VirtualDisk cache, which only one machine at a time may have; remove the entry, and give each member a disk with spec.virtualDiskTemplates",
			]),
		},
		"a pool": {
			"world": _creates_pool(3, _root),
			"want": concat("", [
				"VirtualMachinePool web: 3 members cannot use PersistentVolumeClaim web-root because each member would write to it as its own disk; ",
				"give each member a disk of its own with spec.virtualDiskTemplates or diskImage, or set spec.replicas to 1; if the guests can share it, ",
				"set shareable: true for disk root in spec.virtualMachineTemplate.spec.runtime.kubevirt.create.template.spec.domain.devices.disks",
			]),
		},
		"a Scale": {
			"world": _scales(0, 3, _pool(0, _disks([{"name": "root", "dataVolume": "dv"}]))),
			"want": concat("", [
				"VirtualMachinePool web: 3 members cannot use DataVolume dv because each member would write to it as its own disk; allowed: ",
				"kubectl scale svmpool web -n team-a --replicas=1; for more members, create a pool with spec.virtualDiskTemplates or diskImage",
			]),
		},
		"a pool that has too many": {
			"world": _edits_pool(4, 5, _root),
			"want": concat("", [
				"VirtualMachinePool web: 5 members cannot use PersistentVolumeClaim web-root because each member would write to it as its own disk; allowed: ",
				"kubectl scale svmpool web -n team-a --replicas=4; for more members, create a pool with spec.virtualDiskTemplates or diskImage",
			]),
		},
	}
	[_text(denial) | some denial in policy.deny] == [tc.want] with input as tc.world
}

_good := _creates(object.union(_device({}), _volume({})), [_of_kubevirt])

_template(spec) := object.union(_good, {"request": {"object": {"spec": _kubevirt({"template": {"spec": spec}})}}})

_with_devices(devices) := _template({"domain": {"devices": devices}})

# No schema describes the template.
test_not_understood[note] if {
	some note, world in {
		"another operation": object.union(_good, {"request": {"operation": "DELETE"}}),
		"another kind": object.union(_good, {"request": {"resource": {"resource": "pods"}}}),
		"volumes of another type": _template({"volumes": "a"}),
		"a volume of another type": _template({"volumes": ["a"]}),
		"a volume without a name": _template({"volumes": [{"emptyDisk": {}}]}),
		"a volume whose name is a number": _template({"volumes": [{"name": 1}]}),
		"a claim that is no string": _template({"volumes": [{"name": "a", "persistentVolumeClaim": {"claimName": 1}}]}),
		"a DataVolume that is no string": _template({"volumes": [{"name": "a", "dataVolume": {"name": {}}}]}),
		"disks of another type": _with_devices({"disks": {"name": "a"}}),
		"a disk without a name": _with_devices({"disks": [{}]}),
		"file systems of another type": _with_devices({"filesystems": 1}),
		"a file system without a name": _with_devices({"filesystems": [{}]}),
		"a VirtualDisk without a name": object.union(_good, {"facts": {"disks": [object.union(_of_kubevirt, {"metadata": {"name": ""}})]}}),
	}
	policy.valid_input with input as _good
	_verdict == "not understood" with input as world
}

# What a template may leave out, or have as null.
test_understood[note] if {
	some note, create in {
		"no template": _root,
		"null": {"template": {"spec": {"volumes": null, "domain": {"devices": {"disks": null, "filesystems": null}}}}},
		"an empty template": {"template": {}},
	}
	policy.valid_input with input as _creates(create, _found(create))
}

_found(create) := [] if create.disks

_found(create) := null if not create.disks

test_lacking[note] if {
	some note, tc in {
		"no operation": {"world": _good, "path": "request/operation"},
		"no object": {"world": _good, "path": "request/object"},
		"no metadata": {"world": _good, "path": "request/object/metadata"},
		"no resource": {"world": _scales(1, 3, null), "path": "request/resource"},
		"no old object": {"world": _edits_pool(1, 2, _root), "path": "request/oldObject"},
		"no old metadata": {"world": _edits_pool(1, 2, _root), "path": "request/oldObject/metadata"},
		"a Scale of nothing": {"world": _scales(1, 3, null), "path": "request/object/spec"},
		"a Scale without an old object": {"world": _scales(1, 3, null), "path": "request/oldObject"},
		"no answer": {"world": _good, "path": "facts/disks"},
	}
	_verdict == "not understood" with input as json.remove(tc.world, [tc.path])
}
