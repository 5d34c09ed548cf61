# METADATA
# title: Hosts in URLs
# description: >-
#   Reads the host of a URL in the only form that all clients understand alike, and compares it with lists of hosts and of address
#   ranges. A host name may resolve to any address, which a policy cannot check.
package sallyport.lib.hosts

# METADATA
# description: >-
#   The part of a URL between the scheme and the path, or undefined. It can contain a user and a password.
authority(url) := regex.replace(url, `^[a-z0-9]+://([^/?#]+)(?s:.*)$`, "$1") if regex.match(`^[a-z0-9]+://[^/?#]`, url)

# METADATA
# description: >-
#   The host of a URL in lowercase, without its port: a name, or an address. Undefined if it is not valid: users and passwords, escapes,
#   and spellings of addresses that clients could interpret differently, such as 127.1 and 0x7f000001.
host(url) := _name(authority(url)) if {
	not _ends_in_number(authority(url))
	not startswith(authority(url), "[")
}

host(url) := address(url)

# METADATA
# description: The host of a URL if that is an address, otherwise undefined.
address(url) := _name(authority(url)) if {
	_ends_in_number(authority(url))
	net.cidr_is_valid($"{_name(authority(url))}/32")
}

address(url) := found if {
	regex.match(`^\[[0-9A-Fa-f:.]+\](:[0-9]{1,5})?$`, authority(url))
	found := lower(substring(authority(url), 1, indexof(authority(url), "]") - 1))
	net.cidr_is_valid($"{found}/128")
}

# METADATA
# description: >-
#   The Service that the host of a URL can be a name of in a Pod, whose resolver first adds the domain of Services to it: SERVICE.NAMESPACE,
#   or HOSTNAME.SERVICE.NAMESPACE. Undefined if it cannot.
service(url) := {"namespace": labels[count(labels) - 1], "name": labels[count(labels) - 2]} if {
	not address(url)
	labels := split(host(url), ".")
	every label in array.slice(labels, count(labels) - 2, count(labels)) {
		regex.match(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`, label)
	}
	count(labels) > 1
}

# METADATA
# description: >-
#   Whether the host of a URL is an address of loopback, link-local or multicast, one that is translated to IPv4, or in one of the ranges.
forbidden(url, ranges) if {
	some range in array.concat(array.concat(local, _nat64), ranges)
	net.cidr_contains(range, address(url))
}

# METADATA
# description: Address ranges that lead to a node itself or to its neighbours, where clouds serve credentials.
local := [
	"0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "240.0.0.0/4",
	"::/127", "fe80::/10", "ff00::/8", "fd00:ec2::254/128",
]

# Under these prefixes, networks with IPv6 only reach every IPv4 address (RFC 6052, RFC 8215).
_nat64 := ["64:ff9b::/96", "64:ff9b:1::/48"]

# METADATA
# description: >-
#   Whether the host of a URL is in a list, which has names, addresses, "*.example.org" for every name below example.org, and "*" for every
#   host. A URL without a valid host is in no list.
listed(url, list) if {
	host(url)
	"*" in list
}

listed(url, list) if host(url) in list

listed(url, list) if {
	some pattern in list
	startswith(pattern, "*.")
	endswith(host(url), substring(pattern, 1, -1))
}

_name(of) := trim_suffix(lower(regex.replace(of, `:[0-9]{1,5}$`, "")), ".") if {
	regex.match(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?(:[0-9]{1,5})?$`, of)
}

# Some resolvers also accept 127.1 and 0x7f000001 as addresses.
_ends_in_number(of) if regex.match(`(^|\.)(0x[0-9a-f]*|[0-9]+)$`, _name(of))
