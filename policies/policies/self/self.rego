# METADATA
# title: Changes of RegoPolicies
# description: >-
#   Allows a RegoPolicy only if it compiles, follows the policy contract, has valid parameters, passes its own tests, and does not
#   break another policy that works. A change that does not affect the Rego of a policy is stored without these checks, even if the
#   policy is broken. Weakening or deleting a policy that is shipped with Sallyport requires the verb override on it.
package sallyport.policies.self

import data.sallyport.lib.shell

# METADATA
# title: The effect of the change
# description: >-
#   If the Rego changes, Sallyport compiles the policy together with the others and runs its tests. Otherwise it checks only what
#   the change affects.
facts.testRun := {"testRun": _document} if _document

facts.testRun := null if not _document

# METADATA
# title: Whether the requester holds the verb override on the RegoPolicy
facts["override"] := {"access": {
	"verb": "override",
	"group": "sallyport.dev",
	"resource": "regopolicies",
	"name": _name,
}} if {
	_answerable_for
}

facts["override"] := null if not _answerable_for

valid_input if {
	_known_objects
	_known_test_run
	_known_override
}

# METADATA
# title: The policy does not compile
# custom:
#   reason: CompileFailed
#   remedyInMessage: Fix the problems at the file, line and column in the message. `sallyport policy check` checks files locally.
deny contains {
	"reason": "CompileFailed",
	"code": 422,
	"message": $"RegoPolicy {_name} does not compile:{_separator("CompileFailed")}{_listed("CompileFailed")}",
	"details": _about(_name, "spec.modules"),
} if {
	"CompileFailed" in _kinds
}

# METADATA
# title: The policy violates the policy contract
# description: The policy compiles, but it could fail silently, or it asks for facts that no policy may read.
# custom:
#   reason: ContractBroken
#   remedyInMessage: Follow the contract in docs/policies.md. `sallyport policy check` checks files locally.
deny contains {
	"reason": "ContractBroken",
	"code": 422,
	"message": $"RegoPolicy {_name} violates the policy contract:{_separator("ContractBroken")}{_listed("ContractBroken")}",
	"details": _about(_name, "spec.modules"),
} if {
	"ContractBroken" in _kinds
}

# METADATA
# title: The policy cannot be registered with the API server
# description: >-
#   The API server would reject the webhook that spec.match describes, or never calls webhooks for a resource in it.
# custom:
#   reason: NotRegistrable
#   remedy: Correct the field of spec.match in the message. `sallyport policy check` checks files locally.
deny contains {
	"reason": "NotRegistrable",
	"code": 422,
	"message": $"RegoPolicy {_name} cannot be registered with the API server:{_separator("NotRegistrable")}{_listed("NotRegistrable")}",
	"details": _about(_name, "spec.match"),
} if {
	"NotRegistrable" in _kinds
}

# METADATA
# title: The parameters are not valid
# description: They do not match spec.parametersSchema, or the policy's rule valid_parameters rejects them.
# custom:
#   reason: ParametersInvalid
#   remedyInMessage: Correct the field in the message.
deny contains {
	"reason": "ParametersInvalid",
	"code": 422,
	"message": $"RegoPolicy {_name} has invalid parameters:{_separator("ParametersInvalid")}{_listed("ParametersInvalid")}",
	"details": _about(_name, "spec.parameters"),
} if {
	"ParametersInvalid" in _kinds
}

# METADATA
# title: The library conflicts with another library
# custom:
#   reason: LibraryConflict
#   remedyInMessage: Use another package, or rename the rule in the message.
deny contains {
	"reason": "LibraryConflict",
	"code": 422,
	"message": $"RegoPolicy {_name}:{_separator("LibraryConflict")}{_listed("LibraryConflict")}",
	"details": _about(_name, "spec.modules"),
} if {
	"LibraryConflict" in _kinds
}

# METADATA
# title: The policy has no tests
# custom:
#   reason: TestsMissing
#   remedyInMessage: Add a rule test_... to a module of spec.tests, in the package of the policy with the suffix _test.
deny contains {
	"reason": "TestsMissing",
	"code": 422,
	"message": $"spec.tests: RegoPolicy {_name} has no tests",
	"remedy": $"add a module in package {_package}_test with a rule test_... that passes",
	"details": _about(_name, "spec.tests"),
} if {
	_tested
	"TestsMissing" in _kinds
}

