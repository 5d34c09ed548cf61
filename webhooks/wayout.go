package webhooks

import (
	"fmt"
	"regexp"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// typed is a name that can be typed as it is: a message must not have a shell do what somebody has called an object.
var typed = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9:._-]*$`)

// wayPast is the command that overrides the policy that refuses, for those who may: an override passes one policy, is an annotation
// of an object that exists, and is of no use where the policy or its message says otherwise.
func (d *Decision) wayPast() string {
	request, subject := d.Review.Request, d.Review.Subject()
	exists := request.Operation != admissionv1.Create || request.SubResource != ""
	if d.Endpoint != Validating || !exists || !typed.MatchString(subject.Name) {
		return ""
	}
	var refusing *verdict
	for i := range d.verdicts {
		switch v := &d.verdicts[i]; {
		case !v.refuses():
		case refusing != nil:
			return ""
		default:
			refusing = v
		}
	}
	if refusing == nil || refusing.final() != nil || refusing.told() {
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
	object += "/" + subject.Name
	if subject.Namespace != "" && object != "namespaces/"+subject.Namespace {
		object += " -n " + subject.Namespace
	}
	return fmt.Sprintf("To override %[1]s once (needs the verb override on it): kubectl sallyport override %[1]s %[2]s --reason \"...\"", p.Name(), object)
}

// told tells whether the policy's own messages say what to do.
func (v *verdict) told() bool {
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
