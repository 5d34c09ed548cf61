package sallyport.lib.hosts_test

import data.sallyport.lib.hosts

test_hosts[url] if {
	some url, want in {
		"https://Images.Example.org.:8443/a?b#c": ["images.example.org"], "docker://registry.example.org/a@sha256:00": ["registry.example.org"],
		"s3://127.0.0.1": ["127.0.0.1"], "http://[2001:DB8::1]:80/": ["2001:db8::1"], "http://minio": ["minio"], "http://a_b-c.d?x": ["a_b-c.d"],
		"http://ann:secret@example.org/": [], "http://127.1/": [], "http://0x7f000001/": [], "http://2130706433": [], "http://[::1%25eth0]/": [],
		"http://0177.0.0.1/": [], "http://%6cocalhost/": [], "http://[1:2]/": [], "http:///a": [], "example.org/a": [], "http://": [], "": [],
	}
	[hosts.host(url) | hosts.host(url)] == want
}

test_addresses[url] if {
	some url, want in {
		"http://192.0.2.1:80/": ["192.0.2.1"], "http://192.0.2.1./": ["192.0.2.1"], "http://[::FFFF:192.0.2.1]/": ["::ffff:192.0.2.1"],
		"http://example.org/": [], "http://1.2.3.4.5/": [],
	}
	[hosts.address(url) | hosts.address(url)] == want
}

test_services[url] if {
	some url, want in {
		"http://a.b/": ["a of b"], "http://x.a.b.:80/": ["a of b"], "http://a/": [], "http://a.b_/": [], "http://1.2.3.4/": [], "http://[::1]/": [],
	}
	[$"{found.name} of {found.namespace}" | found := hosts.service(url)] == want
}

test_forbidden[url] if {
	some url, want in {
		"http://127.0.0.1/": true, "http://169.254.169.254/": true, "http://[::ffff:169.254.169.254]/": true, "http://[::1]/": true,
		"http://10.96.0.1/": true, "http://10.112.0.1/": false, "http://example.org/": false,
		"http://[64:ff9b::192.0.2.1]/": true, "http://[64:ff9b:1::1]/": true,
	}
	[true | hosts.forbidden(url, ["10.96.0.0/12"])] == [true | want]
}

test_listed[note] if {
	some note, tc in {
		"every host": {"url": "http://example.com/", "want": true, "list": ["*"]},
		"no valid host": {"url": "http://a@example.com/", "want": false, "list": ["*"]},
		"the name": {"url": "http://EXAMPLE.org/", "want": true, "list": ["example.org"]},
		"below": {"url": "http://a.b.example.org/", "want": true, "list": ["*.example.org"]},
		"the name itself is not below": {"url": "http://example.org/", "want": false, "list": ["*.example.org"]},
		"another": {"url": "http://notexample.org/", "want": false, "list": ["*.example.org", "example.com"]},
	}
	[true | hosts.listed(tc.url, tc.list)] == [true | tc.want]
}
