# METADATA
# title: Which members of a pool a scale-down removes
# description: >-
#   If the stored scaleDownPolicy is Explicit, a request that lowers replicas must add at least as many entries to
#   scaleDownTargets, so the subresource scale cannot lower them. Under the other policies, if parameter busyMembers is Refuse, a
#   scale-down is denied if it needs to remove busy members that are not named. If it is Wait, the default, the pool keeps these
#   members until they are idle. Leases may change after the evaluation: the pool reconciler reads them live before it deletes a
#   member, and deletes no busy member that is not named. Under every scaleDownPolicy, a new entry must name an existing member
#   that is not being deleted, by name and UID, and there can be no more new entries than replicas are lowered by. If a pool has
#   more members than replicas, not counting those named before, the surplus can be named too. Existing entries are not
#   evaluated. Removing one keeps the member if it still exists, and under Explicit until it is named again, even if replicas are
#   not raised. The policy admits a change of scaleDownPolicy alone, and every update of a pool that is being deleted.
package sallyport.pools.scaledown

import data.sallyport.lib.shell

# METADATA
# title: The pool that is scaled
# description: A Scale does not have the scaleDownPolicy of its pool. Read only if the request lowers replicas.
facts["parent"] := {"parent": true} if _scaled

facts["parent"] := null if not _scaled

# METADATA
# title: The VirtualMachines with the label of the pool's members
# description: Read only if the request lowers replicas or names members.
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
	input.request.namespace != ""
	_uid != ""
	_known_spec(input.request.object)
	_known_spec(input.request.oldObject)
	_known_pool
	_known_members
	_known_leases
}

# METADATA
# title: The scale-down does not name the members to remove
# custom:
#   reason: ScaleDownNotNamed
#   remedyInMessage: Scale down with the command in the message, which names the members to remove.
deny contains {
	"reason": "ScaleDownNotNamed",
	"message": $"{_step}",
	"cause": $"scaleDownPolicy is Explicit and the request names {count(_named)} of {_fewer} members to remove",
	"remedy": $"{_how}",
	"details": _details("spec.replicas"),
} if {
	_judged
	_pool.spec.scaleDownPolicy == "Explicit"
	count(_named) < _fewer
}

# METADATA
# title: A scale-down target is not a member that can be removed
# custom:
#   reason: TargetNotMember
#   remedyInMessage: Name members with the command in the message, which looks up their UIDs.
deny contains {
	"reason": "TargetNotMember",
	"message": $"{_it}: spec.scaleDownTargets cannot name {_strangers[0].name} (UID {_strangers[0].uid})",
	"cause": $"{_why_not(_strangers[0])}{_others}",
	"remedy": $"{_way_out}",
	"details": _details("spec.scaleDownTargets"),
} if {
	_judged
	count(_strangers) > 0
}

# METADATA
# title: The request names more members than it removes
# custom:
#   reason: TooManyTargets
#   remedyInMessage: Lower spec.replicas in the same request to the number in the message, or use the command in the message.
deny contains {
	"reason": "TooManyTargets",
	"message": $"{_it}: spec.scaleDownTargets cannot have {count(_named)} new entries",
	"cause": $"{_course}, which allows {_room}",
	"remedy": $"set spec.replicas to {_most - count(_named)}, or run: {_command}",
	"details": _details("spec.scaleDownTargets"),
} if {
	_judged
	count(_named) > _room
}

# The request. The default of replicas is 0, and a Scale to 0 omits the number.

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
	object.get(_pool.metadata, "deletionTimestamp", null) == null
}

# The members that the request names. A Scale names none.

_targets(of) := object.get(of.spec, "scaleDownTargets", [])

_new := [target |
	some target in _targets(input.request.object)
	not _was_there(target)
]

_was_there(target) if target.uid in _before

_before := {target.uid | some target in _targets(input.request.oldObject)}

# Users who may write VirtualMachines can set the label. A member has both the label and the pool as its controller.
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
	object.get(metadata, "deletionTimestamp", null) == null
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

