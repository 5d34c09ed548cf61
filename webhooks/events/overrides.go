package events

import (
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"

	"sallyport.dev/sallyport/webhooks/decision"
)

// reasonOverridden is the reason of events about overrides.
const reasonOverridden = "Overridden"

// recordOverrides writes events about the policies that an admitted request overrode. They are written again when a reconciler evaluates the
// request again, because a policy may deny it only then.
func (w *Writer) recordOverrides(d *decision.Decision) {
	var events []event
	for _, v := range d.Verdicts() {
		if v.Override != nil {
			events = append(events, event{policy: policyReference(&v), reason: reasonOverridden, action: "Override", note: overrideNote(d, &v), onPolicy: true})
		}
	}
	if len(events) == 0 {
		return
	}
	carried := d.Carried()
	on := &carried.On
	pending := &pendingEvents{object: on.DeepCopy(), events: events, reader: d.Reader(), wait: w.limits.Delay}
	pending.proof = func(live *liveObject) bool { return live.UID == pending.object.UID && live.override == carried.Text }
	switch {
	case d.Review.Verified || carried.Seen:
		w.write(pending)
	case d.Review.Request.SubResource != "" || on.UID == "" || deletes(d):
		w.drop(unproven)
	default:
		w.writeIfProven(pending)
	}
}

// deletes reports whether the request deletes the object.
func deletes(d *decision.Decision) bool { return d.Review.Request.Operation == admissionv1.Delete }

// overrideNote returns the note: who overrode which denials, until when, and why.
func overrideNote(d *decision.Decision, v *decision.Verdict) string {
	var passed []string
	for _, o := range v.Denials() {
		if !slices.Contains(passed, o.Title()) {
			passed = append(passed, o.Title())
		}
	}
	on := d.Carried().On
	name := on.Name
	if on.Namespace != "" {
		name = on.Namespace + "/" + name
	}
	did := v.Override.By + " overrode"
	if !d.Review.Verified { // who has overridden it is known from the object, and not who has made the request
		did = "the override of " + v.Override.By + " let a request pass"
	}
	return fmt.Sprintf("%s %s (%s of %s %s, until %s): %s",
		did, strings.Join(passed, ", "), requestOf(d), on.Kind, name, v.Override.Until, v.Override.Reason)
}
