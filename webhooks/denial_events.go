package webhooks

import (
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// tellDenials tells of a refused change or deletion where people look when something does not happen: in events on the object. It is
// mostly a controller that was refused, an autoscaler say, and nobody has read the response. Kubernetes' event recorders make one
// event with a count out of what is refused again and again.
func (r *Recorder) tellDenials(j *judgement) {
	made := j.review.Request.Operation == admissionv1.Create && j.review.Request.SubResource == ""
	if r.teller == nil || j.endpoint != validating || made || j.appeal.on.UID == "" {
		return
	}
	what := j.what()
	if j.review.Verified {
		what += " by " + j.review.Request.UserInfo.Username
	}
	var events []event
	for i := range j.verdicts {
		v := &j.verdicts[i]
		if !v.refuses() {
			continue
		}
		for _, o := range v.objections() {
			e := event{
				policy: policyReference(v), reason: o.Reason, action: actions[j.review.Request.Operation], note: fmt.Sprintf("%s (%s)", o.text(), what),
			}
			if !slices.ContainsFunc(events, func(other event) bool { return other.note == e.note }) {
				events = append(events, e)
			}
		}
	}
	r.teller.tell(j, "", events)
}

// actions are what was asked for, as events call it.
var actions = map[admissionv1.Operation]string{
	admissionv1.Create: "Create", admissionv1.Update: "Update", admissionv1.Delete: "Delete",
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
