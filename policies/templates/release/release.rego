# METADATA
# title: Sources and releases of VSphereTemplates
# description: >-
#   The OVA of a VSphereTemplate must come from a host in allowedHosts, and not from a loopback or link-local address or an address in
#   forbiddenRanges. The release must not sort before the release of a failure
#   domain, unless a failure domain has kept it, which is a rollback. Numbers in releases are compared as numbers. Fields that do not
#   change, and objects that are being deleted, are not checked again.
package sallyport.templates.release

import data.sallyport.lib.hosts

valid_input if {
	input.request.operation in {"CREATE", "UPDATE"}
	_known
}

# METADATA
# title: The host in the URL is not valid
# custom:
#   reason: SourceHostMalformed
#   remedyInMessage: Write the URL in the format in the message.
deny contains {
	"reason": "SourceHostMalformed",
	"code": 422,
	"message": "spec.source.url: the host is not valid",
	"remedy": concat("", [
		"use https://HOST[:PORT]/..., where HOST is a name of letters, digits, '.', '-' and '_', ",
		"an IPv4 address of four decimal numbers, or an IPv6 address in brackets without a zone",
	]),
	"details": {"field": "spec.source.url"},
} if {
	_source_judged
	not _host
}

# METADATA
# title: OVAs may not be downloaded from the host
# custom:
#   reason: SourceHostNotAllowed
#   remedyInMessage: Use a host in the message, or ask an administrator to add the host to the parameter allowedHosts.
deny contains {
	"reason": "SourceHostNotAllowed",
	"message": $"spec.source.url: downloads from {_host} are not allowed",
	"remedy": $"allowed hosts: {_allowed}",
	"details": {"field": "spec.source.url"},
} if {
	_source_judged
	not _is_allowed
}

# METADATA
# title: OVAs may not be downloaded from the address
# custom:
#   reason: SourceAddressForbidden
#   remedy: Use a server outside the forbidden address ranges.
deny contains {
	"reason": "SourceAddressForbidden",
	"message": $"spec.source.url: downloads from {_host} are not allowed",
	"cause": "it is in a forbidden address range",
	"details": {"field": "spec.source.url"},
} if {
	_source_judged
	hosts.forbidden(_spec.source.url, data.parameters.forbiddenRanges)
}

# METADATA
# title: The release sorts before the current one
# custom:
#   reason: ReleaseDowngrade
#   remedyInMessage: Use a kept release, or one that sorts after the current one.
deny contains {
	"reason": "ReleaseDowngrade",
	"message": $"spec.release: {_spec.release} is not allowed",
	"cause": $"it sorts before {_newest_before}, which a failure domain has, and no failure domain has kept it",
	"remedy": $"use a kept release ({_kept_names}) or one that sorts after {_newest_before}",
	"details": {"field": "spec.release"},
} if {
	_downgrade
}

_spec := input.request.object.spec

_old := input.request.oldObject

_leaving if input.request.object.metadata.deletionTimestamp != null

_source_judged if {
	not _leaving
	not _same_url
}

_same_url if {
	input.request.operation == "UPDATE"
	_old.spec.source.url == _spec.source.url
}

_release_judged if {
	input.request.operation == "UPDATE"
	not _leaving
	_old.spec.release != _spec.release
}

_host := hosts.host(_spec.source.url) if startswith(_spec.source.url, "https://")

_is_allowed if not _host

_is_allowed if hosts.listed(_spec.source.url, data.parameters.allowedHosts)

_allowed := _list(data.parameters.allowedHosts)

# The release.

_downgrade if {
	_release_judged
	data.parameters.allowDowngrade == false
	not _spec.release in _kept
	_key(_spec.release) < max(_present_keys)
}

_domains := object.get(object.get(_old, "status", {}), "failureDomains", [])

# The releases of the failure domains. A requested release that was never rolled out does not count.
_present := {domain.release | some domain in _domains; domain.release != ""}

_present_keys := {_key(release) | some release in _present}

_newest_before := [release | some release in _present; _key(release) == max(_present_keys)][0]

_kept := _present | {version.release |
	some domain in _domains
	some version in object.get(domain, "versions", [])
}

_kept_names := _list(_kept)

# The parts of a release, alternating between text and number, beginning with text. Without leading zeros, the longer number is larger.
_key(release) := [part |
	some i, token in split(regex.replace(release, `([0-9]+)`, "/$1/"), "/")
	part := _part(i % 2, token)
]

_part(0, text) := text

_part(1, number) := [count(trim_left(number, "0")), trim_left(number, "0")]

# Long lists are cut to keep messages short.
_list(entries) := "none" if count(entries) == 0

_list(entries) := concat(", ", sort(entries)) if {
	count(entries) > 0
	count(entries) <= 10
}

_list(entries) := $"{concat(", ", array.slice(sort(entries), 0, 10))} and {count(entries) - 10} more" if count(entries) > 10

_known if _leaving

_known if {
	not _leaving
	_spec.source.url != ""
	_spec.release != ""
	_known_old
	every range in data.parameters.forbiddenRanges { net.cidr_is_valid(range) }
}

_known_old if input.request.operation == "CREATE"

_known_old if {
	input.request.operation == "UPDATE"
	_old.spec.release != ""
	every domain in _domains {
		every version in object.get(domain, "versions", []) { version.release != "" }
	}
}
