package sallyport.policies.self_test

import data.sallyport.policies.self as policy

# The text of a denial, as the user sees it.
_text(denial) := concat("", [concat("", [mark, denial[key]]) | some [key, mark] in [["message", ""], ["cause", " because "], ["remedy", "; "]]])

_spec := {
	"package": "team.quota", "library": false, "mode": "Enforce", "onError": "Deny", "override": "Users",
	"match": {"resources": [{"apiGroups": ["apps"], "apiVersions": ["*"], "resources": ["deployments"], "operations": ["CREATE"]}]},
	"modules": [{"name": "quota.rego", "source": "a"}], "tests": [{"name": "quota_test.rego", "source": "b"}],
	"parameters": {"most": 5},
}

_library := {"package": "sallyport.lib.quota", "library": true, "modules": [{"name": "quota.rego", "source": "a"}], "tests": []}

_object(spec) := {"metadata": {"name": "team-quota"}, "spec": spec}

_shipped(spec) := {"metadata": {"name": "team-quota", "labels": {"sallyport.dev/shipped": "true"}}, "spec": spec}

_alice := {"username": "alice"}

_create(spec) := {"operation": "CREATE", "userInfo": _alice, "object": _object(spec), "oldObject": null}

_update(before, after) := {"operation": "UPDATE", "userInfo": _alice, "object": after, "oldObject": before}

_delete(object_) := {"operation": "DELETE", "userInfo": _alice, "object": null, "oldObject": object_}

_edit(change) := _update(_object(_spec), _object(object.union(_spec, change)))

_found(more) := object.union(
	{"problems": [], "tests": {"passed": 3, "failures": 0, "failed": []}, "breaks": [], "missing": [], "untested": [], "unserved": [], "took": "5ms"},
	more,
)

_wrong(problems) := _found({"problems": problems, "tests": {"passed": 0}})

_facts(test_run, override) := {"testRun": test_run, "override": override}

# The verdict about a request. An invalid input is never allowed.
_verdict := "not understood" if not policy.valid_input

_verdict := concat(", ", sort([denial.reason | some denial in policy.deny])) if {
	policy.valid_input
	count(policy.deny) > 0
}

_verdict := "allow" if {
	policy.valid_input
	count(policy.deny) == 0
}

_messages := concat("; ", [_text(denial) | some denial in policy.deny])

# The facts that are asked for, by what the request changes.
_questions := {
	"a new policy": {"request": _create(_spec), "testRun": {"testRun": _object(_spec)}},
	"a new library": {"request": _create(_library), "testRun": {"testRun": _object(_library)}},
	"other modules": {
		"request": _edit({"modules": []}),
		"testRun": {"testRun": _object(object.union(_spec, {"modules": []}))},
	},
	"other tests": {
		"request": _edit({"tests": []}),
		"testRun": {"testRun": _object(object.union(_spec, {"tests": []}))},
	},
	"another package, and parameters": {
		"request": _edit({"package": "team.limit", "parameters": {"most": 6}}),
		"testRun": {"testRun": _object(object.union(_spec, {"package": "team.limit", "parameters": {"most": 6}}))},
	},
	"no tests any more": {
		"request": _update(_object(_spec), _object(object.remove(_spec, ["tests"]))),
		"testRun": {"testRun": _object(object.remove(_spec, ["tests"]))},
	},
	"a library that becomes a policy": {
		"request": _update(_object(_library), _object(_spec)),
		"testRun": {"testRun": _object(_spec)},
	},
	"other parameters: tests do not see them": {
		"request": _edit({"parameters": {"most": 6}}),
		"testRun": {"testRun": _object(object.remove(object.union(_spec, {"parameters": {"most": 6}}), ["tests"]))},
	},
	"a schema": {
		"request": _edit({"parametersSchema": {"type": "object"}}),
		"testRun": {"testRun": _object(object.remove(object.union(_spec, {"parametersSchema": {"type": "object"}}), ["tests"]))},
	},
	"other reads, and namespaces": {
		"request": _edit({"reads": [{"apiVersion": "v1", "kind": "Pod"}], "match": {"namespaceSelector": {"matchLabels": {"a": "b"}}}}),
		"testRun": {"testRun": _object(object.remove(
			object.union(_spec, {"reads": [{"apiVersion": "v1", "kind": "Pod"}], "match": {"namespaceSelector": {"matchLabels": {"a": "b"}}}}),
			["tests"],
		))},
	},
	"other namespaces: what else is wrong does not matter": {
		"request": _edit({"match": {"excludeNamespaces": ["x"]}, "mode": "Audit"}),
		"testRun": {"testRun": {"metadata": {"name": "team-quota"}, "spec": {"match": object.union(_spec.match, {"excludeNamespaces": ["x"]})}}},
	},
	"modes by namespace": {
		"request": _edit({"namespaceModes": [{"namespaceSelector": {}, "mode": "Warn"}]}),
		"testRun": {"testRun": {
			"metadata": {"name": "team-quota"},
			"spec": {"match": _spec.match, "namespaceModes": [{"namespaceSelector": {}, "mode": "Warn"}]},
		}},
	},
	"a library that goes": {"request": _delete(_object(_library)), "testRun": {"testRun": {"deleted": "team-quota"}}},
	"another mode": {"request": _edit({"mode": "Audit"}), "testRun": null},
	"another answer to errors": {"request": _edit({"onError": "Allow", "timeoutMilliseconds": 7, "backgroundAudit": "Enabled"}), "testRun": null},
	"labels only": {"request": _update(_object(_spec), _shipped(_spec)), "testRun": null},
	"nothing": {"request": _update(_object(_library), _object(_library)), "testRun": null},
	"a policy that goes": {"request": _delete(_object(_spec)), "testRun": null},
}

