package sallyport.kubevirt.pools_test

import data.sallyport.kubevirt.pools as policy

# The text of a denial, as the user sees it.
_text(denial) := concat("", [concat("", [mark, denial[key]]) | some [key, mark] in [["message", ""], ["cause", " because "], ["remedy", "; "]]])

_pool(spec) := {
	"kind": "VirtualMachinePool",
	"metadata": {"name": "ci", "namespace": "shop", "uid": "u-1"},
	"spec": object.union({"replicas": 5, "selector": {"matchLabels": {"app": "ci"}}}, spec),
}

_set(spec) := object.union(_pool(spec), {"kind": "VirtualMachineInstanceReplicaSet"})

_base := {
	"operation": "UPDATE", "namespace": "shop", "name": "ci", "subResource": "",
	"resource": {"group": "pool.kubevirt.io", "version": "v1beta1", "resource": "virtualmachinepools"},
	"userInfo": {"username": "alice"},
}

# Five members, of which the first is the oldest.
_member(slot) := {
	"metadata": {
		"name": $"ci-{slot}", "creationTimestamp": $"2026-11-20T10:00:0{slot}Z",
		"ownerReferences": [{"uid": "u-1", "controller": true}],
	},
	"spec": {"template": {"metadata": {"labels": {"slot": $"{slot}"}}, "spec": {"nodeSelector": {"zone": $"z{slot}"}}}},
}

_protected(slot) := object.union(_member(slot), {"metadata": {"labels": {"sallyport.dev/deletion-protection": "enabled"}}})

_ending(slot) := object.union(_member(slot), {"metadata": {"deletionTimestamp": "2026-11-20T10:31:57Z"}})

_of(protected, ending) := array.concat(
	array.concat(
		[_member(slot) | some slot in [0, 1, 2, 3, 4]; not slot in protected; not slot in ending],
		[_protected(slot) | some slot in protected],
	),
	[_ending(slot) | some slot in ending],
)

_edit(old, new, members) := {
	"request": object.union(_base, {"oldObject": old, "object": new}),
	"facts": {"parent": null, "members": members},
}

_scaled(old, to, members) := {
	"request": object.union(_base, {
		"subResource": "scale",
		"oldObject": {"kind": "Scale", "metadata": {"uid": "u-1"}, "spec": {}}, "object": {"kind": "Scale", "metadata": {"uid": "u-1"}, "spec": to},
	}),
	"facts": {"parent": old, "members": members},
}

_of_set(world) := object.union(world, {"request": {"resource": {
	"group": "kubevirt.io", "version": "v1", "resource": "virtualmachineinstancereplicasets",
}}})

_selects(selectors) := {"scaleInStrategy": {"proactive": {"selectionPolicy": {"selectors": selectors}}}}

_sorts(how) := {"scaleInStrategy": {"proactive": {"selectionPolicy": {"sortPolicy": how}}}}

# The reasons of the denials. An input that is not understood is never allowed.
_verdict := "not understood" if not policy.valid_input

_verdict := concat(", ", sort([denial.reason | some denial in policy.deny])) if policy.valid_input

test_facts[note] if {
	some note, tc in {
		"a pool": {"world": _edit(_pool({}), _pool({}), []), "kinds": {"members": "VirtualMachine"}, "labels": {"app": "ci"}},
		"one that is scaled": {"world": _scaled(_pool({}), {}, []), "kinds": {"members": "VirtualMachine"}, "labels": {"app": "ci"}},
		"a replica set": {"world": _of_set(_edit(_set({}), _set({}), [])), "kinds": {"members": "VirtualMachineInstance"}, "labels": {"app": "ci"}},
		"a selector without labels": {
			"world": _edit(json.remove(_pool({}), ["spec/selector/matchLabels"]), _pool({}), []),
			"kinds": {"members": "VirtualMachine"}, "labels": {},
		},
	}
	facts := policy.facts with input as tc.world
	{name: query.kind | some name, query in facts; query.kind} == tc.kinds
	facts.members.labels == tc.labels
}

test_facts_of_what_is_gone if {
	facts := policy.facts with input as _scaled(null, {}, [])
	facts.members == null
	facts.parent.parent
}

