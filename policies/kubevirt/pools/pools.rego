# METADATA
# title: Which members of a pool of KubeVirt a scale-down removes
# description: >-
#   KubeVirt selects the members that it removes from a VirtualMachinePool by spec.scaleInStrategy, and from a
#   VirtualMachineInstanceReplicaSet at random. The policy denies requests after which it may remove a member with the label
#   sallyport.dev/deletion-protection: enabled. It also denies requests that crash virt-controller of KubeVirt 1.7, which then manages
#   no machine of the cluster: if the scale-in selectors match fewer members than it has to remove, or if more members are being
#   deleted than it has to remove. It applies to the subresource scale, too.
package sallyport.kubevirt.pools

import data.sallyport.lib.override
import data.sallyport.lib.shell

# METADATA
# title: The pool or replica set that is scaled
facts["parent"] := {"parent": true} if _scale

facts["parent"] := null if not _scale

# METADATA
# title: The machines of the namespace with the labels of the members
# description: Instances, for a replica set.
facts["members"] := {
	"apiVersion": "kubevirt.io/v1",
	"kind": {true: "VirtualMachine", false: "VirtualMachineInstance"}[_of_pool],
	"namespace": _request.namespace,
	"labels": object.get(_before, ["spec", "selector", "matchLabels"], {}),
} if {
	_before
}

facts["members"] := null if not _before

valid_input if {
	_request.operation == "UPDATE"
	_scale
	input.facts.parent == null # the API server reports that
}

valid_input if {
	_request.operation == "UPDATE"
	is_string(_before.metadata.uid)
	is_number(_present)
	is_number(_wanted)
	every member in input.facts.members { _known_member(member) }
}

# METADATA
# title: Protected members may be removed
# custom:
#   reason: MembersProtected
#   remedyInMessage: Select the members that are removed with the commands in the message.
deny contains {
	"reason": "MembersProtected",
	"message": $"{_object}: {_step}",
	"cause": $"KubeVirt may remove members with label {_label}: {_some_of(sort(_at_risk))}",
	"remedy": _by_name,
	"details": _details,
} if {
	_judged
	_wanted <= _present
	count(_at_risk) > 0
}

# METADATA
# title: The scale-in selectors match too few members
# custom:
#   reason: SelectorsTooNarrow
#   remedyInMessage: Use selectors that match as many members as are removed, or the commands in the message.
deny contains {
	"reason": "SelectorsTooNarrow",
	"message": $"{_object}: {_step}",
	"cause": $"its scale-in selectors match {count(_eligible)} of the {_surplus} members to remove, which crashes virt-controller",
	"remedy": _by_name,
	"details": _details,
} if {
	_judged
	_surplus > count(_eligible)
}

# METADATA
# title: More members are being deleted than the request removes
# custom:
#   reason: MembersTerminating
#   remedyInMessage: Wait until the members are deleted, or scale to the number in the message.
deny contains {
	"reason": "MembersTerminating",
	"message": $"{_object}: {_step}",
	"cause": $"{count(_members) - count(_live)} members are being deleted, more than the {count(_members) - _wanted} to remove, which crashes virt-controller",
	"remedy": $"wait, or scale to {_lowest} until they are deleted: kubectl scale {_target} --replicas={_lowest}",
	"details": _details,
} if {
	_judged
	_of_pool
	_surplus < 0
	_wanted < count(_members)
}

# METADATA
# title: Autohealing is on, and there are scale-in selectors
# custom:
#   reason: SelectorsWithAutohealing
#   remedy: Remove spec.autohealing, or the selectors in spec.scaleInStrategy.
deny contains {
	"reason": "SelectorsWithAutohealing",
	"message": $"{_object}: spec.autohealing is not allowed with scale-in selectors",
	"cause": "virt-controller crashes when it replaces a machine that they do not match",
	"details": _details,
} if {
	_judged
	_of_pool
	_after.spec.autohealing
	_selectors
}

_label := "sallyport.dev/deletion-protection"

_request := input.request

_scale if _request.subResource == "scale"

_of_pool := _request.resource.group == "pool.kubevirt.io"

_before := _request.oldObject if not _scale

_before := input.facts.parent if {
	_scale
	input.facts.parent != null
}

# The object as the request leaves it.
_after := _request.object if not _scale

_after := object.union(_before, {"spec": {"replicas": _wanted}}) if _scale

_present := object.get(_before.spec, "replicas", 1)

_wanted := object.get(_request.object.spec, "replicas", 1) if not _scale

_wanted := object.get(_request.object.spec, "replicas", 0) if _scale # which omits 0

# Whether virt-controller selects members to remove after the request.
_judged if {
	not _before.metadata.deletionTimestamp
	not _after.spec.paused
	not _by_others
}

_by_others if _strategy.opportunistic

_by_others if _strategy.unmanaged

_strategy := object.get(_after, ["spec", "scaleInStrategy"], {})

_policy := object.get(_strategy, ["proactive", "selectionPolicy"], {})

_selectors := _policy.selectors

# The members, and how many of them are more than wanted.

