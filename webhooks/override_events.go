package webhooks

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

const (
	// reasonOverridden is the reason of events about overrides.
	reasonOverridden = "Overridden"
	// maxNote is how many bytes the API takes as the note of an event.
	maxNote = 1024
)

// EventRecorder tells people what happened to an object. It does not wait for the API server: an admission webhook must not.
// Kubernetes' own event recorders are such.
type EventRecorder interface {
	Eventf(regarding, related runtime.Object, eventtype, reason, action, note string, args ...any)
}

// TellBy has denials told to people in events on the object, and overrides also on the policy. It is for before the first request.
func (r *Recorder) TellBy(events EventRecorder) { r.events = events }

// tellOverrides tells of the policies that an admitted request passed by override. What reconcilers ask again is counted once, when
// it was admitted; it is told once more because it may be only by then that a policy refuses.
func (r *Recorder) tellOverrides(j *judgement) {
	for i := range j.verdicts {
		v := &j.verdicts[i]
		if v.override == nil {
			continue
		}
		if j.endpoint == validating {
			r.metrics.overrides.WithLabelValues(v.policy.Name()).Inc()
		}
		if r.events == nil {
			continue
		}
		object := j.appeal.on.DeepCopy()
		policy := policyReference(v)
		note := j.noteOf(v)
		r.events.Eventf(object, policy, corev1.EventTypeWarning, reasonOverridden, "Override", "%s", note)
		r.events.Eventf(policy, object, corev1.EventTypeWarning, reasonOverridden, "Override", "%s", note)
	}
}

// noteOf says who passed what, until when, and why.
func (j *judgement) noteOf(v *verdict) string {
	var passed []string
	for _, o := range v.objections() {
		if !slices.Contains(passed, o.title()) {
			passed = append(passed, o.title())
		}
	}
	on := &j.appeal.on
	name := on.Name
	if on.Namespace != "" {
		name = on.Namespace + "/" + name
	}
	return shortened(fmt.Sprintf("%s passed %s by override until %s, with %s of %s %s: %s",
		v.override.By, strings.Join(passed, ", "), v.override.Until, j.what(), on.Kind, name, v.override.Reason))
}