test_what_is_tested[note] if {
	some note, question in _questions
	policy.facts == _facts(question.testRun, null) with input.request as question.request
}

_access := {"access": {"verb": "override", "group": "sallyport.dev", "resource": "regopolicies", "name": "team-quota"}}

test_the_right_is_asked_about_when_it_is_needed if {
	policy.facts == _facts(null, _access) with input.request as _delete(_shipped(_spec))
	policy.facts == _facts({"testRun": {"deleted": "team-quota"}}, _access) with input.request as _delete(_shipped(_library))
	policy.facts == _facts(null, _access) with input.request as _update(_shipped(_spec), _shipped(object.union(_spec, {"mode": "Warn"})))
	policy.facts == _facts(null, null) with input.request as _update(_shipped(_spec), _shipped(_spec))
}

_compile(line, message) := {"kind": "CompileFailed", "file": "team-quota/quota.rego", "line": line, "column": 2, "message": message}

_whole(kind, message) := {"kind": kind, "file": "team-quota", "message": message}

_test(more) := object.union({"name": "team.quota_test.test_most", "place": "team-quota/quota_test.rego:7", "cases": [], "problem": "failed", "output": ""}, more)

_failing(tests, failures) := _found({"tests": {"failures": failures, "failed": tests}})

# Findings about a new policy, with the denial and its message.
_findings := {
	"one that does not compile": {
		"found": _wrong([_compile(3, "var x is unsafe")]), "reason": "CompileFailed", "field": "spec.modules", "code": 422,
		"message": "RegoPolicy team-quota does not compile: team-quota/quota.rego:3:2: var x is unsafe",
	},
	"two places": {
		"found": _wrong([_compile(3, "var x is unsafe"), _compile(5, "unexpected eof")]), "reason": "CompileFailed", "field": "spec.modules", "code": 422,
		"message": "RegoPolicy team-quota does not compile:\nteam-quota/quota.rego:3:2: var x is unsafe\nteam-quota/quota.rego:5:2: unexpected eof",
	},
	"a broken contract": {
		"found": _wrong([_whole("ContractBroken", "no rule valid_input")]), "reason": "ContractBroken", "field": "spec.modules", "code": 422,
		"message": "RegoPolicy team-quota violates the policy contract: no rule valid_input",
	},
	"a file as a whole": {
		"found": _wrong([object.union(_whole("CompileFailed", "empty module"), {"file": "team-quota/quota.rego"})]), "reason": "CompileFailed", "field": "spec.modules", "code": 422,
		"message": "RegoPolicy team-quota does not compile: team-quota/quota.rego: empty module",
	},
	"a wrong table": {
		"found": _wrong([_whole("ParametersInvalid", "spec.parameters.most: Required value")]), "reason": "ParametersInvalid", "field": "spec.parameters", "code": 422,
		"message": "RegoPolicy team-quota has invalid parameters: spec.parameters.most: Required value",
	},
	"a name that is taken": {
		"found": _wrong([_whole("LibraryConflict", "package x is also in library y")]), "reason": "LibraryConflict", "field": "spec.modules", "code": 422,
		"message": "RegoPolicy team-quota: package x is also in library y",
	},
	"no tests": {
		"found": _wrong([_whole("TestsMissing", "there is no rule test_...")]), "reason": "TestsMissing", "field": "spec.tests", "code": 422,
		"message": "spec.tests: RegoPolicy team-quota has no tests",
		"remedy": "add a module in package team.quota_test with a rule test_... that passes",
	},
	"what the API server would not ask": {
		"found": _wrong([_whole("NotRegistrable", "spec.match.excludeNamespaces[0]: no name")]), "reason": "NotRegistrable", "field": "spec.match", "code": 422,
		"message": "RegoPolicy team-quota cannot be registered with the API server: spec.match.excludeNamespaces[0]: no name",
	},
	"a limit": {
		"found": _wrong([_whole("LimitExceeded", "its test run did not end within 3.5s")]), "reason": "LimitExceeded", "field": "spec.tests", "code": 403,
		"message": "RegoPolicy team-quota: its test run did not end within 3.5s",
	},
	"a test that fails": {
		"found": _failing([_test({})], 1), "reason": "TestsFailed", "field": "spec.tests", "code": 422,
		"message": "1 test of RegoPolicy team-quota failed:\nteam-quota/quota_test.rego:7: team.quota_test.test_most: failed",
	},
	"rows that fail, with what they print": {
		"found": _failing([_test({"cases": ["one", "a \"b\""], "output": "seen 1\nseen 2\n"})], 1), "reason": "TestsFailed", "field": "spec.tests", "code": 422,
		"message": concat("\n", [
			"1 test of RegoPolicy team-quota failed:",
			`team-quota/quota_test.rego:7: team.quota_test.test_most: failed in cases "one", "a \"b\""`,
			"    seen 1",
			"    seen 2",
		]),
	},
	"more tests than are shown": {
		"found": _failing([_test({}), _test({"problem": "boom"})], 9), "reason": "TestsFailed", "field": "spec.tests", "code": 422,
		"message": concat("\n", [
			"9 tests of RegoPolicy team-quota failed:",
			"team-quota/quota_test.rego:7: team.quota_test.test_most: failed",
			"team-quota/quota_test.rego:7: team.quota_test.test_most: boom",
			"and 7 more",
		]),
	},
}

