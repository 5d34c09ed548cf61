package webhooks

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// Response makes one response out of all verdicts.
func (d *Decision) Response() *admissionv1.AdmissionResponse {
	var refusing []objection
	warnings := append(d.openWarnings(), d.override.warnings()...)
	var said []string
	for i := range d.verdicts {
		v := &d.verdicts[i]
		switch {
		case v.refuses():
			refusing = append(refusing, v.objections()...)
		case v.override != nil:
			for _, o := range v.objections() {
				warnings = append(warnings, fmt.Sprintf("%s is overridden until %s: %s", o.title(), v.override.Until, o.Message))
			}
		case v.mode == v1alpha1.ModeWarn, v.err != nil && v.mode == v1alpha1.ModeEnforce:
			for _, o := range v.objections() {
				warnings = append(warnings, o.text())
			}
		}
		if v.decision != nil && v.mode != v1alpha1.ModeAudit {
			said = append(said, v.decision.Warnings...)
		}
	}
	warnings = append(warnings, said...) // the API server cuts what is too much: what would block comes first
	for i, w := range warnings {
		warnings[i] = inOneLine(w)
	}
	response := &admissionv1.AdmissionResponse{
		UID: d.Review.Request.UID, Allowed: len(refusing) == 0, Warnings: warnings,
		AuditAnnotations: d.annotations(len(refusing) == 0),
	}
	if !response.Allowed {
		response.Result = d.status(refusing)
	} else if len(d.patch) > 0 {
		kind := admissionv1.PatchTypeJSONPatch
		response.Patch, response.PatchType = d.patch, &kind
	}
	return response
}

// annotations for the audit log. The API server puts the webhook's name and a slash before the keys.
func (d *Decision) annotations(allowed bool) map[string]string {
	verdict := "denied"
	if allowed {
		verdict = "allowed"
	}
	revisions := make([]string, len(d.verdicts))
	for i, v := range d.verdicts {
		revisions[i] = v.policy.Name() + "@" + cmp.Or(v.policy.Revision(), "none")
	}
	all := map[string]string{"decision": string(d.id), "verdict": verdict, "policies": strings.Join(revisions, ",")}
	for _, v := range d.verdicts {
		if v.override != nil {
			all["override"] = fmt.Sprintf("%s until %s: %s", v.policy.Name(), v.override.Until, v.override.Reason)
		}
	}
	return all
}

// status lists every objection in its message and, for programs, as a cause each.
func (d *Decision) status(refusing []objection) *metav1.Status {
	code := d.code(refusing)
	status := &metav1.Status{
		Status: metav1.StatusFailure, Code: int32(code), Reason: reason(refusing, code), Details: d.details(refusing, code),
	}
	texts := make([]string, len(refusing))
	for i, o := range refusing {
		texts[i] = o.text()
	}
	if way := d.wayPast(); way != "" {
		texts = append(texts, way)
	}
	status.Message = strings.Join(texts, "\n")
	return status
}

// precedence of codes where denials differ: what cannot be mended by waiting comes first, and an answer before a failure.
var precedence = []int{
	http.StatusForbidden, http.StatusUnprocessableEntity, http.StatusConflict, http.StatusTooManyRequests,
	http.StatusInternalServerError, http.StatusServiceUnavailable,
}

// code of the response. Only a CREATE that is a POST may have another than 403: with 409 or 422 `kubectl apply` retries a
// PATCH and `--force` deletes and re-creates the object. 429 is for evictions, whose callers know how to wait.
func (d *Decision) code(refusing []objection) int {
	request := d.Review.Request
	eviction := request.Resource.Group == "" && request.Resource.Resource == "pods" && request.SubResource == "eviction"
	if request.Operation != admissionv1.Create || d.Review.createdByApply() {
		return http.StatusForbidden
	}
	for _, code := range precedence {
		if slices.ContainsFunc(refusing, func(o objection) bool { return o.Code == code }) {
			if code == http.StatusTooManyRequests && !eviction {
				return http.StatusForbidden
			}
			return code
		}
	}
	return http.StatusForbidden
}

// reason is the denials' own if they share one, else the one that belongs to the code.
func reason(refusing []objection, code int) metav1.StatusReason {
	shared := refusing[0].Reason
	if !slices.ContainsFunc(refusing, func(o objection) bool { return o.Reason != shared }) {
		return metav1.StatusReason(shared)
	}
	switch code {
	case http.StatusConflict:
		return metav1.StatusReasonConflict
	case http.StatusUnprocessableEntity:
		return metav1.StatusReasonInvalid
	case http.StatusInternalServerError, http.StatusServiceUnavailable:
		return metav1.StatusReasonInternalError
	default:
		return metav1.StatusReasonForbidden
	}
}

// details name what blocks if it is one thing, else the object of the request; kubectl prints the latter with a 422.
func (d *Decision) details(refusing []objection, code int) *metav1.StatusDetails {
	subject := d.Review.Subject()
	details := &metav1.StatusDetails{Group: subject.Kind.Group, Kind: subject.Kind.Kind, Name: subject.Name, UID: subject.UID}
	if what := refusing[0].Details; len(refusing) == 1 && what.Kind != "" && code != http.StatusUnprocessableEntity {
		details.Kind, details.Name, details.UID = what.Kind, what.Name, ""
		if what.Group != "" {
			details.Group = what.Group
		}
	}
	for _, o := range refusing {
		details.Causes = append(details.Causes, metav1.StatusCause{
			Type: metav1.CauseType(o.name()), Message: o.text(), Field: o.Details.Field,
		})
	}
	return details
}
