# METADATA
# title: Scaling down within limits
# description: >-
#   Nobody takes more replicas from a workload than its annotations and the limits in the parameters allow, be it by the
#   subresource scale or in the object. More replicas always pass, and so does what happens to an object that is being
#   deleted. The annotations of an object with a controller are left to that; the limits in the parameters count all the same.
#   The annotations of the object as it is count, not those that come in the same request, and are checked when they are
#   written.
package sallyport.scaling.guard

import data.sallyport.lib.override

# METADATA
# title: The object that is scaled
# description: A Scale carries no annotations, and 0 in it may stand for a number that is not set.
facts["parent"] := {"parent": true} if _scale

facts["parent"] := null if not _scale

valid_input if {
	input.request.operation in {"CREATE", "UPDATE"}
	_text(input.request.resource.resource)
	is_string(input.request.resource.group)
	is_string(object.get(input.request, "subResource", ""))
	is_string(object.get(input.request, "namespace", ""))
	is_string(input.now)
	regex.match(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z$`, input.now)
	_known_requester
	_known_objects
}

# METADATA
# title: The time zones exist
# description: timeZone in hours of a limit is a name such as Europe/Vienna, or UTC.
valid_parameters if {
	every limit in data.parameters.limits { _known_zone(object.get(limit, ["hours", "timeZone"], "UTC")) }
}

# METADATA
# title: Nothing may be taken away
# custom:
#   reason: ScaleDownDenied
#   remedyInMessage: Take the annotation off, wait until the limit ends, or override the policy once.
deny contains {
	"reason": "ScaleDownDenied",
	"message": $"{_step}: {limit.by} allows no scale-down. {_way_out(limit)}",
	"details": _details,
} if {
	_shrinks
	some limit in _limits
	limit.scaleDown == "Deny"
}

# METADATA
# title: Fewer than are to stay would be left
# custom:
#   reason: BelowMinReplicas
#   remedyInMessage: Keep as many replicas as the message names, or override the policy once.
deny contains {
	"reason": "BelowMinReplicas",
	"message": $"{_step}: {limit.by} keeps at least {limit.minReplicas}. {_way_out(limit)}",
	"details": _details,
} if {
	_shrinks
	some limit in _limits
	_wanted < limit.minReplicas
}

# METADATA
# title: Too many would go at once
# custom:
#   reason: ScaleDownTooLarge
#   remedyInMessage: Scale down in steps as the message names, or override the policy once.
deny contains {
	"reason": "ScaleDownTooLarge",
	"message": $"{_step}: {limit.by} lets {_most(limit.maxScaleDown)} go at once{_share(limit.maxScaleDown)}. {_way_out(limit)}",
	"details": _details,
} if {
	_shrinks
	some limit in _limits
	_present - _wanted > _most(limit.maxScaleDown)
}

# METADATA
# title: An annotation is not one that can be read
# custom:
#   reason: AnnotationInvalid
#   remedyInMessage: Write the annotation as the message says.
deny contains {
	"reason": "AnnotationInvalid",
	"code": 422,
	"message": $"{_named}: annotation {key} is {json.marshal(value)}, and must be {_forms[key].told}",
	"details": object.union(_details, {"field": $"metadata.annotations[{key}]"}),
} if {
	_whole
	not _leaving
	some key, value in _annotations(input.request.object)
	value != object.get(_stood, key, null)
	not regex.match(_forms[key].pattern, value)
}

# METADATA
# title: An annotation that cannot be read limits the workload
# description: It was written while nobody checked it, and may have been meant to forbid what is asked.
# custom:
#   reason: AnnotationInvalid
#   remedyInMessage: Correct the annotation, or take it off, with the command in the message.
deny contains {
	"reason": "AnnotationInvalid",
	"message": $"{_step}: its annotation {key} is {json.marshal(value)}, which cannot be read; it must be {_forms[key].told}. {_take_off(key)}",
	"details": object.union(_details, {"field": $"metadata.annotations[{key}]"}),
} if {
	_shrinks
	some key, value in _unread
}

# METADATA
# title: It is not known where the kind has its replicas
# custom:
#   reason: KindNotConfigured
#   remedyInMessage: Add the row that the message names to spec.parameters.kinds, or take the resource out of spec.match.resources.
deny contains {
	"reason": "KindNotConfigured",
	"message": $"{_named}: spec.parameters.kinds of the policy has no row {_resource}, such as {_resource}: \{replicas: [spec, replicas], default: 1}",
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

_leaving if object.get(_old.metadata, "deletionTimestamp", "") != ""

# By what was there before: who is not the owner cannot make somebody so by the way. Who may change the object can give it an
# owner in a request before, as they can take its annotations off. So an owner lifts these, and no limit of the policy.
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

# A Scale of 0 is written without the number.
_wanted := object.get(input.request.object, ["spec", "replicas"], 0) if _scale

_kind := data.parameters.kinds[_resource]

_resource := override.resource(input.request.resource)

_replicas(of) := object.get(of, _kind.replicas, null) if object.get(of, _kind.replicas, null) != null

_replicas(of) := _kind["default"] if object.get(of, _kind.replicas, null) == null

# The limits that count for this request.

_limits contains {"by": $"its annotation {key}", "lift": _take_off(key), _forms[key].field: _read(value)} if {
	some key, value in _stood
	not _owned
	regex.match(_forms[key].pattern, value)
}

_limits contains object.union(limit, {"by": $"limit {limit.name} of the policy{_hours(limit)}", "lift": _lift(limit)}) if {
	some limit in data.parameters.limits
	_for_requester(limit)
	_here(limit)
	_now(limit)
}

_forms := {
	"sallyport.dev/scale-down": {"field": "scaleDown", "pattern": `^(Allow|Deny)$`, "told": "Allow or Deny"},
	"sallyport.dev/min-replicas": {
		"field": "minReplicas",
		"pattern": `^(0|[1-9][0-9]{0,8})$`,
		"told": "a number, such as \"3\"",
	},
	"sallyport.dev/max-scale-down": {
		"field": "maxScaleDown",
		"pattern": `^([1-9][0-9]{0,8}|([1-9][0-9]?|100)%)$`,
		"told": "a number from \"1\", or a percentage from \"1%\" to \"100%\"",
	},
}

# Those that are ours.
_annotations(of) := object.filter(object.get(of.metadata, "annotations", {}), object.keys(_forms))

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
	limit.hours.from <= _clock(limit.hours)
	_clock(limit.hours) < limit.hours.to
}

# Over midnight.
_now(limit) if {
	limit.hours.from > limit.hours.to
	limit.hours.from <= _clock(limit.hours)
}

_now(limit) if {
	limit.hours.from > limit.hours.to
	_clock(limit.hours) < limit.hours.to
}

_clock(hours) := time.format([time.parse_rfc3339_ns(input.now), hours.timeZone, "15:04"])

_most(limit) := limit if is_number(limit)

_most(limit) := max([1, floor((_present * to_number(trim_suffix(limit, "%"))) / 100)]) if is_string(limit)

# Messages. They name no time and nothing that changes from one try to the next: an autoscaler tries again and again.

_step := $"{_named} may not go from {_present} to {_wanted} replicas"

_named := $"{_subject.kind} {_subject.metadata.name}" if not _within

_named := $"{_subject.kind} {_subject.metadata.name} in namespace {input.request.namespace}" if _within

_within if override.within(input.request)

_subject := _old if _old

_subject := input.request.object if not _old

_share(limit) := "" if is_number(limit)

_share(limit) := $" ({limit} of {_present})" if is_string(limit)

# The least that every limit allows.
_lowest := min([_present, max(_floors | {0})])

_floors contains _present if {
	some limit in _limits
	limit.scaleDown == "Deny"
}

_floors contains _present if count(_unread) > 0

_floors contains limit.minReplicas if some limit in _limits

_floors contains _present - _most(limit.maxScaleDown) if some limit in _limits

_way_out(_) := $"What would pass: `kubectl scale {_target} --replicas={_lowest}`" if _lowest < _present

_way_out(limit) := limit.lift if _lowest == _present

_take_off(key) := $"To take it off: `kubectl annotate {_target} {key}-`"

_lift(limit) := $"It ends at {limit.hours.to}. {_once}" if "hours" in object.keys(limit)

_lift(limit) := _once if not "hours" in object.keys(limit)

_once := concat("", [
	"Somebody who holds the verb override on RegoPolicy scaling-guard can write ",
	$"`{override.command("scaling-guard", input.request, _old.metadata)}`, and it passes once",
])

_hours(limit) := $" ({limit.hours.from} to {limit.hours.to} {limit.hours.timeZone})" if "hours" in object.keys(limit)

_hours(limit) := "" if not "hours" in object.keys(limit)

_target := $"{_resource}/{override.typed(_subject.metadata.name)}{_flag}"

_flag := "" if not _within

_flag := $" --namespace {input.request.namespace}" if _within

_details := {"group": input.request.resource.group, "kind": _subject.kind, "name": _subject.metadata.name}

# Types.

_known_requester if {
	_text(input.request.userInfo.username)
	is_array(_groups)
	every group in _groups { _text(group) }
}

# Subresources other than scale are not looked at.
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

# What is gone meanwhile is told by the API server.
_known_objects if {
	_scale
	input.facts.parent == null
}

_known_objects if {
	_scale
	_known_object(input.facts.parent)
	is_object(input.request.object.spec)
	is_number(_wanted)
}

_known_object(of) if {
	_text(of.kind)
	_text(of.metadata.name)
	is_string(object.get(of.metadata, "deletionTimestamp", ""))
	annotations := object.get(of.metadata, "annotations", {})
	is_object(annotations)
	every value in annotations { is_string(value) }
	owners := object.get(of.metadata, "ownerReferences", [])
	is_array(owners)
	every owner in owners { is_boolean(object.get(owner, "controller", false)) }
	_known_replicas(of)
}

_known_replicas(_) if not _kind

_known_replicas(of) if is_number(_replicas(of))

_known_zone(zone) if {
	zone != "Local"
	is_string(time.format([0, zone, "15:04"]))
}

_text(value) if {
	is_string(value)
	value != ""
}