# METADATA
# title: Tests of the policy fail
# custom:
#   reason: TestsFailed
#   remedyInMessage: Fix the rule or the test. `sallyport policy test` runs the tests of files locally.
deny contains {
	"reason": "TestsFailed",
	"code": 422,
	"message": $"{_failures}:\n{_failed}",
	"details": _about(_name, "spec.tests"),
} if {
	_tested
	count(input.facts.testRun.tests.failed) > 0
}

# METADATA
# title: The policy needs too much time or memory
# custom:
#   reason: LimitExceeded
#   remedyInMessage: Make the policy, or the test in the message, cheaper. If only the cluster was slow, try again.
deny contains {
	"reason": "LimitExceeded",
	"message": $"RegoPolicy {_name}:{_separator("LimitExceeded")}{_listed("LimitExceeded")}",
	"details": _about(_name, "spec.tests"),
} if {
	"LimitExceeded" in _kinds
}

# METADATA
# title: The policy has patch rules for resources that it may not patch
# description: >-
#   A patch acts with the rights of the user who writes the object. So an administrator grants the resources that policies may
#   patch, and some kinds cannot be granted. The policy checks requests that change the patch rules or spec.match.resources.
# custom:
#   reason: PatchNotGranted
#   remedy: >-
#     Ask an administrator to run the command in the message, or move the patch rules to a policy that matches only granted resources.
deny contains {
	"reason": "PatchNotGranted",
	"message": $"RegoPolicy {_name} has patch rules, and matches resources that it may not patch: {concat("; ", input.facts.testRun.unpatchable)}",
	"details": _about(_name, "spec.match.resources"),
} if {
	count(input.facts.testRun.unpatchable) > 0
	_patches_anew
}

# METADATA
# title: Another policy would break
# description: The other policy works now. With the changed or deleted library, it would not compile, or its tests would fail.
# custom:
#   reason: BreaksPolicy
#   remedyInMessage: Keep what the other policy needs in the library, change that policy first, and then change the library.
deny contains {
	"reason": "BreaksPolicy",
	"message": $"RegoPolicy {broken.policy} imports {_name} and would break: {broken.message}",
	"details": _about(broken.policy, "spec.modules"),
} if {
	some broken in input.facts.testRun.breaks
}

# METADATA
# title: The request would weaken a shipped policy
# custom:
#   reason: Weakened
#   remedyInMessage: Ask a cluster administrator to run the command in the message, which grants the verb override on the RegoPolicy.
deny contains {
	"reason": "Weakened",
	"message": $"RegoPolicy {_name}: this change is not allowed",
	"cause": $"it would weaken a policy that is shipped with Sallyport ({concat("; ", _weakenings)})",
	"remedy": $"{_permission}",
	"details": _about(_name, "spec"),
} if {
	count(_weakenings) > 0
	not _indispensable
	not _may_override
}

# METADATA
# title: The request would delete a shipped policy
# custom:
#   reason: Deleted
#   remedyInMessage: >-
#     Disable the policy in the values of the Helm chart, or ask a cluster administrator to grant the verb override on the RegoPolicy
#     with the command in the message.
deny contains {
	"reason": "Deleted",
	"message": $"RegoPolicy {_name}: deletion is not allowed",
	"cause": "Sallyport ships the policy and would restore it",
	"remedy": $"to disable it, set policies.{_name}.enabled to false in the values of the Helm chart; {_permission}",
	"details": _about(_name, ""),
} if {
	_deletes_shipped
	not _indispensable
	not _may_override
}

