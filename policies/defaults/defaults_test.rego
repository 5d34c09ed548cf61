package sallyport.defaults_test

import data.sallyport.defaults as policy

_now := "2026-11-20T10:31:57.123456789Z"

_alice := {
	"username": "alice",
	"uid": "uid-alice",
	"groups": ["team-a", "system:authenticated"],
	"extra": {"example.com/session": ["42"]},
}

_vm := {"metadata": {"name": "web-1", "uid": "uid-web-1"}}

_operation := {
	"metadata": {"name": "stop-1", "labels": {"team": "a", "sallyport.dev/virtual-machine": "web-1"}},
	"spec": {"type": "Stop", "virtualMachineName": "web-1"},
}

# Values from a client, or from an earlier webhook call.
_stamps := {
	"requestedBy": {"username": "mallory"},
	"requestedAt": "2026-11-20T09:00:00.000000000Z",
	"virtualMachineUID": "uid-of-another",
	"override": "operations-supersede; uid=; by=alice; until=2026-11-20T10:00:00Z; drill",
}

_stamped_operation := object.union(_operation, {"spec": _stamps})

_machine := {"metadata": {"name": "web-1"}, "spec": {"runPolicy": "Manual"}}

_input(operation, resource, new, old, vm) := {
	"request": {
		"operation": operation,
		"namespace": "team-a",
		"resource": {"group": "sallyport.dev", "version": "v1alpha1", "resource": resource},
		"userInfo": _alice,
		"object": new,
		"oldObject": old,
	},
	"now": _now,
	"facts": {"vm": vm},
}

_create(new, vm) := _input("CREATE", "virtualmachineoperations", new, null, vm)

_update(new, old) := _input("UPDATE", "virtualmachineoperations", new, old, null)

_requested := {
	{"op": "add", "path": "/spec/requestedBy", "value": _alice},
	{"op": "add", "path": "/spec/requestedAt", "value": _now},
}

_uid := {"op": "add", "path": "/spec/virtualMachineUID", "value": "uid-web-1"}

test_stamps_at_create[note] if {
	some note, tc in {
		"of a live machine": {"object": _operation, "vm": _vm, "patch": (_requested | {_uid})},
		"without a machine there is no UID": {"object": _operation, "vm": null, "patch": _requested},
		"not over what a client wrote: policy operations-copies denies it": {
			"object": _stamped_operation,
			"vm": _vm,
			"patch": _as_copy(_stamps),
		},
		"nulls that a client wrote do not survive": {
			"object": object.union(_operation, {"spec": {field: null | some field, _ in _stamps}}),
			"vm": null,
			"patch": (_requested | {
				{"op": "remove", "path": "/spec/virtualMachineUID"},
				{"op": "remove", "path": "/spec/override"},
			}),
		},
	}
	policy.valid_input with input as _create(tc.object, tc.vm)
	policy.patch == tc.patch with input as _create(tc.object, tc.vm)
}

# One field is enough to tell a copy.
test_a_copy_is_not_stamped[field] if {
	some field, value in _stamps
	world := _create(object.union(_operation, {"spec": {field: value}}), _vm)
	policy.valid_input with input as world
	policy.patch == _as_copy({field: value}) with input as world
}

# Only the requester.
_as_copy(fields) := _removed(fields) | {{"op": "add", "path": "/spec/requestedBy", "value": _alice}}

_removed(fields) := {{"op": "remove", "path": $"/spec/{field}"} | some field, _ in fields; field != "requestedBy"}

_overriding := "operations-supersede; uid=; by=alice; until=2026-11-20T10:50:00Z; drill"

_annotated(value) := object.union(_operation, {"metadata": {"annotations": {"sallyport.dev/override": value}}})

_of_1024 := _eight(_eight(_eight("öö")))

_eight(text) := concat("", [text, text, text, text, text, text, text, text])

# The policy that denies the request decides whether an override is valid.
test_override_is_that_of_the_annotation[note] if {
	some note, tc in {
		"an override": {"object": _annotated(_overriding), "stamp": {_overriding}},
		"what is none stays what it is": {"object": _annotated("please"), "stamp": {"please"}},
		"as long as the field takes it": {"object": _annotated(_of_1024), "stamp": {_of_1024}},
		"not longer": {"object": _annotated($"{_of_1024}!"), "stamp": set()},
		"not an empty one": {"object": _annotated(""), "stamp": set()},
		"not a number": {"object": _annotated(1), "stamp": set()},
		"not null": {"object": _annotated(null), "stamp": set()},
		"not of an annotation that is called otherwise": {
			"object": object.union(_operation, {"metadata": {"annotations": {
				"sallyport.dev/Override": _overriding,
				"example.com/override": _overriding,
			}}}),
			"stamp": set(),
		},
		"not of annotations that are no map": {
			"object": object.union(_operation, {"metadata": {"annotations": [_overriding]}}),
			"stamp": set(),
		},
	}
	world := _create(tc.object, _vm)
	policy.valid_input with input as world
	{op.value | some op in policy.patch; op.path == "/spec/override"} == tc.stamp with input as world
}

