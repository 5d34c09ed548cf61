# METADATA
# title: Members of a pool go by name
# description: >-
#   With scaleDownPolicy Explicit, as the pool had it before the request, replicas are lowered only together with at least as
#   many new entries in scaleDownTargets, so never by the subresource scale. Under the others, if the parameter busyMembers says
#   Refuse, replicas are not lowered by so many that busy members would have to go unnamed; if it says Wait, which is the
#   default, the pool has them until they are idle. What is judged may have changed a moment later: a pool looks at the Leases
#   itself, live, before it deletes a member, and deletes no busy one that nobody named. With every scaleDownPolicy a new entry
#   has to name a member that is there and not being deleted, by name and UID, and there are no more new entries than replicas
#   are lowered by. If a pool has more members than replicas, not counting those named before, as many more may be named.
#   Entries that were there before count for nothing. They may be taken out: a member that is still there then stays, and under
#   Explicit does so until it is named again, even if replicas are not raised. A change of scaleDownPolicy alone passes, and so
#   does everything that happens to a pool that is being deleted.
package sallyport.pools.scaledown

import data.sallyport.lib.override

# METADATA
# title: The pool that is scaled
# description: A Scale does not say how its pool gives up members. Asked only if replicas are lowered.
facts["parent"] := {"parent": true} if _scaled

facts["parent"] := null if not _scaled

# METADATA
# title: What has the label of the pool's members
# description: Asked only if replicas are lowered, or members are named.
facts["members"] := {
	"apiVersion": "sallyport.dev/v1alpha1",
	"kind": "VirtualMachine",
	"namespace": input.request.namespace,
	"labels": {"sallyport.dev/pool-uid": _uid},
} if {
	_removes
}

facts["members"] := null if not _removes

valid_input if {
	input.request.operation == "UPDATE"
	is_string(object.get(input.request, "subResource", ""))
	_text(input.request.namespace)
	_text(_uid)
	_known_spec(input.request.object)
	_known_spec(input.request.oldObject)
	_known_pool
	_known_members
	_known_leases
}

# METADATA
# title: Members would go that nobody named
# custom:
#   reason: ScaleDownNotNamed
#   remedyInMessage: Scale down with the command in the message, which names the members that go.
deny contains {
	"reason": "ScaleDownNotNamed",
	"message": $"{_step}: its scaleDownPolicy is Explicit, and of the members to remove the request names {count(_named)} of {_fewer}. {_how}",
	"details": _details("spec.replicas"),
} if {
	_judged
	_pool.spec.scaleDownPolicy == "Explicit"
	count(_named) < _fewer
}

# METADATA
# title: A target is not a member that can go
# custom:
#   reason: TargetNotMember
#   remedyInMessage: Name members by the command in the message, which looks their UIDs up.
deny contains {
	"reason": "TargetNotMember",
	"message": $"{_it}: spec.scaleDownTargets names {_strangers[0].name} (UID {_strangers[0].uid}), which {_why_not(_strangers[0])}{_others}. {_way_out}",
	"details": _details("spec.scaleDownTargets"),
} if {
	_judged
	count(_strangers) > 0
}

# METADATA
# title: More members are named than are to go
# custom:
#   reason: TooManyTargets
#   remedyInMessage: Lower spec.replicas in the same write, to what the message says or with the command in it.
deny contains {
	"reason": "TooManyTargets",
	"message": concat("", [
		$"{_it}: new entries in spec.scaleDownTargets: {count(_named)}; allowed while {_course}: {_room}. ",
		$"What would pass: spec.replicas {_most - count(_named)}, or `{_command}`, which lowers it",
	]),
	"details": _details("spec.scaleDownTargets"),
} if {
	_judged
	count(_named) > _room
}

# The request. A pool has no replicas where none are set, and a Scale of 0 is written without the number.

_scale if input.request.subResource == "scale"

_present := _replicas(input.request.oldObject)

_wanted := _replicas(input.request.object)

_fewer := max([0, _present - _wanted])

_replicas(of) := object.get(of.spec, "replicas", 0)

# A Scale has the UID of its pool.
_uid := input.request.oldObject.metadata.uid

_removes if _fewer > 0

_removes if count(_new) > 0

_scaled if {
	_scale
	_removes
}

_pool := input.request.oldObject if not _scale

_pool := input.facts.parent if {
	_scale
	input.facts.parent != null
}

_judged if {
	_removes
	object.get(_pool.metadata, "deletionTimestamp", "") == ""
}

# Who is named. A Scale names nobody.

_targets(of) := object.get(of.spec, "scaleDownTargets", [])

_new := [target |
	some target in _targets(input.request.object)
	not _was_there(target)
]

_was_there(target) if target.uid in _before

_before := {target.uid | some target in _targets(input.request.oldObject)}

# Who may write VirtualMachines may write the label, and owners too: a member has both.
_members := [member.metadata |
	some member in input.facts.members
	some owner in object.get(member.metadata, "ownerReferences", [])
	owner.controller == true
	owner.uid == _uid
]

_called := {metadata.uid: metadata.name | some metadata in _members}

