package sallyport.pools.scaledown_test

import data.sallyport.pools.scaledown as policy

# The text of a denial, as the user sees it.
_text(denial) := concat("", [concat("", [mark, denial[key]]) | some [key, mark] in [["message", ""], ["cause", " because "], ["remedy", "; "]]])

_target(slot) := {"name": $"ci-{slot}", "uid": $"u-{slot}"}

_targets(slots) := [_target(slot) | some slot in slots]

_spec(replicas, slots) := {"replicas": replicas, "scaleDownPolicy": "Explicit", "scaleDownTargets": _targets(slots)}

_pool(spec) := {"kind": "VirtualMachinePool", "metadata": {"name": "ci", "uid": "u-pool"}, "spec": spec}

# Explicit, five replicas, no member named.
_before := _pool(_spec(5, []))

_member(slot) := {"metadata": {
	"name": $"ci-{slot}", "uid": $"u-{slot}",
	"ownerReferences": [{"uid": "u-team"}, {"uid": "u-pool", "controller": true}],
}}

_leaving := {"metadata": {"deletionTimestamp": "2026-11-20T10:00:00Z"}}

# The oldest first, as in facts.
_members := [_member(slot) | some slot in [0, 1, 2, 3, 4]]

_input(old, new, members) := {
	"request": {
		"operation": "UPDATE", "namespace": "team-a", "resource": {"group": "sallyport.dev", "resource": "virtualmachinepools"},
		"object": new, "oldObject": old,
	},
	"facts": {"parent": null, "members": members, "leases": _leases(members)},
	"now": "2026-11-20T12:00:00.000000000Z",
}

# Members and Leases are read together. No member is busy.
_leases(members) := [] if is_array(members)

_leases(null) := null

_edit(old, new, members) := _input(old, _pool(new), members)

# The subresource, which omits a 0 and has nothing but the number.
_number(replicas) := {"replicas": replicas} if replicas > 0

_number(0) := {}

_scale_of(replicas) := {"kind": "Scale", "metadata": {"name": "ci", "uid": "u-pool"}, "spec": _number(replicas)}

_scaled(parent, replicas, members) := object.union(
	_input(_scale_of(parent.spec.replicas), _scale_of(replicas), members),
	{"request": {"subResource": "scale"}, "facts": {"parent": parent}},
)

_verdict := "not understood" if not policy.valid_input

_verdict := concat(", ", sort([denial.reason | some denial in policy.deny])) if {
	policy.valid_input
	count(policy.deny) > 0
}

_verdict := "allow" if {
	policy.valid_input
	count(policy.deny) == 0
}

_said := concat("\n", sort([_text(denial) | some denial in policy.deny]))

# From five replicas of five members without targets: what is written, and the verdict.
_edits := {
	"nothing": {"to": 5, "named": [], "verdict": "allow"},
	"more": {"to": 6, "named": [], "verdict": "allow"},
	"fewer, nobody named": {"to": 3, "named": [], "verdict": "ScaleDownNotNamed"},
	"fewer, too few named": {"to": 3, "named": [2], "verdict": "ScaleDownNotNamed"},
	"fewer, as many named": {"to": 3, "named": [2, 0], "verdict": "allow"},
	"fewer, more named": {"to": 4, "named": [2, 0], "verdict": "TooManyTargets"},
	"all named": {"to": 0, "named": [0, 1, 2, 3, 4], "verdict": "allow"},
	"named, no fewer": {"to": 5, "named": [2], "verdict": "TooManyTargets"},
	"named, and more": {"to": 6, "named": [2], "verdict": "TooManyTargets"},
	"no member named": {"to": 4, "named": [7], "verdict": "ScaleDownNotNamed, TargetNotMember"},
	"no member named, no fewer": {"to": 5, "named": [7], "verdict": "TargetNotMember"},
	"no member named beside one": {"to": 4, "named": [1, 7], "verdict": "TargetNotMember"},
}

test_edits[note] if {
	some note, tc in _edits
	_verdict == tc.verdict with input as _edit(_before, _spec(tc.to, tc.named), _asked(tc, _members))
}

# Members are in the facts if the policy reads them.
_asked(tc, members) := members if tc.to < 5

_asked(tc, members) := members if {
	tc.to >= 5
	count(tc.named) > 0
}

_asked(tc, _) := null if {
	tc.to >= 5
	count(tc.named) == 0
}

