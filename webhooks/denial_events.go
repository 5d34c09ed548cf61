package webhooks

import (
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// recordDenials writes events about a denied change or deletion on the object: the request is often a controller's, such as an autoscaler's,
// whose response no user reads. Kubernetes' event recorders combine repetitions into one event with a count (a series).
func (t *eventWriter) recordDenials(d *Decision) {
	made := d.Review.Request.Operation == admissionv1.Create && d.Review.Request.SubResource == ""
	if t == nil || d.Endpoint != Validating || made || d.override.on.UID == "" {
		return
	}
	on := &d.override.on
	pending := &pendingEvents{object: unversioned(on), events: d.denied((*verdict).denies, ""), reader: d.reader, whose: d.Review.share(), among: t.denied}
	is := *on
	pending.proof = func(live *liveObject) bool { return live.UID == is.UID && live.ResourceVersion == is.ResourceVersion }
	switch {
	case d.Review.Verified || d.override.seen:
		t.write(pending)
	case d.Review.Request.SubResource != "":
		t.drop(unproven)
	default:
		t.writeIfProven(pending)
	}
}

// recordAdmittedByMode writes events about a request that is admitted only because of the policy's mode, once the object is created, changed or being
// deleted.
func (t *eventWriter) recordAdmittedByMode(d *Decision) {
	if t == nil || d.Endpoint != Validating {
		return
	}
	events := d.denied((*verdict).admitsByMode, "admitted because the policy's mode is %s")
	if len(events) == 0 {
		return
	}
	request, object := d.Review.Request, d.Review.Document.Get("object")
	if request.Operation == admissionv1.Delete {
		object = d.Review.Document.Get("oldObject")
	}
	on, generation := referenceTo(object), object.Get("metadata").Get("generation")
	pending := &pendingEvents{object: unversioned(&on), events: events, reader: d.reader, whose: d.Review.share(), among: t.admitted, known: d.Review.Verified}
	switch {
	case on.UID == "" && request.SubResource != "" && d.Review.Verified: // a CONNECT or an Eviction has no UID of its parent
		pending.ofParent, pending.known = true, false
		pending.proof = func(live *liveObject) bool { return live.UID != "" }
		t.writeIfProven(pending)
	case on.UID == "":
		t.drop(unproven)
	case request.SubResource != "":
		pending.ofParent, pending.known = true, false
		pending.wait, pending.proof = t.storing, func(live *liveObject) bool { return live.UID == on.UID }
		t.writeIfProven(pending)
	case d.gone() && d.Review.Verified:
		t.write(pending)
	case d.gone():
		pending.proof = func(live *liveObject) bool {
			return live.UID == on.UID && (live.terminating || live.ResourceVersion == on.ResourceVersion)
		}
		t.writeIfProven(pending)
	default:
		pending.wait, pending.proof = t.storing, func(live *liveObject) bool { return live.UID == on.UID && live.generation.Equal(generation) }
		t.writeIfProven(pending)
	}
}

// unversioned returns a reference without resourceVersion. After a denial, clients retry when the object has changed, and so does the API
// server if its copy was outdated: without the version, both denials count as one event.
func unversioned(on *corev1.ObjectReference) *corev1.ObjectReference {
	reference := on.DeepCopy()
	reference.ResourceVersion = ""
	return reference
}

// denied returns the events about the selected results, one for each policy and reason.
func (d *Decision) denied(which func(*verdict) bool, admitted string) (events []event) {
	what := d.what()
	if d.Review.Verified {
		what += " by " + d.Review.Request.UserInfo.Username
	}
	for i := range d.verdicts {
		v := &d.verdicts[i]
		if !which(v) {
			continue
		}
		how := what
		if admitted != "" {
			how += ", " + fmt.Sprintf(admitted, v.mode)
		}
		events = append(events, v.events(actions[d.Review.Request.Operation], how)...)
	}
	return events
}

// events returns one event for each reason of the policy. Event recorders combine events with the same reason into a series with the
// note of the first. So denials with the same reason become one event with all their texts.
func (v *verdict) events(action, how string) (events []event) {
	texts := map[string][]string{}
	var reasons []string
	for _, o := range v.objections() {
		if !slices.Contains(reasons, o.Reason) {
			reasons = append(reasons, o.Reason)
		}
		if text := o.cause(); !slices.Contains(texts[o.Reason], text) {
			texts[o.Reason] = append(texts[o.Reason], text)
		}
	}
	for _, reason := range reasons {
		events = append(events, event{
			policy: policyReference(v), reason: reason, action: action,
			note: noteOf(fmt.Sprintf("[%s/%s] ", v.policy.Name(), reason), texts[reason], fmt.Sprintf(" (%s)", how)),
		})
	}
	return events
}

// cause returns the first line of the message without the remedy, which is for the user of the request and may be outdated when the event
// is read. Without the field Remedy, the remedy follows the first semicolon, see docs/policies.md.
func (o objection) cause() string {
	line, rest, _ := strings.Cut(o.Message, "\n")
	if strings.HasSuffix(line, ":") {
		next, _, _ := strings.Cut(rest, "\n")
		line += " " + strings.TrimSpace(next)
	}
	if o.Remedy == "" {
		line, _, _ = strings.Cut(line, "; ")
	}
	return inOneLine(line)
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

// what describes the request, as in "UPDATE of scale".
func (d *Decision) what() string {
	if part := d.Review.Request.SubResource; part != "" {
		return fmt.Sprintf("%s of %s", d.Review.Request.Operation, part)
	}
	return string(d.Review.Request.Operation)
}

func policyReference(v *verdict) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: regoPolicy.Name, Name: v.policy.Name(), UID: v.policy.UID(),
	}
}
