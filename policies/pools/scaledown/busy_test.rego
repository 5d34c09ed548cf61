package sallyport.pools.scaledown_test

# Half an hour from now, which is noon.
_lease(slot) := {
	"metadata": {"name": $"ci-{slot}-busy", "labels": {"sallyport.dev/busy-machine": $"u-{slot}"}},
	"spec": {"holderIdentity": $"job {slot}", "renewTime": "2026-11-20T12:00:00.000000Z", "leaseDurationSeconds": 1800},
}

_with(world, leases) := object.union(world, {"facts": {"leases": leases}})

_busy(world, slots) := _with(world, [_lease(slot) | some slot in slots])

_newest := object.union(_before, {"spec": {"scaleDownPolicy": "NewestFirst"}})

_oldest := object.union(_before, {"spec": {"scaleDownPolicy": "OldestFirst"}})

_as_newest(replicas, slots) := object.union(_spec(replicas, slots), {"scaleDownPolicy": "NewestFirst"})

# Five members: which are busy, the new number of replicas, which are named, and the verdict with busyMembers Refuse.
test_refused[note] if {
	some note, tc in {
		"nobody is busy": {"busy": [], "to": 0, "verdict": "allow"},
		"as many are idle": {"busy": [0, 1, 2], "to": 3, "verdict": "allow"},
		"too few are idle": {"busy": [0, 1, 2], "to": 2, "verdict": "MembersBusy"},
		"nobody is idle": {"busy": [0, 1, 2, 3, 4], "to": 4, "verdict": "MembersBusy"},
		"nobody is idle, to none": {"busy": [0, 1, 2, 3, 4], "to": 0, "verdict": "MembersBusy"},
		"one is busy, to none": {"busy": [2], "to": 0, "verdict": "MembersBusy"},
	}
	some pool in [_newest, _oldest]
	edited := _edit(pool, object.union(pool.spec, {"replicas": tc.to}), _members)
	some world in [_scaled(pool, tc.to, _members), edited]
	_verdict == tc.verdict with input as _busy(world, tc.busy) with data.parameters.busyMembers as "Refuse"
	_verdict == "allow" with input as _busy(world, tc.busy) with data.parameters.busyMembers as "Wait"
}

# A named member is removed even if it is busy. The policy evaluates the rest of the scale-down.
test_named[note] if {
	some note, tc in {
		"the busy one": {"busy": [1], "named": [1], "to": 4, "verdict": "allow"},
		"all, and all are busy": {"busy": [0, 1, 2, 3, 4], "named": [3, 4], "to": 3, "verdict": "allow"},
		"the busy one, and idle ones go": {"busy": [1], "named": [1], "to": 1, "verdict": "allow"},
		"the only idle one": {"busy": [0, 1, 2, 3], "named": [4], "to": 3, "verdict": "MembersBusy"},
	}
	world := _busy(_edit(_newest, _as_newest(tc.to, tc.named), _members), tc.busy)
	_verdict == tc.verdict with input as world with data.parameters.busyMembers as "Refuse"
}

# Members that were named before are removed in addition to this scale-down, unless the request removes the entry.
test_named_before[note] if {
	all := [_member(slot) | some slot in [0, 1, 2, 3, 4, 5]]
	old := object.union(_pool(_spec(5, [5])), {"spec": {"scaleDownPolicy": "NewestFirst"}})
	some note, tc in {
		"it goes anyway": {"world": _edit(old, _as_newest(4, [5]), all), "busy": [0, 1, 2, 3], "verdict": "allow"},
		"it goes anyway, scaled": {"world": _scaled(old, 4, all), "busy": [0, 1, 2, 3], "verdict": "allow"},
		"it is not idle": {"world": _edit(old, _as_newest(4, [5]), all), "busy": [0, 1, 2, 3, 4], "verdict": "MembersBusy"},
		"it is not idle, scaled": {"world": _scaled(old, 4, all), "busy": [0, 1, 2, 3, 4], "verdict": "MembersBusy"},
		"it stays": {"world": _edit(old, _as_newest(4, []), all), "busy": [0, 1, 2, 3], "verdict": "allow"},
		"it stays, and one is idle": {"world": _edit(old, _as_newest(4, []), all), "busy": [0, 1, 2, 3, 5], "verdict": "MembersBusy"},
	}
	_verdict == tc.verdict with input as _busy(tc.world, tc.busy) with data.parameters.busyMembers as "Refuse"
}

