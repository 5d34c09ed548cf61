# METADATA
# title: Policies that can be relied on
# description: >-
#   A RegoPolicy is stored only if it compiles, keeps to the contract, takes its parameters and passes its own tests, and if
#   no policy that works would break. What does not change the text of a policy is stored at once, also if the policy is
#   broken. To weaken or delete a policy that is shipped with Sallyport takes the verb override on it.
package sallyport.policies.self

# METADATA
# title: What would become of the policy
# description: It is compiled among the others and its tests are run, where the text changes; else only what that leaves.
facts["rehearsal"] := {"rehearsal": _document} if _document

facts["rehearsal"] := null if not _document

# METADATA
# title: Whether the requester may override the policy that is written
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
	_known_rehearsal
	_known_override
}

# METADATA
# title: The policy does not compile
# custom:
#   reason: CompileFailed
#   remedyInMessage: Mend what the message names by file, line and column; `sallyport policy check` says the same of files.
deny contains {
	"reason": "CompileFailed",
	"code": 422,
	"message": $"RegoPolicy {_name} does not compile:{_separator("CompileFailed")}{_listed("CompileFailed")}",
	"details": _about(_name, "spec.modules"),
} if {
	"CompileFailed" in _kinds
}

# METADATA
# title: The policy does not keep to the contract
# description: It compiles, but could fail silently, or asks for what no policy gets.
# custom:
#   reason: ContractBroken
#   remedyInMessage: Write it as docs/policies.md says; `sallyport policy check` says the same of files.
deny contains {
	"reason": "ContractBroken",
	"code": 422,
	"message": $"RegoPolicy {_name} does not keep to the contract:{_separator("ContractBroken")}{_listed("ContractBroken")}",
	"details": _about(_name, "spec.modules"),
} if {
	"ContractBroken" in _kinds
}

# METADATA
# title: The API server would not ask the policy
# description: It would refuse the webhook that spec.match makes, or what that names is never asked about.
# custom:
#   reason: NotRegistrable
#   remedy: Correct the field of spec.match that the message names; `sallyport policy check` says the same of files.
deny contains {
	"reason": "NotRegistrable",
	"code": 422,
	"message": $"the API server would not ask RegoPolicy {_name}:{_separator("NotRegistrable")}{_listed("NotRegistrable")}",
	"details": _about(_name, "spec.match"),
} if {
	"NotRegistrable" in _kinds
}

# METADATA
# title: The parameters are not what the policy takes
# description: By spec.parametersSchema, or by the policy's own rule valid_parameters.
# custom:
#   reason: ParametersInvalid
#   remedyInMessage: Correct the field that the message names.
deny contains {
	"reason": "ParametersInvalid",
	"code": 422,
	"message": $"the parameters of RegoPolicy {_name} are not valid:{_separator("ParametersInvalid")}{_listed("ParametersInvalid")}",
	"details": _about(_name, "spec.parameters"),
} if {
	"ParametersInvalid" in _kinds
}

# METADATA
# title: The library has names that another one has
# custom:
#   reason: LibraryConflict
#   remedyInMessage: Use another package, or another name for the rule that the message names.
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
#   remedyInMessage: Add a rule test_... to a module of spec.tests, in the policy's package with _test appended.
deny contains {
	"reason": "TestsMissing",
	"code": 422,
	"message": $"RegoPolicy {_name} has no tests: spec.tests needs a module in package {_package}_test with a rule test_... that passes",
	"details": _about(_name, "spec.tests"),
} if {
	_tested
	"TestsMissing" in _kinds
}

# METADATA
# title: A test of the policy fails
# custom:
#   reason: TestsFailed
#   remedyInMessage: Mend the rule, or the test that forbids it; `sallyport policy test` runs the tests of files.
deny contains {
	"reason": "TestsFailed",
	"code": 422,
	"message": $"{_failures}:\n{_failed}",
	"details": _about(_name, "spec.tests"),
} if {
	_tested
	count(input.facts.rehearsal.tests.failed) > 0
}

