package sallyport.scaling.guard_test

import data.sallyport.scaling.guard as policy

# The text of a denial, as the user sees it.
_text(denial) := concat("", [concat("", [mark, denial[key]]) | some [key, mark] in [["message", ""], ["cause", " because "], ["remedy", "; "]]])

_deny := "sallyport.dev/scale-down"

_min := "sallyport.dev/min-replicas"

_max := "sallyport.dev/max-scale-down"

_workload(replicas, annotations) := {
	"kind": "Deployment",
	"metadata": {"name": "web", "uid": "u-1", "annotations": annotations},
	"spec": {"replicas": replicas},
}

_parameters := {
	"kinds": {
		"deployments.apps": {"replicas": ["spec", "replicas"], "default": 1},
		"replicationcontrollers": {"replicas": ["spec", "replicas"], "default": 1},
		"fleets.example.com": {"replicas": ["spec", "workers", "count"], "default": 3},
		"virtualmachinepools.sallyport.dev": {"replicas": ["spec", "replicas"], "default": 0},
	},
	"exempt": {"users": [], "groups": []},
	"limits": [],
}

_limited(limits) := object.union(_parameters, {"limits": limits})

_request := {
	"operation": "UPDATE",
	"namespace": "shop",
	"resource": {"group": "apps", "version": "v1", "resource": "deployments"},
	"userInfo": {"username": "alice", "groups": ["devs", "system:authenticated"]},
}

_input(request, parent) := {
	"now": "2026-11-20T22:30:00.000000000Z",
	"request": object.union(_request, request),
	"facts": {"parent": parent},
}

# The two ways to write a number of replicas.
_edit(old, new) := _input({"object": new, "oldObject": old}, null)

_scale(parent, replicas) := _input(
	{
		"subResource": "scale",
		"object": {"kind": "Scale", "metadata": {"name": "web"}, "spec": {"replicas": replicas}},
		"oldObject": {"kind": "Scale", "metadata": {"name": "web"}, "spec": {"replicas": 5}},
	},
	parent,
)

_both(old, replicas) := {
	"scaled": _scale(old, replicas),
	"edited": _edit(old, object.union(old, {"spec": {"replicas": replicas}})),
}

_as(user, groups) := {"request": {"userInfo": {"username": user, "groups": groups}}}

_create(object_) := _input({"operation": "CREATE", "object": object_, "oldObject": null}, null)

# The verdict on a request. An input that is not understood is never an allow.
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

test_facts_ask_for_what_is_scaled[note] if {
	some note, tc in {
		"scale": {"world": _scale(null, 1), "parent": {"parent": true}},
		"edit": {"world": _edit(_workload(5, {}), _workload(1, {})), "parent": null},
		"create": {"world": _create(_workload(5, {})), "parent": null},
		"another subresource": {"world": _input({"subResource": "status"}, null), "parent": null},
	}
	policy.facts == {"parent": tc.parent} with input as tc.world
}

