package registration

import (
	"fmt"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
)

const (
	// LongestOpening is how long the gate can be open without another command.
	LongestOpening = 24 * time.Hour
	// openingSkew is by how much the clocks of a replica and of the API server may differ.
	openingSkew = 5 * time.Minute
	// longestStated is how much of what people write is shown.
	longestStated = 256
)

// Opening is when the gate is open for requests about kinds that are not Sallyport's. It is in annotations of the
// ValidatingWebhookConfiguration with the entries of policies: whoever may write these may also remove the entries.
type Opening struct {
	Until time.Time
	// Reason and By are what the writer of the annotations states. They are shown, and nothing depends on them.
	Reason, By string
}

// OpeningOf returns what the annotations of a configuration say, and false if they say nothing. A time that cannot be parsed is long past.
func OpeningOf(configuration metav1.Object) (Opening, bool) {
	all := configuration.GetAnnotations()
	text, there := all[v1alpha1.AnnotationGateOpenUntil]
	until, _ := time.Parse(time.RFC3339, text) // zero if it cannot be parsed
	return Opening{
		Until:  until,
		Reason: v1alpha1.Cut(all[v1alpha1.AnnotationGateReason], longestStated),
		By:     v1alpha1.Cut(all[v1alpha1.AnnotationGateOpenedBy], longestStated),
	}, there
}

// Counts reports whether the gate is open. An end that is too far ahead opens nothing.
func (o Opening) Counts(now time.Time) bool {
	left := o.Until.Sub(now)
	return left > 0 && left <= LongestOpening+openingSkew
}

// String describes the opening.
func (o Opening) String() string {
	return fmt.Sprintf("until %s, opened by %q: %q", o.Until.UTC().Format(time.RFC3339), o.By, o.Reason)
}

// Write puts the opening into the annotations of a configuration.
func (o Opening) Write(configuration metav1.Object) {
	all := configuration.GetAnnotations()
	if all == nil {
		all = map[string]string{}
	}
	all[v1alpha1.AnnotationGateOpenUntil] = o.Until.UTC().Format(time.RFC3339)
	all[v1alpha1.AnnotationGateReason], all[v1alpha1.AnnotationGateOpenedBy] = o.Reason, o.By
	configuration.SetAnnotations(all)
}

// Close removes the annotations.
func Close(configuration metav1.Object) {
	all := configuration.GetAnnotations()
	for _, key := range []string{v1alpha1.AnnotationGateOpenUntil, v1alpha1.AnnotationGateReason, v1alpha1.AnnotationGateOpenedBy} {
		delete(all, key)
	}
	configuration.SetAnnotations(all)
}

// Ease has the API server admit requests that no replica answers, except about Sallyport's kinds. It returns how many entries it has
// changed. The leader restores them when the gate closes.
func Ease(configuration client.Object) (changed int) {
	one := func(rules []rule, policy **admissionregistrationv1.FailurePolicyType) {
		if !aboutOwn(rules) && (*policy == nil || **policy != ignore) {
			*policy = &ignore
			changed++
		}
	}
	switch c := configuration.(type) {
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		for i := range c.Webhooks {
			one(c.Webhooks[i].Rules, &c.Webhooks[i].FailurePolicy)
		}
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		for i := range c.Webhooks {
			one(c.Webhooks[i].Rules, &c.Webhooks[i].FailurePolicy)
		}
	}
	return changed
}

// aboutOwn reports whether rules name Sallyport's own kinds.
func aboutOwn(rules []rule) bool {
	return slices.ContainsFunc(rules, func(r rule) bool { return slices.Contains(r.APIGroups, v1alpha1.GroupName) })
}

// opening reads whether the gate is open, and removes an opening that is over when the entries are written.
func (l *look) opening() {
	i := slices.IndexFunc(l.sides, func(s *side) bool { return !s.mutating })
	if l.sides[i].own == nil {
		return
	}
	is, there := OpeningOf(l.sides[i].own)
	switch {
	case there && is.Counts(l.Now()):
		l.open = &is
	case there:
		l.sides[i].closing = true
	}
}

// tellOpening makes an event if the gate was opened or closed since the last look.
func (l *look) tellOpening() {
	was := l.told
	l.told = l.open
	i := slices.IndexFunc(l.sides, func(s *side) bool { return !s.mutating })
	on := l.sides[i].own
	switch {
	case l.Events == nil || on == nil:
	case l.open != nil && (was == nil || *was != *l.open):
		l.Events.Eventf(on, nil, corev1.EventTypeWarning, string(v1alpha1.ReasonGateOpen), "Open",
			"Requests about kinds that are not Sallyport's are admitted %s", l.open)
	case l.open == nil && (was != nil || l.sides[i].closing):
		l.Events.Eventf(on, nil, corev1.EventTypeNormal, "GateClosed", "Close", "Policies decide about all requests again")
	}
}