# METADATA
# title: The policy takes too long, or too much memory
# custom:
#   reason: LimitExceeded
#   remedyInMessage: Write it, or the test that the message names, so that it takes less; try again if nothing but the cluster was slow.
deny contains {
	"reason": "LimitExceeded",
	"message": $"RegoPolicy {_name}:{_separator("LimitExceeded")}{_listed("LimitExceeded")}",
	"details": _about(_name, "spec.tests"),
} if {
	"LimitExceeded" in _kinds
}

# METADATA
# title: The policy would patch what is not granted
# description: >-
#   Whoever patches what others write acts with their rights. So an administrator grants what policies may patch, and some kinds
#   nobody can grant. It is held against whoever writes the patch rules, or what they are for.
# custom:
#   reason: PatchNotGranted
#   remedy: Have the administrator run the command in the message, or split the policy so that what patches matches only what is granted.
deny contains {
	"reason": "PatchNotGranted",
	"message": $"RegoPolicy {_name} has patch rules and matches what it may not patch: {concat("; ", input.facts.rehearsal.unpatchable)}",
	"details": _about(_name, "spec.match.resources"),
} if {
	count(input.facts.rehearsal.unpatchable) > 0
	_patches_anew
}

# METADATA
# title: Another policy would break
# description: It is in order now, and would not compile, or would fail its tests, with the library as it is written or gone.
# custom:
#   reason: BreaksPolicy
#   remedyInMessage: Leave in the library what the policy needs, change the policy, and take it out of the library then.
deny contains {
	"reason": "BreaksPolicy",
	"message": $"RegoPolicy {broken.policy}, which imports {_name}, would break: {broken.message}",
	"details": _about(broken.policy, "spec.modules"),
} if {
	some broken in input.facts.rehearsal.breaks
}

# METADATA
# title: A shipped policy would be weakened
# custom:
#   reason: Weakened
#   remedyInMessage: Ask a cluster administrator for the verb override on the RegoPolicy; the message has the command.
deny contains {
	"reason": "Weakened",
	"message": $"RegoPolicy {_name} is shipped with Sallyport, and this would weaken it: {concat("; ", _weakenings)}. {_permission}",
	"details": _about(_name, "spec"),
} if {
	count(_weakenings) > 0
	not _indispensable
	not _may_override
}

# METADATA
# title: A shipped policy would be deleted
# custom:
#   reason: Deleted
#   remedyInMessage: Switch it off in the values of the Helm chart, or ask for the verb override; the message has the command.
deny contains {
	"reason": "Deleted",
	"message": $"RegoPolicy {_name} is shipped with Sallyport, which would put it back; values of the chart switch it off (policies.{_name}.enabled). {_permission}",
	"details": _about(_name, ""),
} if {
	_deletes_shipped
	not _indispensable
	not _may_override
}

# METADATA
# title: A policy that others rely on would be weakened
# description: >-
#   It refuses nothing, and writes what is relied on. Where it is not asked, or fails and refuses nothing, a request would pass
#   with what the client wrote in its place. So no right lets anybody weaken or delete it.
# custom:
#   reason: Indispensable
#   remedyInMessage: Leave it as it is; in an emergency an override of policies-self lets one write pass.
deny contains {
	"reason": "Indispensable",
	"message": $"RegoPolicy {_name} writes what is relied on, and no right lets anybody {_undoing}. In an emergency the annotation sallyport.dev/override lets this one write pass policies-self",
	"details": _about(_name, "spec"),
} if {
	_answerable_for
	_indispensable
}

# METADATA
# title: A library is missing
# description: The policy is stored, and decides nothing until the library is there.
warn contains $"RegoPolicy {_name} refers to {_missing}, which no library has: it cannot be used, and its tests cannot run, until one does" if {
	count(input.facts.rehearsal.missing) > 0
}

# METADATA
# title: The cluster does not have what the policy is about
# description: The policy is stored. It is not asked about what is missing until that is there.
warn contains $"RegoPolicy {_name} is not asked about everything that it names: {unserved}" if {
	some unserved in input.facts.rehearsal.unserved
}