# From five replicas: the annotations, how many are wanted, and the verdict.
_scalings := {
	"nothing limits it": {"annotations": {}, "to": 0, "verdict": "allow"},
	"others' annotations": {"annotations": {"example.com/min-replicas": "5"}, "to": 0, "verdict": "allow"},
	"no scale-down": {"annotations": {_deny: "Deny"}, "to": 4, "verdict": "ScaleDownDenied"},
	"no scale-down, to none": {"annotations": {_deny: "Deny"}, "to": 0, "verdict": "ScaleDownDenied"},
	"no scale-down, and none": {"annotations": {_deny: "Deny"}, "to": 5, "verdict": "allow"},
	"scale-down, said": {"annotations": {_deny: "Allow"}, "to": 0, "verdict": "allow"},
	"no scale-down, but more": {"annotations": {_deny: "Deny"}, "to": 6, "verdict": "allow"},
	"to the minimum": {"annotations": {_min: "3"}, "to": 3, "verdict": "allow"},
	"below the minimum": {"annotations": {_min: "3"}, "to": 2, "verdict": "BelowMinReplicas"},
	"below a minimum that is not met": {"annotations": {_min: "7"}, "to": 4, "verdict": "BelowMinReplicas"},
	"more, below a minimum": {"annotations": {_min: "7"}, "to": 6, "verdict": "allow"},
	"a minimum of none": {"annotations": {_min: "0"}, "to": 0, "verdict": "allow"},
	"two of two at once": {"annotations": {_max: "2"}, "to": 3, "verdict": "allow"},
	"three of two at once": {"annotations": {_max: "2"}, "to": 2, "verdict": "ScaleDownTooLarge"},
	"40 %": {"annotations": {_max: "40%"}, "to": 3, "verdict": "allow"},
	"more than 40 %": {"annotations": {_max: "40%"}, "to": 2, "verdict": "ScaleDownTooLarge"},
	"rounded down": {"annotations": {_max: "59%"}, "to": 2, "verdict": "ScaleDownTooLarge"},
	"one is always allowed": {"annotations": {_max: "10%"}, "to": 4, "verdict": "allow"},
	"but no more": {"annotations": {_max: "10%"}, "to": 3, "verdict": "ScaleDownTooLarge"},
	"all": {"annotations": {_max: "100%"}, "to": 0, "verdict": "allow"},
	"each for itself": {
		"annotations": {_deny: "Deny", _min: "3", _max: "2"}, "to": 0,
		"verdict": "BelowMinReplicas, ScaleDownDenied, ScaleDownTooLarge",
	},
	"only those that are not met": {"annotations": {_min: "2", _max: "1"}, "to": 2, "verdict": "ScaleDownTooLarge"},
	"what cannot be read": {"annotations": {_min: "three"}, "to": 4, "verdict": "AnnotationInvalid"},
	"what is as long as an annotation can be": {"annotations": {_max: _long}, "to": 4, "verdict": "AnnotationInvalid"},
	"what cannot be read, but more": {"annotations": {_min: "three"}, "to": 6, "verdict": "allow"},
	"what cannot be read, beside another": {
		"annotations": {_min: "three", _max: "1"}, "to": 1,
		"verdict": "AnnotationInvalid, ScaleDownTooLarge",
	},
}

_long := concat("", [_tenfold(_tenfold(_tenfold(_tenfold("9999999999")))), _tenfold(_tenfold(_tenfold(_tenfold("9999999999"))))])

_tenfold(text) := replace("0000000000", "0", text)

test_scalings[note] if {
	some note, tc in _scalings
	every world in _both(_workload(5, tc.annotations), tc.to) {
		_verdict == tc.verdict with input as world with data.parameters as _parameters
	}
}

# A dry run gets the same answer.
test_dry_run if {
	world := object.union(_scale(_workload(5, {_deny: "Deny"}), 4), {"request": {"dryRun": true}})
	_verdict == "ScaleDownDenied" with input as world with data.parameters as _parameters
}

# If the number is not set, the default of the kind applies; in a Scale it is 0.
test_replicas_that_are_not_set[note] if {
	unset := {"kind": "Deployment", "metadata": {"name": "web", "annotations": {_deny: "Deny"}}, "spec": {}}
	five := _workload(5, {_deny: "Deny"})
	some note, tc in {
		"from one to none": {"world": _scale(unset, 0), "verdict": "ScaleDownDenied"},
		"from one to one": {"world": _scale(unset, 1), "verdict": "allow"},
		"from null to none": {"world": _scale(object.union(unset, {"spec": {"replicas": null}}), 0), "verdict": "ScaleDownDenied"},
		"without spec": {"world": _scale(object.remove(unset, ["spec"]), 0), "verdict": "ScaleDownDenied"},
		"to none in a Scale": {
			"world": json.remove(_scale(five, 0), ["request/object/spec/replicas"]),
			"verdict": "ScaleDownDenied",
		},
		"the field is dropped": {"world": _edit(five, unset), "verdict": "ScaleDownDenied"},
		"the field is set to what it was": {"world": _edit(unset, _workload(1, {_deny: "Deny"})), "verdict": "allow"},
		"the field is set to less": {"world": _edit(unset, _workload(0, {_deny: "Deny"})), "verdict": "ScaleDownDenied"},
	}
	_verdict == tc.verdict with input as tc.world with data.parameters as _parameters
}

