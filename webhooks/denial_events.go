package webhooks

import (
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// tellDenials tells of a refused change or deletion where people look when something does not happen: in events on the object. It is
// mostly a controller that was refused, an autoscaler say, and nobody has read the response. Kubernetes' event recorders make one
// event with a count out of what is refused again and again.
func (r *Recorder) tellDenials(j *judgement) {
	if r.events == nil || j.endpoint != validating {
		return
	}
	object, known := j.regarding()
	if !known {
		return
	}
	told := map[string]bool{}
	for i := range j.verdicts {
		v := &j.verdicts[i]
		if !v.refuses() {
			continue
		}
		for _, o := range v.objections() {
			note := fmt.Sprintf("%s (%s by %s)", o.text(), j.what(), j.review.Request.UserInfo.Username)
			if told[note] {
				continue
			}
			told[note] = true
			r.events.Eventf(object.DeepCopy(), policyReference(v), corev1.EventTypeWarning, o.Reason, actions[j.review.Request.Operation], "%s", shortened(note))
		}
	}
}

// actions are what was asked for, as events call it.
var actions = map[admissionv1.Operation]string{
	admissionv1.Create: "Create", admissionv1.Update: "Update", admissionv1.Delete: "Delete",
}

// regarding is the object that exists and that the request is about: of a subresource the one that it belongs to. It was found when
// the request was looked through for an override.
func (j *judgement) regarding() (*corev1.ObjectReference, bool) {
	request := j.review.Request
	made := request.Operation == admissionv1.Create && request.SubResource == ""
	return &j.appeal.on, !made && j.appeal.on.UID != ""
}

// what says what was asked for, as in "UPDATE of scale".
func (j *judgement) what() string {
	if part := j.review.Request.SubResource; part != "" {
		return fmt.Sprintf("%s of %s", j.review.Request.Operation, part)
	}
	return string(j.review.Request.Operation)
}

func policyReference(v *verdict) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: "RegoPolicy", Name: v.policy.Name(), UID: v.policy.UID(),
	}
}

// shortened cuts a note to what the API takes.
func shortened(note string) string {
	if len(note) > maxNote {
		return strings.ToValidUTF8(note[:maxNote], "")
	}
	return note
}
