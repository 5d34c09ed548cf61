package sallyport.lib.override_test

import data.sallyport.lib.override

_request(group, resource, namespace) := {"resource": {"group": group, "resource": resource}, "namespace": namespace}

test_command[note] if {
	some note, tc in {
		"in a namespace": {
			"request": _request("apps", "deployments", "team-a"), "metadata": {"name": "web", "uid": "u-1"},
			"command": concat("", [
				`kubectl annotate --overwrite deployments.apps web --namespace team-a `,
				`"sallyport.dev/override=p; uid=u-1; by=$(kubectl auth whoami -o jsonpath={.status.userInfo.username}); until=$(date -u -d '+20 min' +%FT%TZ); REASON"`,
			]),
		},
		"of the core group": {
			"request": _request("", "configmaps", "team-a"), "metadata": {"name": "a.b-c", "uid": "u-1"},
			"command": concat("", [
				`kubectl annotate --overwrite configmaps a.b-c --namespace team-a `,
				`"sallyport.dev/override=p; uid=u-1; by=$(kubectl auth whoami -o jsonpath={.status.userInfo.username}); until=$(date -u -d '+20 min' +%FT%TZ); REASON"`,
			]),
		},
		"in no namespace": {
			"request": object.remove(_request("", "nodes", ""), ["namespace"]), "metadata": {"name": "n", "uid": "u-1"},
			"command": `kubectl annotate --overwrite nodes n "sallyport.dev/override=p; uid=u-1; by=$(kubectl auth whoami -o jsonpath={.status.userInfo.username}); until=$(date -u -d '+20 min' +%FT%TZ); REASON"`,
		},
		"a namespace itself": {
			"request": _request("", "namespaces", "team-a"), "metadata": {"name": "team-a", "uid": "u-1"},
			"command": `kubectl annotate --overwrite namespaces team-a "sallyport.dev/override=p; uid=u-1; by=$(kubectl auth whoami -o jsonpath={.status.userInfo.username}); until=$(date -u -d '+20 min' +%FT%TZ); REASON"`,
		},
		"without a UID, and a name that a shell would read": {
			"request": _request("g", "roles", ""), "metadata": {"name": "$(reboot)"},
			"command": `kubectl annotate --overwrite roles.g NAME "sallyport.dev/override=p; uid=; by=$(kubectl auth whoami -o jsonpath={.status.userInfo.username}); until=$(date -u -d '+20 min' +%FT%TZ); REASON"`,
		},
	}
	override.command("p", tc.request, tc.metadata) == tc.command
}

test_names[name] if {
	some name, typed in {
		"web-1": "web-1", "system:node:n_1.example": "system:node:n_1.example", "1": "1",
		"-n": "NAME", "a b": "NAME", "a;b": "NAME", "a'b": "NAME", "`b`": "NAME", "a\nb": "NAME", "": "NAME",
	}
	override.typed(name) == typed
}
