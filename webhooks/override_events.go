package webhooks

import (
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
)

// reasonOverridden is the reason of events about overrides.
const reasonOverridden = "Overridden"

// overrides tells of the policies that an admitted request passed by override. What reconcilers ask again is told once more because it
// may be only by then that a policy refuses.
func (t *teller) overrides(d *Decision) {
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
	told := &telling{object: on.DeepCopy(), events: events, reader: d.reader, whose: d.Review.share(), among: t.denied, wait: t.storing}
	text := d.override.text
	told.proof = func(live *seen) bool { return live.UID == told.object.UID && live.override == text }
	switch {
	case d.Review.Verified || d.override.seen:
		t.make(told)
	case d.Review.Request.SubResource != "" || on.UID == "" || d.gone():
		t.drop(unproven)
	default:
		t.find(told)
	}
}

// gone tells whether the object will not be there any more once the request has been admitted.
func (d *Decision) gone() bool { return d.Review.Request.Operation == admissionv1.Delete }

// noteOf says what was passed by whom, until when, and why.
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
