package catalog

import (
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/engine"
	"sallyport.dev/sallyport/webhooks/grants"
)

// CheckPatch returns an error if the policy may not change before to after.
func (p *Policy) CheckPatch(request *admissionv1.AdmissionRequest, before, after []byte) error {
	resource := request.Resource.Resource
	if request.SubResource != "" {
		resource += "/" + request.SubResource
	}
	return p.patchable.Check(request.Resource.Group, resource, before, after)
}

// MayNotPatch returns why the policy may not patch a resource at all; "" if it may.
func (p *Policy) MayNotPatch(group, resource string) string {
	return p.patchable.Refusal(group, resource)
}

// Unpatchable returns the resources of a match that policies may not patch.
func Unpatchable(match *v1alpha1.PolicyMatch, patchable grants.Patchable) (refused []string) {
	if match == nil {
		return nil
	}
	for i := range match.Resources {
		r := &match.Resources[i]
		if !slices.Contains(r.Operations, v1alpha1.MatchCreate) && !slices.Contains(r.Operations, v1alpha1.MatchUpdate) {
			continue // deleted objects are not patched
		}
		for _, group := range r.APIGroups {
			for j, resource := range r.Resources {
				if why := patchable.Refusal(group, resource); why != "" {
					refused = append(refused, fmt.Sprintf("spec.match.resources[%d].resources[%d], %s: %s", i, j, grants.Named(group, resource), why))
				}
			}
		}
	}
	return refused
}

// Patches reports, without compiling, whether a RegoPolicy has patch rules.
func Patches(object *v1alpha1.RegoPolicy) bool { return Defines(object, "patch") }

// Defines reports, without compiling, whether a RegoPolicy has rules of one of the names. A module that does not parse has none.
func Defines(object *v1alpha1.RegoPolicy, rules ...string) bool {
	return !object.Spec.Library && slices.ContainsFunc(modulesOf(object), func(m engine.Module) bool {
		// Parsing takes milliseconds. A rule's name has no other spelling, so a text without it has no such rule.
		if !slices.ContainsFunc(rules, func(rule string) bool { return strings.Contains(m.Source, rule) }) {
			return false
		}
		outline, err := engine.ParseOutline(m)
		return err == nil && slices.ContainsFunc(rules, func(rule string) bool { return outline.Defines(object.Spec.Package, rule) })
	})
}