# The new number of replicas, and which members are protected or are being deleted.
test_numbers[note] if {
	some note, tc in {
		"nobody is protected": {"to": 3, "protected": [], "ending": [], "verdict": ""},
		"one is, and any may be removed": {"to": 4, "protected": [2], "ending": [], "verdict": "MembersProtected"},
		"one is, to none": {"to": 0, "protected": [2], "ending": [], "verdict": "MembersProtected"},
		"as many as before": {"to": 5, "protected": [0, 1], "ending": [], "verdict": ""},
		"more": {"to": 7, "protected": [0, 1], "ending": [], "verdict": ""},
		"the others are being deleted": {"to": 3, "protected": [0], "ending": [3, 4], "verdict": ""},
		"some others are": {"to": 3, "protected": [0], "ending": [4], "verdict": "MembersProtected"},
		"more than are removed": {"to": 4, "protected": [], "ending": [3, 4], "verdict": "MembersTerminating"},
		"just as many": {"to": 3, "protected": [], "ending": [3, 4], "verdict": ""},
	}
	some world in [
		_edit(_pool({}), _pool({"replicas": tc.to}), _of(tc.protected, tc.ending)),
		_scaled(_pool({}), {"replicas": tc.to}, _of(tc.protected, tc.ending)),
	]
	_verdict == tc.verdict with input as world
}

test_defaults[note] if {
	some note, tc in {
		"a Scale to none": {"world": _scaled(_pool({"replicas": 1}), {}, [_protected(0)]), "verdict": "MembersProtected"},
		"a pool has one member": {"world": _edit(_pool({"replicas": 1}), json.remove(_pool({}), ["spec/replicas"]), [_protected(0)]), "verdict": ""},
		"one that has many": {"world": _edit(_pool({}), json.remove(_pool({}), ["spec/replicas"]), _of([0], [])), "verdict": "MembersProtected"},
		"it is gone": {"world": _scaled(null, {}, []), "verdict": ""},
	}
	_verdict == tc.verdict with input as tc.world
}

# From five to four, with member 0 or member 4 protected.
test_order[note] if {
	some note, tc in {
		"AscendingOrder": {"first": "MembersProtected", "last": ""},
		"DescendingOrder": {"first": "", "last": "MembersProtected"},
		"Oldest": {"first": "MembersProtected", "last": ""},
		"Newest": {"first": "", "last": "MembersProtected"},
		"Random": {"first": "MembersProtected", "last": "MembersProtected"},
		"Unheard": {"first": "MembersProtected", "last": "MembersProtected"},
	}
	pool := _pool(_sorts(note))
	_verdict == tc.first with input as _scaled(pool, {"replicas": 4}, _of([0], []))
	_verdict == tc.last with input as _scaled(pool, {"replicas": 4}, _of([4], []))
}

# A name without a number counts as 0, as in virt-controller.
test_odd_names[note] if {
	some note, tc in {
		"no number": {"name": "ci-x", "verdict": "MembersProtected"},
		"zeros": {"name": "ci-007", "verdict": ""},
	}
	odd := object.union(_protected(4), {"metadata": {"name": tc.name}})
	world := _scaled(_pool(_sorts("AscendingOrder")), {"replicas": 4}, array.concat([_member(1), _member(2), _member(3), _member(4)], [odd]))
	_verdict == tc.verdict with input as world
}

