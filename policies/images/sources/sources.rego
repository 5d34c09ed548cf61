# METADATA
# title: Sources of VMDiskImages
# description: >-
#   The source of a VMDiskImage must be on a host in allowedHosts. It must not be on a host in forbiddenHosts, on a host without a
#   dot in its name, on a Service of the cluster that Pods know as SERVICE.NAMESPACE, on a loopback or link-local address, or on an address in
#   forbiddenRanges. The URL must not contain a user or a password. A checksum
#   must use an algorithm in checksumAlgorithms. The requester must be allowed to get the Secret with the credentials, whether or not it
#   exists. The source cannot change, so only creations are evaluated.
package sallyport.images.sources

import data.sallyport.lib.hosts
import data.sallyport.lib.shell

# METADATA
# title: Whether the requester may get the Secret
# description: Evaluated only if the request names a Secret.
facts["readable"] := {"access": {
	"verb": "get",
	"group": "",
	"resource": "secrets",
	"namespace": input.request.namespace,
	"name": _secret,
}} if {
	_secret != null
}

facts["readable"] := null if _secret == null

# METADATA
# title: The Service of the cluster that has the name in the URL
# description: Read live, because images are rarely created and Services are many.
facts["service"] := object.union(hosts.service(_spec.url), {"apiVersion": "v1", "kind": "Service", "freshness": "live"})

facts["service"] := null if not hosts.service(_spec.url)

valid_input if {
	input.request.operation == "CREATE"
	_spec.url != ""
	_spec.sourceType in {"http", "s3", "registry"}
	object.get(_spec, "checksum", "none") != ""
	_known_secret
	_known_service
	every range in data.parameters.forbiddenRanges { net.cidr_is_valid(range) }
}

# METADATA
# title: The URL contains a user or a password
# custom:
#   reason: SourceHasCredentials
#   remedy: Put the credentials into a Secret, and name it in spec.secretRef.
deny contains {
	"reason": "SourceHasCredentials",
	"code": 422,
	"message": "spec.url: a user or a password in the URL is not allowed",
	"details": {"field": "spec.url"},
} if {
	contains(hosts.authority(_spec.url), "@")
}

# METADATA
# title: The host in the URL is not valid
# custom:
#   reason: SourceHostMalformed
#   remedyInMessage: Write the URL in the format in the message.
deny contains {
	"reason": "SourceHostMalformed",
	"code": 422,
	"message": "spec.url: the host is not valid",
	"remedy": concat("", [
		"use SCHEME://HOST[:PORT]/..., where HOST is a name of letters, digits, '.', '-' and '_', ",
		"an IPv4 address of four decimal numbers, or an IPv6 address in brackets without a zone",
	]),
	"details": {"field": "spec.url"},
} if {
	not _host
	not _has_user
}

# METADATA
# title: Images may not be imported from the host
# custom:
#   reason: SourceHostNotAllowed
#   remedyInMessage: Use a host in the message, or ask an administrator to add the host to the parameter allowedHosts.
deny contains {
	"reason": "SourceHostNotAllowed",
	"message": $"spec.url: imports from {_host} are not allowed",
	"remedy": $"allowed hosts: {_allowed}",
	"details": {"field": "spec.url"},
} if {
	_host
	not _is_allowed
}

# METADATA
# title: Images may not be imported from an address of the cluster
# custom:
#   reason: SourceAddressForbidden
#   remedy: >-
#     Use a server outside the cluster. An administrator can remove a name from the parameter forbiddenHosts, for example for an S3 server
#     in the cluster.
deny contains {
	"reason": "SourceAddressForbidden",
	"message": $"spec.url: imports from {_host} are not allowed",
	"cause": $"it {why}",
	"details": {"field": "spec.url"},
} if {
	some why in _forbidden
}

# METADATA
# title: The algorithm of the checksum is not allowed
# custom:
#   reason: ChecksumAlgorithmNotAllowed
#   remedyInMessage: Use an algorithm in the message.
deny contains {
	"reason": "ChecksumAlgorithmNotAllowed",
	"code": 422,
	"message": $"spec.checksum: algorithm {_algorithm} is not allowed",
	"remedy": $"allowed: {_list(data.parameters.checksumAlgorithms)}",
	"details": {"field": "spec.checksum"},
} if {
	_algorithm
	not _algorithm_is_allowed
}

# METADATA
# title: The source has no checksum
# custom:
#   reason: ChecksumRequired
#   remedyInMessage: Add spec.checksum with an algorithm in the message.
deny contains {
	"reason": "ChecksumRequired",
	"code": 422,
	"message": "spec.checksum: a checksum is required",
	"remedy": $"add ALGORITHM:HEX with one of the algorithms {_list(data.parameters.checksumAlgorithms)}",
	"details": {"field": "spec.checksum"},
} if {
	_unchecked
	data.parameters.requireChecksum == true
}

# METADATA
# title: The requester may not get the Secret
# custom:
#   reason: SecretNotAllowed
#   remedyInMessage: Name a Secret that you may get, or ask an administrator of the namespace for the verb get on this Secret.
deny contains {
	"reason": "SecretNotAllowed",
	"message": $"spec.secretRef.name: cannot use Secret {_secret}",
	"cause": $"{_who} may not get it in namespace {input.request.namespace}",
	"remedy": $"name a Secret that you may get; to check: kubectl auth can-i get secrets/NAME -n {shell.word(input.request.namespace)}",
	"details": {"kind": "Secret", "name": _secret, "field": "spec.secretRef.name"},
} if {
	_secret != null
	not input.facts.readable == true
}

# METADATA
# title: The source has no checksum
warn contains "spec.checksum is not set: data that was changed on the server or on the way is imported unnoticed" if {
	_unchecked
	data.parameters.requireChecksum == false
}

_spec := input.request.object.spec

_who := input.request.userInfo.username

_host := hosts.host(_spec.url)

_address := hosts.address(_spec.url)

_is_allowed if hosts.listed(_spec.url, data.parameters.allowedHosts)

_is_listed if hosts.listed(_spec.url, data.parameters.forbiddenHosts)

_has_user if contains(hosts.authority(_spec.url), "@")

_secret := object.get(_spec, ["secretRef", "name"], null)

_algorithm := split(_spec.checksum, ":")[0]

_algorithm_is_allowed if _algorithm in data.parameters.checksumAlgorithms

_unchecked if {
	_spec.sourceType == "http"
	not _spec.checksum
}

# Why the host may not be used.
_forbidden contains "is in a forbidden address range" if hosts.forbidden(_spec.url, data.parameters.forbiddenRanges)

_forbidden contains "is a forbidden host" if _is_listed

_forbidden contains "has no dot in its name, as Services of the cluster do" if {
	not contains(_host, ".")
	not _is_listed
	not _address
}

_forbidden contains $"is Service {service.name} of namespace {service.namespace}" if {
	input.facts.service != null
	not _is_listed
	service := hosts.service(_spec.url)
}

_allowed := _list(data.parameters.allowedHosts)

# Long lists are cut to keep messages short.
_list(entries) := "none" if count(entries) == 0

_list(entries) := concat(", ", sort(entries)) if {
	count(entries) > 0
	count(entries) <= 10
}

_list(entries) := $"{concat(", ", array.slice(sort(entries), 0, 10))} and {count(entries) - 10} more" if count(entries) > 10

_known_secret if not _spec.secretRef

_known_secret if not _secret in {null, ""}

# A Service that does not exist is null.
_known_service if is_object(input.facts.service)

_known_service if input.facts.service == null
