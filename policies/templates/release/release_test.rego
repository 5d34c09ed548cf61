package sallyport.templates.release_test

import data.sallyport.templates.release as policy

# The text of a denial, as the user sees it.
_text(denial) := concat("", [concat("", [mark, denial[key]]) | some [key, mark] in [["message", ""], ["cause", " because "], ["remedy", "; "]]])

_spec(more) := object.union(
	{"source": {"url": "https://images.example.org/ubuntu.ova", "sha256": "00"}, "release": "24.04-2"},
	more,
)

_object(more) := {"metadata": {"name": "ubuntu"}, "spec": _spec(more)}

_from(url) := {"operation": "CREATE", "oldObject": null, "object": _object({"source": {"url": url}})}

# The failure domains have 24.04-10, and have kept the given releases.
_domains(kept) := [
	{"name": "a", "release": "24.04-10", "versions": [{"release": "24.04-10"}, {"release": kept}]},
	{"name": "b", "release": "24.04-9"},
	{"name": "c"},
]

_update(release, kept) := {
	"operation": "UPDATE",
	"oldObject": object.union(_object({"release": "24.04-11"}), {"status": {"failureDomains": _domains(kept)}}),
	"object": _object({"release": release}),
}

_parameters(more) := object.union({"allowedHosts": ["*"], "forbiddenRanges": ["10.96.0.0/12", "fd00::/8"], "allowDowngrade": false}, more)

_verdict := "not understood" if not policy.valid_input

_verdict := concat(", ", sort([denial.reason | some denial in policy.deny])) if {
	policy.valid_input
	count(policy.deny) > 0
}

_verdict := "allow" if {
	policy.valid_input
	count(policy.deny) == 0
}

test_hosts[note] if {
	some note, tc in {
		"of the list": {"url": "https://images.example.org/a.ova", "verdict": "allow"},
		"with a port": {"url": "https://images.example.org:8443/a.ova", "verdict": "allow"},
		"with a query at once": {"url": "https://images.example.org?a", "verdict": "allow"},
		"with a fragment at once": {"url": "https://images.example.org#a", "verdict": "allow"},
		"without a path": {"url": "https://images.example.org", "verdict": "allow"},
		"in capitals, with a dot": {"url": "https://IMAGES.example.ORG./a.ova", "verdict": "allow"},
		"below a name of the list": {"url": "https://a.b.mirror.example.org/a.ova", "verdict": "allow"},
		"the name itself": {"url": "https://mirror.example.org/a.ova", "verdict": "SourceHostNotAllowed"},
		"another that ends so": {"url": "https://amirror.example.org/a.ova", "verdict": "SourceHostNotAllowed"},
		"another": {"url": "https://images.example.com/a.ova", "verdict": "SourceHostNotAllowed"},
		"another that begins so": {"url": "https://images.example.org.evil.example/a.ova", "verdict": "SourceHostNotAllowed"},
		"in the query": {"url": "https://evil.example?https://images.example.org/a.ova", "verdict": "SourceHostNotAllowed"},
		"in the path, on a line of its own": {"url": "https://evil.example/\nimages.example.org", "verdict": "SourceHostNotAllowed"},
		"an address of the list": {"url": "https://192.0.2.7/a.ova", "verdict": "allow"},
		"an address of IPv6 of the list": {"url": "https://[2001:DB8::7]:443/a.ova", "verdict": "allow"},
		"another address": {"url": "https://192.0.2.8/a.ova", "verdict": "SourceHostNotAllowed"},
	}
	parameters := _parameters({"allowedHosts": ["images.example.org", "*.mirror.example.org", "192.0.2.7", "2001:db8::7"]})
	_verdict == tc.verdict with input.request as _from(tc.url) with data.parameters as parameters
}

