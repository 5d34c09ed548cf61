# METADATA
# title: Not too many toys
# description: |
#   A namespace has as many toys as <most> says.
#   They are *counted*, but for `*-test`.
#
#   What is being deleted does not count.
# related_resources:
# - {ref: https://example.com/toys, description: The rules of the house}
# - https://example.com/more
package toys.quota

import data.sallyport.lib.toys

# METADATA
# title: The toys of the namespace
# description: Oldest first | newest last.
facts.toys := {
	"apiVersion": "v1", "kind": "Pod", "namespace": input.request.namespace,
	"fields": {"spec.owner": input.request.userInfo.username},
	"labels": {"toy": "yes"},
	"except": {"spec.nodeName": ["gone"]},
}

facts.toys := null if input.request.operation == "DELETE"

# METADATA
# title: Its namespace
facts.namespace := {"apiVersion": "v1", "kind": "Namespace", "name": input.request.namespace, "freshness": "live"}

facts.parent := {"parent": true}

facts.right := {"access": {"verb": "use", "group": "", "resource": "toys", "name": "a"}} if input.request.name == "a"

facts.right := {"access": {"verb": "play", "group": "", "resource": "toys", "name": "b"}} if input.request.name == "b"

facts.question := _question

_question := {"apiVersion": "v1", "kind": "Pod"}

valid_input if {
	is_string(input.request.namespace)
	is_array(input.facts.toys)
	is_object(input.facts.namespace)
	is_object(input.facts.parent)
	is_boolean(input.facts.right)
	is_array(input.facts.question)
}

# METADATA
# title: The table can be read
# description: most is a number
valid_parameters if is_number(data.parameters.most)

# METADATA
# title: There are too many toys
# description: >-
#   More than data.parameters.most.
# custom:
#   reason: TooMany
#   remedy: Give one away, or ask for `*more*`!
deny contains {
	"reason": "TooMany", "code": 409,
	"message": $"there are {count(input.facts.toys)} toys",
	"details": {"field": "metadata.name"},
} if {
	count(input.facts.toys) > data.parameters.most
}

# METADATA
# title: There is no such toy
# custom: {reason: Unknown, remedy: Name another one}
deny contains {"reason": "Unknown", "code": _code, "message": "no such toy"} if not _known

_known if toys.known(input.request.object)

_code := 422

# METADATA
# title: Too many of one kind
# custom: {reason: TooMany, remedy: "Choose another kind."}
deny contains {"reason": "TooMany", "message": "too many of one kind"} if count(input.facts.question) > 9

# METADATA
# title: One more will be too many
# description: It says so before.
warn contains "one more, and it is enough" if count(input.facts.toys) == data.parameters.most

warn contains $"toy `{input.request.name}` is old" if input.request.name == "bear"

# METADATA
# title: Every toy has a label
patch contains {"op": "add", "path": "/metadata/labels/toy", "value": "yes"} if input.request.operation == "CREATE"

patch contains {"op": "remove", "path": $"/metadata/labels/{name}"} if {
	some name, value in input.request.object.metadata.labels
	value == ""
}

# METADATA
# title: Toys that make room
outcome.supersedes contains toy.metadata.name if some toy in input.facts.toys

outcome.supersedes_origins contains "late" if count(input.facts.toys) > 7
