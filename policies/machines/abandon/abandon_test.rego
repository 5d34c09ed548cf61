package sallyport.machines.abandon_test

import data.sallyport.machines.abandon

# The text of a denial, as the user sees it.
_text(denial) := concat("", [concat("", [mark, denial[key]]) | some [key, mark] in [["message", ""], ["cause", " because "], ["remedy", "; "]]])

_key := "sallyport.dev/abandon-instance"

_keys := {_key, "sallyport.dev/source-fenced", "sallyport.dev/take-over", "sallyport.dev/make-anew"}

_machine(annotations) := {"metadata": {"name": "web-1", "uid": "u-1", "annotations": annotations}}

_leaving(annotations) := object.union(_machine(annotations), {"metadata": {"deletionTimestamp": "2026-11-20T10:31:57Z"}})

_machines := {"group": "sallyport.dev", "version": "v1alpha1", "resource": "virtualmachines"}

_bare := {"metadata": {"name": "web-1"}}

_update(old, new, override) := {
	"request": {"operation": "UPDATE", "resource": _machines, "userInfo": {"username": "bob"}, "object": new, "oldObject": old},
	"facts": {"override": override},
}

_create(new, override) := {
	"request": {"operation": "CREATE", "resource": _machines, "userInfo": {"username": "bob"}, "object": new},
	"facts": {"override": override},
}

_asked := {"access": {"verb": "override", "group": "sallyport.dev", "resource": "regopolicies", "name": "machines-abandon"}}

# Setting one requires the permission, whether or not the machine is being deleted.
test_written[note] if {
	some key in _keys
	some what, world in {
		"as it ends": _update(_leaving({}), _leaving({key: "u-1"}), false),
		"beforehand": _update(_machine({}), _machine({key: "u-1"}), false),
		"the first annotation": _update(_bare, _machine({key: "u-1"}), false),
		"another value": _update(_leaving({key: "u-0"}), _leaving({key: "u-1"}), false),
		"no value": _update(_leaving({key: "u-0"}), _leaving({key: ""}), false),
		"from the start": _create(_machine({key: "u-1"}), false),
		"without a name": _create({"metadata": {"generateName": "web-", "annotations": {key: "u-1"}}}, false),
	}
	note := $"{key} {what}"
	abandon.facts.override == _asked with input as world
	abandon.valid_input with input as world
	denied := [[denial.reason, denial.details.field] | some denial in abandon.deny] with input as world
	denied == [["AbandonNotAllowed", $"metadata.annotations[{key}]"]]
	count(abandon.deny) == 0 with input as object.union(world, {"facts": {"override": true}})
	abandon.valid_input with input as object.union(world, {"facts": {"override": true}})
}

# The permission is checked once, and there is a denial for each annotation.
test_both_written if {
	world := _update(_machine({}), _machine({key: "u-1" | some key in _keys}), false)
	abandon.facts.override == _asked with input as world
	{denial.details.field | some denial in abandon.deny} == {$"metadata.annotations[{key}]" | some key in _keys} with input as world
}

# Any other update requires no permission, and none is checked.
test_not_written[note] if {
	some key in _keys
	some what, world in {
		"stays": _update(_leaving({key: "u-1"}), _leaving({key: "u-1", "a": "b"}), null),
		"taken off": _update(_leaving({key: "u-1"}), _leaving({}), null),
		"taken off, the last": _update(_leaving({key: "u-1"}), _bare, null),
		"another annotation": _update(_machine({}), _machine({"a": "b"}), null),
		"a new machine": _create(_bare, null),
	}
	note := $"{key} {what}"
	abandon.facts.override == null with input as world
	abandon.valid_input with input as world
	count(abandon.deny) == 0 with input as world
}