# Under the other policies replicas can be lowered by any number, but entries must name members.
test_edits_of_another_policy[note] if {
	some note, tc in _edits
	some scale_down_policy in ["NewestFirst", "OldestFirst"]
	how := {"scaleDownPolicy": scale_down_policy}
	old := object.union(_before, {"spec": how})
	verdict := concat(", ", [reason |
		some reason in split(tc.verdict, ", ")
		reason != "ScaleDownNotNamed"
	])
	expected := {"": "allow"}
	_verdict == object.get(expected, verdict, verdict) with input as _edit(old, object.union(_spec(tc.to, tc.named), how), _asked(tc, _members))
}

test_the_policy_before_counts[note] if {
	some note, tc in {
		"Explicit is taken off with replicas": {"old": "Explicit", "new": "NewestFirst", "to": 4, "verdict": "ScaleDownNotNamed"},
		"Explicit is taken off": {"old": "Explicit", "new": "OldestFirst", "to": 5, "verdict": "allow"},
		"Explicit comes with fewer replicas": {"old": "NewestFirst", "new": "Explicit", "to": 4, "verdict": "allow"},
	}
	old := object.union(_before, {"spec": {"scaleDownPolicy": tc.old}})
	new := object.union(_spec(tc.to, []), {"scaleDownPolicy": tc.new})
	_verdict == tc.verdict with input as _edit(old, new, _asked({"to": tc.to, "named": []}, _members))
}

# The subresource names no member.
test_scale[note] if {
	some note, tc in {
		"fewer": {"policy": "Explicit", "to": 4, "parent": {}, "verdict": "ScaleDownNotNamed"},
		"none": {"policy": "Explicit", "to": 0, "parent": {}, "verdict": "ScaleDownNotNamed"},
		"fewer, and somebody was named": {
			"policy": "Explicit", "to": 4, "parent": {"spec": {"scaleDownTargets": _targets([1])}},
			"verdict": "ScaleDownNotNamed",
		},
		"fewer of a pool that is being deleted": {"policy": "Explicit", "to": 4, "parent": _leaving, "verdict": "allow"},
		"fewer, newest first": {"policy": "NewestFirst", "to": 4, "parent": {}, "verdict": "allow"},
		"none, oldest first": {"policy": "OldestFirst", "to": 0, "parent": {}, "verdict": "allow"},
	}
	parent := object.union(object.union(_before, {"spec": {"scaleDownPolicy": tc.policy}}), tc.parent)
	_verdict == tc.verdict with input as _scaled(parent, tc.to, _members)
}

# A request that removes no member reads no facts, and is admitted if the pool is gone.
_nothing := {"parent": null, "members": null, "leases": null}

test_scale_up[replicas] if {
	some replicas in [5, 6]
	world := object.union(_scaled(_before, replicas, null), {"facts": {"parent": null}})
	_verdict == "allow" with input as world
	policy.facts == _nothing with input as world
}

test_scale_of_what_is_gone if {
	_verdict == "allow" with input as object.union(_scaled(_before, 4, []), {"facts": {"parent": null}})
}

# The default is 0 replicas, in the pool and in its Scale.
test_no_replicas if {
	unset := _pool({"scaleDownPolicy": "Explicit"})
	_verdict == "allow" with input as _edit(unset, {"scaleDownPolicy": "Explicit"}, null)
	_verdict == "allow" with input as _edit(unset, _spec(3, []), null)
	_verdict == "ScaleDownNotNamed" with input as _edit(_before, {"scaleDownPolicy": "Explicit"}, _members)
}

# For a pool that is being deleted, the API server calls the policy only for its Scale, or without the webhook configuration of the chart.
test_leaving if _verdict == "allow" with input as _edit(object.union(_before, _leaving), _spec(0, []), _members)

test_facts[note] if {
	asked := {
		"parent": null,
		"members": {
			"apiVersion": "sallyport.dev/v1alpha1", "kind": "VirtualMachine", "namespace": "team-a",
			"labels": {"sallyport.dev/pool-uid": "u-pool"},
		},
		"leases": {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "namespace": "team-a", "freshness": "live"},
	}
	some note, tc in {
		"fewer": {"world": _edit(_before, _spec(4, []), null), "facts": asked},
		"named": {"world": _edit(_before, _spec(5, [1]), null), "facts": asked},
		"neither": {"world": _edit(_before, _spec(5, []), null), "facts": _nothing},
		"scaled down": {"world": _scaled(_before, 4, null), "facts": object.union(asked, {"parent": {"parent": true}})},
		"scaled up": {"world": _scaled(_before, 6, null), "facts": _nothing},
	}
	policy.facts == tc.facts with input as tc.world
}

