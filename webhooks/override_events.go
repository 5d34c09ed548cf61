package webhooks

import (
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
)

// reasonOverridden is the reason of events about overrides.
const reasonOverridden = "Overridden"

// tellOverrides tells of the policies that an admitted request passed by override. What reconcilers ask again is counted once, when
// it was admitted; it is told once more because it may be only by then that a policy refuses.
func (r *Recorder) tellOverrides(j *judgement) {
	var events []event
	for i := range j.verdicts {
		v := &j.verdicts[i]
		if v.override == nil {
			continue
		}
		if j.endpoint == validating {
			r.metrics.overrides.WithLabelValues(v.policy.Name()).Inc()
		}
		events = append(events, event{policy: policyReference(v), reason: reasonOverridden, action: "Override", note: j.noteOf(v), onPolicy: true})
	}
	if r.teller == nil || len(events) == 0 {
		return
	}
	t, on := r.teller, &j.override.on
	told := &telling{object: on.DeepCopy(), events: events, reader: j.reader, rate: t.rate}
	text := j.override.text
	told.proof = func(live *seen) bool { return live.UID == told.object.UID && live.override == text }
	switch {
	case j.review.Verified || j.override.seen:
		t.make(told)
	case j.review.Request.SubResource != "" || on.UID == "" || j.gone():
		t.drop(unproven)
	default:
		t.find(t.soon(told))
	}
}

// gone tells whether the object will not be there any more once the request has been admitted.
func (j *judgement) gone() bool { return j.review.Request.Operation == admissionv1.Delete }

// noteOf says what was passed by whom, until when, and why.
func (j *judgement) noteOf(v *verdict) string {
	var passed []string
	for _, o := range v.objections() {
		if !slices.Contains(passed, o.title()) {
			passed = append(passed, o.title())
		}
	}
	on := &j.override.on
	name := on.Name
	if on.Namespace != "" {
		name = on.Namespace + "/" + name
	}
	who := "a request"
	if j.review.Verified {
		who = v.override.By
	}
	return fmt.Sprintf("%s passed %s by override until %s, with %s of %s %s: %s",
		who, strings.Join(passed, ", "), v.override.Until, j.what(), on.Kind, name, v.override.Reason)
}