# The old number is that of the object, whatever the Scale says that it was.
test_the_parent_says_how_many_there_were if {
	_verdict == "allow" with input as _scale(_workload(2, {_deny: "Deny"}), 3) with data.parameters as _parameters
}

_fleet(count_) := {
	"kind": "Fleet",
	"metadata": {"name": "runners", "annotations": {_min: "2"}},
	"spec": {"replicas": 9, "workers": {"count": count_}},
}

test_other_kinds[note] if {
	some note, tc in {
		"path of its own, scaled": {"world": _scale(_fleet(4), 1), "of": "fleets", "verdict": "BelowMinReplicas"},
		"path of its own, edited": {"world": _edit(_fleet(4), _fleet(1)), "of": "fleets", "verdict": "BelowMinReplicas"},
		"default of its own": {"world": _edit(_fleet(null), _fleet(1)), "of": "fleets", "verdict": "BelowMinReplicas"},
		"to its default": {"world": _edit(_fleet(9), _fleet(null)), "of": "fleets", "verdict": "allow"},
		"no row, scaled": {"world": _scale(_fleet(4), 5), "of": "herds", "verdict": "KindNotConfigured"},
		"no row, edited": {"world": _edit(_fleet(4), _fleet(4)), "of": "herds", "verdict": "KindNotConfigured"},
		"no row, created": {"world": _create(_fleet(4)), "of": "herds", "verdict": "allow"},
		"no row, but gone": {"world": _scale(null, 4), "of": "herds", "verdict": "allow"},
		"no row, but being deleted": {"world": _scale(_deleted(_fleet(4)), 4), "of": "herds", "verdict": "allow"},
	}
	world := object.union(tc.world, {"request": {"resource": {"group": "example.com", "resource": tc.of}}})
	_verdict == tc.verdict with input as world with data.parameters as _parameters
}

# The default of a pool is 0 replicas.
test_pools[note] if {
	pool := {"kind": "VirtualMachinePool", "metadata": {"name": "ci", "annotations": {_min: "2"}}, "spec": {"replicas": 3}}
	unset := json.remove(pool, ["spec/replicas"])
	some note, tc in {
		"scaled": {"world": _scale(pool, 1), "verdict": "BelowMinReplicas"},
		"edited": {"world": _edit(pool, object.union(pool, {"spec": {"replicas": 1}})), "verdict": "BelowMinReplicas"},
		"the field is dropped": {"world": _edit(pool, unset), "verdict": "BelowMinReplicas"},
		"to as many as are kept": {"world": _scale(pool, 2), "verdict": "allow"},
		"from none to none": {"world": _scale(unset, 0), "verdict": "allow"},
	}
	world := object.union(tc.world, {"request": {"resource": {"group": "sallyport.dev", "resource": "virtualmachinepools"}}})
	_verdict == tc.verdict with input as world with data.parameters as _parameters
}

test_core_group if {
	world := object.union(_scale(_workload(5, {_min: "3"}), 1), {"request": {"resource": {"group": "", "resource": "replicationcontrollers"}}})
	said := _said with input as world with data.parameters as _parameters
	contains(said, "kubectl scale replicationcontrollers/web -n shop --replicas=3")
}

_deleted(of) := object.union(of, {"metadata": {"deletionTimestamp": "2026-11-20T10:31:57Z"}})

_controlled(of, controller) := object.union(of, {"metadata": {"ownerReferences": [
	{"kind": "ConfigMap", "name": "a", "uid": "u-1"},
	{"kind": "Rollout", "name": "b", "uid": "u-2", "controller": controller},
]}})

_guarded := _workload(5, {_deny: "Deny"})