_members := [member |
	some member in input.facts.members
	some owner in member.metadata.ownerReferences
	owner.uid == _before.metadata.uid
	not _finished(member)
]

# A replica set does not count instances that have ended.
_finished(member) if {
	not _of_pool
	member.status.phase in {"Succeeded", "Failed"}
}

_live := [member | some member in _members; not member.metadata.deletionTimestamp]

_surplus := count(_live) - _wanted

_eligible := [member | some member in _live; _selected(member)]

_selected(member) if {
	every requirement in _label_requirements { _meets(object.get(member, ["spec", "template", "metadata", "labels"], {}), requirement) }
	every requirement in _node_requirements { _meets(object.get(member, ["spec", "template", "spec", "nodeSelector"], {}), requirement) }
}

# The selectors apply to the templates of the members, not to their own labels.
_label_requirements := array.concat(
	[{"key": key, "operator": "In", "values": [value]} | some key, value in _selectors.labelSelector.matchLabels],
	[requirement | some requirement in _selectors.labelSelector.matchExpressions],
)

_node_requirements := [requirement | some requirement in _selectors.nodeSelectorRequirementMatcher]

# Gt and Lt match no member here.
_meets(labels, requirement) if {
	requirement.operator == "In"
	labels[requirement.key] in requirement.values
}

_meets(labels, requirement) if {
	requirement.operator == "NotIn"
	count([value | some value in requirement.values; labels[requirement.key] == value]) == 0
}

_meets(labels, requirement) if {
	requirement.operator == "Exists"
	labels[requirement.key]
}

_meets(labels, requirement) if {
	requirement.operator == "DoesNotExist"
	count([value | some key, value in labels; key == requirement.key]) == 0
}

# The protected members among those that may be removed: the first ones by the sort policy, and those of the same rank.

_at_risk := {member.metadata.name |
	_surplus > 0
	some member in _eligible
	object.get(member.metadata, ["labels", _label], "") == "enabled"
	_rank(member) <= _last
}

_last := sort([_rank(member) | some member in _eligible])[min([_surplus, count(_eligible)]) - 1]

_sort := object.get(_policy, "sortPolicy", "Random")

_rank(member) := _ordinal(member.metadata.name) if _sort == "AscendingOrder"

_rank(member) := 0 - _ordinal(member.metadata.name) if _sort == "DescendingOrder"

_rank(member) := time.parse_rfc3339_ns(member.metadata.creationTimestamp) if _sort == "Oldest"

_rank(member) := 0 - time.parse_rfc3339_ns(member.metadata.creationTimestamp) if _sort == "Newest"

_rank(_) := 0 if not _sort in {"AscendingOrder", "DescendingOrder", "Oldest", "Newest"}

_ordinal(name) := to_number(regex.replace(name, `^.*-0*([0-9])`, "$1")) if regex.match(`-[0-9]{1,15}$`, name)

_ordinal(name) := 0 if not regex.match(`-[0-9]{1,15}$`, name)

# Messages.

_object := $"{_before.kind} {_before.metadata.name} in namespace {_request.namespace}"

_step := $"cannot scale from {_present} to {_wanted}" if _wanted != _present

_step := "its spec cannot change so" if _wanted == _present

_target := $"{override.resource(_request.resource)}/{shell.word(_before.metadata.name)} -n {shell.word(_request.namespace)}"

# A pool that is opportunistic removes no members, and a deleted member of it stays: its finalizer is removed only while their number is
# that of the replicas. So members are detached first. A replica set creates another instance for one that is deleted, unless it is paused.
_by_name := concat("", [
	$"to select members, lower replicas without removing any: kubectl patch {_target} --type merge -p {shell.word(json.marshal(_lowered))}; ",
	$"then, for each: kubectl patch virtualmachines.kubevirt.io NAME {_flag} --type merge -p {shell.word(json.marshal(_detached))}; ",
	$"kubectl delete virtualmachines.kubevirt.io NAME {_flag}",
]) if {
	_of_pool
}

_by_name := concat("", [
	$"to select instances, pause it: kubectl patch {_target} --type merge -p {shell.word(json.marshal(_paused))}; ",
	$"then, for each: kubectl delete virtualmachineinstances.kubevirt.io NAME {_flag}; then set spec.paused to false",
]) if {
	not _of_pool
}

_lowered := {"spec": {"replicas": _wanted, "scaleInStrategy": {"proactive": null, "unmanaged": null, "opportunistic": {}}}}

_detached := {"metadata": {"ownerReferences": null, "finalizers": null}}

_paused := {"spec": {"replicas": _wanted, "paused": true}}

_lowest := count(_live)

_flag := $"-n {shell.word(_request.namespace)}"

_some_of(names) := concat(", ", array.concat(
	array.slice(names, 0, 3),
	[$"and {count(names) - 3} more" | count(names) > 3],
))

_details := {"group": _request.resource.group, "kind": _before.kind, "name": _before.metadata.name}

# Types.

_known_member(member) if {
	is_string(member.metadata.name)
	is_string(member.metadata.creationTimestamp)
	is_object(object.get(member.metadata, "labels", {})) # the API allows null
}
