# Which members are busy. Package busy of the pool reconciler implements the same rules in Go.
package sallyport.pools.scaledown

# METADATA
# title: The Leases that mark members as busy
# description: >-
#   Read live, because watching Leases would include the heartbeat of each node. Read only if the request lowers replicas or names
#   members.
facts.leases := {
	"apiVersion": "coordination.k8s.io/v1",
	"kind": "Lease",
	"namespace": input.request.namespace,
	"freshness": "live",
} if {
	_removes
}

facts.leases := null if not _removes

# METADATA
# title: The scale-down would have to remove busy members
# custom:
#   reason: MembersBusy
#   remedyInMessage: Wait until the members in the message are idle, or name the members to remove.
deny contains {
	"reason": "MembersBusy",
	"message": $"{_step}",
	"cause": $"it needs {_surplus} idle members and the pool has {count(_idle)}: {_told_of(_busy)}",
	"remedy": $"{_wait_or_name}",
	"details": _details("spec.replicas"),
} if {
	_judged
	data.parameters.busyMembers == "Refuse"
	_pool.spec.scaleDownPolicy != "Explicit"
	count(_named) < _fewer
	_surplus > count(_idle)
}

# The members to choose from, without those that are named, in the order of their removal.
_unnamed := _by_age if _pool.spec.scaleDownPolicy != "OldestFirst"

_unnamed := array.reverse(_by_age) if _pool.spec.scaleDownPolicy == "OldestFirst"

_by_age := [metadata | some metadata in _live; not _is_to_go(metadata)]

_is_to_go(metadata) if metadata.uid in _to_go

_to_go := _leaving if _scale

_to_go := {target.uid | some target in _targets(input.request.object)} if not _scale

_surplus := count(_unnamed) - _wanted

_busy := [metadata | some metadata in _unnamed; _is_busy(metadata)]

_idle := [metadata | some metadata in _unnamed; not _is_busy(metadata)]

_is_busy(metadata) if _until[metadata.uid]

# The first three of a list of busy members.
_told_of(busy) := concat("", [
	concat(", ", [_told(metadata) | some metadata in array.slice(busy, 0, 3)]),
	_further(count(busy) - 3),
])

_further(more) := $", and {more} more" if more > 0

_further(more) := "" if more <= 0

_told(metadata) := concat("", [
	$"{metadata.name} is busy with {_holder(metadata.uid)} until ",
	time.format([_until[metadata.uid], "UTC", "2006-01-02T15:04:05Z"]),
])

# Any user who may write Leases can set holderIdentity: it is shortened, and control characters are removed.
_holder(uid) := regex.replace(substring(min(_holders[uid]), 0, 100), `\p{C}`, "")

_holders[mark.uid] contains mark.holder if {
	some mark in _marks
	mark.until == _until[mark.uid]
}

# The time until which each member is busy, in nanoseconds, by UID. If a member has several Leases, the longest counts.
_until[uid] := max(times) if some uid, times in _times

_times[mark.uid] contains mark.until if some mark in _marks

_marks := [{"uid": uid, "holder": lease.spec.holderIdentity, "until": until} |
	some lease in input.facts.leases
	uid := lease.metadata.labels[_mark]
	_can_go[uid]
	until := _renewed(lease.spec.renewTime) + (min([lease.spec.leaseDurationSeconds, _longest]) * 1000000000)
	until > _now
	lease.spec.holderIdentity != ""
]

_mark := "sallyport.dev/busy-machine"

# A day, in seconds.
_longest := 86400

_now := time.parse_rfc3339_ns(input.now)

# A renewTime in the future counts as now. Times in UTC sort like their texts. A time that is older than any Lease can last is not
# parsed, because not every year can be.
_renewed(at) := _now if at >= input.now

_renewed(at) := time.parse_rfc3339_ns(at) if {
	at < input.now
	at > time.format([_now - ((2 * _longest) * 1000000000), "UTC", "2006-01-02T15:04:05Z"])
}

_known_leases if {
	not _removes
	input.facts.leases == null
}

_known_leases if {
	_removes
	regex.match(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z$`, input.now)
	every lease in input.facts.leases { _known_lease(lease) }
}

_known_lease(lease) if {
	labels := object.get(lease.metadata, "labels", {}) # the API allows null
	is_object(labels)
	_known_mark(object.get(labels, _mark, ""), lease)
}

# A Lease that does not mark a member may have any values.
_known_mark("", _)

_known_mark(mark, lease) if {
	mark != ""
	is_string(object.get(lease.spec, "holderIdentity", ""))
	is_number(object.get(lease.spec, "leaseDurationSeconds", 0))
	renewed := object.get(lease.spec, "renewTime", "")
	is_string(renewed)
	regex.match(`^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z)?$`, renewed)
}
