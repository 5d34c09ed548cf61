package events

import (
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/decision"
)

// recordDenials writes events about a denied change or deletion on the object: the request is often a controller's, such as an autoscaler's,
// whose response no user reads. Kubernetes' event recorders combine repetitions into one event with a count (a series).
func (w *Writer) recordDenials(d *decision.Decision) {
	made := d.Review.Request.Operation == admissionv1.Create && d.Review.Request.SubResource == ""
	carried := d.Carried()
	if d.Endpoint != decision.Validating || made || carried.On.UID == "" {
		return
	}
	on := &carried.On
	pending := &pendingEvents{object: unversioned(on), events: eventsOf(d, (*decision.Verdict).Denies, ""), reader: d.Reader()}
	pending.proof = func(live *liveObject) bool { return live.UID == on.UID && live.ResourceVersion == on.ResourceVersion }
	switch {
	case d.Review.Verified || carried.Seen:
		w.write(pending)
	case d.Review.Request.SubResource != "":
		w.drop(unproven)
	default:
		w.writeIfProven(pending)
	}
}

// recordAdmittedByMode writes events about a request that is admitted only because of the policy's mode, once the object is created, changed or being
// deleted.
func (w *Writer) recordAdmittedByMode(d *decision.Decision) {
	if d.Endpoint != decision.Validating {
		return
	}
	events := eventsOf(d, (*decision.Verdict).AdmitsByMode, "admitted because the policy's mode is %s")
	if len(events) == 0 {
		return
	}
	request, object := d.Review.Request, d.Review.Document.Get("object")
	if request.Operation == admissionv1.Delete {
		object = d.Review.Document.Get("oldObject")
	}
	on, generation := decision.ReferenceTo(object), object.Get("metadata").Get("generation")
	pending := &pendingEvents{object: unversioned(&on), events: events, reader: d.Reader(), known: d.Review.Verified}
	switch {
	case on.UID == "" && request.SubResource != "" && d.Review.Verified: // a CONNECT or an Eviction has no UID of its parent
		pending.ofParent, pending.known = true, false
		pending.proof = func(live *liveObject) bool { return live.UID != "" }
		w.writeIfProven(pending)
	case on.UID == "":
		w.drop(unproven)
	case request.SubResource != "":
		pending.ofParent, pending.known = true, false
		pending.wait, pending.proof = w.limits.Delay, func(live *liveObject) bool { return live.UID == on.UID }
		w.writeIfProven(pending)
	case deletes(d) && d.Review.Verified:
		w.write(pending)
	case deletes(d):
		pending.proof = func(live *liveObject) bool {
			return live.UID == on.UID && (live.terminating || live.ResourceVersion == on.ResourceVersion)
		}
		w.writeIfProven(pending)
	default:
		pending.wait, pending.proof = w.limits.Delay, func(live *liveObject) bool { return live.UID == on.UID && live.generation.Equal(generation) }
		w.writeIfProven(pending)
	}
}

// unversioned returns a reference without resourceVersion. After a denial, clients retry when the object has changed, and so does the API
// server if its copy was outdated: without the version, both denials count as one event.
func unversioned(on *corev1.ObjectReference) *corev1.ObjectReference {
	reference := on.DeepCopy()
	reference.ResourceVersion = ""
	return reference
}

// eventsOf returns the events about the selected results, one for each policy and reason.
func eventsOf(d *decision.Decision, selects func(*decision.Verdict) bool, admitted string) (events []event) {
	for _, v := range d.Verdicts() {
		if !selects(&v) {
			continue
		}
		how := requestOf(d)
		if d.Review.Verified {
			how += " by " + d.Review.Request.UserInfo.Username
		}
		if admitted != "" {
			how += ", " + fmt.Sprintf(admitted, v.Mode)
		}
		events = append(events, eventsOfPolicy(&v, actions[d.Review.Request.Operation], how)...)
	}
	return events
}

// eventsOfPolicy returns one event for each reason of the policy. Event recorders combine events with the same reason into a series
// with the note of the first. So denials with the same reason become one event with all their statements. Their remedies are for the
// user of the request, and may be outdated when the event is read.
func eventsOfPolicy(v *decision.Verdict, action, how string) (events []event) {
	statements := map[string][]string{}
	var reasons []string
	for _, d := range v.Denials() {
		if !slices.Contains(reasons, d.Reason) {
			reasons = append(reasons, d.Reason)
		}
		if text := decision.InOneLine(d.Statement()); !slices.Contains(statements[d.Reason], text) {
			statements[d.Reason] = append(statements[d.Reason], text)
		}
	}
	for _, reason := range reasons {
		events = append(events, event{
			policy: policyReference(v), reason: reason, action: action,
			note: noteOf(fmt.Sprintf("[%s/%s] ", v.Policy.Name(), reason), statements[reason], fmt.Sprintf(" (%s)", how)),
		})
	}
	return events
}

// noteOf joins as many texts as fit into a note between begin and end, which are never cut.
func noteOf(begin string, texts []string, end string) string {
	text := texts[0]
	if most := maxNote - len(begin) - len(end); len(text) > most {
		text = strings.ToValidUTF8(text[:max(most, 0)], "")
	}
	for i, more := range texts[1:] {
		if len(begin)+len(text)+len("; ")+len(more)+len(end) > maxNote-len("; and 999 more") {
			text += fmt.Sprintf("; and %d more", len(texts)-1-i)
			break
		}
		text += "; " + more
	}
	return begin + text + end
}

// actions are the actions of events, by operation.
var actions = map[admissionv1.Operation]string{
	admissionv1.Create: "Create", admissionv1.Update: "Update", admissionv1.Delete: "Delete", admissionv1.Connect: "Connect",
}

// requestOf describes the request, as in "UPDATE of scale".
func requestOf(d *decision.Decision) string {
	if part := d.Review.Request.SubResource; part != "" {
		return fmt.Sprintf("%s of %s", d.Review.Request.Operation, part)
	}
	return string(d.Review.Request.Operation)
}

func policyReference(v *decision.Verdict) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.KindOf(&v1alpha1.RegoPolicy{}).Name, Name: v.Policy.Name(), UID: v.Policy.UID(),
	}
}
