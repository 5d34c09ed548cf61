package decision

import (
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/commands"
	"sallyport.dev/sallyport/webhooks/engine"
)

// overrideCommand returns the command with which authorized users override the only denying policy. It returns "" if several policies deny
// the request, the object does not exist yet, or the policy or its messages exclude it.
func (d *Decision) overrideCommand() string {
	request, subject := d.Review.Request, d.Review.Subject()
	exists := request.Operation != admissionv1.Create || request.SubResource != ""
	if d.Endpoint != Validating || !exists || subject.Name == "" {
		return ""
	}
	var denying *Verdict
	for i := range d.verdicts {
		switch v := &d.verdicts[i]; {
		case !v.Denies():
		case denying != nil:
			return ""
		default:
			denying = v
		}
	}
	if denying == nil || denying.finalDenial() != nil || denying.hasOwnRemedy() {
		return ""
	}
	p := denying.Policy
	if p.Override == v1alpha1.OverrideNobody ||
		p.Override == v1alpha1.OverrideUsers && strings.HasPrefix(request.UserInfo.Username, serviceAccount) {
		return ""
	}
	object := request.Resource.Resource
	if request.Resource.Group != "" {
		object += "." + request.Resource.Group
	}
	namespace := subject.Namespace
	if object == "namespaces" {
		namespace = ""
	}
	words := append([]string{"kubectl", "sallyport", "override", p.Name()}, commands.Object(object, namespace, subject.Name)...)
	return fmt.Sprintf("To override %s once (needs the verb override on it): %s --reason \"...\"", p.Name(), commands.Line(words...))
}

// hasOwnRemedy reports whether a denial says how to proceed, in its remedy or its message, instead of the rule's METADATA.
func (v *Verdict) hasOwnRemedy() bool {
	return v.Decision != nil && slices.ContainsFunc(v.Decision.Denials, func(d engine.Denial) bool { return d.RuleRemedy == "" })
}
