package audit

import (
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// redact returns the violations without what Nameless omits.
func (r *Reconciler) redact(v *v1alpha1.PolicyViolations) *v1alpha1.PolicyViolations {
	if v != nil && r.Nameless {
		v.First = nil
	}
	return v
}

// redactFinding returns the finding without what Nameless omits: messages about failed reports name them and their namespaces.
func (r *Reconciler) redactFinding(f *Finding) *Finding {
	if f == nil || !r.Nameless {
		return f
	}
	switch f.Reason {
	case v1alpha1.ReasonReportNameTaken, v1alpha1.ReasonReportsFailed:
		return &Finding{f.Reason, "The reports are not named here because readers of this condition may not have access to all namespaces."}
	}
	return f
}

// undecidedOf describes an object that could not be evaluated, for status.violations.incomplete.
func (r *Reconciler) undecidedOf(f *finding) string {
	if r.Nameless {
		return fmt.Sprintf("evaluating an object of kind %s", f.object.Kind)
	}
	return fmt.Sprintf("evaluating %s %s: %s", f.object.Kind, types.NamespacedName{Namespace: f.object.Namespace, Name: f.object.Name}, f.undecided)
}
