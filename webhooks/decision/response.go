package decision

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

// Response combines the results of all policies.
func (d *Decision) Response() *admissionv1.AdmissionResponse {
	var denying []Denial
	warnings := append(d.openWarnings(), d.carried.warnings()...)
	var said []string
	for i := range d.verdicts {
		v := &d.verdicts[i]
		switch {
		case v.Denies():
			denying = append(denying, v.Denials()...)
		case v.Override != nil:
			for _, o := range v.Denials() {
				warnings = append(warnings, fmt.Sprintf("%s is overridden until %s: %s", o.Title(), v.Override.Until, o.Statement()))
			}
		case v.Mode == v1alpha1.ModeWarn:
			for _, o := range v.Denials() {
				warnings = append(warnings, o.admittedText())
			}
		case v.Err != nil && v.Mode == v1alpha1.ModeEnforce:
			for _, o := range v.Denials() {
				warnings = append(warnings, o.Text())
			}
		}
		if v.Decision != nil && v.Mode != v1alpha1.ModeAudit {
			said = append(said, v.Decision.Warnings...)
		}
	}
	warnings = append(warnings, said...) // the API server truncates warnings: would-be denials come first
	for i, w := range warnings {
		warnings[i] = InOneLine(w)
	}
	response := &admissionv1.AdmissionResponse{
		UID: d.Review.Request.UID, Allowed: len(denying) == 0, Warnings: warnings,
		AuditAnnotations: d.auditAnnotations(len(denying) == 0),
	}
	if !response.Allowed {
		response.Result = d.status(denying)
	} else if len(d.patch) > 0 {
		kind := admissionv1.PatchTypeJSONPatch
		response.Patch, response.PatchType = d.patch, &kind
	}
	return response
}

// auditAnnotations returns the audit annotations. The API server prefixes the keys with the webhook's name and a slash.
func (d *Decision) auditAnnotations(allowed bool) map[string]string {
	verdict := "denied"
	if allowed {
		verdict = "allowed"
	}
	revisions := make([]string, len(d.verdicts))
	for i, v := range d.verdicts {
		revisions[i] = v.Policy.Name() + "@" + cmp.Or(v.Policy.Revision(), "none")
	}
	all := map[string]string{"decision": string(d.id), "verdict": verdict, "policies": strings.Join(revisions, ",")}
	for _, v := range d.verdicts {
		if v.Override != nil {
			all["override"] = fmt.Sprintf("%s until %s: %s", v.Policy.Name(), v.Override.Until, v.Override.Reason)
		}
	}
	return all
}

// status lists every denial in the message and, for programs, as a cause.
func (d *Decision) status(denying []Denial) *metav1.Status {
	code := d.code(denying)
	status := &metav1.Status{
		Status: metav1.StatusFailure, Code: int32(code), Reason: reason(denying, code), Details: d.details(denying, code),
	}
	texts := make([]string, len(denying))
	for i, o := range denying {
		texts[i] = o.Text()
	}
	if way := d.overrideCommand(); way != "" {
		texts = append(texts, way)
	}
	status.Message = strings.Join(texts, "\n")
	return status
}

// precedence orders the codes of several denials: those that waiting cannot resolve come first, and denials before failures.
var precedence = []int{
	http.StatusForbidden, http.StatusUnprocessableEntity, http.StatusConflict, http.StatusTooManyRequests,
	http.StatusInternalServerError, http.StatusServiceUnavailable,
}

// code returns the status code. Only a CREATE by POST may have another than 403: after 409 or 422 `kubectl apply` retries a PATCH,
// and `--force` deletes and re-creates the object. 429 is for evictions, whose callers retry.
func (d *Decision) code(denying []Denial) int {
	request := d.Review.Request
	eviction := request.Resource.Group == "" && request.Resource.Resource == "pods" && request.SubResource == "eviction"
	if request.Operation != admissionv1.Create || d.Review.createdByApply() {
		return http.StatusForbidden
	}
	for _, code := range precedence {
		if slices.ContainsFunc(denying, func(o Denial) bool { return o.Code == code }) {
			if code == http.StatusTooManyRequests && !eviction {
				return http.StatusForbidden
			}
			return code
		}
	}
	return http.StatusForbidden
}

// reason returns the reason that all denials share, or else that of the code.
func reason(denying []Denial, code int) metav1.StatusReason {
	shared := denying[0].Reason
	if !slices.ContainsFunc(denying, func(o Denial) bool { return o.Reason != shared }) {
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

// CauseShort is the type of a cause that says in short why a request is denied, without the object and the remedy. It follows the cause
// of its denial.
const CauseShort metav1.CauseType = "Cause"

// details name the blocking object if there is one, else the request's object, which kubectl prints with a 422.
func (d *Decision) details(denying []Denial, code int) *metav1.StatusDetails {
	subject := d.Review.Subject()
	details := &metav1.StatusDetails{Group: subject.Kind.Group, Kind: subject.Kind.Kind, Name: subject.Name, UID: subject.UID}
	if what := denying[0].Details; len(denying) == 1 && what.Kind != "" && code != http.StatusUnprocessableEntity {
		details.Kind, details.Name, details.UID = what.Kind, what.Name, ""
		if what.Group != "" {
			details.Group = what.Group
		}
	}
	for _, o := range denying {
		details.Causes = append(details.Causes, metav1.StatusCause{
			Type: metav1.CauseType(o.Name()), Message: o.Text(), Field: o.Details.Field,
		})
		if short := o.short(); short != "" && code != http.StatusUnprocessableEntity { // kubectl prints all causes of a 422
			details.Causes = append(details.Causes, metav1.StatusCause{Type: CauseShort, Message: short})
		}
	}
	return details
}