# Which members can be named: the request lowers replicas to four and names ci-2.
test_members[note] if {
	some note, tc in {
		"a member": {"member": {}, "verdict": "allow"},
		"one that is being deleted": {"member": _leaving, "verdict": "ScaleDownNotNamed, TargetNotMember"},
		"another one of the name": {"member": {"metadata": {"uid": "u-9"}}, "verdict": "ScaleDownNotNamed, TargetNotMember"},
		"one of another name": {"member": {"metadata": {"name": "ci-9"}}, "verdict": "ScaleDownNotNamed, TargetNotMember"},
		"one without an owner": {
			"member": {"metadata": {"ownerReferences": []}}, "verdict": "ScaleDownNotNamed, TargetNotMember",
		},
		"one of which the pool is no controller": {
			"member": {"metadata": {"ownerReferences": [{"uid": "u-pool"}, {"uid": "u-pool", "controller": false}]}},
			"verdict": "ScaleDownNotNamed, TargetNotMember",
		},
		"one of another pool": {
			"member": {"metadata": {"ownerReferences": [{"uid": "u-other", "controller": true}]}},
			"verdict": "ScaleDownNotNamed, TargetNotMember",
		},
	}
	members := [object.union(member, change) |
		some i, member in _members
		change := {true: tc.member, false: {}}[i == 2]
	]
	_verdict == tc.verdict with input as _edit(_before, _spec(4, [2]), members)
}

# Existing entries are not evaluated, whatever the state of their members.
test_entries_of_before[note] if {
	all := [_member(slot) | some slot in [0, 1, 2, 3, 4, 5]]
	some note, tc in {
		"stays": {"old": [5], "new": [5], "to": 5, "members": null, "verdict": "allow"},
		"stays, and another goes": {"old": [5], "new": [5, 4], "to": 4, "members": all, "verdict": "allow"},
		"stays, and fewer": {"old": [5], "new": [5], "to": 4, "members": all, "verdict": "ScaleDownNotNamed"},
		"is gone, and fewer": {"old": [9], "new": [9], "to": 4, "members": _members, "verdict": "ScaleDownNotNamed"},
		"is taken out": {"old": [9], "new": [], "to": 5, "members": null, "verdict": "allow"},
		"is taken out while it is there": {"old": [5], "new": [], "to": 5, "members": null, "verdict": "allow"},
		"is taken out, and more": {"old": [5], "new": [], "to": 6, "members": null, "verdict": "allow"},
		"is changed for another": {"old": [5], "new": [4], "to": 5, "members": all, "verdict": "TooManyTargets"},
		"is gone, and another goes": {"old": [9], "new": [4], "to": 4, "members": _members, "verdict": "allow"},
	}
	_verdict == tc.verdict with input as _edit(_pool(_spec(5, tc.old)), _spec(tc.to, tc.new), tc.members)
}

# Seven members and five replicas: two can be named without lowering replicas.
test_surplus[note] if {
	seven := [_member(slot) | some slot in [0, 1, 2, 3, 4, 5, 6]]
	some note, tc in {
		"some of it": {"old": [], "new": [6], "to": 5, "verdict": "allow"},
		"all of it": {"old": [], "new": [6, 5], "to": 5, "verdict": "allow"},
		"more than it": {"old": [], "new": [6, 5, 4], "to": 5, "verdict": "TooManyTargets"},
		"all of it and more": {"old": [], "new": [6, 5, 4], "to": 4, "verdict": "allow"},
		"none of it": {"old": [], "new": [6], "to": 4, "verdict": "allow"},
		"it is wanted again": {"old": [], "new": [6, 5], "to": 6, "verdict": "TooManyTargets"},
		"the rest of it": {"old": [], "new": [6], "to": 6, "verdict": "allow"},
		"it is named already": {"old": [5, 6], "new": [5, 6, 4], "to": 5, "verdict": "TooManyTargets"},
		"lowered without a name": {"old": [], "new": [], "to": 4, "verdict": "ScaleDownNotNamed"},
	}
	_verdict == tc.verdict with input as _edit(_pool(_spec(5, tc.old)), _spec(tc.to, tc.new), seven)
}

# A pool with fewer members than replicas, because they could not be created, is scaled down by naming members too.
test_members_are_missing if {
	two := [_member(slot) | some slot in [0, 1]]
	_verdict == "allow" with input as _edit(_before, _spec(4, [1]), two)
	_verdict == "ScaleDownNotNamed" with input as _edit(_before, _spec(2, []), two)
}

