package audit

import (
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// told is what the status may say of violations.
func (r *Reconciler) told(v *v1alpha1.PolicyViolations) *v1alpha1.PolicyViolations {
	if v != nil && r.Nameless {
		v.First = nil
	}
	return v
}

// toldOf is what a condition may say of reports. What went wrong with them names them and their namespaces.
func (r *Reconciler) toldOf(f *Finding) *Finding {
	if f == nil || !r.Nameless {
		return f
	}
	switch f.Reason {
	case v1alpha1.ReasonReportNameTaken, v1alpha1.ReasonReportsFailed:
		return &Finding{f.Reason, "The reports are not named here because readers of this condition may not have access to all namespaces."}
	}
	return f
}

// undecidedOf says of the first object that could not be judged which that is, and why.
func (r *Reconciler) undecidedOf(f *finding) string {
	if r.Nameless {
		return fmt.Sprintf("evaluating an object of kind %s", f.object.Kind)
	}
	return fmt.Sprintf("evaluating %s %s: %s", f.object.Kind, types.NamespacedName{Namespace: f.object.Namespace, Name: f.object.Name}, f.undecided)
}