# METADATA
# title: Other policies rely on the policy
# description: >-
#   The policy denies nothing, but other policies rely on the values that it writes. If it were not evaluated, or failed without
#   denying the request, a request would be allowed with values that the client wrote. So the policy cannot be weakened or
#   deleted, not even with the verb override on it.
# custom:
#   reason: Indispensable
#   remedyInMessage: Keep the policy unchanged. In an emergency, override policies-self once with the command in the message.
deny contains {
	"reason": "Indispensable",
	"message": $"RegoPolicy {_name}: {_undoing} is not allowed",
	"cause": $"{_reliance}",
	"remedy": concat("", [
		"the verb override on the RegoPolicy does not allow it either; in an emergency, to override ",
		$"policies-self once: kubectl sallyport override policies-self regopolicies.sallyport.dev {shell.word(_name)} --reason \"...\"",
	]),
	"details": _about(_name, "spec"),
} if {
	_answerable_for
	_indispensable
}

# METADATA
# title: A library is missing
# description: The policy is stored, but not used until the library exists.
warn contains concat("", [
	$"RegoPolicy {_name} has unresolved library references: {_missing}; ",
	"the policy is not used, and its tests do not run, until a library provides them",
]) if {
	count(input.facts.testRun.missing) > 0
}

# METADATA
# title: The cluster does not serve a resource that the policy matches
# description: The policy is stored. It is evaluated for the resource as soon as the API server serves it.
warn contains $"RegoPolicy {_name} is not evaluated for every resource that it matches: {unserved}" if {
	some unserved in input.facts.testRun.unserved
}

# METADATA
# title: Sallyport is not allowed to read what the policy reads
# description: >-
#   The policy is stored. Until access is granted, the previous version of the policy stays active; a new policy follows its onError.
warn contains concat("", [
	$"RegoPolicy {_name} is not used in this version until Sallyport is allowed to {concat(" and ", _ungranted)}; ",
	$"to grant access, run: {input.facts.testRun.grant}",
]) if {
	count(_ungranted) > 0
}

# METADATA
# title: Not all tests of policies that import the library finished in time
warn contains $"tests did not finish in time for policies that import {_name}: {_untested}; their condition TestsPassed will show the result" if {
	count(input.facts.testRun.untested) > 0
}

_ungranted := [$"{concat(", ", right.verbs)} {right.resource}" | some right in input.facts.testRun.ungranted]

_patches_anew if _tested

_patches_anew if _match(_old).resources != _match(_new).resources

# The part of the policy to check: all of it, all but the tests, or only what it matches.
_document := input.request.object if _tested

_document := object.union(
	object.remove(input.request.object, ["spec"]),
	{"spec": object.remove(_new, ["tests"])},
) if {
	not _tested
	_compiled
}

_document := {"metadata": {"name": _name}, "spec": object.filter(_new, ["match", "namespaceModes"])} if {
	not _tested
	not _compiled
	_matched
}

_document := {"deleted": _name} if {
	input.request.operation == "DELETE"
	_old.library == true
}

_tested if input.request.operation == "CREATE"

_tested if {
	some field in ["package", "modules", "tests", "library"]
	field in _changed
}

# Tests do not see parameters or reads, so these changes cannot affect them.
_compiled if {
	some field in ["parameters", "parametersSchema", "reads"]
	field in _changed
}

_matched if {
	object.get(_new, "library", false) == false
	some field in ["match", "namespaceModes"]
	field in _changed
}

_changed contains field if {
	input.request.operation == "UPDATE"
	some field in (object.keys(_old) | object.keys(_new))
	object.get(_old, field, null) != object.get(_new, field, null)
}

_new := input.request.object.spec

_old := input.request.oldObject.spec

_name := input.request.object.metadata.name if input.request.operation != "DELETE"

_name := input.request.oldObject.metadata.name if input.request.operation == "DELETE"

_package := _new["package"]

# Findings.

_kinds contains problem.kind if some problem in input.facts.testRun.problems

_listed(kind) := concat("\n", [_line(problem) |
	some problem in input.facts.testRun.problems
	problem.kind == kind
])

# Several problems start on a new line.
_separator(kind) := " " if count(split(_listed(kind), "\n")) == 1

_separator(kind) := "\n" if count(split(_listed(kind), "\n")) > 1

_line(problem) := $"{problem.file}:{problem.line}:{problem.column}: {problem.message}" if problem.line

_line(problem) := $"{problem.file}: {problem.message}" if {
	not problem.line
	problem.file != _name
}

# The message already names the policy.
_line(problem) := problem.message if {
	not problem.line
	problem.file == _name
}

