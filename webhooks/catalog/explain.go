package catalog

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/engine"
)

// Meeting is the result of matching a request with a policy's spec.match, field by field, and the effective mode.
type Meeting struct {
	// Met reports whether Select returns the policy.
	Met bool `json:"met"`
	// By is the entry of spec.match.resources that matches; empty if none does.
	By string `json:"by,omitempty"`
	// Missed are the fields that do not match.
	Missed []Missed `json:"missed,omitempty"`
	// Mode is the effective mode, and ModeBy the field that sets it.
	Mode   v1alpha1.PolicyMode `json:"mode,omitempty"`
	ModeBy string              `json:"modeBy,omitempty"`
	// Unread is why the labels of the namespace are unknown, if they matter. The policy follows its onError then.
	Unread error `json:"-"`
}

// Missed is a field of a RegoPolicy that does not match a request.
type Missed struct {
	Field string `json:"field"`
	// Why names the values of the field and of the request.
	Why string `json:"why"`
}

// Meeting matches the request with the policy. It reads the labels of the request's namespace if they matter.
func (p *Policy) Meeting(ctx context.Context, request *admissionv1.AdmissionRequest, reader engine.Reader) *Meeting {
	home := homeOf(ctx, request, reader)
	m := &Meeting{}
	if p.err != nil && Repairs(request) {
		m.addMissed("spec", "is broken, and a broken policy is not evaluated for RegoPolicies, so that it can be repaired")
	}
	if p.match.PolicyMatch == nil {
		m.addMissed("spec.match.resources", "is empty")
	} else {
		m.resources(p.match, request)
		m.exclusions(p.match, request)
		m.object(p.match, request)
		m.namespace(p.match, request, home)
	}
	m.Met = len(m.Missed) == 0
	var unread error
	if m.Mode, unread = p.modeFor(request, home); m.Unread == nil {
		m.Unread = unread
	}
	m.ModeBy = p.modeField(m.Mode, request, home)
	return m
}

func (m *Meeting) addMissed(field, format string, args ...any) {
	m.Missed = append(m.Missed, Missed{Field: field, Why: fmt.Sprintf(format, args...)})
}

// resources adds, if no entry matches, the differences of each entry.
func (m *Meeting) resources(match matcher, request *admissionv1.AdmissionRequest) {
	var missed []Missed
	for i, r := range match.Resources {
		field := fmt.Sprintf("spec.match.resources[%d]", i)
		why := mismatches(&r, request)
		if len(why) == 0 {
			m.By = field
			return
		}
		missed = append(missed, Missed{Field: field, Why: strings.Join(why, ", and ")})
	}
	m.Missed = append(m.Missed, missed...)
}

// MissesDebugContainers reports whether a policy matches the creation or update of Pods, but not the containers that kubectl debug
// adds: these are another resource, which `pods` does not include.
func MissesDebugContainers(match *v1alpha1.PolicyMatch) bool {
	judges := func(operation admissionv1.Operation, subresource string) bool {
		request := &admissionv1.AdmissionRequest{
			Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"}, SubResource: subresource, Operation: operation,
		}
		return matcher{PolicyMatch: match}.covers(request)
	}
	return (judges(admissionv1.Create, "") || judges(admissionv1.Update, "")) && !judges(admissionv1.Update, "ephemeralcontainers")
}

// mismatches returns the differences between an entry and a request; none if it matches.
func mismatches(r *v1alpha1.PolicyResources, request *admissionv1.AdmissionRequest) (why []string) {
	is := func(field, name string, has []string, met bool) {
		if !met {
			why = append(why, fmt.Sprintf("%s has %s, not %q", field, quoted(has), name))
		}
	}
	resource := request.Resource.Resource
	if request.SubResource != "" {
		resource += "/" + request.SubResource
	}
	keys := lookups(request)
	is("apiGroups", request.Resource.Group, r.APIGroups, covers(r.APIGroups, request.Resource.Group))
	is("apiVersions", request.Resource.Version, r.APIVersions, covers(r.APIVersions, request.Resource.Version))
	is("resources", resource, r.Resources, slices.ContainsFunc(keys, func(k resourceKey) bool { return slices.Contains(r.Resources, k.resource) }))
	operation := v1alpha1.MatchOperation(request.Operation)
	has := make([]string, len(r.Operations))
	for i, o := range r.Operations {
		has[i] = string(o)
	}
	is("operations", string(operation), has, slices.Contains(r.Operations, operation))
	return why
}

func quoted(texts []string) string {
	all := make([]string, len(texts))
	for i, t := range texts {
		all[i] = fmt.Sprintf("%q", t)
	}
	return "[" + strings.Join(all, ", ") + "]"
}

// exclusions adds the entries that exclude the request.
func (m *Meeting) exclusions(match matcher, request *admissionv1.AdmissionRequest) {
	user := &request.UserInfo
	if i := slices.Index(match.ExcludeUsers, user.Username); i >= 0 {
		m.addMissed(fmt.Sprintf("spec.match.excludeUsers[%d]", i), "is %s, the requester", user.Username)
	}
	for i, group := range match.ExcludeGroups {
		if slices.Contains(user.Groups, group) {
			m.addMissed(fmt.Sprintf("spec.match.excludeGroups[%d]", i), "is %s, a group of %s", group, user.Username)
		}
	}
	if i := slices.Index(match.ExcludeNamespaces, request.Namespace); i >= 0 && request.Namespace != "" {
		m.addMissed(fmt.Sprintf("spec.match.excludeNamespaces[%d]", i), "is %s, the namespace of the request", request.Namespace)
	}
}

func (m *Meeting) object(match matcher, request *admissionv1.AdmissionRequest) {
	met, err := match.object(request)
	switch {
	case err != nil:
		m.Unread = err
	case !met:
		m.addMissed("spec.match.objectSelector", "is %s, which the object's labels do not match", match.objects)
	}
}

func (m *Meeting) namespace(match matcher, request *admissionv1.AdmissionRequest, home labelsOf) {
	met, err := match.namespace(request, home)
	switch {
	case err != nil:
		m.Unread = err
	case !met:
		sets, _ := home()
		m.addMissed("spec.match.namespaceSelector", "is %s, but namespace %s has the labels %s",
			match.namespaces, cmp.Or(request.Namespace, request.Name), labelsText(sets))
	}
}

// labelsText returns the labels before and after a request, where they differ.
func labelsText(sets homes) string {
	var texts []string
	for _, set := range sets {
		text := set.String()
		if len(set) == 0 {
			text = "(none)"
		}
		texts = append(texts, text)
	}
	return strings.Join(slices.Compact(texts), " and would have ")
}

// modeField returns the field that sets a mode.
func (p *Policy) modeField(mode v1alpha1.PolicyMode, request *admissionv1.AdmissionRequest, home labelsOf) string {
	if !placed(request) {
		return "spec.mode"
	}
	sets := homes{nil}
	if p.regime.byLabels() {
		var err error
		if sets, err = home(); err != nil {
			return "the strictest of spec.mode and spec.namespaceModes, because the labels of the namespace are unknown"
		}
	}
	for _, set := range sets {
		if i := p.regime.entryFor(set); i >= 0 && p.regime.namespaces[i].mode == mode {
			return fmt.Sprintf("spec.namespaceModes[%d]", i)
		}
	}
	return "spec.mode"
}
