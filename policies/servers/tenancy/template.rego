# Machines cloned from a VSphereTemplate: the reference is checked as the path of the template.
package sallyport.servers.tenancy

import data.sallyport.lib.shell
import data.sallyport.lib.templates
import data.sallyport.lib.tenants

# METADATA
# title: The VSphereTemplate that the machine is cloned from
# description: >-
#   Not read for requests by Sallyport itself, which include the path of the template if the machine is not cloned yet.
facts["template"] := {
	"apiVersion": "sallyport.dev/v1alpha1",
	"kind": "VSphereTemplate",
	"namespace": input.request.namespace,
	"name": _template_ref.name,
} if {
	_refers
}

facts["template"] := null if not _refers

# METADATA
# title: The VSphereTemplate does not exist
# custom:
#   reason: VSphereTemplateNotFound
#   remedyInMessage: Create the VSphereTemplate first, or use another one of the namespace.
deny contains {
	"reason": "VSphereTemplateNotFound",
	"code": 422,
	"message": $"{_at("clone.template.templateRef.name")}: VSphereTemplate {_template_ref.name} does not exist in {_namespace}",
	"remedy": $"create it first, or list others with: kubectl get vspheretemplates --namespace {shell.word(input.request.namespace)}",
	"details": _template_details,
} if {
	_cloned
	_refers
	input.facts.template == null
}

# METADATA
# title: The machine cannot be cloned from the VSphereTemplate
# custom:
#   reason: VSphereTemplateUnfit
#   remedyInMessage: Change the field to a value in the message.
deny contains {
	"reason": "VSphereTemplateUnfit",
	"code": 422,
	"message": $"{_at("clone.template.templateRef")}: VSphereTemplate {_template_ref.name} {_unfit}",
	"details": _template_details,
} if {
	_cloned
	_unfit
}

_template_ref := _vsphere.clone.template.templateRef

_refers if {
	_judged
	not _found
	"templateRef" in object.keys(_vsphere.clone.template)
}

_template := input.facts.template if {
	_refers
	input.facts.template != null
}

_unfit := "is being deleted; use another one" if _template_going

_unfit := $"is on VSphereServer {_template.spec.serverRef.name}, but the machine is on {_server}; use a template on the same VSphereServer" if {
	not _template_going
	_template_elsewhere
}

_unfit := $"has no failure domain {_template_ref.failureDomain}; available: {_domain_names}" if {
	_template_here
	not _template_path
	_template_ref.failureDomain
}

_unfit := $"has several failure domains; set failureDomain to one of: {_domain_names}" if {
	_template_here
	not _template_path
	not _template_ref.failureDomain
}

_template_here if {
	_template
	not _template_going
	not _template_elsewhere
}

_template_going if _template.metadata.deletionTimestamp != null

_template_elsewhere if _template.spec.serverRef.name != _vsphere.serverRef.name

_domain_names := concat(", ", sort([domain.name | some domain in _template.spec.failureDomains]))

_template_path := $"{domain.folder}/{_template.spec.name}" if domain := templates.meant(_template.spec, _template_ref)

# The spec of the request. If it has a templateRef, the path of the template is added, if it is known.
_located := object.union(_vsphere, {"clone": {"template": {"inventoryPath": _template_path}}}) if not _template_elsewhere

_located := _vsphere if not _template_path

_located := _vsphere if _template_elsewhere

_template_details := {"kind": "VSphereTemplate", "name": _template_ref.name, "field": _at("clone.template.templateRef")}

_known_template if input.facts.template == null

_known_template if {
	_template.metadata.name == _template_ref.name
	_template.spec.serverRef.name != ""
	_template.spec.name != ""
	_template.spec.failureDomains
	every domain in _template.spec.failureDomains {
		domain.name != ""
		tenants.known_path(domain.folder)
	}
}
