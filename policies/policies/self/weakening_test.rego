package sallyport.policies.self_test

import data.sallyport.policies.self as policy

_of(operations, resources) := {"apiGroups": ["apps"], "apiVersions": ["v1", "v1beta1"], "resources": resources, "operations": operations}

_matching(resources) := {"match": {"resources": resources}}

_condition(name, expression) := {"name": name, "expression": expression}

_mode_of(team, mode) := {"namespaceSelector": {"matchLabels": {"team": team}}, "mode": mode}

_modes(list) := {"namespaceModes": list}

# Changes of a shipped policy, and what weakens it. Each is a valid input for every requester.
_edits := {
	"stricter": {"old": {"mode": "Audit", "onError": "Allow", "override": "Everybody"}, "new": {"mode": "Warn", "onError": "Deny", "override": "Nobody"}, "said": []},
	"to Warn": {"old": {"mode": "Enforce"}, "new": {"mode": "Warn"}, "said": ["spec.mode from Enforce to Warn"]},
	"from Warn to Audit": {"old": {"mode": "Warn"}, "new": {"mode": "Audit"}, "said": ["spec.mode from Warn to Audit"]},
	"defaults count": {"old": {}, "new": {"mode": "Warn", "onError": "Allow", "override": "Everybody"}, "said": [
		"spec.mode from Enforce to Warn", "spec.onError from Deny to Allow", "spec.override from Users to Everybody",
	]},
	"to a default": {"old": {"override": "Nobody"}, "new": {}, "said": ["spec.override from Nobody to Users"]},
	"other than by enforcement": {"old": {"timeoutMilliseconds": 7}, "new": {"parameters": {"x": 1}, "backgroundAudit": "Enabled"}, "said": []},
	"an exemption": {"old": {}, "new": _modes([_mode_of("a", "Warn")]), "said": ["spec.namespaceModes[0] is Warn for namespaces that may have had Enforce"]},
	"a stricter place": {"old": {"mode": "Audit"}, "new": object.union({"mode": "Audit"}, _modes([_mode_of("a", "Enforce"), _mode_of("b", "Audit")])), "said": []},
	"a stricter place that is gone": {
		"old": object.union({"mode": "Audit"}, _modes([_mode_of("a", "Enforce")])), "new": {"mode": "Audit"},
		"said": ["spec.namespaceModes[0] (Enforce) is removed, and its namespaces may get Audit"],
	},
	"an exemption that is gone": {"old": _modes([_mode_of("a", "Audit")]), "new": {}, "said": []},
	"an entry that gets looser": {
		"old": _modes([_mode_of("a", "Enforce"), _mode_of("b", "Warn")]), "new": _modes([_mode_of("a", "Enforce"), _mode_of("b", "Audit")]),
		"said": ["spec.namespaceModes[1] from Warn to Audit"],
	},
	"an entry that gets stricter": {
		"old": object.union({"mode": "Audit"}, _modes([_mode_of("a", "Warn")])), "new": object.union({"mode": "Audit"}, _modes([_mode_of("a", "Enforce")])),
		"said": [],
	},
	"an entry before another": {
		"old": _modes([_mode_of("b", "Warn")]), "new": _modes([_mode_of("a", "Audit"), _mode_of("b", "Warn")]),
		"said": ["spec.namespaceModes[0] is Audit for namespaces that may have had Enforce", "spec.namespaceModes[0] (Warn) is removed, and its namespaces may get Audit", "spec.namespaceModes[1] is Warn for namespaces that may have had Enforce"],
	},
	"an entry after another": {
		"old": _modes([_mode_of("b", "Warn")]), "new": _modes([_mode_of("b", "Warn"), _mode_of("a", "Enforce")]), "said": [],
	},
	"another order": {
		"old": _modes([_mode_of("a", "Enforce"), _mode_of("b", "Audit")]), "new": _modes([_mode_of("b", "Audit"), _mode_of("a", "Enforce")]),
		"said": [
			"spec.namespaceModes[0] is Audit for namespaces that may have had Enforce",
			"spec.namespaceModes[0] (Enforce) is removed, and its namespaces may get Audit",
		],
	},
	"more resources": {"old": _matching([_of(["CREATE"], ["deployments"])]), "new": _matching([_of(["CREATE", "UPDATE"], ["deployments", "pods"])]), "said": []},
	"an operation less": {
		"old": _matching([_of(["CREATE", "UPDATE"], ["deployments", "pods"])]), "new": _matching([_of(["CREATE"], ["deployments", "pods"])]),
		"said": ["spec.match.resources: no single entry covers CREATE, UPDATE of deployments, pods any longer"],
	},
	"a resource less": {
		"old": _matching([_of(["CREATE"], ["deployments", "pods"])]), "new": _matching([_of(["CREATE"], ["pods"])]),
		"said": ["spec.match.resources: no single entry covers CREATE of deployments, pods any longer"],
	},
	"a version less": {
		"old": _matching([_of(["CREATE"], ["pods"])]), "new": _matching([object.union(_of(["CREATE"], ["pods"]), {"apiVersions": ["v1"]})]),
		"said": ["spec.match.resources: no single entry covers CREATE of pods any longer"],
	},
	"an entry less": {
		"old": _matching([_of(["CREATE"], ["pods"]), _of(["UPDATE"], ["pods"])]), "new": _matching([_of(["UPDATE"], ["pods"])]),
		"said": ["spec.match.resources: no single entry covers CREATE of pods any longer"],
	},
	"two entries made one": {
		"old": _matching([_of(["CREATE"], ["pods"]), _of(["UPDATE"], ["pods"])]), "new": _matching([_of(["CREATE", "UPDATE"], ["pods"])]), "said": [],
	},
	"wildcards": {
		"old": _matching([_of(["CREATE"], ["pods"])]),
		"new": _matching([{"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"], "operations": ["CREATE"]}]), "said": [],
	},
	"a wildcard less": {
		"old": _matching([_of(["CREATE"], ["*"])]), "new": _matching([_of(["CREATE"], ["pods"])]),
		"said": ["spec.match.resources: no single entry covers CREATE of * any longer"],
	},
	"wildcards of subresources": {
		"old": _matching([_of(["CREATE"], ["pods/eviction", "*/scale"])]), "new": _matching([_of(["CREATE"], ["pods/*", "*/scale"])]), "said": [],
	},
	"a wildcard of one subresource": {"old": _matching([_of(["UPDATE"], ["pods/scale"])]), "new": _matching([_of(["UPDATE"], ["*/scale"])]), "said": []},
	"a wildcard that is not about subresources": {
		"old": _matching([_of(["CREATE"], ["pods/eviction"])]), "new": _matching([_of(["CREATE"], ["*"])]),
		"said": ["spec.match.resources: no single entry covers CREATE of pods/eviction any longer"],
	},
	"other namespaces": {
		"old": {"match": {"namespaceSelector": {"matchLabels": {"a": "b"}}}}, "new": {"match": {"namespaceSelector": {"matchLabels": {"a": "c"}}}},
		"said": ["spec.match.namespaceSelector selects different namespaces"],
	},
	"some namespaces only": {
		"old": {}, "new": {"match": {"namespaceSelector": {"matchLabels": {"a": "c"}}}}, "said": ["spec.match.namespaceSelector selects different namespaces"],
	},
	"all namespaces": {"old": {"match": {"namespaceSelector": {"matchLabels": {"a": "b"}}}}, "new": {"match": {"namespaceSelector": {}}}, "said": []},
	"some objects only": {
		"old": {}, "new": {"match": {"objectSelector": {"matchLabels": {"a": "c"}}}}, "said": ["spec.match.objectSelector selects different objects"],
	},
	"all objects": {"old": {"match": {"objectSelector": {"matchLabels": {"a": "b"}}}}, "new": {"match": {"objectSelector": {}}}, "said": []},
	"a condition": {
		"old": {"match": {"conditions": [_condition("a", "true")]}},
		"new": {"match": {"conditions": [_condition("c", "x"), _condition("a", "true"), _condition("b", "x")]}},
		"said": ["spec.match.conditions adds or changes b, c"],
	},
	"another condition": {
		"old": {"match": {"conditions": [_condition("a", "true"), _condition("b", "x")]}},
		"new": {"match": {"conditions": [_condition("a", "false"), _condition("b", "x")]}},
		"said": ["spec.match.conditions adds or changes a"],
	},
	"a condition less": {
		"old": {"match": {"conditions": [_condition("a", "true"), _condition("b", "x")]}},
		"new": {"match": {"conditions": [_condition("b", "x")]}}, "said": [],
	},
	"exclusions": {
		"old": {"match": {"excludeUsers": ["a"]}}, "new": {"match": {"excludeUsers": ["b", "a", "c"], "excludeGroups": ["g"], "excludeNamespaces": ["n"]}},
		"said": [
			"spec.match.excludeGroups adds g", "spec.match.excludeNamespaces adds n", "spec.match.excludeUsers adds b, c",
		],
	},
	"exempt": {
		"old": {"parametersSchema": _exempting, "parameters": {"exempt": {"users": ["a"]}, "rows": [{"users": ["a"]}], "free": 1}},
		"new": {"parametersSchema": _exempting, "parameters": {"exempt": {"users": ["b", "a", "c"]}, "rows": [{"users": ["a", "b"]}], "free": 2}},
		"said": ["spec.parameters.exempt.users adds \"b\", \"c\"", "spec.parameters.rows adds {\"users\":[\"a\",\"b\"]}"],
	},
	"exempt, the first": {
		"old": {"parametersSchema": _exempting},
		"new": {"parametersSchema": _exempting, "parameters": {"exempt": {"users": ["a"]}}},
		"said": ["spec.parameters.exempt.users adds \"a\""],
	},
	"no more exempt": {
		"old": {"parametersSchema": _exempting, "parameters": {"exempt": {"users": ["a", "b"]}, "rows": [{}]}},
		"new": {"parametersSchema": _exempting, "parameters": {"exempt": {"users": ["b"]}}}, "said": [],
	},
	"needed": {
		"old": {"parametersSchema": _exempting, "parameters": {"needed": ["a", "b"], "kinds": {"x": {"path": "a"}, "y": {}}}},
		"new": {"parametersSchema": _exempting, "parameters": {"needed": ["b", "c"], "kinds": {"x": {"path": "b"}, "y": {}, "z": {}}}},
		"said": ["spec.parameters.kinds removes {\"x\":{\"path\":\"a\"}}", "spec.parameters.needed removes \"a\""],
	},
	"a single one": {
		"old": {"parametersSchema": _exempting, "parameters": {"who": "a"}},
		"new": {"parametersSchema": _exempting, "parameters": {"who": "b"}},
		"said": ["spec.parameters.who adds \"b\""],
	},
	"the schema says no more of it": {
		"old": {"parametersSchema": _exempting, "parameters": {"exempt": {"users": ["a"]}}},
		"new": {"parametersSchema": json.remove(_exempting, ["properties/exempt"]), "parameters": {"exempt": {"users": ["a", "b"]}}},
		"said": [
			"spec.parameters.exempt.users adds \"b\"",
			"spec.parametersSchema no longer has x-sallyport-weakens: Added for exempt.users",
		],
	},
	"the schema says more": {
		"old": {"parameters": {"exempt": {"users": ["a"]}}},
		"new": {"parametersSchema": _exempting, "parameters": {"exempt": {"users": ["a", "b"]}}}, "said": [],
	},
	"other Rego of a policy that reads Pods": {
		"old": {"modules": _rego("a"), "reads": [_pods, _machines]}, "new": {"modules": _rego("b"), "reads": [_pods, _machines]},
		"said": ["spec.modules of a policy that reads v1/Pod"],
	},
	"a policy that begins to read Pods": {
		"old": {"modules": _rego("a")}, "new": {"modules": _rego("a"), "reads": [_pods, _machines]}, "said": ["spec.reads adds v1/Pod"],
	},
	"a policy that reads Pods no longer": {
		"old": {"modules": _rego("a"), "reads": [_pods]}, "new": {"modules": _rego("b"), "reads": [_machines]}, "said": [],
	},
	"other Rego of this policy": {
		"old": {"package": "sallyport.policies.self", "modules": _rego("a")},
		"new": {"package": "sallyport.policies.self", "modules": _rego("b")},
		"said": ["spec.modules of the policy that checks policies"],
	},
	"other Rego of a policy that reads machines": {
		"old": {"modules": _rego("a"), "reads": [_machines]}, "new": {"modules": _rego("b"), "reads": [_machines]}, "said": [],
	},
	"exclusions that are gone": {"old": {"match": {"excludeUsers": ["a"], "excludeGroups": ["g"]}}, "new": {"match": {"excludeGroups": []}}, "said": []},
}

