# METADATA
# title: References to VSphereTemplates
# description: Resolves the templateRef of a machine that is cloned from a VSphereTemplate.
package sallyport.lib.templates

# METADATA
# description: >-
#   The failure domain in the spec of a VSphereTemplate that a templateRef resolves to: the one that it names, or the only one if it
#   names none.
meant(spec, ref) := [domain | some domain in spec.failureDomains; domain.name == ref.failureDomain][0]

meant(spec, ref) := spec.failureDomains[0] if {
	not ref.failureDomain
	count(spec.failureDomains) == 1
}
