package sallyport.machines.abandon_test

import data.sallyport.machines.abandon

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
	denial.message == concat("", [
		$"VirtualMachine web-1: bob cannot set annotation {key} because it {effect}; ",
		"ask a cluster administrator for the verb override on RegoPolicy machines-abandon",
	])
}

# Disks and templates can be restored, too.
test_other_kinds[kind] if {
	some resource, kind in {"virtualdisks": "VirtualDisk", "vspheretemplates": "VSphereTemplate"}
	world := object.union(
		_create(_machine({"sallyport.dev/take-over": "u-1"}), false),
		{"request": {"resource": {"resource": resource}}},
	)
	abandon.valid_input with input as world
	[denial.details.kind | some denial in abandon.deny] == [kind] with input as world
	[startswith(denial.message, $"{kind} web-1: bob cannot set") | some denial in abandon.deny] == [true] with input as world
}

_good := _update(_leaving({_key: "u-0"}), _leaving({_key: "u-1"}), false)

# An answer that is not valid is not a permission.
test_not_understood[note] if {
	some note, change in {
		"a requester without a name": {"request": {"userInfo": {"username": ""}}},
		"an odd requester": {"request": {"userInfo": {"username": 1}}},
		"an odd object": {"request": {"object": "x"}},
		"odd metadata": {"request": {"object": {"metadata": "x"}}},
		"odd annotations": {"request": {"object": {"metadata": {"annotations": []}}}},
		"an odd value": {"request": {"object": {"metadata": {"annotations": {"a": 1}}}}},
		"odd old annotations": {"request": {"oldObject": {"metadata": {"annotations": null}}}},
		"another kind": {"request": {"resource": {"resource": "pods"}}},
		"another operation": {"request": {"operation": "DELETE"}},
		"nobody has said who may": {"facts": {"override": null}},
		"an odd answer": {"facts": {"override": "yes"}},
	}
	not abandon.valid_input with input as object.union(_good, change)
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