_pods := {"apiVersion": "v1", "kind": "Pod", "freshness": "Live"}

_machines := {"apiVersion": "sallyport.dev/v1alpha1", "kind": "VirtualMachine"}

_rego(source) := [{"name": "a.rego", "source": source}]

_reserving := {"reserved": ["v1/Pod", "v1/Service"]}

# Parameters, with what weakens the policy.
_exempting := {"type": "object", "properties": {
	"exempt": {"type": "object", "properties": {"users": {"type": "array", "x-sallyport-weakens": "Added"}}},
	"rows": {"type": "array", "x-sallyport-weakens": "Added"},
	"needed": {"type": "array", "x-sallyport-weakens": "Removed"},
	"kinds": {"type": "object", "x-sallyport-weakens": "Removed"},
	"who": {"type": "string", "x-sallyport-weakens": "Added"},
	"free": {"type": "integer"},
}}

_weakened(said) := {concat("", [
	"RegoPolicy team-quota: this change is not allowed because it would weaken a policy that is shipped with Sallyport ",
	$"({concat("; ", sort(said))}); ", _grant,
])} if count(said) > 0

_weakened([]) := set()

_plain := object.remove(_spec, ["mode", "onError", "override"])

test_weakening[note] if {
	some note, edit in _edits
	request := _update(_shipped(object.union(_plain, edit.old)), _shipped(object.union(_plain, edit.new)))
	{_text(denial) | some denial in policy.deny} == _weakened(edit.said) with input as {"request": request, "facts": _facts(_tested(request), _asked(edit.said))}
		with data.parameters as _reserving
	policy.valid_input with input as {"request": request, "facts": _facts(_tested(request), _asked(edit.said))}
		with data.parameters as _reserving
}

