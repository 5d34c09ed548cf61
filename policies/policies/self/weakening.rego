# Changes that weaken a policy: it would allow requests that it denies now.
package sallyport.policies.self

# The values of each field from strict to loose, and the defaults of the API.
_rank := {
	"mode": {"Enforce": 0, "Warn": 1, "Audit": 2},
	"onError": {"Deny": 0, "Allow": 1},
	"failurePolicy": {"Fail": 0, "Ignore": 1},
	"override": {"Nobody": 0, "Users": 1, "Everybody": 2},
}

_default := {"mode": "Enforce", "onError": "Deny", "failurePolicy": "Fail", "override": "Users"}

_value(spec, field) := object.get(spec, field, _default[field])

_weakens if {
	input.request.operation == "UPDATE"
	_shipped
}

_weakenings contains $"spec.{field} from {_value(_old, field)} to {_value(_new, field)}" if {
	_weakens
	some field, rank in _rank
	rank[_value(_new, field)] > rank[_value(_old, field)]
}

_weakenings contains $"spec.namespaceModes[{i}] from {before.mode} to {after.mode}" if {
	_weakens
	some i, before in _modes(_old)
	i < _alike
	after := _modes(_new)[i]
	_rank.mode[after.mode] > _rank.mode[before.mode]
}

# From the first different selector on, entries may select any namespace. So no entry may be looser than the strictest mode that any
# namespace may have had.
_weakenings contains $"spec.namespaceModes[{i}] is {entry.mode} for namespaces that may have had {_named(least)}" if {
	_weakens
	some i, entry in _modes(_new)
	i >= _alike
	least := min(_ranks_from(_old, _alike))
	_rank.mode[entry.mode] > least
}

_weakenings contains $"spec.namespaceModes[{i}] ({entry.mode}) is removed, and its namespaces may get {_named(most)}" if {
	_weakens
	some i, entry in _modes(_old)
	i >= _alike
	most := max(_ranks_from(_new, _alike))
	_rank.mode[entry.mode] < most
}

# The number of leading entries that select the same namespaces before and after.
_alike := min({i |
	some i, before in _modes(_old)
	before.namespaceSelector != _modes(_new)[i].namespaceSelector
} | {count(_modes(_old)), count(_modes(_new))})

_modes(spec) := object.get(spec, "namespaceModes", [])

_ranks_from(spec, start) := {_rank.mode[_value(spec, "mode")]} | {_rank.mode[entry.mode] |
	some i, entry in _modes(spec)
	i >= start
}

_named(rank) := [mode | some mode, r in _rank.mode; r == rank][0]

_weakenings contains $"spec.match.resources: no single entry covers {concat(", ", entry.operations)} of {concat(", ", entry.resources)} any longer" if {
	_weakens
	some entry in _match(_old).resources
	every other in _match(_new).resources { _lacks(other, entry) }
}

_lacks(other, entry) if {
	some field in ["apiGroups", "apiVersions", "operations"]
	covering := {value | some value in other[field]}
	count({"*"} & covering) == 0
	count({value | some value in entry[field]} - covering) > 0
}

_lacks(other, entry) if {
	has := {candidate | some candidate in other.resources}
	some resource in entry.resources
	count(_covering(resource) & has) == 0
}

# As in webhook configurations, a wildcard without a slash does not match subresources.
_covering(resource) := {resource, "*", "*/*"} if not contains(resource, "/")

_covering(resource) := {resource, $"{parts[0]}/*", $"*/{parts[1]}", "*/*"} if {
	contains(resource, "/")
	parts := split(resource, "/")
}

_weakenings contains $"spec.match.{field} selects different {selected}" if {
	_weakens
	some field, selected in _selecting
	after := _selector(_new, field)
	after != _selector(_old, field)
	after != {}
}

# Every additional condition excludes requests, and a changed condition may exclude any request.
_weakenings contains $"spec.match.conditions adds or changes {concat(", ", added)}" if {
	_weakens
	added := {condition.name | some condition in (_conditions(_new) - _conditions(_old))}
	count(added) > 0
}

