package webhooks

import (
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/commands"
)

// overrideCommand returns the command with which authorized users override the only denying policy. It returns "" if several policies deny
// the request, the object does not exist yet, or the policy or its messages exclude it.
func (d *Decision) overrideCommand() string {
	request, subject := d.Review.Request, d.Review.Subject()
	exists := request.Operation != admissionv1.Create || request.SubResource != ""
	if d.Endpoint != Validating || !exists || subject.Name == "" {
		return ""
	}
	var refusing *verdict
	for i := range d.verdicts {
		switch v := &d.verdicts[i]; {
		case !v.denies():
		case refusing != nil:
			return ""
		default:
			refusing = v
		}
	}
	if refusing == nil || refusing.finalDenial() != nil || refusing.hasOwnRemedy() {
		return ""
	}
	p := refusing.policy
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

// hasOwnRemedy reports whether a denial already says in its message how to proceed.
func (v *verdict) hasOwnRemedy() bool {
	if v.decision == nil {
		return false
	}
	for _, d := range v.decision.Denials {
		if d.Remedy == "" {
			return true
		}
	}
	return false
}
