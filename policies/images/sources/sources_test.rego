package sallyport.images.sources_test

import data.sallyport.images.sources as policy

# The text of a denial, as the user sees it.
_text(denial) := concat("", [concat("", [mark, denial[key]]) | some [key, mark] in [["message", ""], ["cause", " because "], ["remedy", "; "]]])

_sum := "sha256:00"

_create(spec) := {
	"operation": "CREATE", "namespace": "farm", "userInfo": {"username": "ann"}, "oldObject": null,
	"object": {"metadata": {"name": "ubuntu"}, "spec": object.union(
		{"url": "https://images.example.org/a.qcow2", "sourceType": "http", "checksum": _sum, "diskSize": "1Gi"},
		spec,
	)},
}

_unsummed := json.remove(_create({}), ["object/spec/checksum"])

_parameters(more) := object.union(
	{
		"allowedHosts": ["*"], "forbiddenHosts": ["localhost", "*.svc", "*.cluster.local"], "forbiddenRanges": ["10.96.0.0/12"],
		"checksumAlgorithms": ["sha256", "sha512"], "requireChecksum": false,
	},
	more,
)

_world(request) := {"request": request, "facts": {"readable": null, "service": null}}

_of_service(request) := {"request": request, "facts": {"readable": null, "service": {"metadata": {"name": "vault"}}}}

_verdict := "not understood" if not policy.valid_input

_verdict := concat(", ", sort([denial.reason | some denial in policy.deny])) if {
	policy.valid_input
	count(policy.deny) > 0
}

_verdict := "allow" if {
	policy.valid_input
	count(policy.deny) == 0
}

test_hosts[url] if {
	some url, verdict in {
		"https://images.example.org/a": "allow", "https://a.mirror.example.org:8443/a": "allow", "https://192.0.2.7/a": "allow",
		"https://evil.example/a": "SourceHostNotAllowed", "https://images.example.org.evil.example/": "SourceHostNotAllowed",
		"https://10.96.0.1/": "SourceAddressForbidden, SourceHostNotAllowed",
	}
	parameters := _parameters({"allowedHosts": ["images.example.org", "*.mirror.example.org", "192.0.2.7"]})
	_verdict == verdict with input as _world(_create({"url": url})) with data.parameters as parameters
}

# Addresses of the cluster and of the node in every spelling.
test_local[url] if {
	some url, verdict in {
		"http://127.0.0.1/a": "SourceAddressForbidden", "http://127.1.2.3:80/": "SourceAddressForbidden", "http://0.0.0.0/": "SourceAddressForbidden",
		"http://169.254.169.254/latest": "SourceAddressForbidden", "http://169.254.169.254./": "SourceAddressForbidden",
		"http://[::1]/": "SourceAddressForbidden", "http://[::ffff:127.0.0.1]/": "SourceAddressForbidden",
		"http://[::FFFF:A9FE:A9FE]/": "SourceAddressForbidden", "http://[64:ff9b::a9fe:a9fe]/": "SourceAddressForbidden", "http://[fe80::1]/": "SourceAddressForbidden",
		"http://10.96.0.10/": "SourceAddressForbidden", "http://[::ffff:10.96.0.10]/": "SourceAddressForbidden",
		"http://LOCALHOST/": "SourceAddressForbidden", "http://localhost./": "SourceAddressForbidden",
		"http://minio/": "SourceAddressForbidden", "http://minio.store.svc:9000/": "SourceAddressForbidden",
		"http://kubernetes.default.svc.cluster.local./": "SourceAddressForbidden",
		"http://2130706433/": "SourceHostMalformed", "http://0x7f.0.0.1/": "SourceHostMalformed", "http://127.1/": "SourceHostMalformed",
		"http://0177.0.0.1/": "SourceHostMalformed", "http://[fe80::1%25eth0]/": "SourceHostMalformed", "http://%31/": "SourceHostMalformed",
		"http://ann@images.example.org/": "SourceHasCredentials", "http://ann:secret@127.0.0.1/": "SourceHasCredentials",
		"http://images.example.org/@a": "allow", "http://images.example.org?u=a@b": "allow",
	}
	_verdict == verdict with input as _world(_create({"url": url})) with data.parameters as _parameters({})
}

test_messages[message] if {
	some message, spec in {
		"spec.url: imports from minio are not allowed because it has no dot in its name, as Services of the cluster do": {"url": "http://minio/a"},
		"spec.url: imports from a.svc are not allowed because it is a forbidden host": {"url": "http://a.svc/a"},
		"spec.url: imports from 10.96.0.1 are not allowed because it is in a forbidden address range": {"url": "http://10.96.0.1/"},
		"spec.checksum: algorithm md5 is not allowed; allowed: sha256, sha512": {"checksum": "md5:00"},
	}
	[message] == [_text(denial) | some denial in policy.deny] with input as _world(_create(spec)) with data.parameters as _parameters({})
}