# The policy does not apply to these, whatever the annotations say.
test_left_alone[note] if {
	some note, world in {
		"being deleted, scaled": _scale(_deleted(_guarded), 0),
		"being deleted, edited": _edit(_deleted(_guarded), _workload(0, {_min: "three"})),
		"controlled, scaled": _scale(_controlled(_guarded, true), 0),
		"controlled, edited": _edit(_controlled(_guarded, true), _workload(0, {_deny: "Deny"})),
		"gone meanwhile": _scale(null, 0),
		"another subresource": _input({"subResource": "status", "object": _workload(0, {}), "oldObject": _guarded}, null),
	}
	_verdict == "allow" with input as world with data.parameters as _parameters
}

# Changes in the same request do not lift a limit.
test_not_by_the_way[note] if {
	some note, new in {
		"owned, not controlled": _controlled(_workload(0, {_deny: "Deny"}), false),
		"controlled from now on": _controlled(_workload(0, {_deny: "Deny"}), true),
		"deleted, says the client": _deleted(_workload(0, {_deny: "Deny"})),
		"annotation taken off": _workload(0, {}),
		"annotation weakened": _workload(0, {_min: "0"}),
	}
	_verdict == "ScaleDownDenied" with input as _edit(_guarded, new) with data.parameters as _parameters
}

# A user can add an owner with one request. It lifts the annotations, which one more request could remove, but no limit of the policy.
test_owner_lifts_no_limit_of_the_policy[note] if {
	some note, world in {
		"scaled": _scale(_controlled(_guarded, true), 1),
		"edited": _edit(_controlled(_guarded, true), _workload(1, {})),
		"no annotations": _scale(_controlled(_workload(5, {}), true), 1),
		"an annotation that cannot be read": _scale(_controlled(_workload(5, {_min: "three"}), true), 1),
	}
	limits := [{"name": "least", "minReplicas": 2}]
	_verdict == "BelowMinReplicas" with input as world with data.parameters as object.union(_parameters, {"limits": limits})
}

test_owned_but_not_controlled if {
	_verdict == "ScaleDownDenied" with input as _scale(_controlled(_guarded, false), 0) with data.parameters as _parameters
}

test_annotations_change_alone[note] if {
	some note, tc in {
		"taken off": {"old": _guarded, "new": _workload(5, {})},
		"added": {"old": _workload(5, {}), "new": _guarded},
		"added in a scale-down": {"old": _workload(5, {}), "new": _workload(4, {_deny: "Deny"})},
		"weakened": {"old": _workload(5, {_min: "3"}), "new": _workload(5, {_min: "1"})},
	}
	_verdict == "allow" with input as _edit(tc.old, tc.new) with data.parameters as _parameters
}

# Values, and whether they can be written.
_values := {
	_deny: {
		"Deny": true, "deny": false, "Allow": true, "allow": false, "": false, "true": false, " Deny": false, "Deny\n": false,
	},
	_min: {
		"0": true, "3": true, "999999999": true, "1000000000": false, "03": false, "-1": false, "+1": false, "1.0": false,
		"1e3": false, "10%": false, "three": false, "": false, " 3": false,
	},
	_max: {
		"1": true, "25": true, "1%": true, "10%": true, "100%": true, "0": false, "0%": false, "101%": false, "010%": false,
		"10 %": false, "%": false, "1.5%": false, "-10%": false, "Deny": false, "": false,
	},
}

_written(true) := "allow"

_written(false) := "AnnotationInvalid"

test_values[case] if {
	some key, of in _values
	some value, good in of
	case := $"{key}: {json.marshal(value)}"
	bad := _workload(5, {key: value})
	every world in [_create(bad), _edit(_workload(5, {}), bad), _edit(_workload(5, {key: "else"}), bad)] {
		_verdict == _written(good) with input as world with data.parameters as _parameters
	}
}

# An invalid value that is stored already does not deny other changes.
test_a_bad_value_that_stays if {
	bad := _workload(5, {_min: "three"})
	_verdict == "allow" with input as _edit(bad, object.union(bad, {"spec": {"paused": true}})) with data.parameters as _parameters
}