# A user who may change the annotation of a pending operation must not use the permission of its creator.
test_override_is_not_that_of_a_later_annotation[note] if {
	some note, tc in {
		"added": {"new": _annotated(_overriding), "old": _operation, "patch": set()},
		"changed": {
			"new": _annotated(_overriding),
			"old": object.union(_annotated("another"), {"spec": {"override": "another"}}),
			"patch": {{"op": "add", "path": "/spec/override", "value": "another"}},
		},
	}
	policy.patch == tc.patch with input as _update(tc.new, tc.old)
}

test_requester_without_what_is_absent[note] if {
	some note, tc in {
		"only a name": {"user": {"username": "alice"}, "stamp": {"username": "alice"}},
		"nothing that we do not know": {
			"user": object.union(_alice, {"shoeSize": 42}),
			"stamp": _alice,
		},
	}
	world := object.union(_create(_operation, _vm), {"request": {"userInfo": tc.user}})
	request := json.remove(world, [$"request/userInfo/{field}" | some field, _ in _alice; not tc.user[field]])
	policy.valid_input with input as request
	{"op": "add", "path": "/spec/requestedBy", "value": tc.stamp} in policy.patch with input as request
}

test_stamps_at_update[note] if {
	some note, tc in {
		"kept": {"new": _stamped_operation, "old": _stamped_operation, "patch": set()},
		"never there": {"new": _operation, "old": _operation, "patch": set()},
		"dropped, put back": {
			"new": _operation,
			"old": _stamped_operation,
			"patch": {{"op": "add", "path": $"/spec/{field}", "value": value} | some field, value in _stamps},
		},
		"changed, put back": {
			"new": object.union(_stamped_operation, {"spec": {"requestedBy": {"username": "bob"}, "override": null}}),
			"old": _stamped_operation,
			"patch": {
				{"op": "add", "path": "/spec/requestedBy", "value": {"username": "mallory"}},
				{"op": "add", "path": "/spec/override", "value": _stamps.override},
			},
		},
		"added, removed": {
			"new": _stamped_operation,
			"old": _operation,
			"patch": {{"op": "remove", "path": $"/spec/{field}"} | some field, _ in _stamps},
		},
		"added to an object that had no spec, removed": {
			"new": _stamped_operation,
			"old": {"metadata": {"name": "stop-1"}},
			"patch": {{"op": "remove", "path": $"/spec/{field}"} | some field, _ in _stamps},
		},
		"a label that somebody took off is theirs": {
			"new": _labels({}),
			"old": _operation,
			"patch": set(),
		},
	}
	policy.valid_input with input as _update(tc.new, tc.old)
	policy.patch == tc.patch with input as _update(tc.new, tc.old)
}

_label := {"op": "add", "path": "/metadata/labels/sallyport.dev~1virtual-machine", "value": "web-1"}

_first_label := {"op": "add", "path": "/metadata/labels", "value": {"sallyport.dev/virtual-machine": "web-1"}}

_labels(value) := {"metadata": {"name": "stop-1", "labels": value}, "spec": _operation.spec}

_named(name) := {"metadata": {"name": "stop-1", "labels": {}}, "spec": {"virtualMachineName": name}}

_name_of_60 := "abcdefghij.abcdefghi.abcdefghi.abcdefghi.abcdefghi.abcdefghi"

_name_of_63 := $"{_name_of_60}abc"