test_credentials_are_in_no_message if {
	denials := policy.deny with input as _world(_create({"url": "https://ann:hunter2@evil.example/"}))
		with data.parameters as _parameters({"allowedHosts": []})
	every denial in denials { not contains(json.marshal(denial), "hunter2") }
	count(denials) == 1
}

test_lists[note] if {
	some note, tc in {
		"none": {"hosts": [], "text": "allowed hosts: none"},
		"many": {"hosts": [$"{host}.example.com" | some host in split("a b c d e f g h i j k l", " ")], "text": "j.example.com and 2 more"},
	}
	some denial in policy.deny with input as _world(_create({})) with data.parameters as _parameters({"allowedHosts": tc.hosts})
	endswith(_text(denial), tc.text)
}

test_checksums[note] if {
	some note, tc in {
		"sha256": {"request": _create({}), "parameters": {}, "verdict": "allow", "warnings": 0},
		"sha1": {"request": _create({"checksum": "sha1:00"}), "parameters": {}, "verdict": "ChecksumAlgorithmNotAllowed", "warnings": 0},
		"none": {"request": _unsummed, "parameters": {}, "verdict": "allow", "warnings": 1},
		"none, but required": {"request": _unsummed, "parameters": {"requireChecksum": true}, "verdict": "ChecksumRequired", "warnings": 0},
		"none of a registry": {
			"request": object.union(_unsummed, {"object": {"spec": {"url": "docker://registry.example.org/a@sha256:00", "sourceType": "registry"}}}),
			"parameters": {"requireChecksum": true}, "verdict": "allow", "warnings": 0,
		},
	}
	_verdict == tc.verdict with input as _world(tc.request) with data.parameters as _parameters(tc.parameters)
	warnings := policy.warn with input as _world(tc.request) with data.parameters as _parameters(tc.parameters)
	count(warnings) == tc.warnings
}

_named := _create({"secretRef": {"name": "images"}})

test_secrets if {
	policy.facts.readable == {"access": {
		"verb": "get", "group": "", "resource": "secrets", "namespace": "farm", "name": "images",
	}} with input.request as _named
	policy.facts.readable == null with input.request as _create({})
	readable := {"request": _named, "facts": {"readable": true, "service": null}}
	unreadable := {"request": _named, "facts": {"readable": false, "service": null}}
	_verdict == "allow" with input as readable with data.parameters as _parameters({})
	_verdict == "SecretNotAllowed" with input as unreadable with data.parameters as _parameters({})
	some denial in policy.deny with input as unreadable with data.parameters as _parameters({})
	_text(denial) == concat("", [
		"spec.secretRef.name: cannot use Secret images because ann may not get it in namespace farm; ",
		"name a Secret that you may get; to check: kubectl auth can-i get secrets/NAME -n farm",
	])
}

# What a Pod of the cluster resolves to a Service, with or without the name of one of its Pods.
test_services[url] if {
	some url, of in {
		"http://vault.prod/a": {"name": "vault", "namespace": "prod"}, "http://vault/": null,
	}
	_facts_of(url) == of
}

_facts_of(url) := json.remove(fact, ["apiVersion", "kind", "freshness"]) if {
	fact := policy.facts.service with input.request as _create({"url": url})
	fact != null
}

_facts_of(url) := null if {
	fact := policy.facts.service with input.request as _create({"url": url})
	fact == null
}

test_service_message if {
	message := "spec.url: imports from db-0.vault.prod are not allowed because it is Service vault of namespace prod"
	[message] == [_text(denial) | some denial in policy.deny] with input as _of_service(_create({"url": "http://db-0.vault.prod/a"}))
		with data.parameters as _parameters({})
}

test_not_understood_service if {
	_verdict == "not understood" with input as {"request": _create({}), "facts": {"readable": null}} with data.parameters as _parameters({})
}

test_not_understood[note] if {
	some note, request in object.union(
		{$"{path} missing": json.remove(_create({}), [path]) |
			some path in ["operation", "object", "object/spec", "object/spec/url", "object/spec/sourceType"]
		},
		{
			"an update": object.union(_create({}), {"operation": "UPDATE"}),
			"an empty URL": _create({"url": ""}),
			"an unknown type": _create({"sourceType": "ftp"}),
			"an empty checksum": _create({"checksum": ""}),
			"a Secret without a name": _create({"secretRef": {}}),
			"a Secret with an empty name": _create({"secretRef": {"name": ""}}),
		},
	)
	_verdict == "not understood" with input as _world(request) with data.parameters as _parameters({})
}

test_not_understood_range if {
	_verdict == "not understood" with input as _world(_create({})) with data.parameters as _parameters({"forbiddenRanges": ["10.0.0.1"]})
}
