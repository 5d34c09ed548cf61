package webhooks

import (
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// What is refused is refused with the way out, whether or not the policy's message has it.
func TestTheWayOutOfARefusal(t *testing.T) {
	const refused = "[colour/TooRed] x has red"
	rule := denies("red", "TooRed", 403)
	silent := strings.Replace(rule, "remedyInMessage: do it", "remedy: Paint it.", 1)
	ended := strings.Replace(silent, `has red"}`, `has red."}`, 1)
	final := strings.Replace(silent, "remedy:", "override: false, remedy:", 1)
	const command = "\nTo override colour once (needs the verb override on it): kubectl sallyport override colour configmaps/cm"
	const reason = ` --reason "..."`
	on := func(change func(*admissionv1.AdmissionRequest)) []func(*admissionv1.AdmissionRequest) {
		return []func(*admissionv1.AdmissionRequest){by("alice"), change}
	}
	everybody := on(func(*admissionv1.AdmissionRequest) {})
	for name, tc := range map[string]struct {
		rule      string
		operation admissionv1.Operation
		who       v1alpha1.PolicyOverride
		change    []func(*admissionv1.AdmissionRequest)
		want      string
	}{
		"the message has it":                    {rule, "UPDATE", "Users", everybody, refused},
		"there is no object yet":                {silent, "CREATE", "Users", everybody, refused + ". Paint it."},
		"there is an object":                    {silent, "UPDATE", "Users", everybody, refused + ". Paint it." + command + " -n ns" + reason},
		"a sentence that has ended":             {ended, "UPDATE", "Users", everybody, refused + ". Paint it." + command + " -n ns" + reason},
		"a deletion":                            {strings.ReplaceAll(silent, "request.object", "request.oldObject"), "DELETE", "Users", everybody, refused + ". Paint it." + command + " -n ns" + reason},
		"nobody may override it":                {silent, "UPDATE", "Nobody", everybody, refused + ". Paint it."},
		"no override passes it":                 {final, "UPDATE", "Users", everybody, refused + ". Paint it."},
		"a service account may not override it": {silent, "UPDATE", "Users", on(by("system:serviceaccount:ns:robot")), refused + ". Paint it."},
		"a name that is a command": {silent, "UPDATE", "Users", on(func(r *admissionv1.AdmissionRequest) { r.Name = "$(reboot)" }),
			refused + ". Paint it." + strings.Replace(command, "configmaps/cm", "'configmaps/$(reboot)'", 1) + " -n ns" + reason},
		"of the whole cluster": {silent, "UPDATE", "Users", on(func(r *admissionv1.AdmissionRequest) { r.Namespace = "" }),
			refused + ". Paint it." + command + reason},
		"of a group": {silent, "UPDATE", "Users", on(func(r *admissionv1.AdmissionRequest) { r.Resource.Group = "apps" }),
			refused + ". Paint it." + strings.Replace(command, "configmaps", "configmaps.apps", 1) + " -n ns" + reason},
		"a namespace, which is in none": {silent, "UPDATE", "Users", on(func(r *admissionv1.AdmissionRequest) { r.Resource.Resource, r.Name = "namespaces", "ns" }),
			refused + ". Paint it." + strings.Replace(command, "configmaps/cm", "namespaces/ns", 1) + reason},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, world{}, policyOf("colour", tc.rule, func(s *v1alpha1.RegoPolicySpec) {
				s.Override, s.Match.Resources[0].APIGroups, s.Match.Resources[0].Resources = tc.who, []string{"", "apps"}, []string{"configmaps", "namespaces"}
			}))
			got := f.Validate(t.Context(), reviewOf(t, tc.operation, red, tc.change...))
			if got.Allowed || got.Result.Message != tc.want {
				t.Errorf("got %+v\nwant %s", got.Result, tc.want)
			}
		})
	}
	// An override passes one policy: where two refuse, none helps.
	f := newFixture(t, world{}, policyOf("colour", silent), policyOf("shade", silent))
	if got := f.Validate(t.Context(), reviewOf(t, "UPDATE", red)); strings.Contains(got.Result.Message, "override") {
		t.Errorf("got %s", got.Result.Message)
	}
	// A warning says what to do, too.
	f = newFixture(t, world{}, policyOf("colour", silent, func(s *v1alpha1.RegoPolicySpec) { s.Mode = v1alpha1.ModeWarn }))
	if got := f.Validate(t.Context(), reviewOf(t, "UPDATE", red)); len(got.Warnings) != 1 || got.Warnings[0] != strings.Replace(refused, "] ", "] would be denied: ", 1)+". Paint it." {
		t.Errorf("warnings are %q", got.Warnings)
	}
}
