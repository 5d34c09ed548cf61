# METADATA
# title: Maintenance windows and freezes
# description: >-
#   Operations on machines, deletions, scale-downs and changes are admitted only while a maintenance window is open that is for them, and not
#   while a freeze lasts that is for them, as data.parameters.windows and data.parameters.freezes say. Requests for which there is neither are
#   admitted, and so are updates of annotations, status and finalizers, scaling up, and requests for objects that are being deleted.
package sallyport.windows

import data.sallyport.lib.operations
import data.sallyport.lib.override
import data.sallyport.lib.schedule
import data.sallyport.lib.shell
import data.sallyport.lib.tenants

# METADATA
# title: The VirtualMachine of an operation
# description: Its labels decide which windows and freezes are for the operation.
facts["machine"] := {
	"apiVersion": "sallyport.dev/v1alpha1",
	"kind": "VirtualMachine",
	"namespace": input.request.namespace,
	"name": input.request.object.spec.virtualMachineName,
} if {
	_operation
}

facts["machine"] := null if not _operation

# METADATA
# title: The object that is scaled
# description: A Scale has no labels.
facts["parent"] := {"parent": true} if _scale

facts["parent"] := null if not _scale

valid_input if {
	regex.match(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z$`, input.now)
	input.request.userInfo.username != ""
	input.request.resource.resource != ""
	_known
}

# METADATA
# title: No maintenance window is open
# custom:
#   reason: WindowClosed
#   remedyInMessage: Wait until the window in the message opens, or override the policy once, with a reason.
deny contains {
	"reason": "WindowClosed",
	"message": $"{_step}",
	"cause": $"{_closed}",
	"remedy": $"{_patience}{_once}",
	"details": _details,
} if {
	count(_windows) > 0
	not _open
}

# METADATA
# title: A freeze lasts
# custom:
#   reason: FreezeActive
#   remedyInMessage: Wait until the freeze ends, or override the policy once, with a reason.
deny contains {
	"reason": "FreezeActive",
	"message": $"{_step}",
	"cause": $"freeze {freeze.name} {_lasts(freeze)}",
	"remedy": $"{_until(freeze)}{_once}",
	"details": _details,
} if {
	some freeze in _freezes
	schedule.includes(freeze, _now)
}

_now := time.parse_rfc3339_ns(input.now)

# The request.

_operation if override.resource(input.request.resource) == "virtualmachineoperations.sallyport.dev"

_scale if input.request.subResource == "scale"

_whole if {
	not _operation
	object.get(input.request, "subResource", "") == ""
}

# The object as it is before the request: for an operation its machine.
_stored := input.facts.machine if _operation

_stored := input.facts.parent if _scale

_stored := input.request.oldObject if _whole

_kind := "virtualmachines.sallyport.dev" if _operation

_kind := override.resource(input.request.resource) if not _operation

_labels := _stored.metadata.labels if _labelled

_labels := {} if not _labelled

_labelled if is_object(_stored.metadata.labels)

_actions contains input.request.object.spec.type if _operation

_actions contains "Delete" if {
	_present
	input.request.operation == "DELETE"
}

_actions contains "ScaleDown" if {
	_present
	_shrinks
}

_actions contains "Change" if {
	_present
	_changes
}

_present if {
	not _operation
	_stored.metadata.name != ""
	not _leaving
}

_leaving if _stored.metadata.deletionTimestamp != null

_shrinks if {
	input.request.operation == "UPDATE"
	is_number(_replicas(input.request.object)) # what it is in kinds of other projects, no schema says
	is_number(_replicas(input.request.oldObject))
	_replicas(input.request.object) < _replicas(input.request.oldObject)
}

# The Scale of an object without the field has none. In the object, the field of some kinds defaults to 1, and of others to 0.
_replicas(of) := object.get(of, ["spec", "replicas"], _unset)

_unset := 1 if _workload

_unset := 0 if not _workload

_workload if {
	_whole
	input.request.resource.group == "apps"
}

# Without the labels, a request could take an object out of the windows and freezes that are for it.
_changes if {
	_updates
	object.get(input.request.object.metadata, "labels", null) != object.get(input.request.oldObject.metadata, "labels", null)
}

_changes if {
	_updates
	some key in ((object.keys(input.request.object) | object.keys(input.request.oldObject)) - {"apiVersion", "kind", "metadata", "status"})
	object.get(input.request.object, key, null) != object.get(input.request.oldObject, key, null)
}

_updates if {
	_whole
	input.request.operation == "UPDATE"
}

# The windows and freezes that are for this request. A user whom a window exempts may pass it at any time, even if another one is closed.

_windows := [row | some row in data.parameters.windows; _is_for(row)]

_freezes := [row | some row in data.parameters.freezes; _is_for(row); not _exempts(row)]

_open if {
	some window in _windows
	_exempts(window)
}

_open if {
	some window in _windows
	schedule.includes(window, _now)
}

_is_for(row) if {
	count(_actions & _of(row, "actions", _actions)) > 0
	_kind in _of(row, "kinds", {_kind})
	_namespace in _of(row, "namespaces", {_namespace})
	tenants.selects(object.get(row, "selector", {}), _labels)
}

_of(row, field, everything) := {value | some value in object.get(row, field, everything)}

_namespace := object.get(input.request, "namespace", "")

_exempts(row) if input.request.userInfo.username in row.exempt.users

_exempts(row) if {
	some group in object.get(input.request.userInfo, "groups", [])
	group in row.exempt.groups
}

# Messages. They have no time but those at which windows open and freezes end, so that repeated requests get the same.

_openings := [object.union(point, {"name": window.name}) |
	some window in _windows
	point := schedule.next(window, _now)
	point != null
]

_soonest := min({opening.time | some opening in _openings})

_next := [opening | some opening in _openings; opening.time == _soonest][0]

_closed := $"maintenance {_names} closed until {_next.text}{_which}{_nevertheless}" if count(_openings) > 0

_closed := $"maintenance {_names} closed, with no next opening" if count(_openings) == 0

_names := $"window {_windows[0].name} is" if count(_windows) == 1

_names := $"windows {concat(", ", [window.name | some window in _windows])} are" if count(_windows) > 1

_which := "" if count(_windows) == 1

_which := $" ({_next.name})" if count(_windows) > 1

_frozen_then := [freeze.name | some freeze in _freezes; schedule.includes(freeze, _next.time)]

_nevertheless := "" if count(_frozen_then) == 0

_nevertheless := $", which is during freeze {concat(", ", _frozen_then)}" if count(_frozen_then) > 0

_lasts(freeze) := $"lasts until {schedule.end(freeze, _now)}" if schedule.end(freeze, _now) != null

_lasts(freeze) := "does not end within two weeks" if schedule.end(freeze, _now) == null

_until(freeze) := "wait until then; " if schedule.end(freeze, _now) != null

_until(freeze) := "" if schedule.end(freeze, _now) == null

_patience := "wait until then; " if _opens

_patience := "" if not _opens

_opens if {
	count(_openings) > 0
	count(_frozen_then) == 0
}

_step := $"{_named}: {operations.command(input.request.object.spec)} is not allowed" if _operation

_step := $"{_named}: deletion is not allowed" if "Delete" in _actions

_step := $"{_named}: cannot scale from {_replicas(input.request.oldObject)} to {_replicas(input.request.object)}" if "ScaleDown" in _actions

_step := $"{_named}: changes are not allowed" if {
	"Change" in _actions
	not "ScaleDown" in _actions
}

_named := $"{_details.kind} {_details.name}"

_details := {"group": "sallyport.dev", "kind": "VirtualMachine", "name": input.request.object.spec.virtualMachineName} if _operation

_details := {"group": input.request.resource.group, "kind": _stored.kind, "name": _stored.metadata.name} if not _operation

_once := $"to override this policy once: {_command}"

_command := override.command("windows", input.request, _stored.metadata) if not _operation

_command := concat(" ", [
	"kubectl sallyport", operations.command(input.request.object.spec), shell.word(_details.name),
	"-n", shell.word(input.request.namespace), `--override "windows: REASON"`,
]) if {
	_operation
}

# What the rules rely on besides types.

_known if {
	_operation
	operations.known(input.request.object.spec)
	_known_machine
}

_known if {
	_scale
	_known_parent
}

_known if {
	_whole
	input.request.operation == "DELETE"
	_known_object
}

_known if {
	_whole
	input.request.operation == "UPDATE"
	input.request.object.metadata.name != ""
	_known_object
}

# Subresources other than scale, and what the rules do not judge.
_known if {
	not _operation
	not _scale
	not _whole
}

_known if {
	_whole
	input.request.operation == "CREATE"
}

_known_machine if input.facts.machine == null

_known_machine if input.facts.machine.metadata.name == input.request.object.spec.virtualMachineName

_known_object if {
	input.request.oldObject.kind != ""
	input.request.oldObject.metadata.name != ""
}

# If the object does not exist any more, the API server reports that.
_known_parent if input.facts.parent == null

_known_parent if {
	input.facts.parent.kind != ""
	input.facts.parent.metadata.name != ""
}