test_messages[note] if {
	unnamed := concat("", [
		"VirtualMachinePool ci: cannot scale from 5 to 3 because scaleDownPolicy is Explicit and the request names ",
		"0 of 2 members to remove; allowed: kubectl sallyport scale-down ci -n team-a --vm ci-4 --vm ci-3",
	])
	some note, tc in {
		"edited": {"world": _edit(_before, _spec(3, []), _members), "said": unnamed},
		"scaled": {"world": _scaled(_before, 3, _members), "said": unnamed},
		"members that are named or being deleted are not proposed, and at most three are": {
			"world": _scaled(_pool(_spec(5, [3])), 0, [object.union(_member(0), _leaving), _member(1), _member(2), _member(3), _member(4), _member(5)]),
			"said": concat("", [
				"VirtualMachinePool ci: cannot scale from 5 to 0 because scaleDownPolicy is Explicit and the request names ",
				"0 of 5 members to remove; allowed: kubectl sallyport scale-down ci -n team-a --vm ci-5 --vm ci-4 --vm ci-2",
			]),
		},
		"named members are proposed first": {
			"world": _edit(_before, _spec(3, [0]), _members),
			"said": concat("", [
				"VirtualMachinePool ci: cannot scale from 5 to 3 because scaleDownPolicy is Explicit and the request names ",
				"1 of 2 members to remove; allowed: kubectl sallyport scale-down ci -n team-a --vm ci-0 --vm ci-4",
			]),
		},
		"no member can be named": {
			"world": _scaled(_before, 4, [object.union(_member(0), _leaving)]),
			"said": concat("", [
				"VirtualMachinePool ci: cannot scale from 5 to 4 because scaleDownPolicy is Explicit and the request names ",
				"0 of 1 members to remove; the pool has no member that can be named; change scaleDownPolicy first: ",
				`kubectl patch svmpool ci -n team-a --type merge -p '{"spec":{"scaleDownPolicy":"NewestFirst"}}'`,
			]),
		},
		"too many": {
			"world": _edit(_before, _spec(4, [0, 1]), _members),
			"said": concat("", [
				"VirtualMachinePool ci: spec.scaleDownTargets cannot have 2 new entries because replicas go from 5 to 4, which allows 1; ",
				"set spec.replicas to 3, or run: kubectl sallyport scale-down ci -n team-a --vm ci-0 --vm ci-1",
			]),
		},
		"too many, no fewer": {
			"world": _edit(_before, _spec(5, [0]), _members),
			"said": concat("", [
				"VirtualMachinePool ci: spec.scaleDownTargets cannot have 1 new entries because replicas stay 5, which allows 0; ",
				"set spec.replicas to 4, or run: kubectl sallyport scale-down ci -n team-a --vm ci-0",
			]),
		},
		"no member": {"world": _edit(_before, _spec(5, [7]), _members), "said": _no_member("ci-7 (UID u-7) because it is not a member of the pool")},
		"no members": {
			"world": _edit(_before, _spec(5, [7, 8, 9]), _members),
			"said": _no_member("ci-7 (UID u-7) because it is not a member of the pool (2 more entries are invalid)"),
		},
		"a member that is being deleted": {
			"world": _edit(_before, _spec(5, [0]), [object.union(_member(0), _leaving), _member(4)]),
			"said": _no_member("ci-0 (UID u-0) because it is already being deleted"),
		},
		"no member, and nobody to name": {
			"world": _edit(_before, _spec(5, [7]), []),
			"said": concat("", [
				"VirtualMachinePool ci: spec.scaleDownTargets cannot name ci-7 (UID u-7) because it is not a member of the pool; ",
				"the pool has no member that can be named",
			]),
		},
		"a name and the UID of another": {
			"world": _edit(_before, object.union(_before.spec, {"scaleDownTargets": [{"name": "ci-0", "uid": "u-1"}]}), _members),
			"said": _no_member("ci-0 (UID u-1) because the UID is that of member ci-1"),
		},
	}
	_said == tc.said with input as tc.world
}

_no_member(text) := concat("", [
	$"VirtualMachinePool ci: spec.scaleDownTargets cannot name {text}; ",
	"allowed: kubectl sallyport scale-down ci -n team-a --vm ci-4",
])

test_details[note] if {
	some note, tc in {
		"replicas": {"world": _edit(_before, _spec(3, []), _members), "field": "spec.replicas"},
		"members": {"world": _edit(_before, _spec(5, [7]), _members), "field": "spec.scaleDownTargets"},
		"too many": {"world": _edit(_before, _spec(5, [0]), _members), "field": "spec.scaleDownTargets"},
	}
	{denial.details | some denial in policy.deny} == {{
		"group": "sallyport.dev", "kind": "VirtualMachinePool", "name": "ci", "field": tc.field,
	}} with input as tc.world
}