test_label[note] if {
	some note, tc in {
		"there already": {"object": _operation, "patch": set()},
		"among others": {"object": _labels({"team": "a"}), "patch": {_label}},
		"to an empty map": {"object": _labels({}), "patch": {_label}},
		"in the place of a wrong one": {
			"object": _labels({"sallyport.dev/virtual-machine": "db-1"}),
			"patch": {_label},
		},
		"to null": {"object": _labels(null), "patch": {_first_label}},
		"to no map": {"object": {"metadata": {"name": "stop-1"}, "spec": _operation.spec}, "patch": {_first_label}},
		"to empty metadata": {"object": {"metadata": {}, "spec": _operation.spec}, "patch": {_first_label}},
		"not without metadata": {"object": {"spec": _operation.spec}, "patch": set()},
		"not to metadata of null": {"object": {"metadata": null, "spec": _operation.spec}, "patch": set()},
		"not to labels that are no map": {"object": _labels("web-1"), "patch": set()},
		"of 63 characters": {"object": _named(_name_of_63), "patch": {object.union(_label, {"value": _name_of_63})}},
		"not of 64 characters": {"object": _named($"{_name_of_63}d"), "patch": set()},
		"not an empty name": {"object": _named(""), "patch": set()},
		"not a name that no label can have": {"object": _named("web/1"), "patch": set()},
		"not a name that ends in a dash": {"object": _named("web-"), "patch": set()},
		"not a number": {"object": _named(0), "patch": set()},
		"not null": {"object": _named(null), "patch": set()},
	}
	world := _create(tc.object, null)
	policy.valid_input with input as world
	{op | some op in policy.patch; startswith(op.path, "/metadata/")} == tc.patch with input as world
}

_finalizer := {"op": "add", "path": "/metadata/finalizers/-", "value": "sallyport.dev/virtual-machine"}

_first_finalizer := {"op": "add", "path": "/metadata/finalizers", "value": ["sallyport.dev/virtual-machine"]}

_finalizers(value) := {"metadata": {"name": "web-1", "finalizers": value}}

_deleted := {"metadata": {"name": "web-1", "deletionTimestamp": "2026-11-20T10:00:00Z"}}

test_finalizer[note] if {
	some note, tc in {
		"there already": {"new": _finalizers(["sallyport.dev/virtual-machine"]), "old": null, "patch": set()},
		"among others": {"new": _finalizers(["example.com/a"]), "old": null, "patch": {_finalizer}},
		"to an empty list": {"new": _finalizers([]), "old": null, "patch": {_finalizer}},
		"to null": {"new": _finalizers(null), "old": null, "patch": {_first_finalizer}},
		"to none": {"new": _machine, "old": null, "patch": {_first_finalizer}},
		"put back": {"new": _machine, "old": _finalizers(["sallyport.dev/virtual-machine"]), "patch": {_first_finalizer}},
		"not to what is being deleted": {"new": _machine, "old": _deleted, "patch": set()},
		"not to what is being deleted, among others": {"new": _finalizers([]), "old": _deleted, "patch": set()},
		"whatever a client says about deletion": {"new": _deleted, "old": _machine, "patch": {_first_finalizer}},
		"not without metadata": {"new": {"spec": {}}, "old": null, "patch": set()},
		"not to finalizers that are no list": {"new": _finalizers({}), "old": null, "patch": set()},
	}
	world := _input(_verb(tc.old), "virtualmachines", tc.new, tc.old, null)
	policy.valid_input with input as world
	policy.patch == tc.patch with input as world
}

test_finalizer_of_a_disk if {
	world := _input("CREATE", "virtualdisks", {"metadata": {"name": "data"}}, null, null)
	policy.valid_input with input as world
	policy.patch == {{"op": "add", "path": "/metadata/finalizers", "value": ["sallyport.dev/virtual-disk"]}} with input as world
}

test_finalizer_of_an_image if {
	world := _input("CREATE", "vmdiskimages", {"metadata": {"name": "ubuntu"}}, null, null)
	policy.valid_input with input as world
	policy.patch == {{"op": "add", "path": "/metadata/finalizers", "value": ["sallyport.dev/vm-disk-image"]}} with input as world
}

test_finalizer_of_a_template if {
	world := _input("CREATE", "vspheretemplates", {"metadata": {"name": "ubuntu"}}, null, null)
	policy.valid_input with input as world
	policy.patch == {{"op": "add", "path": "/metadata/finalizers", "value": ["sallyport.dev/vsphere-template"]}} with input as world
}

_verb(null) := "CREATE"

_verb(old) := "UPDATE" if is_object(old)