# 403 is the default.
_coded(403) := {}

_coded(422) := {"code": 422}

test_findings[note] if {
	some note, finding in _findings
	policy.deny == {object.union_n([
		object.filter(finding, ["reason", "message", "remedy"]), _coded(finding.code),
		{"details": {"group": "sallyport.dev", "kind": "RegoPolicy", "name": "team-quota", "field": finding.field}},
	])} with input as {"request": _create(_spec), "facts": _facts(finding.found, null)}
	_verdict == finding.reason with input as {"request": _create(_spec), "facts": _facts(finding.found, null)}
}

test_what_is_in_order_passes if {
	_verdict == "allow" with input as {"request": _create(_spec), "facts": _facts(_found({}), null)}
	_verdict == "allow" with input as {"request": _create(_library), "facts": _facts(_found({}), null)}
	_verdict == "allow" with input as {"request": _edit({"mode": "Audit"}), "facts": _facts(null, null)}
	_verdict == "allow" with input as {"request": _delete(_object(_spec)), "facts": _facts(null, null)}
	_verdict == "allow" with input as {"request": _delete(_object(_library)), "facts": _facts(_found({}), null)}
}

# A change is denied only for what it changes.
test_tests_are_not_held_against_other_parameters if {
	nothing := _wrong([_whole("TestsMissing", "there is no rule test_...")])
	_verdict == "allow" with input as {"request": _edit({"parameters": {"most": 6}}), "facts": _facts(nothing, null)}
	_verdict == "ParametersInvalid" with input as {
		"request": _edit({"parameters": {"most": "six"}}),
		"facts": _facts(_wrong([_whole("ParametersInvalid", "spec.parameters.most: Invalid value")]), null),
	}
}