test_malformed_hosts[url] if {
	some url in [
		"http://images.example.org/", "https://", "https:///a.ova", "https://ann@images.example.org/", "https://a:b@images.example.org/",
		"https://images.example.org\\@evil.example/", "https://%69mages.example.org/", "https://images..example.org/", "https://.org/",
		"https://images.example.org:/", "https://images.example.org:123456/", "https://images.example.org:a/", "https://a b/",
		"https://2130706433/", "https://0x7f000001/", "https://127.1/", "https://0177.0.0.1/", "https://127.0.0.0x1/", "https://1.2.3.4.5/",
		"https://[::1/", "https://[fe80::1%25eth0]/", "https://[1:2]/", "https://[::1]a/", "https://[]/", "https://::1/", "https://ünï.example/",
	]
	_verdict == "SourceHostMalformed" with input.request as _from(url) with data.parameters as _parameters({})
	_verdict == "SourceHostMalformed" with input.request as _from(url) with data.parameters as _parameters({"allowedHosts": []})
}

test_addresses[host] if {
	some host, verdict in {
		"127.0.0.1": "SourceAddressForbidden", "127.1.2.3:8443": "SourceAddressForbidden", "127.0.0.1.": "SourceAddressForbidden",
		"239.1.2.3": "SourceAddressForbidden", "255.255.255.255": "SourceAddressForbidden", "[fd00:ec2::254]": "SourceAddressForbidden",
		"0.0.0.0": "SourceAddressForbidden", "169.254.169.254": "SourceAddressForbidden", "10.96.0.1": "SourceAddressForbidden",
		"10.111.255.255": "SourceAddressForbidden", "[::1]": "SourceAddressForbidden", "[::]": "SourceAddressForbidden",
		"[fe80::1]": "SourceAddressForbidden", "[::ffff:127.0.0.1]": "SourceAddressForbidden", "[::ffff:7f00:1]": "SourceAddressForbidden",
		"[::ffff:10.96.0.1]:443": "SourceAddressForbidden", "[FD00::7]": "SourceAddressForbidden",
		"10.112.0.1": "allow", "192.0.2.7": "allow", "[2001:db8::7]": "allow", "[::ffff:192.0.2.7]": "allow", "localhost": "allow",
	}
	_verdict == verdict with input.request as _from($"https://{host}/a.ova") with data.parameters as _parameters({})
}

test_releases[note] if {
	some note, tc in {
		"a later one": {"release": "24.04-12", "verdict": "allow"},
		"the asked one again": {"release": "24.04-11", "verdict": "allow"},
		"the present one again": {"release": "24.04-10", "verdict": "allow"},
		"one that was asked for in vain is taken back": {"release": "24.04-10.1", "verdict": "allow"},
		"one that another failure domain has still": {"release": "24.04-9", "verdict": "allow"},
		"one that is kept": {"release": "24.04-3", "verdict": "allow"},
		"an earlier one": {"release": "24.04-8", "verdict": "ReleaseDowngrade"},
		"an earlier one, with zeros": {"release": "24.04-0008", "verdict": "ReleaseDowngrade"},
		"a later one, with zeros": {"release": "24.4-0011", "verdict": "allow"},
		"an earlier one by its first number": {"release": "9.04-11", "verdict": "ReleaseDowngrade"},
		"a beginning of it": {"release": "24.04", "verdict": "ReleaseDowngrade"},
		"longer than any number": {"release": "24.04-99999999999999999999999999999999999999999999", "verdict": "allow"},
		"a text in place of a number": {"release": "v1", "verdict": "allow"},
	}
	_verdict == tc.verdict with input.request as _update(tc.release, "24.04-3") with data.parameters as _parameters({})
}

test_downgrades_may_be_allowed if {
	_verdict == "allow" with input.request as _update("24.04-8", "24.04-3") with data.parameters as _parameters({"allowDowngrade": true})
}

test_not_judged[note] if {
	bad := {"source": {"url": "https://127.0.0.1/a.ova"}, "release": "24.04-8"}
	some note, request in {
		"nothing of it changes": object.union(_update("24.04-8", "24.04-3"), {"object": {"spec": bad}, "oldObject": {"spec": bad}}),
		"it is being deleted": object.union(
			_update("24.04-8", "24.04-3"),
			{"object": {"metadata": {"deletionTimestamp": "2026-11-23T00:00:00Z"}, "spec": bad}},
		),
		"nothing has become of it yet": json.remove(_update("24.04-8", "24.04-3"), ["oldObject/status"]),
		"it is created": {"operation": "CREATE", "oldObject": null, "object": _object({"release": "0"})},
	}
	_verdict == "allow" with input.request as request with data.parameters as _parameters({})
}