# Members that were named before are removed anyway.
_eligible := [metadata |
	some metadata in _live
	not _goes(metadata)
]

_goes(metadata) if metadata.uid in _leaving

_leaving := {target.uid | some target in _targets(_pool)}

# The number of members to choose from: without a surplus, the replicas. A surplus may be from a time when this policy was not active.
_most := max([_present, count(_eligible)])

_room := max([0, _most - _wanted])

# Messages. They contain nothing that changes between retries, except for renewed Leases, because an autoscaler retries continuously.

_it := $"VirtualMachinePool {_pool.metadata.name}"

_step := $"{_it}: cannot scale from {_present} to {_wanted}"

_course := $"replicas go from {_present} to {_wanted}" if _present != _wanted

_course := $"replicas stay {_present}" if _present == _wanted

_why_not(target) := "it is already being deleted" if _called[target.uid] == target.name

_why_not(target) := $"the UID is that of member {_called[target.uid]}" if _called[target.uid] != target.name

_why_not(target) := "it is not a member of the pool" if not _is_member(target)

_is_member(target) if _called[target.uid]

_others := "" if count(_strangers) == 1

_others := $" ({count(_strangers) - 1} more entries are invalid)" if count(_strangers) > 1

# The command lists the members that the request names first, and does not replace them by others. It proposes no busy members.
_choice := array.slice(array.concat(_named, _others_to_name), 0, min([3, max([1, _fewer, count(_named)])]))

_others_to_name := [metadata.name |
	some metadata in _eligible
	not _is_busy(metadata)
	not _is_named(metadata)
]

_is_named(metadata) if metadata.name in _names

_names := {name | some name in _named}

_way_out := $"allowed: {_command}" if count(_choice) > 0

_way_out := $"{_told_of(_eligible)}; {_wait_or_name}" if {
	count(_choice) == 0
	count(_eligible) > 0
}

_way_out := "the pool has no member that can be named" if {
	count(_choice) == 0
	count(_eligible) == 0
}

# A pool without members to name, such as one whose members could not be created, removes none under any scaleDownPolicy.
_how := _way_out if count(array.concat(_choice, _eligible)) > 0

_how := concat("", [
	"the pool has no member that can be named; change scaleDownPolicy first: kubectl patch svmpool ",
	$"{shell.word(_pool.metadata.name)} -n {shell.word(input.request.namespace)} --type merge ",
	`-p '{"spec":{"scaleDownPolicy":"NewestFirst"}}'`,
]) if {
	count(array.concat(_choice, _eligible)) == 0
}

_command := concat("", array.concat([_scale_down], [$" --vm {shell.word(name)}" | some name in _choice]))

_wait_or_name := $"wait until they are idle, or name the members to remove: {_scale_down} --vm NAME"

_scale_down := $"kubectl sallyport scale-down {shell.word(_pool.metadata.name)} -n {shell.word(input.request.namespace)}"

_details(field) := {
	"group": "sallyport.dev", "kind": "VirtualMachinePool",
	"name": _pool.metadata.name, "field": field,
}

_known_spec(of) if {
	every target in _targets(of) {
		target.name != ""
		target.uid != ""
	}
}

# If the pool does not exist any more, the API server reports that.
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

# A Scale that removes no member needs no facts about its pool.
_known_parts if _scale

_known_parts if {
	not _scale
	_known_as_pool
}

_known_as_pool if {
	_pool.metadata.name != ""
	_pool.spec.scaleDownPolicy != ""
}

_known_members if {
	not _removes
	input.facts.members == null
}

_known_members if {
	_removes
	every member in input.facts.members { _known_member(member.metadata) }
}

# Without its owner, a member would not count. The API allows null here.
_known_member(metadata) if {
	metadata.name != ""
	metadata.uid != ""
	every owner in object.get(metadata, "ownerReferences", []) {
		owner.uid
		object.get(owner, "controller", false) != null
	}
}