_failures := $"1 test of RegoPolicy {_name} failed" if input.facts.testRun.tests.failures == 1

_failures := $"{input.facts.testRun.tests.failures} tests of RegoPolicy {_name} failed" if input.facts.testRun.tests.failures != 1

_failed := concat("\n", array.concat(
	[_failure(test) | some test in input.facts.testRun.tests.failed],
	[$"and {more} more" |
		more := input.facts.testRun.tests.failures - count(input.facts.testRun.tests.failed)
		more > 0
	],
))

_failure(test) := $"{test.place}: {test.name}: {test.problem}{_rows(test)}{_output(test)}"

_rows(test) := "" if count(test.cases) == 0

_rows(test) := $" in cases {concat(", ", [json.marshal(row) | some row in test.cases])}" if count(test.cases) > 0

_output(test) := "" if trim_space(test.output) == ""

_output(test) := $"\n    {concat("\n    ", split(trim_space(test.output), "\n"))}" if trim_space(test.output) != ""

_missing := concat(", ", input.facts.testRun.missing)

_untested := concat(", ", input.facts.testRun.untested)

_about(name, field) := {"group": "sallyport.dev", "kind": "RegoPolicy", "name": name, "field": field}

# Shipped policies.

_shipped if input.request.oldObject.metadata.labels["sallyport.dev/shipped"] == "true"

_deletes_shipped if {
	input.request.operation == "DELETE"
	_shipped
}

_answerable_for if _deletes_shipped

_answerable_for if count(_weakenings) > 0

_may_override if input.facts.override == true

_indispensable if _name in data.parameters.indispensable

_undoing := "deletion" if _deletes_shipped

_undoing := "this change" if not _deletes_shipped

_reliance := "other policies rely on what it writes" if _deletes_shipped

_reliance := $"other policies rely on what it writes, and the change would weaken it ({concat("; ", _weakenings)})" if not _deletes_shipped

_role := $"override-{_name}"

_permission := concat("", [
	$"this requires the verb override on the RegoPolicy, which user {input.request.userInfo.username} does not have; ",
	"a cluster administrator can grant it with: ",
	$"kubectl create clusterrole {shell.word(_role)} --verb=override --resource=regopolicies.sallyport.dev ",
	$"--resource-name={shell.word(_name)} && kubectl create clusterrolebinding {shell.word(_role)} --clusterrole={shell.word(_role)} ",
	$"--user={shell.word(input.request.userInfo.username)}",
])

_known_objects if {
	input.request.operation == "CREATE"
	_known_object(input.request.object)
}

_known_objects if {
	input.request.operation == "UPDATE"
	_known_object(input.request.object)
	_known_object(input.request.oldObject)
}

_known_objects if {
	input.request.operation == "DELETE"
	_known_object(input.request.oldObject)
}

_known_object(object_) if {
	object_.metadata.name != ""
	object_.spec["package"] != ""
	_known_enforcement(object_.spec)
}

_list(of, field) := list if {
	is_object(of)
	list := object.get(of, field, [])
	is_array(list)
}

# No schema describes the answer.
_known_test_run if {
	not _document
	input.facts.testRun == null
}

_known_test_run if {
	_document
	found := input.facts.testRun
	every problem in _list(found, "problems") { _text(problem.kind) }
	every broken in _list(found, "breaks") { _text(broken.policy) }
	every missing in _list(found, "missing") { _text(missing) }
	every untested in _list(found, "untested") { _text(untested) }
	every unserved in _list(found, "unserved") { _text(unserved) }
	every kind in _list(found, "unpatchable") { _text(kind) }
	every right in _list(found, "ungranted") { _known_right(right, found) }
	is_number(found.tests.failures)
	every test in _list(found.tests, "failed") { _known_failure(test) }
}

_known_right(right, found) if {
	_text(right.resource)
	every verb in right.verbs { _text(verb) }
	_text(found.grant)
}

_known_failure(test) if {
	_text(test.problem)
	is_string(test.output)
	is_array(test.cases)
}

_known_override if {
	not _answerable_for
	input.facts.override == null
}

_known_override if {
	_answerable_for
	is_boolean(input.facts.override)
}

_text(value) if {
	is_string(value)
	value != ""
}