# Members that are already being deleted do not count, and a pool with too few members removes fewer.
test_members_that_count[note] if {
	some note, tc in {
		"one is going": {"members": array.concat(array.slice(_members, 0, 4), [object.union(_member(4), _leaving)]), "to": 4, "verdict": "allow"},
		"one is going, and another": {
			"members": array.concat(array.slice(_members, 0, 4), [object.union(_member(4), _leaving)]), "to": 3, "verdict": "MembersBusy",
		},
		"one was never made": {"members": array.slice(_members, 0, 4), "to": 4, "verdict": "allow"},
	}
	world := _busy(_scaled(_newest, tc.to, tc.members), [0, 1, 2, 3, 4])
	_verdict == tc.verdict with input as world with data.parameters.busyMembers as "Refuse"
}

# When a Lease marks a member as busy. The scale-down is from five to four, and all other members are busy.
_changed_lease(change) := object.union(_lease(4), change)

test_leases[note] if {
	some note, tc in {
		"as it is": {"change": {}, "busy": true},
		"it has a second left": {"change": {"spec": {"renewTime": "2026-11-20T11:30:01.000000Z"}}, "busy": true},
		"its time is over": {"change": {"spec": {"renewTime": "2026-11-20T11:30:00.000000Z"}}, "busy": false},
		"it was over long ago": {"change": {"spec": {"renewTime": "0001-01-01T00:00:00.000000Z", "leaseDurationSeconds": 2147483647}}, "busy": false},
		"it lasts a day at most": {"change": {"spec": {"renewTime": "2026-11-19T12:00:00.000000Z", "leaseDurationSeconds": 100000}}, "busy": false},
		"it lasts nearly a day": {"change": {"spec": {"renewTime": "2026-11-19T12:00:01.000000Z", "leaseDurationSeconds": 100000}}, "busy": true},
		"by a clock that is ahead": {"change": {"spec": {"renewTime": "9999-01-01T00:00:00.000000Z", "leaseDurationSeconds": 1}}, "busy": true},
		"it lasts no time": {"change": {"spec": {"leaseDurationSeconds": 0}}, "busy": false},
		"it is held by nobody": {"change": {"spec": {"holderIdentity": ""}}, "busy": false},
		"it is another's": {"change": {"metadata": {"labels": {"sallyport.dev/busy-machine": "u-9"}}}, "busy": false},
		"it is nobody's": {"change": {"metadata": {"labels": {"sallyport.dev/busy-machine": ""}}}, "busy": false},
	}
	world := _with(_scaled(_newest, 4, _members), array.concat([_lease(slot) | some slot in [0, 1, 2, 3]], [_changed_lease(tc.change)]))
	verdict := {true: "MembersBusy", false: "allow"}[tc.busy]
	_verdict == verdict with input as world with data.parameters.busyMembers as "Refuse"
}

# A Lease without a holder or a duration does not mark a member.
test_leases_without[note] if {
	some note in ["holderIdentity", "renewTime", "leaseDurationSeconds"]
	leases := array.concat([_lease(slot) | some slot in [0, 1, 2, 3]], [json.remove(_lease(4), [$"spec/{note}"])])
	_verdict == "allow" with input as _with(_scaled(_newest, 4, _members), leases) with data.parameters.busyMembers as "Refuse"
}

test_other_leases_may_be_as_they_like[note] if {
	some note, other in [{"metadata": {"labels": {"app": "x"}}, "spec": null}, {"metadata": {}}]
	_verdict == "allow" with input as _with(_scaled(_newest, 4, _members), [other]) with data.parameters.busyMembers as "Refuse"
}

_cannot(to) := $"VirtualMachinePool ci: cannot scale from 5 to {to} because "

_by_name := "wait until they are idle, or name the members to remove: kubectl sallyport scale-down ci -n team-a --vm NAME"

_named_of(count) := $"scaleDownPolicy is Explicit and the request names 0 of {count} members to remove; "

