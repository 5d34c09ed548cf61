# METADATA
# title: Scaling down within limits
# description: >-
#   A workload cannot be scaled down further than its annotations and the limits in the parameters allow, neither through the
#   subresource scale nor in the object. The policy always admits more replicas, and every update of an object that is being
#   deleted. If the object has a controller as its owner, the annotations do not apply, but the limits in the parameters do.
#   The annotations of the stored object apply, not those of the same request. Their values are validated when they are set.
package sallyport.scaling.guard

import data.sallyport.lib.override
import data.sallyport.lib.schedule
import data.sallyport.lib.shell

# METADATA
# title: The object that is scaled
# description: A Scale has no annotations, and its number may be 0 because the object does not set one.
facts["parent"] := {"parent": true} if _scale

facts["parent"] := null if not _scale

valid_input if {
	input.request.operation in {"CREATE", "UPDATE"}
	regex.match(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z$`, input.now)
	input.request.userInfo.username != ""
	_known_objects
}

# METADATA
# title: Scaling down is not allowed
# custom:
#   reason: ScaleDownDenied
#   remedyInMessage: Remove the annotation, wait until the hours of the limit end, or override the policy temporarily.
deny contains {
	"reason": "ScaleDownDenied",
	"message": $"{_step}",
	"cause": $"{_cause(limit, "scaleDown")}",
	"remedy": $"{_way_out(limit)}",
	"details": _details,
} if {
	_shrinks
	some limit in _limits
	limit.scaleDown == "Deny"
}

# METADATA
# title: Scale-down would go below the minimum
# custom:
#   reason: BelowMinReplicas
#   remedyInMessage: Scale to the number of replicas in the message, or override the policy temporarily.
deny contains {
	"reason": "BelowMinReplicas",
	"message": $"{_step}",
	"cause": $"{_cause(limit, "minReplicas")}",
	"remedy": $"{_way_out(limit)}",
	"details": _details,
} if {
	_shrinks
	some limit in _limits
	_wanted < limit.minReplicas
}

# METADATA
# title: Scale-down would remove too many replicas at once
# custom:
#   reason: ScaleDownTooLarge
#   remedyInMessage: Scale down in steps, first to the number of replicas in the message, or override the policy temporarily.
deny contains {
	"reason": "ScaleDownTooLarge",
	"message": $"{_step}",
	"cause": $"{_cause(limit, "maxScaleDown")} (at most {_most(limit.maxScaleDown)} of {_present} at once)",
	"remedy": $"{_way_out(limit)}",
	"details": _details,
} if {
	_shrinks
	some limit in _limits
	_present - _wanted > _most(limit.maxScaleDown)
}

# METADATA
# title: The value of an annotation is invalid
# custom:
#   reason: AnnotationInvalid
#   remedyInMessage: Set the annotation to a value that the message allows.
deny contains {
	"reason": "AnnotationInvalid",
	"code": 422,
	"message": $"{_named}: annotation {key} must be {_forms[key].valid}, got {json.marshal(value)}",
	"details": object.union(_details, {"field": $"metadata.annotations[{key}]"}),
} if {
	_whole
	not _leaving
	some key, value in _annotations(input.request.object)
	value != object.get(_stood, key, null)
	not regex.match(_forms[key].pattern, value)
}

# METADATA
# title: The workload has an annotation with an invalid value
# description: It was set while this policy was not active, and may have been meant to deny this scale-down.
# custom:
#   reason: AnnotationInvalid
#   remedyInMessage: Correct the annotation, or remove it with the command in the message.
deny contains {
	"reason": "AnnotationInvalid",
	"message": $"{_step}",
	"cause": $"annotation {key} is {json.marshal(value)}",
	"remedy": $"it must be {_forms[key].valid}; {_remove(key)}",
	"details": object.union(_details, {"field": $"metadata.annotations[{key}]"}),
} if {
	_shrinks
	some key, value in _unread
}

# METADATA
# title: The policy does not know the replicas field of the kind
# custom:
#   reason: KindNotConfigured
#   remedyInMessage: Add the row in the message to spec.parameters.kinds, or remove the resource from spec.match.resources.
deny contains {
	"reason": "KindNotConfigured",
	"message": $"{_named}: cannot be changed",
	"cause": $"spec.parameters.kinds of RegoPolicy scaling-guard has no row {_resource}",
	"remedy": $"add a row, such as {_resource}: \{replicas: [spec, replicas], default: 1}",
	"details": _details,
} if {
	_old
	not _leaving
	not _kind
}

# The request.

_scale if input.request.subResource == "scale"

_whole if object.get(input.request, "subResource", "") == ""

_old := input.request.oldObject if {
	_whole
	input.request.operation == "UPDATE"
}

_old := input.facts.parent if {
	_scale
	input.facts.parent != null
}

_leaving if object.get(_old.metadata, "deletionTimestamp", null) != null

# The owners of the stored object count, so that the same request cannot add one. A user who may change the object can add an owner
# in an earlier request, and could remove the annotations too. So an owner exempts from the annotations, and from no limit of the policy.
_owned if {
	some owner in object.get(_old.metadata, "ownerReferences", [])
	owner.controller == true
}

_exempt if input.request.userInfo.username in data.parameters.exempt.users

_exempt if {
	some group in _groups
	group in data.parameters.exempt.groups
}

_groups := object.get(input.request.userInfo, "groups", [])

_shrinks if {
	_wanted < _present
	not _leaving
	not _exempt
}

_present := _replicas(_old)

_wanted := _replicas(input.request.object) if _whole

# A Scale to 0 omits the number.
_wanted := object.get(input.request.object, ["spec", "replicas"], 0) if _scale

_kind := data.parameters.kinds[_resource]

_resource := override.resource(input.request.resource)

_replicas(of) := object.get(of, _kind.replicas, null) if object.get(of, _kind.replicas, null) != null

_replicas(of) := _kind["default"] if object.get(of, _kind.replicas, null) == null

# The limits that apply to this request.

_limits contains {"annotation": key, "lift": _remove(key), _forms[key].field: _read(value)} if {
	some key, value in _stood
	not _owned
	regex.match(_forms[key].pattern, value)
}

_limits contains object.union(limit, {"lift": _lift(limit)}) if {
	some limit in data.parameters.limits
	_for_requester(limit)
	_here(limit)
	_now(limit)
}

_forms := {
	"sallyport.dev/scale-down": {"field": "scaleDown", "pattern": `^(Allow|Deny)$`, "valid": "Allow or Deny"},
	"sallyport.dev/min-replicas": {
		"field": "minReplicas",
		"pattern": `^(0|[1-9][0-9]{0,8})$`,
		"valid": "a number such as \"3\"",
	},
	"sallyport.dev/max-scale-down": {
		"field": "maxScaleDown",
		"pattern": `^([1-9][0-9]{0,8}|([1-9][0-9]?|100)%)$`,
		"valid": "a number from \"1\", or a percentage from \"1%\" to \"100%\"",
	},
}

# The annotations that this policy evaluates.
_annotations(of) := {key: _cut(value) |
	some key, value in object.filter(object.get(of.metadata, "annotations", {}), object.keys(_forms))
}

# No valid value is long. One that is may have 256 KiB, and stays invalid.
_cut(value) := value if count(value) <= 64

_cut(value) := concat("", [substring(value, 0, 64), "..."]) if count(value) > 64

_stood := _annotations(_old) if _old

_stood := {} if not _old

_unread[key] := value if {
	some key, value in _stood
	not _owned
	not regex.match(_forms[key].pattern, value)
}

_read(value) := to_number(value) if regex.match(`^[0-9]+$`, value)

_read(value) := value if not regex.match(`^[0-9]+$`, value)

_for_requester(limit) if not _names_requesters(limit)

_for_requester(limit) if input.request.userInfo.username in limit.users

_for_requester(limit) if {
	some group in _groups
	group in limit.groups
}

_names_requesters(limit) if count({"users", "groups"} & object.keys(limit)) > 0

_here(limit) if not "namespaces" in object.keys(limit)

_here(limit) if input.request.namespace in limit.namespaces

_now(limit) if not "hours" in object.keys(limit)

_now(limit) if {
	schedule.includes({"hours": limit.hours, "timeZone": limit.hours.timeZone}, time.parse_rfc3339_ns(input.now))
}

_most(limit) := limit if is_number(limit)

_most(limit) := max([1, floor((_present * to_number(trim_suffix(limit, "%"))) / 100)]) if is_string(limit)

# Messages. They contain no time and nothing that changes between retries, because an autoscaler retries continuously.

_step := $"{_named}: cannot scale from {_present} to {_wanted}"

_named := $"{_subject.kind} {_subject.metadata.name}"

_subject := _old if _old

_subject := input.request.object if not _old

_cause(limit, field) := $"annotation {limit.annotation} is {limit[field]}" if "annotation" in object.keys(limit)

_cause(limit, field) := $"limit {limit.name} of this policy{_hours(limit)} has {field} {limit[field]}" if "name" in object.keys(limit)

# The lowest number of replicas that every limit allows.
_lowest := min([_present, max(_floors | {0})])

_floors contains _present if {
	some limit in _limits
	limit.scaleDown == "Deny"
}

_floors contains _present if count(_unread) > 0

_floors contains limit.minReplicas if some limit in _limits

_floors contains _present - _most(limit.maxScaleDown) if some limit in _limits

_way_out(_) := $"allowed: kubectl scale {_target} --replicas={_lowest}" if _lowest < _present

_way_out(limit) := limit.lift if _lowest == _present

_remove(key) := $"to remove the annotation: kubectl annotate {_target} {shell.word(key)}-"

_lift(limit) := $"wait until {limit.hours.to}; {_once}" if "hours" in object.keys(limit)

_lift(limit) := _once if not "hours" in object.keys(limit)

_once := $"to override this policy temporarily: {override.command("scaling-guard", input.request, _old.metadata)}"

_hours(limit) := $" ({limit.hours.from} to {limit.hours.to} {limit.hours.timeZone})" if "hours" in object.keys(limit)

_hours(limit) := "" if not "hours" in object.keys(limit)

_target := $"{shell.word(_resource)}/{shell.word(_subject.metadata.name)}{_flag}"

_flag := "" if not _within

_flag := $" -n {shell.word(input.request.namespace)}" if _within

_within if override.within(input.request)

_details := {"group": input.request.resource.group, "kind": _subject.kind, "name": _subject.metadata.name}

# Subresources other than scale are not evaluated.
_known_objects if {
	not _whole
	not _scale
}

_known_objects if {
	_whole
	input.request.operation == "CREATE"
	_known_object(input.request.object)
}

_known_objects if {
	_whole
	input.request.operation == "UPDATE"
	_known_object(input.request.object)
	_known_object(input.request.oldObject)
}

# If the object does not exist any more, the API server reports that.
_known_objects if {
	_scale
	input.facts.parent == null
}

_known_objects if {
	_scale
	_known_object(input.facts.parent)
	input.request.object.spec
	is_number(_wanted)
}

_known_object(of) if {
	of.kind != ""
	of.metadata.name != ""
	is_object(object.get(of.metadata, "annotations", {})) # the API allows null
	_known_replicas(of)
}

_known_replicas(_) if not _kind

# No schema describes the kinds of other projects.
_known_replicas(of) if is_number(_replicas(of))
