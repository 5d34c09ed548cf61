# METADATA
# title: VSphereTemplates that are referred to
# description: Which template is meant where a machine is made from a VSphereTemplate.
package sallyport.lib.templates

# METADATA
# description: >-
#   The failure domain that a templateRef means, of those that the spec of the VSphereTemplate has: the one that it names, or the
#   only one if it names none.
meant(spec, ref) := [domain | some domain in spec.failureDomains; domain.name == ref.failureDomain][0]

meant(spec, ref) := spec.failureDomains[0] if {
	not ref.failureDomain
	count(spec.failureDomains) == 1
}