_weakenings contains $"spec.match.{field} adds {concat(", ", added)}" if {
	_weakens
	some field in ["excludeNamespaces", "excludeUsers", "excludeGroups"]
	added := _excluded(_new, field) - _excluded(_old, field)
	count(added) > 0
}

_weakenings contains "spec.library makes it a library, which is never evaluated" if {
	_weakens
	object.get(_new, "library", false) == true
	object.get(_old, "library", false) == false
}

# The stored schema marks the parameters that weaken the policy if entries are added or removed. Removing such a mark also weakens the
# policy.
_weakenings contains $"spec.parameters.{marked.path} adds {_told(added)}" if {
	_weakens
	some marked in _marked(_old)
	marked.weakens == "Added"
	added := _entries(_new, marked) - _entries(_old, marked)
	count(added) > 0
}

_weakenings contains $"spec.parameters.{marked.path} removes {_told(removed)}" if {
	_weakens
	some marked in _marked(_old)
	marked.weakens == "Removed"
	removed := _entries(_old, marked) - _entries(_new, marked)
	count(removed) > 0
}

_weakenings contains $"spec.parametersSchema no longer has x-sallyport-weakens: {marked.weakens} for {marked.path}" if {
	_weakens
	some marked in (_marked(_old) - _marked(_new))
}

_marked(spec) := {{"path": concat(".", keys), "keys": keys, "weakens": value} |
	walk(_parameters_schema(spec), [path, value])
	path[count(path) - 1] == "x-sallyport-weakens"
	keys := [key | some i, key in path; i % 2 == 1]
}

_parameters_schema(spec) := object.get(spec, "parametersSchema", {})

_parameters(spec) := object.get(spec, "parameters", {})

_entries(spec, marked) := _each(object.get(_parameters(spec), marked.keys, []))

_each(value) := {entry | some entry in value} if is_array(value)

_each(value) := {{key: entry} | some key, entry in value} if is_object(value)

_each(value) := {value} if type_name(value) in {"string", "number", "boolean", "null"}

_told(entries) := concat(", ", sort([json.marshal(entry) | some entry in entries]))

_weakenings contains "label sallyport.dev/shipped is removed" if {
	_weakens
	not input.request.object.metadata.labels["sallyport.dev/shipped"] == "true"
}

# The chart lets a shipped policy read kinds that other policies may not read. With other Rego it could show its author more of them.
_weakenings contains $"spec.modules of a policy that reads {concat(", ", sort(_reserved(_new)))}" if {
	_weakens
	_old.modules != _new.modules
	count(_reserved(_new)) > 0
}

# With other Rego, this policy could allow everything that is denied here.
_weakenings contains "spec.modules of the policy that checks policies" if {
	_weakens
	_old.modules != _new.modules
	_old.package == "sallyport.policies.self"
}

_weakenings contains $"spec.reads adds {concat(", ", sort(added))}" if {
	_weakens
	added := _reserved(_new) - _reserved(_old)
	count(added) > 0
}

_reserved(spec) := {kind |
	some read in object.get(spec, "reads", [])
	kind := $"{read.apiVersion}/{read.kind}"
	kind in data.parameters.reserved
}

_match(spec) := object.get(spec, "match", {"resources": []})

_selecting := {"namespaceSelector": "namespaces", "objectSelector": "objects"}

_selector(spec, field) := object.get(_match(spec), field, {})

_conditions(spec) := {condition | some condition in object.get(_match(spec), "conditions", [])}

_excluded(spec, field) := {value | some value in object.get(_match(spec), field, [])}

_known_enforcement(spec) if {
	every field, rank in _rank { rank[_value(spec, field)] >= 0 }
	every entry in _modes(spec) { _known_mode(entry) }
	_match(spec).resources
	every condition in _conditions(spec) { condition.name }
	is_object(_parameters(spec))
	is_object(_parameters_schema(spec))
}

_known_mode(entry) if {
	entry.namespaceSelector
	_rank.mode[entry.mode] >= 0
}