test_message[key] if {
	some key, effect in {
		"sallyport.dev/abandon-instance": "leaves the instance on its runtime",
		"sallyport.dev/source-fenced": "removes the instance without its agent, and the machine runs twice if the node is alive",
		"sallyport.dev/take-over": "takes over what another object of this name, perhaps of another cluster, has on the runtime",
		"sallyport.dev/make-anew": "creates another one beside what another object of this name has on the runtime",
	}
	some denial in abandon.deny with input as _update(_leaving({}), _leaving({key: "u-1"}), false)
	_text(denial) == concat("", [
		$"VirtualMachine web-1: bob cannot set annotation {key} because it {effect}; ",
		"ask a cluster administrator for the verb override on RegoPolicy machines-abandon",
	])
}

# Disks and templates can be restored, too.
test_other_kinds[kind] if {
	some resource, kind in {"virtualdisks": "VirtualDisk", "vmdiskimages": "VMDiskImage", "vspheretemplates": "VSphereTemplate"}
	world := object.union(
		_create(_machine({"sallyport.dev/take-over": "u-1"}), false),
		{"request": {"resource": {"resource": resource}}},
	)
	abandon.valid_input with input as world
	[denial.details.kind | some denial in abandon.deny] == [kind] with input as world
	[startswith(_text(denial), $"{kind} web-1: bob cannot set") | some denial in abandon.deny] == [true] with input as world
}

_good := _update(_leaving({_key: "u-0"}), _leaving({_key: "u-1"}), false)

# An answer that is not valid is not a permission.
test_not_understood[note] if {
	some note, change in {
		"a requester without a name": {"request": {"userInfo": {"username": ""}}},
		"another kind": {"request": {"resource": {"resource": "pods"}}},
		"another operation": {"request": {"operation": "DELETE"}},
		"nobody has said who may": {"facts": {"override": null}},
		"an odd answer": {"facts": {"override": "yes"}},
	}
	not abandon.valid_input with input as object.union(_good, change)
}

test_not_understood_without[path] if {
	some path in ["request/object", "request/object/metadata", "request/oldObject", "request/oldObject/metadata"]
	not abandon.valid_input with input as json.remove(_good, [path])
}

# The API allows null in metadata.
test_null_is_absent if {
	nothing := {"metadata": {"annotations": null, "finalizers": null, "deletionTimestamp": null}}
	written := object.union(_good, {"request": {"oldObject": nothing}})
	abandon.valid_input with input as written
	[denial.reason | some denial in abandon.deny] == ["AbandonNotAllowed"] with input as written
	kept := object.union(_update(_with(_machine({}), [_finalizer]), _machine({}), false), {"request": {"object": nothing}})
	abandon.valid_input with input as kept
	[denial.reason | some denial in abandon.deny] == ["FinalizerRequired"] with input as kept
}

test_lacking[note] if {
	some note, path in {
		"no requester": "request/userInfo/username",
		"no object": "request/object",
		"no old object": "request/oldObject",
		"no operation": "request/operation",
		"no resource": "request/resource",
		"no answer": "facts/override",
	}
	not abandon.valid_input with input as json.remove(_good, [path])
}

_finalizer := "sallyport.dev/virtual-machine"

_with(object_, finalizers) := object.union(object_, {"metadata": {"finalizers": finalizers}})

_had(status) := object.union(_with(_leaving({}), [_finalizer, "example.com/a"]), {"status": status})

_unfinished := "because what was begun for it on the runtime is not undone yet"