_asked(said) := false if count(said) > 0

_asked([]) := null

_tested(request) := null if {
	question := policy.facts.testRun with input.request as request
	question == null
}

_tested(request) := _found({}) if {
	question := policy.facts.testRun with input.request as request
	question != null
}

# A policy that is not shipped may be weakened.
test_what_is_not_shipped_is_not_judged[note] if {
	some note, edit in _edits
	request := _update(_object(object.union(_plain, edit.old)), _object(object.union(_plain, edit.new)))
	_verdict == "allow" with input as {"request": request, "facts": _facts(_tested(request), null)}
}

test_a_shipped_policy_stays_one if {
	taken_off := _update(_shipped(_spec), _object(_spec))
	other := _update(_shipped(_spec), object.union(_shipped(_spec), {"metadata": {"labels": {"sallyport.dev/shipped": "false"}}}))
	every request in [taken_off, other] {
		{_text(denial) | some denial in policy.deny} == _weakened(["label sallyport.dev/shipped is removed"]) with input as {
			"request": request, "facts": _facts(null, false),
		}
	}
	_verdict == "allow" with input as {"request": _update(_object(_spec), _shipped(_spec)), "facts": _facts(null, null)}
}

test_a_shipped_policy_does_not_become_a_library if {
	request := _update(_shipped(_spec), _shipped(_library))
	said := [
		"spec.library makes it a library, which is never evaluated",
		"spec.match.resources: no single entry covers CREATE of deployments any longer",
	]
	{_text(denial) | some denial in policy.deny} == _weakened(said) with input as {"request": request, "facts": _facts(_found({}), false)}
}

