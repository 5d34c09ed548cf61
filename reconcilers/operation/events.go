package operation

import (
	"fmt"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// recordEvent records an event on the operation and on its machine. It is called after the status write that the
// event describes.
func (r *Reconciler) recordEvent(v *view, o *v1alpha1.VirtualMachineOperation, kind string, reason v1alpha1.ConditionReason, message string) {
	text := fmt.Sprintf("%s %s: %s", o.Spec.Type, o.Name, message)
	if v.VM == nil {
		r.Events.Eventf(o, nil, kind, string(reason), string(o.Spec.Type), "%s", text)
		return
	}
	r.Events.Eventf(o, v.VM, kind, string(reason), string(o.Spec.Type), "%s", text)
	r.Events.Eventf(v.VM, o, kind, string(reason), string(o.Spec.Type), "%s", text)
}