# Without the finalizer Sallyport would forget what is on the runtime.
test_finalizer_removed[note] if {
	some note, tc in {
		"of a living object": {"old": _with(_machine({}), [_finalizer]), "new": _machine({}), "why": "because the object is not being deleted"},
		"one of two": {"old": _with(_machine({}), ["a", _finalizer]), "new": _with(_machine({}), ["a"]), "why": "because the object is not being deleted"},
		"a machine that exists": {"old": _had({"instanceID": "i-1"}), "new": _leaving({}), "why": "because its instance still exists"},
		"a disk that exists": {"old": _had({"diskID": "d-1"}), "new": _leaving({}), "why": "because its instance still exists"},
		"an image that was imported": {"old": _had({"attempt": {"number": 1}}), "new": _leaving({}), "why": "because its instance still exists"},
		"a template that exists": {"old": _had({"failureDomains": [{"name": "a"}]}), "new": _leaving({}), "why": "because its instance still exists"},
		"a machine that is being made": {"old": _had({"phase": "Terminating", "provisioningSince": "2026-11-29T00:00:00.000000Z"}), "new": _leaving({}), "why": _unfinished},
		"a machine that Sallyport is deleting": {
			"old": _had({"phase": "Terminating", "activeOperation": {"id": "c-1", "origin": "Deletion"}}), "new": _leaving({}), "why": _unfinished,
		},
		"a machine with something to undo": {"old": _had({"undoing": [{"id": "c-1"}]}), "new": _leaving({}), "why": _unfinished},
		"a disk that is being copied": {"old": _had({"image": {"name": "ubuntu"}}), "new": _leaving({}), "why": _unfinished},
		"a disk whose snapshot is held": {"old": _had({"copySnapshot": "svd-u-1"}), "new": _leaving({}), "why": _unfinished},
		"a machine that exists and is being deleted": {
			"old": _had({"instanceID": "i-1", "activeOperation": {"id": "c-1"}}), "new": _leaving({}), "why": "because its instance still exists",
		},
		"given up for another object": {
			"old": object.union(_had({"instanceID": "i-1"}), {"metadata": {"annotations": {_key: "u-0"}}}),
			"new": _leaving({_key: "u-0"}), "why": "because its instance still exists",
		},
	}
	world := _update(tc.old, tc.new, false)
	abandon.facts.override == _asked with input as world
	abandon.valid_input with input as world
	[[denial.reason, contains(_text(denial), tc.why)] | some denial in abandon.deny] == [["FinalizerRequired", true]] with input as world
	count(abandon.deny) == 0 with input as object.union(world, {"facts": {"override": true}})
}

test_finalizer_may_go[note] if {
	some note, tc in {
		"nothing is there": {"old": _had({}), "new": _leaving({})},
		"nothing is there any more": {"old": _had({"instanceID": "", "failureDomains": [], "undoing": [], "phase": "Pending"}), "new": _leaving({})},
		"given up while it was made": {
			"old": object.union(_had({"provisioningSince": "2026-11-29T00:00:00.000000Z", "undoing": [{"id": "c-1"}]}), {"metadata": {"annotations": {_key: "u-1"}}}),
			"new": _leaving({_key: "u-1"}),
		},
		"given up": {
			"old": object.union(_had({"instanceID": "i-1"}), {"metadata": {"annotations": {_key: "u-1"}}}),
			"new": _leaving({_key: "u-1"}),
		},
		"another one": {"old": _with(_machine({}), [_finalizer, "example.com/a"]), "new": _with(_machine({}), [_finalizer])},
		"one more": {"old": _machine({}), "new": _with(_machine({}), [_finalizer])},
	}
	world := _update(tc.old, tc.new, null)
	abandon.facts.override == null with input as world
	abandon.valid_input with input as world
	count(abandon.deny) == 0 with input as world
}

test_finalizer_message if {
	world := object.union(_update(_with(_machine({}), [_finalizer]), _machine({}), false), {"request": {"namespace": "team-a"}})
	some denial in abandon.deny with input as world
	_text(denial) == concat("", [
		"VirtualMachine web-1: bob cannot remove finalizer sallyport.dev/virtual-machine because the object is not being deleted; ",
		"delete it and wait until Sallyport removes the finalizer, or ask a cluster administrator for the verb override on ",
		"RegoPolicy machines-abandon (kubectl annotate svm web-1 -n team-a sallyport.dev/abandon-instance=u-1)",
	])
}

test_finalizer_of_a_template if {
	old := _with(_machine({}), ["sallyport.dev/vsphere-template"])
	world := object.union(_update(old, _machine({}), false), {"request": {"resource": {"resource": "vspheretemplates"}}})
	[denial.details.kind | some denial in abandon.deny] == ["VSphereTemplate"] with input as world
	[endswith(_text(denial), "RegoPolicy machines-abandon") | some denial in abandon.deny] == [true] with input as world
}