_relied_on(what, effect) := {{
	"reason": "Indispensable",
	"message": $"RegoPolicy team-quota: {what} is not allowed",
	"cause": $"other policies rely on what it writes{effect}",
	"remedy": concat("", [
		"the verb override on the RegoPolicy does not allow it either; in an emergency, to override ",
		"policies-self once: kubectl sallyport override policies-self regopolicies.sallyport.dev team-quota --reason \"...\"",
	]),
	"details": {"group": "sallyport.dev", "kind": "RegoPolicy", "name": "team-quota", "field": "spec"},
}}

_weakens(said) := $", and the change would weaken it ({concat("; ", sort(said))})"

_weaker := {note: edit |
	some note, edit in _edits
	count(edit.said) > 0
}

# Every change that weakens, for every requester.
test_what_is_relied_on_is_not_weakened[note] if {
	some note, edit in _weaker
	request := _update(_shipped(object.union(_plain, edit.old)), _shipped(object.union(_plain, edit.new)))
	every right in [true, false] {
		policy.deny == _relied_on("this change", _weakens(edit.said)) with input as {"request": request, "facts": _facts(_tested(request), right)}
			with data.parameters as object.union(_reserving, {"indispensable": ["other", "team-quota"]})
	}
}

test_what_is_relied_on_can_be_edited[note] if {
	some note, edit in object.remove(_edits, object.keys(_weaker))
	request := _update(_shipped(object.union(_plain, edit.old)), _shipped(object.union(_plain, edit.new)))
	_verdict == "allow" with input as {"request": request, "facts": _facts(_tested(request), null)}
		with data.parameters as {"indispensable": ["team-quota"]}
}

test_what_is_relied_on_is_not_deleted if {
	every right in [true, false] {
		policy.deny == _relied_on("deletion", "") with input as {"request": _delete(_shipped(_spec)), "facts": _facts(null, right)}
			with data.parameters as {"indispensable": ["team-quota"]}
	}
	_verdict == "allow" with input as {"request": _delete(_shipped(_spec)), "facts": _facts(null, true)}
		with data.parameters as {"indispensable": ["other"]}
	_verdict == "allow" with input as {"request": _delete(_object(_spec)), "facts": _facts(null, null)}
		with data.parameters as {"indispensable": ["team-quota"]}
}