# The fields of a VirtualMachine with these names are kept. An operation gets its finalizer with the claim.
test_each_kind_gets_its_own[note] if {
	some note, tc in {
		"create of a machine": {
			"world": _input("CREATE", "virtualmachines", _labels({}), null, null),
			"patch": {_first_finalizer},
		},
		"update of a machine": {
			"world": _input("UPDATE", "virtualmachines", _stamped_operation, _operation, null),
			"patch": {_first_finalizer},
		},
		"update of a machine that drops fields": {
			"world": _input("UPDATE", "virtualmachines", _operation, _stamped_operation, null),
			"patch": {_first_finalizer},
		},
		"create of an operation": {
			"world": _create(object.union(_operation, _finalizers([])), null),
			"patch": _requested,
		},
		"update of an operation": {"world": _update(_operation, _operation), "patch": set()},
	}
	policy.patch == tc.patch with input as tc.world
}

# Invalid objects: all of them are accepted, and no patch has a path whose parent is absent.
_shapes := {"null": null, "empty": "", "text": "Bogus", "a number": 0, "true": true, "a list": [], "an object": {}}

_misshapen := object.union_n([
	{$"object {what}": shape | some what, shape in _shapes},
	{$"{field} {what}": object.union(object.remove(_stamped_operation, [field]), {field: shape}) |
		some field in ["metadata", "spec"]
		some what, shape in _shapes
	},
	{$"{field} missing": object.remove(_stamped_operation, [field]) | some field in ["metadata", "spec"]},
	{$"metadata.{field} {what}": {"metadata": {field: shape}, "spec": _operation.spec} |
		some field in ["labels", "finalizers"]
		some what, shape in _shapes
	},
	{$"spec.virtualMachineName {what}": {"metadata": {}, "spec": {"virtualMachineName": shape}} |
		some what, shape in _shapes
	},
	{$"spec.requestedBy {what}": {"metadata": {}, "spec": {"requestedBy": shape}} | some what, shape in _shapes},
])

_requests := {$"{operation} {resource}, {what}": _input(operation, resource, shape, old, null) |
	some what, shape in _misshapen
	some operation, old in {"CREATE": null, "UPDATE": _stamped_operation}
	some resource in ["virtualmachineoperations", "virtualmachines"]
}

test_every_shape_is_tried_four_times if count(_requests) == count(_misshapen) * 4

test_any_shape_passes[note] if {
	some note, world in _requests
	policy.valid_input with input as world
	object.keys(policy.facts) == {"vm"} with input as world
	every op in policy.patch {
		_applies(op, world.request.object)
	} with input as world
}

test_any_old_shape_passes[note] if {
	some note, old in _misshapen
	policy.valid_input with input as _update(_stamped_operation, old)
	every op in policy.patch {
		_applies(op, _stamped_operation)
	} with input as _update(_stamped_operation, old)
}

_applies(op, whole) if {
	segments := [replace(segment, "~1", "/") | some segment in split(trim_prefix(op.path, "/"), "/")]
	parent := object.get(whole, array.slice(segments, 0, count(segments) - 1), null)
	_takes(parent, op, segments[count(segments) - 1])
}

_takes(parent, op, _) if {
	is_object(parent)
	op.op == "add"
}

_takes(parent, op, last) if {
	is_object(parent)
	op.op == "remove"
	last in object.keys(parent)
}

_takes(parent, _, "-") if is_array(parent)

test_fact_of_a_new_operation if {
	policy.facts == {"vm": {
		"apiVersion": "sallyport.dev/v1alpha1",
		"kind": "VirtualMachine",
		"namespace": "team-a",
		"name": "web-1",
		"freshness": "live",
	}} with input as _create(_operation, null)
}

_name_of_253 := $"{concat(".", [_name_of_60, _name_of_60, _name_of_60, _name_of_60])}abcdefghij"

test_fact_is_wanted_for_the_longest_name if {
	policy.facts.vm.name == _name_of_253 with input as _create(_named(_name_of_253), null)
}

test_no_fact_wanted[note] if {
	some note, world in {
		"update of an operation": _update(_operation, _operation),
		"create of a machine": _input("CREATE", "virtualmachines", object.union(_operation, _machine), null, null),
		"name too long": _create(_named($"{_name_of_253}k"), null),
		"name that leads elsewhere": _create(_named("web-1/status"), null),
		"name of dots": _create(_named(".."), null),
		"name in upper case": _create(_named("Web-1"), null),
		"name empty": _create(_named(""), null),
		"name null": _create(_named(null), null),
		"name a list": _create(_named(["web-1"]), null),
		"no name": _create({"metadata": {}, "spec": {}}, null),
		"no spec": _create({"metadata": {}}, null),
	}
	policy.facts == {"vm": null} with input as world
}