# The command in the message is admitted: it names as many members as the request removes, and lowers replicas by them.
test_what_is_allowed_is_admitted[note] if {
	some note, world in {
		"one": _edit(_before, _spec(4, []), _members),
		"two": _edit(_before, _spec(3, [0]), _members),
		"three": _edit(_before, _spec(2, []), _members),
	}
	said := _said with input as world
	named := {to_number(substring(slot, 0, 1)) | some slot in array.slice(split(said, " --vm ci-"), 1, 9)}
	count(named) == 5 - world.request.object.spec.replicas
	_verdict == "allow" with input as _edit(_before, _spec(world.request.object.spec.replicas, named), _members)
}

# The document with another value at the path, by way of its text: "a/b" becomes {"a": {"b": value}}.
_replaced(document, path, value) := object.union(document, json.unmarshal(concat("", [
	concat("", [$"\{{json.marshal(key)}:" | some key in split(path, "/")]),
	json.marshal(value),
	concat("", ["}" | some _ in split(path, "/")]),
])))

_edited := _edit(_before, _spec(4, [1]), _members)

_scale := _scaled(_before, 4, _members)

# Of each field that must be present, which values are not valid.
_edited_fields := {
	"request/operation": ["CREATE"],
	"request/namespace": [""],
	"request/object/spec": [],
	"request/oldObject/spec": [],
	"request/oldObject/spec/scaleDownPolicy": [""],
	"request/oldObject/metadata": [],
	"request/oldObject/metadata/name": [""],
	"request/oldObject/metadata/uid": [""],
	"facts/members": [null],
	"facts/leases": [null],
	"now": ["", "Bogus"],
	"facts/parent": [_before],
}

_scale_fields := {
	"request/object/spec": [],
	"request/oldObject/spec": [],
	"request/oldObject/metadata/uid": [""],
	"facts/members": [null],
	"facts/leases": [null],
	"now": ["", "Bogus"],
	"facts/parent": [],
	"facts/parent/metadata": [],
	"facts/parent/metadata/name": [""],
	"facts/parent/spec": [],
	"facts/parent/spec/scaleDownPolicy": [""],
}

_one(metadata) := object.union(_edited, {"facts": {"members": [_member(1), {"metadata": metadata}]}})

_aimed(side, target) := object.union(_edited, {"request": {side: {"spec": {"scaleDownTargets": [_target(1), target]}}}})

_broken := object.union_n([
	{$"{path} missing": json.remove(_edited, [path]) | some path, _ in _edited_fields},
	{$"{path} {value}": _replaced(_edited, path, value) |
		some path, values in _edited_fields
		some value in values
	},
	{$"scale: {path} missing": json.remove(_scale, [path]) | some path, _ in _scale_fields},
	{$"scale: {path} {value}": _replaced(_scale, path, value) |
		some path, values in _scale_fields
		some value in values
	},
	{$"member's {field} missing": _one(object.remove(_member(2).metadata, [field])) | some field in ["name", "uid"]},
	{$"member's {field} empty": _one(object.union(_member(2).metadata, {field: ""})) | some field in ["name", "uid"]},
	{$"target's {field} of {side} empty": _aimed(side, object.union(_target(2), {field: ""})) |
		some side in ["object", "oldObject"]
		some field in ["name", "uid"]
	},
	{$"target's {field} of {side} missing": _aimed(side, object.remove(_target(2), [field])) |
		some side in ["object", "oldObject"]
		some field in ["name", "uid"]
	},
	{$"answers to what was not asked, {fact}": object.union(_edit(_before, _spec(5, []), null), {"facts": {fact: value}}) |
		some fact, value in {"members": [], "parent": _before, "leases": []}
	},
	{"a parent of a Scale that goes up": _scaled(_before, 6, null)},
])

test_not_understood[note] if {
	some note, world in _broken
	_verdict == "not understood" with input as world
}

test_null_is_no_time_of_deletion if {
	member := object.union(_member(1), {"metadata": {"deletionTimestamp": null}})
	before := object.union(_before, {"metadata": {"deletionTimestamp": null}})
	_verdict == "ScaleDownNotNamed" with input as _edit(before, _spec(4, []), [member])
	_verdict == "allow" with input as _edit(before, _spec(4, [1]), [member])
}

test_not_understood_owners[note] if {
	some note, owners in {"null": null, "no uid": [{"controller": true}], "null for controller": [{"uid": "u", "controller": null}]}
	_verdict == "not understood" with input as _one(object.union(_member(2).metadata, {"ownerReferences": owners}))
}