# An object that was stored when a source could be an item of a content library.
_without_url := {"metadata": {"name": "ubuntu"}, "spec": {"source": {"sha256": "00"}, "release": "24.04-12"}}

test_first_url_is_judged if {
	request := {"operation": "UPDATE", "oldObject": _without_url, "object": _object({"release": "24.04-12", "source": {"url": "https://127.0.0.1/a.ova"}})}
	_verdict == "SourceAddressForbidden" with input.request as request with data.parameters as _parameters({})
}

test_url_is_judged_when_it_changes if {
	request := object.union(_update("24.04-12", "24.04-3"), {"object": {"spec": {"source": {"url": "https://127.0.0.1/a.ova"}}}})
	_verdict == "SourceAddressForbidden" with input.request as request with data.parameters as _parameters({})
}

test_messages[note] if {
	many := [$"h{i}.example.org" | some i in ["00", "01", "02", "03", "04", "05", "06", "07", "08", "09", "10", "11"]]
	some note, tc in {
		"no host": {
			"request": _from("https://evil.example/a.ova?token=secret"), "parameters": {"allowedHosts": []},
			"field": "spec.source.url", "words": "downloads from evil.example are not allowed; allowed hosts: none",
		},
		"many hosts": {
			"request": _from("https://evil.example/a.ova?token=secret"), "parameters": {"allowedHosts": many},
			"field": "spec.source.url", "words": "h08.example.org, h09.example.org and 2 more",
		},
		"an address": {
			"request": _from("https://127.0.0.1/a.ova?token=secret"), "parameters": {},
			"field": "spec.source.url", "words": "downloads from 127.0.0.1 are not allowed because it is in a forbidden",
		},
		"no such host": {
			"request": _from("https://ann:secret@a/"), "parameters": {},
			"field": "spec.source.url", "words": "the host is not valid",
		},
		"a downgrade": {
			"request": _update("24.04-8", "24.04-3"), "parameters": {}, "field": "spec.release",
			"words": concat("", [
				"24.04-8 is not allowed because it sorts before 24.04-10, which a failure domain has, and no failure domain has kept it; ",
				"use a kept release (24.04-10, 24.04-3, 24.04-9) or",
			]),
		},
	}
	denials := policy.deny with input.request as tc.request with data.parameters as _parameters(tc.parameters)
	count(denials) == 1
	some denial in denials
	denial.details.field == tc.field
	contains(_text(denial), tc.words)
	not contains(_text(denial), "secret")
}

_at(document, path, value) := object.union(document, json.unmarshal(concat("", [
	concat("", [$"\{{json.marshal(key)}:" | some key in split(path, "/")]),
	json.marshal(value),
	concat("", ["}" | some _ in split(path, "/")]),
])))

_status(domains) := _at(_update("24.04-12", "24.04-3"), "oldObject/status/failureDomains", domains)

_broken := object.union_n([
	{$"{path} {value}": _at(_update("24.04-12", "24.04-3"), path, value) |
		some [path, value] in [
			["operation", "DELETE"], ["object/spec/source/url", ""], ["object/spec/release", ""], ["oldObject/spec/release", ""],
		]
	},
	{$"{path} missing": json.remove(_update("24.04-12", "24.04-3"), [path]) |
		some path in [
			"operation", "object", "object/spec", "object/spec/source", "object/spec/source/url", "object/spec/release", "oldObject",
			"oldObject/spec", "oldObject/spec/release",
		]
	},
	{$"version {version}": _status([{"versions": [version]}]) | some version in [{}, {"release": ""}]},
])

test_not_understood[note] if {
	some note, request in _broken
	_verdict == "not understood" with input.request as request with data.parameters as _parameters({})
}

test_ranges_not_understood[range] if {
	some range in ["", "10.0.0.1", "10.0.0.0/33", "nonsense/8"]
	parameters := _parameters({"forbiddenRanges": [range]})
	_verdict == "not understood" with input.request as _update("24.04-12", "24.04-3") with data.parameters as parameters
}