test_policies_that_would_break if {
	found := _found({"breaks": [{"policy": "a", "message": "a/a.rego:3:1: undefined function f"}, {"policy": "b", "message": "its tests would fail"}]})
	every request in [_create(_library), _delete(_object(_library))] {
		policy.deny == {
			{
				"reason": "BreaksPolicy", "message": "RegoPolicy a imports team-quota and would break: a/a.rego:3:1: undefined function f",
				"details": {"group": "sallyport.dev", "kind": "RegoPolicy", "name": "a", "field": "spec.modules"},
			},
			{
				"reason": "BreaksPolicy", "message": "RegoPolicy b imports team-quota and would break: its tests would fail",
				"details": {"group": "sallyport.dev", "kind": "RegoPolicy", "name": "b", "field": "spec.modules"},
			},
		} with input as {"request": request, "facts": _facts(found, null)}
	}
}

test_a_library_may_come_later if {
	given := {"request": _create(_spec), "facts": _facts(_found({"missing": ["sallyport.lib.a", "sallyport.lib.b.f"]}), null)}
	_verdict == "allow" with input as given
	policy.warn == {concat("", [
		"RegoPolicy team-quota has unresolved library references: sallyport.lib.a, sallyport.lib.b.f; ",
		"the policy is not used, and its tests do not run, until a library provides them",
	])} with input as given
}

test_what_the_cluster_does_not_have if {
	given := {"request": _create(_spec), "facts": _facts(_found({"unserved": ["spec.match.resources[0].resources[0]: there is no deployment.apps"]}), null)}
	_verdict == "allow" with input as given
	policy.warn == {"RegoPolicy team-quota is not evaluated for every resource that it matches: spec.match.resources[0].resources[0]: there is no deployment.apps"} with input as given
}

test_tests_of_others_that_there_was_no_time_for if {
	given := {"request": _create(_library), "facts": _facts(_found({"untested": ["a", "b"]}), null)}
	_verdict == "allow" with input as given
	policy.warn == {concat("", [
		"tests did not finish in time for policies that import team-quota: a, b; ",
		"their condition TestsPassed will show the result",
	])} with input as given
}

# A patch acts with the rights of the user who writes the object.
_unpatchable := _found({"unpatchable": ["spec.match.resources[0].resources[0], secrets: no policy may patch it", "b"]})

_roles := {"resources": [object.union(_spec.match.resources[0], {"resources": ["clusterroles"]})]}

test_patches_that_are_not_granted if {
	every request in [_create(_spec), _edit({"modules": []}), _edit({"match": _roles})] {
		policy.deny == {{
			"reason": "PatchNotGranted",
			"message": concat("", [
				"RegoPolicy team-quota has patch rules, and matches resources that it may not patch: ",
				"spec.match.resources[0].resources[0], secrets: no policy may patch it; b",
			]),
			"details": {"group": "sallyport.dev", "kind": "RegoPolicy", "name": "team-quota", "field": "spec.match.resources"},
		}} with input as {"request": request, "facts": _facts(_unpatchable, null)}
	}
}

# Narrowing the match of a policy does not require a grant.
test_patches_that_are_not_granted_any_more if {
	every request in [_edit({"parameters": {"most": 6}}), _edit({"match": object.union(_spec.match, {"excludeUsers": ["x"]})})] {
		_verdict == "allow" with input as {"request": request, "facts": _facts(_unpatchable, null)}
	}
}

