package policy

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// Reasons of events that are not reasons of conditions.
const (
	reasonActivated = "Activated"
	reasonRepaired  = "Repaired"
	reasonPutBack   = "PutBack"
	reasonReset     = "Reset"
	reasonRetired   = "Retired"
	reasonKept      = "Kept"
)

// recordEvents records events for what has changed since the status of the policy was last written.
func (r *Reconciler) recordEvents(before, policy *v1alpha1.RegoPolicy) {
	for _, t := range []v1alpha1.ConditionType{v1alpha1.ConditionShipped, v1alpha1.ConditionEdited, v1alpha1.ConditionCompiled, v1alpha1.ConditionTestsPassed, v1alpha1.ConditionReadsGranted, v1alpha1.ConditionRegistered} {
		was, is := t.In(before.Status.Conditions), t.In(policy.Status.Conditions)
		if is == nil || was != nil && was.Status == is.Status && was.Reason == is.Reason && was.Message == is.Message {
			continue
		}
		switch t {
		case v1alpha1.ConditionRegistered:
			r.recordRegistration(policy, is)
		case v1alpha1.ConditionTestsPassed:
			r.recordTests(policy, was, is)
		default:
			r.recordChange(policy, t, was, is)
		}
	}
	was, is := v1alpha1.ConditionActive.In(before.Status.Conditions), v1alpha1.ConditionActive.In(policy.Status.Conditions)
	switch {
	case is.Reason == string(v1alpha1.ReasonCurrentRevision):
		if now := policy.Status.ActiveRevision; now != before.Status.ActiveRevision && now != "" {
			r.recordEvent(policy, corev1.EventTypeNormal, reasonActivated, "Activate", is.Message)
		}
	case was != nil && was.Reason == string(v1alpha1.ReasonLastGoodRevision) && is.Reason != was.Reason:
		r.recordEvent(policy, corev1.EventTypeWarning, is.Reason, "Activate", is.Message) // the error of the object itself was recorded before
	}
}

// recordChange records an event for a changed condition. was may be nil.
func (r *Reconciler) recordChange(policy *v1alpha1.RegoPolicy, t v1alpha1.ConditionType, was, is *metav1.Condition) {
	good, bad := metav1.ConditionTrue, was != nil && was.Status == metav1.ConditionFalse
	kind, reason, action, note := corev1.EventTypeWarning, is.Reason, "Compile", is.Message
	switch t {
	case v1alpha1.ConditionShipped:
		action = "Apply"
	case v1alpha1.ConditionEdited:
		good, bad, action = metav1.ConditionFalse, was != nil && was.Status == metav1.ConditionTrue, "Edit"
	case v1alpha1.ConditionReadsGranted:
		action = "Read"
	}
	switch {
	case is.Status == metav1.ConditionUnknown:
		return
	case is.Status != good && t == v1alpha1.ConditionEdited:
		kind = corev1.EventTypeNormal // it is a deliberate setting
	case is.Status != good && t != v1alpha1.ConditionShipped:
		active := v1alpha1.ConditionActive.In(policy.Status.Conditions)
		note = v1alpha1.Cut(active.Message, maxAside) + " " + note
	case is.Status == good && t == v1alpha1.ConditionShipped:
		kind = corev1.EventTypeNormal
	case is.Status == good && !bad:
		return // the expected state
	case is.Status == good && t == v1alpha1.ConditionEdited:
		kind, note = corev1.EventTypeNormal, "All fields are as shipped again."
	case is.Status == good:
		kind, reason = corev1.EventTypeNormal, reasonRepaired
		note = fmt.Sprintf("Resolved: %s.", was.Reason)
	}
	r.recordEvent(policy, kind, reason, action, note)
}

// recordRegistration records what the API server asks about, or why it does not. No event while waiting for replicas:
// that state is short-lived.
func (r *Reconciler) recordRegistration(policy *v1alpha1.RegoPolicy, is *metav1.Condition) {
	switch {
	case is.Status == metav1.ConditionTrue:
		r.recordEvent(policy, corev1.EventTypeNormal, is.Reason, "Register", is.Message)
	case is.Reason != string(v1alpha1.ReasonWaitingForReplicas):
		r.recordEvent(policy, corev1.EventTypeWarning, is.Reason, "Register", is.Message)
	}
}

func (r *Reconciler) recordEvent(about runtime.Object, kind, reason, action, note string) {
	r.Events.Eventf(about, nil, kind, reason, action, "%s", note)
}

// warnOfShipped records on an object why a shipped policy is not applied. The policy is the related object, even if
// it does not exist yet: otherwise the recorder would merge events of two policies with the same reason.
func (r *Reconciler) warnOfShipped(about runtime.Object, name string, why Finding) {
	related := &corev1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "RegoPolicy", Name: name}
	note := "RegoPolicy " + name + ": " + why.Message
	r.Events.Eventf(about, related, corev1.EventTypeWarning, string(why.Reason), "Apply", "%s", note)
}
