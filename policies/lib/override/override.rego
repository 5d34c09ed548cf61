# METADATA
# title: The command that overrides a policy
# description: Policies put it into their messages, for users who hold the verb override on the policy.
package sallyport.lib.override

import data.sallyport.lib.shell

# METADATA
# description: >-
#   The command that overrides the policy for half an hour for an existing object. Request is the denied request, metadata that of the object.
command(policy, request, metadata) := concat(" ", array.concat(
	["kubectl sallyport override", policy, shell.word(resource(request.resource)), shell.word(metadata.name)],
	array.concat(_namespace(request), [`--reason "..."`]),
))

# METADATA
# description: A resource in kubectl's notation, such as deployments.apps.
resource(of) := of.resource if of.group == ""

resource(of) := $"{of.resource}.{of.group}" if of.group != ""

_namespace(request) := [$"-n {shell.word(request.namespace)}"] if within(request)

_namespace(request) := [] if not within(request)

# METADATA
# description: >-
#   Whether the requested object is in a namespace. A request for a Namespace has the name of the Namespace in its field namespace.
within(request) if {
	object.get(request, "namespace", "") != ""
	not _of_namespaces(request)
}

_of_namespaces(request) if {
	request.resource.group == ""
	request.resource.resource == "namespaces"
}
