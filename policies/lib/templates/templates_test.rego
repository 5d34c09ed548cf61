package sallyport.lib.templates_test

import data.sallyport.lib.templates

_spec(names) := {"failureDomains": [{"name": name, "folder": $"/dc/vm/{name}"} | some name in names]}

test_meant if {
	templates.meant(_spec(["a", "b"]), {"name": "ubuntu", "failureDomain": "b"}) == {"name": "b", "folder": "/dc/vm/b"}
	templates.meant(_spec(["a"]), {"name": "ubuntu"}) == {"name": "a", "folder": "/dc/vm/a"}
}

test_nothing_meant if {
	not templates.meant(_spec(["a", "b"]), {"name": "ubuntu"})
	not templates.meant(_spec(["a"]), {"name": "ubuntu", "failureDomain": "b"})
	not templates.meant(_spec([]), {"name": "ubuntu"})
}
