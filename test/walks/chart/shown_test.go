package chart

import (
	"fmt"
	"strings"

	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/step"
)

// shows waits until a condition of a policy in its present generation has that status and reason, and gives its message.
func shows(t step.T, c client.Client, policy string, condition v1alpha1.ConditionType, status metav1.ConditionStatus, reason v1alpha1.ConditionReason) (message string) {
	t.Helper()
	t.Until(fmt.Sprintf("condition %s of %s is %s, %s", condition, policy, status, reason), func() (string, bool) {
		object := &v1alpha1.RegoPolicy{}
		if err := c.Get(t.Context(), client.ObjectKey{Name: policy}, object); err != nil {
			return err.Error(), false
		}
		is := meta.FindStatusCondition(object.Status.Conditions, string(condition))
		if is == nil {
			return fmt.Sprintf("%+v", object.Status.Conditions), false
		}
		message = is.Message
		return fmt.Sprintf("%+v of generation %d", is, object.Generation),
			is.ObservedGeneration == object.Generation && is.Status == status && is.Reason == string(reason)
	})
	return message
}

// hasEvent waits for an event about an object, with a text in its note.
func hasEvent(t step.T, c client.Client, kind, name, reason, text string) {
	t.Helper()
	t.Until(fmt.Sprintf("there is an event %s about %s %s with %q", reason, kind, name, text), func() (string, bool) {
		list := &eventsv1.EventList{}
		t.Must(c.List(t.Context(), list))
		var others []string
		for _, e := range list.Items {
			if e.Regarding.Kind != kind || e.Regarding.Name != name || e.Reason != reason {
				continue
			}
			if strings.Contains(e.Note, text) {
				return "", true
			}
			others = append(others, e.Note)
		}
		return strings.Join(others, "; "), false
	})
}
