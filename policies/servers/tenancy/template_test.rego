package sallyport.servers.tenancy_test

import data.sallyport.servers.tenancy as policy

# The template of the reference is /dc/vm/templates/t in failure domain a, and another one in b.
_kept(more) := object.union(
	{
		"metadata": {"name": "ubuntu"},
		"spec": {
			"serverRef": {"name": "vc-1"}, "name": "t",
			"failureDomains": [{"name": "a", "folder": "/dc/vm/templates"}, {"name": "b", "folder": "/dc/vm/a"}],
		},
	},
	more,
)

_one_domain := {"spec": {"failureDomains": [{"name": "a", "folder": "/dc/vm/templates"}]}}

_referring(ref) := _request(_vsphere({"clone": object.union(object.remove(_clone, ["template"]), {"template": {"templateRef": ref}})}))

_of_a := {"name": "ubuntu", "failureDomain": "a"}

_with(facts, template) := object.union(facts, {"template": template})

test_template_is_asked_for if {
	asked := policy.facts with input.request as _referring(_of_a)
	asked.template == {"apiVersion": "sallyport.dev/v1alpha1", "kind": "VSphereTemplate", "namespace": "team-a", "name": "ubuntu"}
	same := _vsphere({"clone": {"template": {"templateRef": _of_a}}})
	unchanged := policy.facts with input.request as _change(same, same)
	unchanged.template == null
}

# The template does not have to be in the inventory of the VSphereServer yet.
test_template_allowed[note] if {
	some note, tc in {
		"a failure domain": {"ref": _of_a, "template": _kept({})},
		"the only one": {"ref": {"name": "ubuntu"}, "template": _kept(_one_domain)},
	}
	facts := _with(_today({"templates": {"complete": true, "paths": []}}), tc.template)
	_verdict == "allow" with input as {"request": _referring(tc.ref), "facts": facts}
}

# A single entry must allow all places together.
test_template_with_other_places if {
	facts := _facts([_maker({"templates": []}), _maker({"name": "b", "folders": []})])
	world := {"request": _referring(_of_a), "facts": _with(facts, _kept({}))}
	_verdict == "CombinationNotAllowed" with input as world
	contains(_messages, "a does not allow template.templateRef; b does not allow folder") with input as world
}

_template_denials := {
	"another place": {
		"ref": {"name": "ubuntu", "failureDomain": "b"}, "template": _kept({}), "reason": "TemplateNotAllowed", "kind": "VSphereServer",
		"message": ": namespace team-a may not use /dc/vm/a/t on VSphereServer vc-1; allowed: /dc/vm/templates",
	},
	"none": {
		"ref": _of_a, "template": null, "reason": "VSphereTemplateNotFound", "kind": "VSphereTemplate",
		"message": concat("", [
			".name: VSphereTemplate ubuntu does not exist in namespace team-a; create it first, or list others with: ",
			"kubectl get vspheretemplates --namespace team-a",
		]),
	},
	"no such failure domain": {
		"ref": {"name": "ubuntu", "failureDomain": "c"}, "template": _kept({}), "reason": "VSphereTemplateUnfit", "kind": "VSphereTemplate",
		"message": ": VSphereTemplate ubuntu has no failure domain c; available: a, b",
	},
	"several failure domains": {
		"ref": {"name": "ubuntu"}, "template": _kept({}), "reason": "VSphereTemplateUnfit", "kind": "VSphereTemplate",
		"message": ": VSphereTemplate ubuntu has several failure domains; set failureDomain to one of: a, b",
	},
	"another server": {
		"ref": {"name": "ubuntu"}, "template": _kept({"spec": {"serverRef": {"name": "vc-2"}}}),
		"reason": "VSphereTemplateUnfit", "kind": "VSphereTemplate",
		"message": concat("", [
			": VSphereTemplate ubuntu is on VSphereServer vc-2, but the machine is on VSphereServer vc-1; ",
			"use a template on the same VSphereServer",
		]),
	},
	"being deleted": {
		"ref": {"name": "ubuntu", "failureDomain": "c"}, "template": _kept({"metadata": {"deletionTimestamp": "2026-11-20T10:31:57Z"}}),
		"reason": "VSphereTemplateUnfit", "kind": "VSphereTemplate",
		"message": ": VSphereTemplate ubuntu is being deleted; use another one",
	},
}

test_template_denied[note] if {
	some note, tc in _template_denials
	world := {"request": _referring(tc.ref), "facts": _with(_facts([_maker({})]), tc.template)}
	policy.valid_input with input as world
	some denial in policy.deny with input as world
	[denial.reason, _text(denial)] == [tc.reason, $"spec.runtime.vsphere.clone.template.templateRef{tc.message}"]
	denial.details.kind == tc.kind
	denial.details.field == "spec.runtime.vsphere.clone.template.templateRef"
	count(policy.deny) == 1 with input as world
}

# A namespace without access to the server gets only that message.
test_template_of_a_stranger if {
	_verdict == "NamespaceNotAllowed" with input as {"request": _referring(_of_a), "facts": _with(_facts([_other_maker]), null)}
}

_ours_with(template) := object.union(
	_request(_vsphere({"clone": object.union(object.remove(_clone, ["template"]), {"template": template})})),
	{"userInfo": {"username": "system:sallyport"}},
)

# Sallyport itself knows the path when it clones the machine, and needs none for a cloned machine.
test_template_of_our_own if {
	asked := policy.facts with input.request as _ours_with({"templateRef": _of_a})
	asked.template == null
	made := {"request": _ours_with({"templateRef": _of_a}), "facts": _facts([_maker({"templates": []})])}
	_verdict == "allow" with input as made
	making := {"request": _ours_with({"templateRef": _of_a, "inventoryPath": "/dc/vm/other/t"}), "facts": _facts([_maker({})])}
	_verdict == "TemplateNotAllowed" with input as making
}

test_template_of_a_pool if {
	request := _of_pool(_referring({"name": "ubuntu", "failureDomain": "b"}))
	world := {"request": request, "facts": _with(_facts([_maker({})]), _kept({}))}
	some denial in policy.deny with input as world
	denial.details.field == "spec.virtualMachineTemplate.spec.runtime.vsphere.clone.template.templateRef"
}

test_template_not_understood[note] if {
	some note, world in object.union_n([
		{$"reference {ref}": {"request": _referring(ref), "facts": _with(_facts([_maker({})]), null)} | some ref in [{}, {"name": ""}]},
		{$"without {path}": {"request": _referring(_of_a), "facts": _with(_facts([_maker({})]), json.remove(_kept({}), [path]))} |
			some path in ["metadata/name", "spec/serverRef", "spec/name", "spec/failureDomains"]
		},
		{$"with {more}": {"request": _referring(_of_a), "facts": _with(_facts([_maker({})]), _kept(more))} |
			some more in [{"metadata": {"name": "other"}}, {"spec": {"serverRef": {"name": ""}}}, {"spec": {"name": ""}}]
		},
		{$"failure domain {domain}": {
			"request": _referring(_of_a),
			"facts": _with(_facts([_maker({})]), _kept({"spec": {"failureDomains": [domain]}})),
		} |
			some domain in [{"name": "a"}, {"folder": "/dc"}, {"name": "", "folder": "/dc"}, {"name": "a", "folder": "dc"}]
		},
		{"not asked for": {"request": _cloning({}), "facts": _with(_facts([_maker({})]), _kept({}))}},
	])
	_verdict == "not understood" with input as world
}
