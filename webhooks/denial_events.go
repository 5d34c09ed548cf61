package webhooks

import (
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// denials writes a refused change or deletion as events on the object, where people look when something does not happen: often the
// request is a controller's, such as an autoscaler's, and no person reads the response. Kubernetes' event recorders make one event
// with a count (a series) of the same refusal.
func (t *teller) denials(d *Decision) {
	made := d.Review.Request.Operation == admissionv1.Create && d.Review.Request.SubResource == ""
	if t == nil || d.Endpoint != Validating || made || d.override.on.UID == "" {
		return
	}
	on := &d.override.on
	told := &telling{object: unversioned(on), events: d.denied((*verdict).refuses, ""), reader: d.reader, whose: d.Review.share(), among: t.denied}
	is := *on
	told.proof = func(live *seen) bool { return live.UID == is.UID && live.ResourceVersion == is.ResourceVersion }
	switch {
	case d.Review.Verified || d.override.seen:
		t.make(told)
	case d.Review.Request.SubResource != "":
		t.drop(unproven)
	default:
		t.find(told)
	}
}

// lenience writes an event about a request that only the policy's mode admits, once the object is created, changed or being deleted.
func (t *teller) lenience(d *Decision) {
	if t == nil || d.Endpoint != Validating {
		return
	}
	events := d.denied((*verdict).lets, "admitted because the policy's mode is %s")
	if len(events) == 0 {
		return
	}
	request, object := d.Review.Request, d.Review.Document.Get("object")
	if request.Operation == admissionv1.Delete {
		object = d.Review.Document.Get("oldObject")
	}
	on, generation := referenceTo(object), object.Get("metadata").Get("generation")
	told := &telling{object: unversioned(&on), events: events, reader: d.reader, whose: d.Review.share(), among: t.admitted, known: d.Review.Verified}
	switch {
	case on.UID == "" && request.SubResource != "" && d.Review.Verified: // of a connection or an Eviction, which do not say what of
		told.ofParent, told.known = true, false
		told.proof = func(live *seen) bool { return live.UID != "" }
		t.find(told)
	case on.UID == "":
		t.drop(unproven)
	case request.SubResource != "":
		told.ofParent, told.known = true, false
		told.wait, told.proof = t.storing, func(live *seen) bool { return live.UID == on.UID }
		t.find(told)
	case d.gone() && d.Review.Verified:
		t.make(told)
	case d.gone():
		told.proof = func(live *seen) bool {
			return live.UID == on.UID && (live.terminating || live.ResourceVersion == on.ResourceVersion)
		}
		t.find(told)
	default:
		told.wait, told.proof = t.storing, func(live *seen) bool { return live.UID == on.UID && live.generation.Equal(generation) }
		t.find(told)
	}
}

// unversioned is a reference to an object whatever becomes of it. A client that is refused tries again when the object has changed,
// and so does the API server if it had an old copy of it: that is one event that happened twice, and not two.
func unversioned(on *corev1.ObjectReference) *corev1.ObjectReference {
	reference := on.DeepCopy()
	reference.ResourceVersion = ""
	return reference
}

// denied are the events of what some of the verdicts have against the request, one for each policy and reason.
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

// events are those of one policy, one for each reason. Event recorders count two events with the same reason as one series, and keep the
// note of the first: so several denials with one reason are one event with all texts.
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

// cause is the part of the message that an event keeps: one line, without what to do. That is for the user who made the request, and may
// be out of date when the event is read. A message that says what to do has it behind a semicolon, see docs/policies.md.
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

// noteOf puts texts together, as many as there is room for, so that the end is never cut.
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

// actions are what was asked for, as events call it.
var actions = map[admissionv1.Operation]string{
	admissionv1.Create: "Create", admissionv1.Update: "Update", admissionv1.Delete: "Delete", admissionv1.Connect: "Connect",
}

// what says what was asked for, as in "UPDATE of scale".
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