# Each field outside of the object that a rule reads, with each wrong type.
_wrong := {"null": null, "a number": 0, "true": true, "a list": [], "an object": {}}

_broken := object.union_n([
	{$"{field} missing": json.remove(_create(_operation, _vm), [field]) |
		some field in [
			"now",
			"facts",
			"facts/vm",
			"facts/vm/metadata",
			"facts/vm/metadata/uid",
			"request",
			"request/operation",
			"request/resource",
			"request/resource/resource",
			"request/userInfo",
			"request/userInfo/username",
		]
	},
	{$"now {what}": object.union(_create(_operation, _vm), {"now": value}) |
		some what, value in object.union(_wrong, {
			"empty": "",
			"without fraction": "2026-11-20T10:31:57Z",
			"with six digits": "2026-11-20T10:31:57.123456Z",
			"not in UTC": "2026-11-20T10:31:57.123456789+01:00",
			"among other text": " 2026-11-20T10:31:57.123456789Z ",
		})
	},
	{$"operation {what}": object.union(_create(_operation, _vm), {"request": {"operation": value}}) |
		some what, value in object.union(_wrong, {"empty": "", "DELETE": "DELETE"})
	},
	{$"resource {what}": object.union(_create(_operation, _vm), {"request": {"resource": {"resource": value}}}) |
		some what, value in _wrong
	},
	{$"user {what}": object.union(_create(_operation, _vm), {"request": {"userInfo": value}}) |
		some what, value in _wrong
		what != "an object"
	},
	{$"username {what}": object.union(_create(_operation, _vm), {"request": {"userInfo": {"username": value}}}) |
		some what, value in _wrong
	},
	{$"uid {what}": object.union(_create(_operation, _vm), {"request": {"userInfo": {"uid": value}}}) |
		some what, value in _wrong
	},
	{$"groups {what}": object.union(_create(_operation, _vm), {"request": {"userInfo": {"groups": value}}}) |
		some what, value in object.union(_wrong, {"a list": ["a", 0], "text": "a"})
	},
	{$"extra {what}": object.union(_create(_operation, _vm), {"request": {"userInfo": {"extra": value}}}) |
		some what, value in object.union(_wrong, {"an object": {"a": "b"}, "text": "a"})
	},
	{$"machine {what}": object.union(_create(_operation, null), {"facts": {"vm": value}}) |
		some what, value in object.union(_wrong, {"text": "web-1"})
		what != "null"
	},
	{$"UID of the machine {what}": _create(_operation, {"metadata": {"uid": value}}) |
		some what, value in object.union(_wrong, {"empty": ""})
	},
])

test_not_understood[note] if {
	some note, world in _broken
	not policy.valid_input with input as world
}

_run_policies := {"adopted": "Manual", "created": "AlwaysOnUnlessStoppedManually"}

_run_policy(path, value) := {{"op": "add", "path": $"{path}/runPolicy", "value": value}}

test_run_policy[note] if {
	some note, tc in {
		"a machine to create": {"spec": {"runtime": {"vsphere": {"clone": {}}}}, "patch": _run_policy("/spec", "AlwaysOnUnlessStoppedManually")},
		"a Pod": {"spec": {"runtime": {"pod": {}}}, "patch": _run_policy("/spec", "AlwaysOnUnlessStoppedManually")},
		"a machine to adopt": {"spec": {"runtime": {"vsphere": {"inventoryPath": "/DC0/vm/a"}}}, "patch": _run_policy("/spec", "Manual")},
		"no runtime": {"spec": {}, "patch": set()},
		"one that is null": {"spec": {"runPolicy": null, "runtime": {"pod": {}}}, "patch": _run_policy("/spec", "AlwaysOnUnlessStoppedManually")},
		"one that is set": {"spec": {"runPolicy": "Observe", "runtime": {"pod": {}}}, "patch": set()},
		"one that is false": {"spec": {"runPolicy": false, "runtime": {"pod": {}}}, "patch": set()},
		"no spec": {"spec": "x", "patch": set()},
	}
	some operation in ["CREATE", "UPDATE"]
	object_ := {"metadata": {"finalizers": ["sallyport.dev/virtual-machine"]}, "spec": tc.spec}
	policy.patch == tc.patch with input as _input(operation, "virtualmachines", object_, null, null)
		with data.parameters.runPolicies as _run_policies
}

test_no_run_policy_of_others if {
	policy.patch == set() with input as _input("CREATE", "configmaps", {"metadata": {}, "spec": {}}, null, null)
		with data.parameters.runPolicies as _run_policies
}