test_busy_messages[note] if {
	longer := object.union(_lease(1), {"spec": {"holderIdentity": "other", "leaseDurationSeconds": 3600}})
	long := concat("\n", [$"{slot}{job}" | some slot in [1, 2, 3, 4, 5]; some job in [1000000, 2000000, 3000000]])
	odd := object.union(_lease(1), {"spec": {"holderIdentity": long}})
	some note, tc in {
		"newest first": {
			"world": _busy(_scaled(_newest, 1, _members), [0, 1, 2, 3]),
			"said": concat("", [
				_cannot(1), "it needs 4 idle members and the pool has 1: ci-3 is busy with job 3 until ",
				"2026-11-20T12:30:00Z, ci-2 is busy with job 2 until 2026-11-20T12:30:00Z, ci-1 is busy with job 1 until ",
				"2026-11-20T12:30:00Z, and 1 more; ", _by_name,
			]),
		},
		"oldest first": {
			"world": _busy(_scaled(_oldest, 1, _members), [0, 3]),
			"said": concat("", [
				_cannot(1), "it needs 4 idle members and the pool has 3: ci-0 is busy with job 0 until ",
				"2026-11-20T12:30:00Z, ci-3 is busy with job 3 until 2026-11-20T12:30:00Z; ", _by_name,
			]),
		},
		"the one that lasts longest": {
			"world": _with(_scaled(_newest, 0, _members), [_lease(1), longer]),
			"said": concat("", [
				_cannot(0), "it needs 5 idle members and the pool has 4: ci-1 is busy with other until ",
				"2026-11-20T13:00:00Z; ", _by_name,
			]),
		},
		"two that last as long": {
			"world": _with(_scaled(_newest, 0, _members), [_lease(1), object.union(longer, {"spec": {"leaseDurationSeconds": 1800}})]),
			"said": concat("", [
				_cannot(0), "it needs 5 idle members and the pool has 4: ci-1 is busy with job 1 until ",
				"2026-11-20T12:30:00Z; ", _by_name,
			]),
		},
		"no more of a holder than can be read": {
			"world": _with(_scaled(_newest, 0, _members), [odd]),
			"said": concat("", [
				_cannot(0), "it needs 5 idle members and the pool has 4: ci-1 is busy with ",
				replace(substring(long, 0, 100), "\n", ""), " until 2026-11-20T12:30:00Z; ", _by_name,
			]),
		},
		"Explicit proposes idle members": {
			"world": _busy(_scaled(_before, 2, _members), [1, 4]),
			"said": concat("", [
				_cannot(2), _named_of(3), "allowed: ",
				"kubectl sallyport scale-down ci -n team-a --vm ci-3 --vm ci-2 --vm ci-0",
			]),
		},
		"Explicit, and one member is idle": {
			"world": _busy(_scaled(_before, 3, _members), [1, 2, 3, 4]),
			"said": concat("", [
				_cannot(3), _named_of(2), "allowed: kubectl sallyport scale-down ci -n team-a --vm ci-0",
			]),
		},
		"Explicit, and no member is idle": {
			"world": _busy(_scaled(_before, 4, array.slice(_members, 0, 2)), [0, 1]),
			"said": concat("", [
				_cannot(4), _named_of(1), "ci-1 is busy with job 1 until 2026-11-20T12:30:00Z, ci-0 is busy with job 0 until ",
				"2026-11-20T12:30:00Z; ", _by_name,
			]),
		},
	}
	_said == tc.said with input as tc.world with data.parameters.busyMembers as "Refuse"
}

# The API allows null in the spec of a Lease.
test_leases_not_understood[note] if {
	some [field, value] in [
		["holderIdentity", null], ["leaseDurationSeconds", null], ["renewTime", null], ["renewTime", "Bogus"],
		["renewTime", "2026-11-20T10:30:00Z"],
	]
	note := $"{field} {value}"
	lease := object.union(_lease(1), {"spec": {field: value}})
	_verdict == "not understood" with input as _with(_scale, [_lease(0), lease])
}

test_leases_not_understood_without[field] if {
	some field in ["metadata", "spec"]
	marked := {"metadata": {"labels": {"sallyport.dev/busy-machine": ""}}}
	_verdict == "not understood" with input as _with(_scale, [_lease(0), object.remove(_lease(1), [field])])
	_verdict != "not understood" with input as _with(_scale, [_lease(0), object.union(object.remove(_lease(1), ["spec"]), marked)])
}

test_leases_without_labels if {
	_verdict != "not understood" with input as _with(_scale, [_lease(0), {"metadata": {}}])
	_verdict == "not understood" with input as _with(_scale, [_lease(0), {"metadata": {"labels": null}}])
}
