package webhooks

import (
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
)

// reasonOverridden is the reason of events about overrides.
const reasonOverridden = "Overridden"

// recordOverrides writes events about the policies that an admitted request overrode. They are written again when a reconciler evaluates the
// request again, because a policy may deny it only then.
func (t *eventWriter) recordOverrides(d *Decision) {
	if t == nil {
		return
	}
	var events []event
	for i := range d.verdicts {
		if v := &d.verdicts[i]; v.override != nil {
			events = append(events, event{policy: policyReference(v), reason: reasonOverridden, action: "Override", note: d.noteOf(v), onPolicy: true})
		}
	}
	if len(events) == 0 {
		return
	}
	on := &d.override.on
	pending := &pendingEvents{object: on.DeepCopy(), events: events, reader: d.reader, whose: d.Review.share(), among: t.denied, wait: t.storing}
	text := d.override.text
	pending.proof = func(live *liveObject) bool { return live.UID == pending.object.UID && live.override == text }
	switch {
	case d.Review.Verified || d.override.seen:
		t.write(pending)
	case d.Review.Request.SubResource != "" || on.UID == "" || d.gone():
		t.drop(unproven)
	default:
		t.writeIfProven(pending)
	}
}

// gone reports whether the request deletes the object.
func (d *Decision) gone() bool { return d.Review.Request.Operation == admissionv1.Delete }

// noteOf returns the note: who overrode which denials, until when, and why.
func (d *Decision) noteOf(v *verdict) string {
	var passed []string
	for _, o := range v.objections() {
		if !slices.Contains(passed, o.title()) {
			passed = append(passed, o.title())
		}
	}
	on := &d.override.on
	name := on.Name
	if on.Namespace != "" {
		name = on.Namespace + "/" + name
	}
	who := "a request"
	if d.Review.Verified {
		who = v.override.By
	}
	return fmt.Sprintf("%s overrode %s (%s of %s %s, until %s): %s",
		who, strings.Join(passed, ", "), d.what(), on.Kind, name, v.override.Until, v.override.Reason)
}