test_exempt[note] if {
	some note, tc in {
		"a user": {"exempt": {"users": ["alice"], "groups": []}, "verdict": "allow"},
		"a group": {"exempt": {"users": [], "groups": ["other", "devs"]}, "verdict": "allow"},
		"others": {"exempt": {"users": ["bob"], "groups": ["ops"]}, "verdict": "ScaleDownDenied"},
		"a user by the name of a group": {"exempt": {"users": ["devs"], "groups": ["alice"]}, "verdict": "ScaleDownDenied"},
	}
	every world in _both(_guarded, 0) {
		_verdict == tc.verdict with input as world with data.parameters as object.union(_parameters, {"exempt": tc.exempt})
	}
}

test_exempt_may_not_write_what_cannot_be_read if {
	world := _edit(_workload(5, {}), _workload(0, {_min: "three"}))
	parameters := object.union(_parameters, {"exempt": {"users": ["alice"], "groups": []}})
	_verdict == "AnnotationInvalid" with input as world with data.parameters as parameters
}

# Limits of the parameters, from five to two replicas, at 22:30 in UTC.
_limits := {
	"for everybody": {"limit": {"scaleDown": "Deny"}, "verdict": "ScaleDownDenied"},
	"a minimum": {"limit": {"minReplicas": 3}, "verdict": "BelowMinReplicas"},
	"a minimum that is met": {"limit": {"minReplicas": 2}, "verdict": "allow"},
	"a step": {"limit": {"maxScaleDown": 2}, "verdict": "ScaleDownTooLarge"},
	"a share": {"limit": {"maxScaleDown": "50%"}, "verdict": "ScaleDownTooLarge"},
	"a share that is large enough": {"limit": {"maxScaleDown": "60%"}, "verdict": "allow"},
	"for the user": {"limit": {"scaleDown": "Deny", "users": ["bob", "alice"]}, "verdict": "ScaleDownDenied"},
	"for another user": {"limit": {"scaleDown": "Deny", "users": ["bob"]}, "verdict": "allow"},
	"for the group": {"limit": {"scaleDown": "Deny", "groups": ["devs"]}, "verdict": "ScaleDownDenied"},
	"for another group": {"limit": {"scaleDown": "Deny", "groups": ["ops"]}, "verdict": "allow"},
	"for another user or the group": {"limit": {"scaleDown": "Deny", "users": ["bob"], "groups": ["devs"]}, "verdict": "ScaleDownDenied"},
	"in the namespace": {"limit": {"scaleDown": "Deny", "namespaces": ["a", "shop"]}, "verdict": "ScaleDownDenied"},
	"in another namespace": {"limit": {"scaleDown": "Deny", "namespaces": ["a"]}, "verdict": "allow"},
	"for another user in the namespace": {"limit": {"scaleDown": "Deny", "namespaces": ["shop"], "users": ["bob"]}, "verdict": "allow"},
	"in these hours": {"limit": {"scaleDown": "Deny", "hours": {"from": "22:00", "to": "23:00", "timeZone": "UTC"}}, "verdict": "ScaleDownDenied"},
	"from now": {"limit": {"scaleDown": "Deny", "hours": {"from": "22:30", "to": "22:31", "timeZone": "UTC"}}, "verdict": "ScaleDownDenied"},
	"to now": {"limit": {"scaleDown": "Deny", "hours": {"from": "22:29", "to": "22:30", "timeZone": "UTC"}}, "verdict": "allow"},
	"later": {"limit": {"scaleDown": "Deny", "hours": {"from": "22:31", "to": "23:00", "timeZone": "UTC"}}, "verdict": "allow"},
	"over midnight, before it": {"limit": {"scaleDown": "Deny", "hours": {"from": "22:00", "to": "06:00", "timeZone": "UTC"}}, "verdict": "ScaleDownDenied"},
	"over midnight, by day": {"limit": {"scaleDown": "Deny", "hours": {"from": "23:00", "to": "22:00", "timeZone": "UTC"}}, "verdict": "allow"},
	"over midnight, after it": {"limit": {"scaleDown": "Deny", "hours": {"from": "23:00", "to": "06:00", "timeZone": "Asia/Tokyo"}}, "verdict": "allow"},
	"over midnight, in the morning": {"limit": {"scaleDown": "Deny", "hours": {"from": "23:00", "to": "08:00", "timeZone": "Asia/Tokyo"}}, "verdict": "ScaleDownDenied"},
	"elsewhere it is another hour": {"limit": {"scaleDown": "Deny", "hours": {"from": "23:00", "to": "23:59", "timeZone": "Europe/Vienna"}}, "verdict": "ScaleDownDenied"},
}

