package catalog

import (
	"fmt"
	"slices"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// NeverEvaluated returns which rules of the policy are never evaluated, whatever the API server sends: one line each, which begins with a
// field.
func (p *Policy) NeverEvaluated() []string {
	if p.Broken() != nil || !p.Arbitrates() {
		return nil
	}
	return neverEvaluated(p.match.PolicyMatch)
}

// NeverEvaluated is Policy.NeverEvaluated without compiling the RegoPolicy.
func NeverEvaluated(object *v1alpha1.RegoPolicy) []string {
	if !Defines(object, "outcome") {
		return nil
	}
	return neverEvaluated(object.Spec.Match)
}

// neverEvaluated is about outcome rules, which reconcilers evaluate before they carry out an operation or create a machine.
func neverEvaluated(match *v1alpha1.PolicyMatch) []string {
	operations, machines := v1alpha1.KindOf(&v1alpha1.VirtualMachineOperation{}).Resource(), v1alpha1.KindOf(&v1alpha1.VirtualMachine{}).Resource()
	asked := match != nil && slices.ContainsFunc(match.Resources, func(r v1alpha1.PolicyResources) bool {
		return containsAny(r.APIGroups, v1alpha1.GroupName, all) && containsAny(r.Resources, operations, machines, all, "*/*") &&
			slices.Contains(r.Operations, v1alpha1.MatchCreate)
	})
	if asked {
		return nil
	}
	return []string{fmt.Sprintf("spec.match.resources: the policy has outcome rules, which are evaluated only for CREATE of %[1]s.%[3]s and %[2]s.%[3]s: "+
		"add one of them, or remove the rules", operations, machines, v1alpha1.GroupName)}
}

func containsAny(list []string, of ...string) bool {
	return slices.ContainsFunc(list, func(one string) bool { return slices.Contains(of, one) })
}