# The newest first.
_live := array.reverse([metadata |
	some metadata in _members
	object.get(metadata, "deletionTimestamp", "") == ""
])

_can_go := {metadata.uid: metadata.name | some metadata in _live}

_named := [target.name |
	some target in _new
	_named_rightly(target)
]

_strangers := [target |
	some target in _new
	not _named_rightly(target)
]

_named_rightly(target) if _can_go[target.uid] == target.name

# What was named before goes anyway.
_eligible := [metadata |
	some metadata in _live
	not _goes(metadata)
]

_goes(metadata) if metadata.uid in _leaving

_leaving := {target.uid | some target in _targets(_pool)}

# How many there would be to choose from: without a surplus, which may be there from a time when nobody asked this policy, the
# replicas.
_most := max([_present, count(_eligible)])

_room := max([0, _most - _wanted])

# Messages. They name nothing that changes from one try to the next, but for Leases that are renewed: an autoscaler tries again
# and again.

_it := $"VirtualMachinePool {_pool.metadata.name} in namespace {input.request.namespace}"

_step := $"{_it} may not go from {_present} to {_wanted} replicas"

_course := $"replicas go from {_present} to {_wanted}" if _present != _wanted

_course := $"replicas stay {_present}" if _present == _wanted

_why_not(target) := "is being deleted already" if _called[target.uid] == target.name

_why_not(target) := $"is the UID of its member {_called[target.uid]}" if _called[target.uid] != target.name

_why_not(target) := "is not a member of it" if not _is_member(target)

_is_member(target) if _called[target.uid]

_others := "" if count(_strangers) == 1

_others := $", and {count(_strangers) - 1} more like it" if count(_strangers) > 1

# Those that the request names come first, so that nobody copies a command that takes others. Of these nobody is busy.
_choice := array.slice(array.concat(_named, _others_to_name), 0, min([3, max([1, _fewer, count(_named)])]))

_others_to_name := [metadata.name |
	some metadata in _eligible
	not _is_busy(metadata)
	not _is_named(metadata)
]

_is_named(metadata) if metadata.name in _names

_names := {name | some name in _named}

_way_out := $"What would pass: `{_command}`" if count(_choice) > 0

_way_out := $"{_told_of(_eligible)}. Wait for them, or name those that go, busy or not: `{_command_to_fill}`" if {
	count(_choice) == 0
	count(_eligible) > 0
}

_way_out := "None of its members can be named" if {
	count(_choice) == 0
	count(_eligible) == 0
}

# Of a pool that has nobody to name, such as one whose members could not be made, nobody goes whatever its policy.
_how := _way_out if count(array.concat(_choice, _eligible)) > 0

_how := concat("", [
	"It has no member that could be named. With another scaleDownPolicy, in a request before, it would pass: `kubectl patch ",
	$"virtualmachinepools.sallyport.dev {override.typed(_pool.metadata.name)} --namespace {input.request.namespace} --type merge ",
	"-p '{\"spec\":{\"scaleDownPolicy\":\"NewestFirst\"}}'`",
]) if {
	count(array.concat(_choice, _eligible)) == 0
}

_command := concat("", array.concat([_scale_down], [$" --vm {override.typed(name)}" | some name in _choice]))

_command_to_fill := $"{_scale_down} --vm NAME"

_scale_down := $"kubectl sallyport scale-down {override.typed(_pool.metadata.name)} --namespace {input.request.namespace}"

_details(field) := {
	"group": "sallyport.dev", "kind": "VirtualMachinePool",
	"name": _pool.metadata.name, "field": field,
}

# Types.

_known_spec(of) if {
	is_object(of.spec)
	is_number(_replicas(of))
	is_array(_targets(of))
	every target in _targets(of) {
		_text(target.name)
		_text(target.uid)
	}
}

# What is gone meanwhile is told by the API server.
_known_pool if {
	_scaled
	input.facts.parent == null
}

_known_pool if {
	_scaled
	input.facts.parent != null
	_known_spec(_pool)
	_known_as_pool
}

_known_pool if {
	not _scaled
	_known_parts
	input.facts.parent == null
}

# A Scale that takes nobody away says no more of its pool.
_known_parts if _scale

_known_parts if {
	not _scale
	_known_as_pool
}

_known_as_pool if {
	_text(_pool.metadata.name)
	is_string(object.get(_pool.metadata, "deletionTimestamp", ""))
	_text(_pool.spec.scaleDownPolicy)
}

_known_members if {
	not _removes
	input.facts.members == null
}

_known_members if {
	_removes
	is_array(input.facts.members)
	every member in input.facts.members { _known_member(member.metadata) }
}

_known_member(metadata) if {
	_text(metadata.name)
	_text(metadata.uid)
	is_string(object.get(metadata, "deletionTimestamp", ""))
	owners := object.get(metadata, "ownerReferences", [])
	is_array(owners)
	every owner in owners {
		is_string(owner.uid)
		is_boolean(object.get(owner, "controller", false))
	}
}

_text(value) if {
	is_string(value)
	value != ""
}
