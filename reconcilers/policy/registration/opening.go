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
	// LongestOpening limits the time for which one command opens the gate.
	LongestOpening = 24 * time.Hour
	// openingSkew is the tolerated difference between the clocks of a replica and of the user who opens the gate.
	openingSkew = 5 * time.Minute
	// longestStated limits the reason and name that are shown, in bytes.
	longestStated = 256
)

// Opening is the time until which the gate admits requests about kinds that are not Sallyport's. It is stored in annotations of the
// ValidatingWebhookConfiguration with the entries of policies, because users with the right to write these could also remove the entries.
type Opening struct {
	Until time.Time
	// Reason and By are unverified statements of the user, for display only.
	Reason, By string
}

// OpeningOf returns the opening in the annotations of a configuration, and false if there is none. A time that cannot be parsed is long past.
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

// Counts reports whether the gate is open. An opening that ends too far in the future is ignored.
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

// Ease sets failurePolicy Ignore in all entries except those for Sallyport's kinds, and returns the number of changed entries. The leader
// restores them when the gate closes.
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

// opening reads whether the gate is open. The annotations of an expired opening are removed with the next write.
func (reg *pass) opening() {
	i := slices.IndexFunc(reg.sides, func(s *side) bool { return !s.mutating })
	if reg.sides[i].own == nil {
		return
	}
	is, there := OpeningOf(reg.sides[i].own)
	switch {
	case there && is.Counts(reg.Now()):
		reg.open = &is
	case there:
		reg.sides[i].closing = true
	}
}

// recordOpening records an event if the gate was opened or closed since the last pass.
func (reg *pass) recordOpening() {
	was := reg.lastOpening
	reg.lastOpening = reg.open
	i := slices.IndexFunc(reg.sides, func(s *side) bool { return !s.mutating })
	on := reg.sides[i].own
	switch {
	case reg.Events == nil || on == nil:
	case reg.open != nil && (was == nil || *was != *reg.open):
		reg.Events.Eventf(on, nil, corev1.EventTypeWarning, string(v1alpha1.ReasonGateOpen), "Open",
			"Requests about kinds that are not Sallyport's are admitted %s", reg.open)
	case reg.open == nil && (was != nil || reg.sides[i].closing):
		reg.Events.Eventf(on, nil, corev1.EventTypeNormal, "GateClosed", "Close", "Policies decide about all requests again")
	}
}