# METADATA
# title: Sallyport may not read what the policy reads
# description: The policy is stored, and decides as before until the right is granted; a new one follows its onError.
warn contains concat("", [
	$"Sallyport may not {concat(" and ", _ungranted)}, which RegoPolicy {_name} reads: ",
	$"as it is now it decides nothing until that is granted. To grant it, run: {input.facts.rehearsal.grant}",
]) if {
	count(_ungranted) > 0
}

# METADATA
# title: There was no time for the tests of all policies that import the library
warn contains $"there was no time for the tests of {_untested}, which import {_name}; status condition TestsPassed will show what becomes of them" if {
	count(input.facts.rehearsal.untested) > 0
}

_ungranted := [$"{concat(", ", right.verbs)} {right.resource}" | some right in input.facts.rehearsal.ungranted]

_patches_anew if _tested

_patches_anew if _match(_old).resources != _match(_new).resources

# What is to be looked at: everything, or what else than the tests could be wrong, or what is matched.
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

# Tests do not see parameters, and facts that they ask for come from nowhere.
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

# Answers.

_kinds contains problem.kind if some problem in input.facts.rehearsal.problems

_listed(kind) := concat("\n", [_line(problem) |
	some problem in input.facts.rehearsal.problems
	problem.kind == kind
])

# Several problems begin on a line of their own.
_separator(kind) := " " if count(split(_listed(kind), "\n")) == 1

_separator(kind) := "\n" if count(split(_listed(kind), "\n")) > 1

_line(problem) := $"{problem.file}:{problem.line}:{problem.column}: {problem.message}" if problem.line

_line(problem) := $"{problem.file}: {problem.message}" if {
	not problem.line
	problem.file != _name
}

# The message names the policy already.
_line(problem) := problem.message if {
	not problem.line
	problem.file == _name
}

_failures := $"a test of RegoPolicy {_name} fails" if input.facts.rehearsal.tests.failures == 1

_failures := $"{input.facts.rehearsal.tests.failures} tests of RegoPolicy {_name} fail" if input.facts.rehearsal.tests.failures != 1

_failed := concat("\n", array.concat(
	[_failure(test) | some test in input.facts.rehearsal.tests.failed],
	[$"and {more} more" |
		more := input.facts.rehearsal.tests.failures - count(input.facts.rehearsal.tests.failed)
		more > 0
	],
))

_failure(test) := $"{test.place}: {test.name}: {test.problem}{_rows(test)}{_output(test)}"

_rows(test) := "" if count(test.cases) == 0

_rows(test) := $" in the rows {concat(", ", [json.marshal(row) | some row in test.cases])}" if count(test.cases) > 0

_output(test) := "" if trim_space(test.output) == ""

_output(test) := $"\n    {concat("\n    ", split(trim_space(test.output), "\n"))}" if trim_space(test.output) != ""

_missing := concat(", ", input.facts.rehearsal.missing)

_untested := concat(", ", input.facts.rehearsal.untested)

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

_undoing := "delete it" if _deletes_shipped

_undoing := $"weaken it: {concat("; ", _weakenings)}" if not _deletes_shipped

_permission := concat("", [
	$"It takes the verb override on it, which {input.request.userInfo.username} does not hold and a cluster administrator grants so: ",
	$"kubectl create clusterrole override-{_name} --verb=override --resource=regopolicies.sallyport.dev --resource-name={_name} && ",
	$"kubectl create clusterrolebinding override-{_name} --clusterrole=override-{_name} --user={input.request.userInfo.username}",
])

# What the API server lets through by its schema is known; these are of the types that the rules above need.
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
	_text(object_.metadata.name)
	labels := object.get(object_.metadata, "labels", {})
	every value in labels { is_string(value) }
	_text(object_.spec["package"])
	is_boolean(object.get(object_.spec, "library", false))
	_known_enforcement(object_.spec)
}

_list(of, field) := list if {
	is_object(of)
	list := object.get(of, field, [])
	is_array(list)
}

_known_rehearsal if {
	not _document
	input.facts.rehearsal == null
}

_known_rehearsal if {
	_document
	found := input.facts.rehearsal
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