test_limits[note] if {
	some note, tc in _limits
	every world in _both(_workload(5, {}), 2) {
		_verdict == tc.verdict with input as world with data.parameters as _limited([object.union({"name": "a"}, tc.limit)])
	}
}

# In summer time it is half past midnight in Vienna at 22:30 UTC.
test_summer_time if {
	limits := [{"name": "a", "scaleDown": "Deny", "hours": {"from": "00:00", "to": "01:00", "timeZone": "Europe/Vienna"}}]
	winter := _scale(_workload(5, {}), 2)
	summer := object.union(winter, {"now": "2026-07-20T22:30:00.000000000Z"})
	_verdict == "allow" with input as winter with data.parameters as _limited(limits)
	_verdict == "ScaleDownDenied" with input as summer with data.parameters as _limited(limits)
}

test_what_is_in_no_namespace[note] if {
	some note, tc in {
		"everywhere": {"limit": {"name": "a", "minReplicas": 3}, "verdict": "BelowMinReplicas"},
		"in a namespace": {"limit": {"name": "a", "minReplicas": 3, "namespaces": ["shop"]}, "verdict": "allow"},
	}
	world := json.remove(_scale(_workload(5, {}), 2), ["request/namespace"])
	_verdict == tc.verdict with input as world with data.parameters as _limited([tc.limit])
}

test_without_groups if {
	world := json.remove(_scale(_guarded, 2), ["request/userInfo/groups"])
	_verdict == "ScaleDownDenied" with input as world with data.parameters as _parameters
}

_what := {"group": "apps", "kind": "Deployment", "name": "web"}

_night := {"from": "22:00", "to": "06:00", "timeZone": "UTC"}

_once := `to override this policy temporarily: kubectl sallyport override scaling-guard deployments.apps web -n shop --reason "..."`