test_reads_that_are_not_granted if {
	rights := [{"resource": "deployments.apps", "verbs": ["get", "list"]}, {"resource": "pods", "verbs": ["watch"]}]
	given := {"request": _create(_spec), "facts": _facts(_found({"ungranted": rights, "grant": "helm upgrade gate"}), null)}
	_verdict == "allow" with input as given
	policy.warn == {concat("", [
		"RegoPolicy team-quota is not used in this version until Sallyport is allowed to get, list deployments.apps and watch pods; ",
		"to grant access, run: helm upgrade gate",
	])} with input as given
}

_grant := concat("", [
	"this requires the verb override on the RegoPolicy, which user alice does not have; ",
	"a cluster administrator can grant it with: ",
	"kubectl create clusterrole override-team-quota --verb=override --resource=regopolicies.sallyport.dev --resource-name=team-quota && ",
	"kubectl create clusterrolebinding override-team-quota --clusterrole=override-team-quota --user=alice",
])

test_shipped_policies_are_deleted_by_those_who_may if {
	request := _delete(_shipped(_spec))
	_verdict == "allow" with input as {"request": request, "facts": _facts(null, true)}
	policy.deny == {{
		"reason": "Deleted",
		"message": "RegoPolicy team-quota: deletion is not allowed",
		"cause": "Sallyport ships the policy and would restore it",
		"remedy": $"to disable it, set policies.team-quota.enabled to false in the values of the Helm chart; {_grant}",
		"details": {"group": "sallyport.dev", "kind": "RegoPolicy", "name": "team-quota", "field": ""},
	}} with input as {"request": request, "facts": _facts(null, false)}
}

test_shipped_policies_are_weakened_by_those_who_may if {
	request := _update(_shipped(_spec), _shipped(object.union(_spec, {"mode": "Audit", "onError": "Allow"})))
	_verdict == "allow" with input as {"request": request, "facts": _facts(null, true)}
	policy.deny == {{
		"reason": "Weakened",
		"message": "RegoPolicy team-quota: this change is not allowed",
		"cause": concat("", [
			"it would weaken a policy that is shipped with Sallyport ",
			"(spec.mode from Enforce to Audit; spec.onError from Deny to Allow)",
		]),
		"remedy": _grant,
		"details": {"group": "sallyport.dev", "kind": "RegoPolicy", "name": "team-quota", "field": "spec"},
	}} with input as {"request": request, "facts": _facts(null, false)}
}

# The verb override allows weakening a policy, but not storing a broken one.
test_the_right_does_not_excuse_a_broken_policy if {
	request := _update(_shipped(_spec), _shipped(object.union(_spec, {"mode": "Audit", "modules": []})))
	broken := _wrong([_compile(3, "var x is unsafe")])
	_verdict == "CompileFailed" with input as {"request": request, "facts": _facts(broken, true)}
	_verdict == "CompileFailed, Weakened" with input as {"request": request, "facts": _facts(broken, false)}
}

# Wrong types in the answer of a test run.
_odd := {
	"null": null, "empty": "", "a number": 7, "a list": [], "an object": {}, "true": true, "unknown": "Bogus",
	"a list of numbers": [7],
}

_edited := {
	"request": _update(_shipped(_full), _shipped(object.union(_full, {"modules": []}))),
	"facts": _facts(_found({"problems": []}), null),
}

_full := object.union(_spec, {"namespaceModes": [], "match": {"namespaceSelector": {}, "excludeNamespaces": [], "excludeUsers": [], "excludeGroups": []}})

# The document with another value at the path, replaced through JSON text: "a/b" becomes {"a": {"b": value}}.
_replaced(document, path, value) := object.union(document, json.unmarshal(concat("", [
	concat("", [$"\{{json.marshal(key)}:" | some key in split(path, "/")]),
	json.marshal(value),
	concat("", ["}" | some _ in split(path, "/")]),
])))

# Each path, and which of the values are valid there.
_places := {
	"facts/testRun": ["an object"],
	"facts/testRun/problems": ["a list"],
	"facts/testRun/breaks": ["a list"],
	"facts/testRun/missing": ["a list"],
	"facts/testRun/untested": ["a list"],
	"facts/testRun/unserved": ["a list"],
	"facts/testRun/unpatchable": ["a list"],
	"facts/testRun/ungranted": ["a list"],
	"facts/testRun/tests": ["an object"],
	"facts/testRun/tests/failures": ["a number"],
	"facts/testRun/tests/failed": ["a list"],
}