# From five to four. Members 0 and 1 are protected.
test_selectors[note] if {
	some note, tc in {
		"none in particular": {"selectors": {}, "verdict": "MembersProtected"},
		"all": {"selectors": {"labelSelector": {}}, "verdict": "MembersProtected"},
		"one that is not protected": {"selectors": {"labelSelector": {"matchLabels": {"slot": "3"}}}, "verdict": ""},
		"one that is": {"selectors": {"labelSelector": {"matchLabels": {"slot": "0"}}}, "verdict": "MembersProtected"},
		"none": {"selectors": {"labelSelector": {"matchLabels": {"slot": "9"}}}, "verdict": "SelectorsTooNarrow"},
		"In": {"selectors": {"labelSelector": {"matchExpressions": [{"key": "slot", "operator": "In", "values": ["3", "4"]}]}}, "verdict": ""},
		"NotIn": {"selectors": {"labelSelector": {"matchExpressions": [{"key": "slot", "operator": "NotIn", "values": ["0", "1"]}]}}, "verdict": ""},
		"NotIn, another key": {
			"selectors": {"labelSelector": {"matchExpressions": [{"key": "x", "operator": "NotIn", "values": ["0"]}]}},
			"verdict": "MembersProtected",
		},
		"Exists": {"selectors": {"labelSelector": {"matchExpressions": [{"key": "slot", "operator": "Exists"}]}}, "verdict": "MembersProtected"},
		"Exists, another key": {"selectors": {"labelSelector": {"matchExpressions": [{"key": "x", "operator": "Exists"}]}}, "verdict": "SelectorsTooNarrow"},
		"DoesNotExist": {
			"selectors": {"labelSelector": {"matchExpressions": [{"key": "slot", "operator": "DoesNotExist"}]}},
			"verdict": "SelectorsTooNarrow",
		},
		"DoesNotExist, another key": {
			"selectors": {"labelSelector": {"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]}},
			"verdict": "MembersProtected",
		},
		"nodes": {"selectors": {"nodeSelectorRequirementMatcher": [{"key": "zone", "operator": "In", "values": ["z2"]}]}, "verdict": ""},
		"nodes with numbers": {
			"selectors": {"nodeSelectorRequirementMatcher": [{"key": "zone", "operator": "Gt", "values": ["2"]}]},
			"verdict": "SelectorsTooNarrow",
		},
		"both": {
			"selectors": {
				"labelSelector": {"matchLabels": {"slot": "3"}},
				"nodeSelectorRequirementMatcher": [{"key": "zone", "operator": "In", "values": ["z2"]}],
			},
			"verdict": "SelectorsTooNarrow",
		},
	}
	_verdict == tc.verdict with input as _scaled(_pool(_selects(tc.selectors)), {"replicas": 4}, _of([0, 1], []))
}

# Other changes, after which virt-controller removes what is left over. Five members, of which three are wanted.
test_changes[note] if {
	before := {"replicas": 3, "paused": true}
	some note, tc in {
		"it goes on": {"old": before, "new": {"replicas": 3}, "verdict": "MembersProtected"},
		"it stays paused": {"old": before, "new": before, "verdict": ""},
		"it is paused and scaled": {"old": {}, "new": before, "verdict": ""},
		"it removes members again": {
			"old": {"replicas": 3, "scaleInStrategy": {"opportunistic": {}}}, "new": {"replicas": 3}, "verdict": "MembersProtected",
		},
		"it removes none any longer": {"old": {}, "new": {"replicas": 3, "scaleInStrategy": {"opportunistic": {}}}, "verdict": ""},
		"its members are not managed": {"old": {}, "new": {"replicas": 3, "scaleInStrategy": {"unmanaged": {}}}, "verdict": ""},
		"it keeps more": {"old": before, "new": {"replicas": 4}, "verdict": ""},
		"autohealing with selectors": {
			"old": {}, "new": object.union(_selects({"labelSelector": {}}), {"autohealing": {}}), "verdict": "SelectorsWithAutohealing",
		},
		"autohealing": {"old": {}, "new": {"autohealing": {}}, "verdict": ""},
		"it is being deleted": {"old": {}, "new": {"replicas": 3}, "verdict": "", "metadata": {"deletionTimestamp": "2026-11-20T10:31:57Z"}},
	}
	old := object.union(_pool(tc.old), {"metadata": object.get(tc, "metadata", {})})
	_verdict == tc.verdict with input as _edit(old, _pool(tc.new), _of([0], []))
}

_other := object.union(_protected(7), {"metadata": {"ownerReferences": [{"uid": "u-9"}]}})

_ended(phase) := object.union(_protected(7), {"status": {"phase": phase}})

# A replica set removes any instances, and does not count those that have ended.
test_replica_sets[note] if {
	some note, tc in {
		"fewer": {"to": 4, "members": _of([0], []), "verdict": "MembersProtected"},
		"none is protected": {"to": 4, "members": _of([], []), "verdict": ""},
		"one that belongs to another": {"to": 4, "members": array.concat(_of([], []), [_other]), "verdict": ""},
		"one that has ended": {"to": 4, "members": array.concat(_of([], []), [_ended("Failed")]), "verdict": ""},
		"one that runs": {"to": 4, "members": array.concat(_of([], []), [_ended("Running")]), "verdict": "MembersProtected"},
		"some are being deleted": {"to": 4, "members": _of([], [3, 4]), "verdict": ""},
	}
	_verdict == tc.verdict with input as _of_set(_scaled(_set({}), {"replicas": tc.to}, tc.members))
}

test_not_understood[note] if {
	some note, world in {
		"a number that is none": _edit(_pool({}), _pool({"replicas": "many"}), []),
		"members without a name": _edit(_pool({}), _pool({}), [{"metadata": {}}]),
		"another operation": object.union(_edit(_pool({}), _pool({}), []), {"request": {"operation": "CONNECT"}}),
	}
	_verdict == "not understood" with input as world
}

test_texts[note] if {
	some note, tc in {
		"a pool": {
			"world": _scaled(_pool({}), {"replicas": 3}, _of([0, 1, 2, 3], [])),
			"text": concat("", [
				"VirtualMachinePool ci in namespace shop: cannot scale from 5 to 3 because KubeVirt may remove members with label ",
				"sallyport.dev/deletion-protection: ci-0, ci-1, ci-2, and 1 more; ",
				"to select members, lower replicas without removing any: kubectl patch virtualmachinepools.pool.kubevirt.io/ci -n shop --type merge -p ",
				`'{"spec":{"replicas":3,"scaleInStrategy":{"opportunistic":{},"proactive":null,"unmanaged":null}}}'; then, for each: `,
				"kubectl patch virtualmachines.kubevirt.io NAME -n shop --type merge -p ",
				`'{"metadata":{"finalizers":null,"ownerReferences":null}}'; kubectl delete virtualmachines.kubevirt.io NAME -n shop`,
			]),
		},
		"a replica set": {
			"world": _of_set(_scaled(_set({}), {"replicas": 4}, _of([0], []))),
			"text": concat("", [
				"VirtualMachineInstanceReplicaSet ci in namespace shop: cannot scale from 5 to 4 because KubeVirt may remove members with label ",
				"sallyport.dev/deletion-protection: ci-0; ",
				"to select instances, pause it: kubectl patch virtualmachineinstancereplicasets.kubevirt.io/ci -n shop --type merge -p ",
				`'{"spec":{"paused":true,"replicas":4}}'; then, for each: kubectl delete virtualmachineinstances.kubevirt.io NAME -n shop; `,
				"then set spec.paused to false",
			]),
		},
		"members that are being deleted": {
			"world": _scaled(_pool({"replicas": 2}), {"replicas": 4}, _of([], [2, 3, 4])),
			"text": concat("", [
				"VirtualMachinePool ci in namespace shop: cannot scale from 2 to 4 because 3 members are being deleted, more than the 1 to remove, ",
				"which crashes virt-controller; wait, or scale to 2 until they are deleted: ",
				"kubectl scale virtualmachinepools.pool.kubevirt.io/ci -n shop --replicas=2",
			]),
		},
		"autohealing": {
			"world": _edit(_pool({}), _pool(object.union(_selects({"labelSelector": {}}), {"autohealing": {}})), []),
			"text": concat("", [
				"VirtualMachinePool ci in namespace shop: spec.autohealing is not allowed with scale-in selectors because ",
				"virt-controller crashes when it replaces a machine that they do not match",
			]),
		},
	}
	denials := policy.deny with input as tc.world
	{_text(denial) | some denial in denials} == {tc.text}
}

test_text_of_another_change if {
	world := _edit(_pool({"paused": true}), _pool(_selects({"labelSelector": {"matchLabels": {"slot": "9"}}})), array.concat(_of([], []), [_member(5)]))
	denials := policy.deny with input as world
	some denial in denials
	startswith(_text(denial), concat("", [
		"VirtualMachinePool ci in namespace shop: its spec cannot change so because its scale-in selectors match 0 of the 1 members to remove, ",
		"which crashes virt-controller; to select members, ",
	]))
}