# Whole denials.
_denials := {
	"an annotation forbids it": {"world": _scale(_guarded, 2), "limits": [], "denial": {
		"reason": "ScaleDownDenied",
		"message": "Deployment web: cannot scale from 5 to 2",
		"cause": "annotation sallyport.dev/scale-down is Deny",
		"remedy": "to remove the annotation: kubectl annotate deployments.apps/web -n shop sallyport.dev/scale-down-",
		"details": _what,
	}},
	"an annotation keeps some": {"world": _scale(_workload(5, {_min: "3"}), 2), "limits": [], "denial": {
		"reason": "BelowMinReplicas",
		"message": "Deployment web: cannot scale from 5 to 2",
		"cause": "annotation sallyport.dev/min-replicas is 3",
		"remedy": "allowed: kubectl scale deployments.apps/web -n shop --replicas=3",
		"details": _what,
	}},
	"a share at once": {"world": _scale(_workload(25, {_max: "10%"}), 2), "limits": [], "denial": {
		"reason": "ScaleDownTooLarge",
		"message": "Deployment web: cannot scale from 25 to 2",
		"cause": "annotation sallyport.dev/max-scale-down is 10% (at most 2 of 25 at once)",
		"remedy": "allowed: kubectl scale deployments.apps/web -n shop --replicas=23",
		"details": _what,
	}},
	"the number that the message allows is within every limit": {
		"world": _scale(_workload(5, {_min: "3"}), 2),
		"limits": [{"name": "slow", "maxScaleDown": 4}, {"name": "floor", "minReplicas": 2}],
		"denial": {
			"reason": "BelowMinReplicas",
			"message": "Deployment web: cannot scale from 5 to 2",
			"cause": "annotation sallyport.dev/min-replicas is 3",
			"remedy": "allowed: kubectl scale deployments.apps/web -n shop --replicas=3",
			"details": _what,
		},
	},
	"a limit in hours": {
		"world": _scale(_workload(5, {}), 2), "limits": [{"name": "night", "minReplicas": 5, "hours": _night}],
		"denial": {
			"reason": "BelowMinReplicas",
			"message": "Deployment web: cannot scale from 5 to 2",
			"cause": "limit night of this policy (22:00 to 06:00 UTC) has minReplicas 5",
			"remedy": $"wait until 06:00; {_once}",
			"details": _what,
		},
	},
	"a limit at all hours": {"world": _scale(_workload(5, {}), 2), "limits": [{"name": "ci", "scaleDown": "Deny"}], "denial": {
		"reason": "ScaleDownDenied",
		"message": "Deployment web: cannot scale from 5 to 2",
		"cause": "limit ci of this policy has scaleDown Deny",
		"remedy": _once,
		"details": _what,
	}},
	"an annotation that is written": {"world": _create(_workload(5, {_min: "three"})), "limits": [], "denial": {
		"reason": "AnnotationInvalid",
		"code": 422,
		"message": "Deployment web: annotation sallyport.dev/min-replicas must be a number such as \"3\", got \"three\"",
		"details": object.union(_what, {"field": "metadata.annotations[sallyport.dev/min-replicas]"}),
	}},
	"an annotation of 200 KB": {"world": _create(_workload(5, {_max: _long})), "limits": [], "denial": {
		"reason": "AnnotationInvalid",
		"code": 422,
		"message": concat("", [
			"Deployment web: annotation sallyport.dev/max-scale-down must be a number from \"1\", ",
			"or a percentage from \"1%\" to \"100%\", got \"9999999999999999999999999999999999999999999999999999999999999999...\"",
		]),
		"details": object.union(_what, {"field": "metadata.annotations[sallyport.dev/max-scale-down]"}),
	}},
	"an annotation that cannot be read": {"world": _scale(_workload(5, {_max: "lots"}), 2), "limits": [], "denial": {
		"reason": "AnnotationInvalid",
		"message": "Deployment web: cannot scale from 5 to 2",
		"cause": "annotation sallyport.dev/max-scale-down is \"lots\"",
		"remedy": concat("", [
			"it must be a number from \"1\", or a percentage from \"1%\" to \"100%\"; ",
			"to remove the annotation: kubectl annotate deployments.apps/web -n shop sallyport.dev/max-scale-down-",
		]),
		"details": object.union(_what, {"field": "metadata.annotations[sallyport.dev/max-scale-down]"}),
	}},
	"a kind without a row": {
		"world": object.union(_scale(_guarded, 2), {"request": {"resource": {"resource": "herds"}}}), "limits": [],
		"denial": {
			"reason": "KindNotConfigured",
			"message": "Deployment web: cannot be changed",
			"cause": "spec.parameters.kinds of RegoPolicy scaling-guard has no row herds.apps",
			"remedy": "add a row, such as herds.apps: {replicas: [spec, replicas], default: 1}",
			"details": _what,
		},
	},
	"in no namespace": {
		"world": json.remove(_scale(_workload(5, {_min: "3"}), 2), ["request/namespace"]), "limits": [],
		"denial": {
			"reason": "BelowMinReplicas",
			"message": "Deployment web: cannot scale from 5 to 2",
			"cause": "annotation sallyport.dev/min-replicas is 3",
			"remedy": "allowed: kubectl scale deployments.apps/web --replicas=3",
			"details": _what,
		},
	},
}

test_denials[note] if {
	some note, tc in _denials
	policy.valid_input with input as tc.world with data.parameters as _limited(tc.limits)
	policy.deny == {tc.denial} with input as tc.world with data.parameters as _limited(tc.limits)
}

