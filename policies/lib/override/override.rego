# METADATA
# title: The way past a policy, once
# description: What somebody types who holds the verb override on a policy and has a reason.
package sallyport.lib.override

# METADATA
# description: >-
#   The command that writes the override into an object that exists, for twenty minutes, for who types it. Request is the one
#   that is refused, metadata that of the object as the request has it.
command(policy, request, metadata) := concat(" ", array.concat(
	["kubectl annotate --overwrite", resource(request.resource), typed(metadata.name)],
	array.concat(_namespace(request), [quoted(policy, object.get(metadata, "uid", ""))]),
))

# METADATA
# description: A resource as kubectl is told of it, such as deployments.apps.
resource(of) := of.resource if of.group == ""

resource(of) := $"{of.resource}.{of.group}" if of.group != ""

# METADATA
# description: >-
#   A name as it can be typed. Names of some kinds may have any characters, and a message must not have a shell do what
#   somebody has called an object.
typed(name) := name if regex.match(`^[A-Za-z0-9][A-Za-z0-9:._-]*$`, name)

typed(name) := "NAME" if not regex.match(`^[A-Za-z0-9][A-Za-z0-9:._-]*$`, name)

# METADATA
# description: The annotation in double quotes, in which the shell puts who types it and the time.
quoted(policy, uid) := concat("", [
	$"\"sallyport.dev/override={policy}; uid={uid}; ",
	`by=$(kubectl auth whoami -o jsonpath={.status.userInfo.username}); `,
	`until=$(date -u -d '+20 min' +%FT%TZ); REASON"`,
])

_namespace(request) := [$"--namespace {request.namespace}"] if within(request)

_namespace(request) := [] if not within(request)

# METADATA
# description: Whether what is requested is in a namespace. A request for a Namespace has its name there, too.
within(request) if {
	object.get(request, "namespace", "") != ""
	not _of_namespaces(request)
}

_of_namespaces(request) if {
	request.resource.group == ""
	request.resource.resource == "namespaces"
}