test_a_good_edit_of_many_fields_is_understood if _verdict == "allow" with input as _edited

test_not_understood_places[note] if {
	some path, harmless in _places
	some what, value in _odd
	not what in harmless
	note := $"{path} {what}"
	_verdict == "not understood" with input as _replaced(_edited, path, value)
}

test_not_understood_values[note] if {
	some [path, value] in [
		["request/operation", "CONNECT"], ["request/object/metadata/name", ""], ["request/object/spec/package", ""],
		["request/object/spec/mode", "Bogus"], ["request/object/spec/onError", ""], ["request/object/spec/override", "Bogus"],
		["request/oldObject/metadata/name", ""], ["request/oldObject/spec/mode", "Bogus"], ["request/object/spec/parameters", []],
		["request/object/spec/parametersSchema", "Bogus"],
	]
	note := $"{path} {value}"
	_verdict == "not understood" with input as _replaced(_edited, path, value)
}

test_not_understood_without[path] if {
	some path in [
		"request/operation", "request/object", "request/object/metadata", "request/object/metadata/name", "request/object/spec",
		"request/object/spec/package", "request/object/spec/match/resources", "request/oldObject", "request/oldObject/spec",
		"facts/testRun", "facts/testRun/tests", "facts/testRun/tests/failures", "facts/override", "facts",
	]
	_verdict == "not understood" with input as json.remove(_edited, [path])
}

# Elements of lists, with each wrong type, and which of the values are valid there.
_elements := {
	"facts/testRun/problems": [],
	"facts/testRun/breaks": [],
	"facts/testRun/missing": ["unknown"],
	"facts/testRun/untested": ["unknown"],
	"facts/testRun/unserved": ["unknown"],
	"facts/testRun/unpatchable": ["unknown"],
	"facts/testRun/ungranted": [],
	"facts/testRun/tests/failed": [],
}

test_not_understood_elements[note] if {
	some path, harmless in _elements
	some what, value in _odd
	not what in harmless
	note := $"{path} {what}"
	_verdict == "not understood" with input as _replaced(_edited, path, [value])
}

_members := {
	"a mode that is none": {"path": "request/object/spec/namespaceModes", "value": {"namespaceSelector": {}, "mode": "Bogus"}},
	"a mode without a selector": {"path": "request/object/spec/namespaceModes", "value": {"mode": "Warn"}},
	"a condition without a name": {"path": "request/object/spec/match/conditions", "value": {"expression": "true"}},
	"a problem of no kind": {"path": "facts/testRun/problems", "value": {"message": "m"}},
	"a break of nobody": {"path": "facts/testRun/breaks", "value": {"message": "m"}},
	"a test without a problem": {"path": "facts/testRun/tests/failed", "value": object.remove(_test({}), ["problem"])},
	"a test with a number for output": {"path": "facts/testRun/tests/failed", "value": _test({"output": 7})},
	"a test with a text for rows": {"path": "facts/testRun/tests/failed", "value": _test({"cases": "x"})},
}

test_not_understood_members[note] if {
	some note, member in _members
	_verdict == "not understood" with input as _replaced(_edited, member.path, [member.value])
}

# Facts that were not asked for, or missing facts.
_answers := {
	"a test run that nobody asked for": {"request": _edit({"mode": "Audit"}), "facts": _facts(_found({}), null)},
	"a right that nobody asked for": {"request": _edit({"mode": "Audit"}), "facts": _facts(null, true)},
	"no test run": {"request": _edit({"modules": []}), "facts": _facts(null, null)},
	"no right": {"request": _delete(_shipped(_spec)), "facts": _facts(null, null)},
	"no right, but a text": {"request": _delete(_shipped(_spec)), "facts": _facts(null, "true")},
	"an object that is gone and was none": {"request": _delete(null), "facts": _facts(null, null)},
	"a connection": {"request": object.union(_create(_spec), {"operation": "CONNECT"}), "facts": _facts(null, null)},
}

test_not_understood_answers[note] if {
	some note, given in _answers
	_verdict == "not understood" with input as given
}
