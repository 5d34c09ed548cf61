package sallyport.lib.override_test

import data.sallyport.lib.override

_request(group, resource, namespace) := {"resource": {"group": group, "resource": resource}, "namespace": namespace}

test_command[note] if {
	some note, tc in {
		"in a namespace": {
			"request": _request("apps", "deployments", "team-a"), "name": "web",
			"command": `kubectl sallyport override p deployments.apps web -n team-a --reason "..."`,
		},
		"of the core group": {
			"request": _request("", "configmaps", "team-a"), "name": "a.b-c",
			"command": `kubectl sallyport override p configmaps a.b-c -n team-a --reason "..."`,
		},
		"in no namespace": {
			"request": object.remove(_request("", "nodes", ""), ["namespace"]), "name": "n",
			"command": `kubectl sallyport override p nodes n --reason "..."`,
		},
		"a namespace itself": {
			"request": _request("", "namespaces", "team-a"), "name": "team-a",
			"command": `kubectl sallyport override p namespaces team-a --reason "..."`,
		},
		"a name that a shell would run": {
			"request": _request("g", "roles", ""), "name": "$(reboot)",
			"command": `kubectl sallyport override p roles.g '$(reboot)' --reason "..."`,
		},
	}
	override.command("p", tc.request, {"name": tc.name}) == tc.command
}