# The number of replicas that a message allows is admitted, whatever the limits.
test_what_is_allowed_is_admitted[note] if {
	some note, annotations in {
		"minimum": {_min: "3"}, "step": {_max: "1"}, "share": {_max: "39%"}, "minimum and step": {_min: "3", _max: "1"},
	}
	said := _said with input as _scale(_workload(5, annotations), 0) with data.parameters as _parameters
	replicas := to_number(regex.replace(said, `(?s)^.*--replicas=(\d+)$`, "$1"))
	_verdict == "allow" with input as _scale(_workload(5, annotations), replicas) with data.parameters as _parameters
	_verdict != "allow" with input as _scale(_workload(5, annotations), replicas - 1) with data.parameters as _parameters
}

# The document with another value at the path, by way of its text: "a/b" becomes {"a": {"b": value}}.
_replaced(document, path, value) := object.union(document, json.unmarshal(concat("", [
	concat("", [$"\{{json.marshal(key)}:" | some key in split(path, "/")]),
	json.marshal(value),
	concat("", ["}" | some _ in split(path, "/")]),
])))

_edited := _edit(_workload(5, {"example.com~1a": "b"}), _workload(2, {"example.com~1a": "b"}))

# Values of the field of replicas that are not numbers.
_odd := ["", [], {}, true, "Bogus"]

_broken := object.union_n([
	{$"{path} {value}": _replaced(_edited, path, value) |
		some [path, value] in array.concat(
			[
				["request/operation", "DELETE"], ["request/userInfo/username", ""], ["request/object/kind", ""], ["request/oldObject/kind", ""],
				["request/object/metadata/name", ""], ["request/oldObject/metadata/name", ""], ["request/object/metadata/annotations", null],
				["request/oldObject/metadata/annotations", null],
			],
			[[$"request/{of}/spec/replicas", value] | some of in ["object", "oldObject"]; some value in _odd],
		)
	},
	{$"now {now}": object.union(_edited, {"now": now}) |
		some now in ["2026-11-20T22:30:00Z", "2026-11-20T22:30:00.000000000+01:00", " 2026-11-20T22:30:00.000000000Z"]
	},
	{$"request: {path} missing": json.remove(_edited, [path]) |
		some path in [
			"now", "request", "request/operation",
			"request/userInfo", "request/userInfo/username", "request/object", "request/object/kind", "request/object/metadata",
			"request/object/metadata/name", "request/oldObject", "request/oldObject/kind", "request/oldObject/metadata",
			"request/oldObject/metadata/name",
		]
	},
	{$"created, {path} {value}": _replaced(_create(_guarded), $"request/object/{path}", value) |
		some [path, value] in array.concat([["kind", ""], ["metadata/name", ""]], [["spec/replicas", value] | some value in _odd])
	},
	{$"parent's {path} {value}": _replaced(_scale(_guarded, 2), $"facts/parent/{path}", value) |
		some [path, value] in array.concat(
			[["kind", ""], ["metadata/name", ""], ["metadata/annotations", null]],
			[["spec/replicas", value] | some value in _odd],
		)
	},
	{$"{path} missing": json.remove(_scale(_guarded, 2), [path]) |
		some path in ["facts", "facts/parent", "facts/parent/kind", "facts/parent/metadata", "request/object", "request/object/spec"]
	},
	{$"replicas of a Scale {value}": _replaced(_scale(_guarded, 2), "request/object/spec/replicas", value) |
		some value in array.concat(_odd, [null])
	},
])

test_not_understood[note] if {
	some note, world in _broken
	_verdict == "not understood" with input as world with data.parameters as _parameters
}

# The API allows null in metadata.
test_null_is_absent if {
	world := object.union(_scale(_guarded, 0), {"facts": {"parent": {"metadata": {"deletionTimestamp": null, "ownerReferences": null}}}})
	_verdict == "ScaleDownDenied" with input as world with data.parameters as _parameters
}
