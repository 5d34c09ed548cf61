package audit

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
	case v1alpha1.ReasonReportNameTaken, v1alpha1.ReasonReportsFailed, v1alpha1.ReasonReportsEdited:
		return &Finding{f.Reason, "Which reports is not said here, where people read it who may not see all namespaces."}
	}
	return f
}

// undecided notes that an object could not be judged.
func (a *run) undecided(object *unstructured.Unstructured, err error) {
	if a.Nameless {
		a.missed("judging an object of kind %s", object.GetKind())
		return
	}
	a.missed("judging %s %s: %v", object.GetKind(), client.ObjectKeyFromObject(object), err)
}
