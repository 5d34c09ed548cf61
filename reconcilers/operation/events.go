package operation

import (
	"fmt"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// tell tells people what became of an operation, where they look: on the operation, and on its machine. It is called after
// the write that made it so.
func (r *Reconciler) tell(l *look, o *v1alpha1.VirtualMachineOperation, kind string, reason v1alpha1.ConditionReason, message string) {
	note := fmt.Sprintf("%s %s: %s", o.Spec.Type, o.Name, message)
	if l.VM == nil {
		r.Events.Eventf(o, nil, kind, string(reason), string(o.Spec.Type), "%s", note)
		return
	}
	r.Events.Eventf(o, l.VM, kind, string(reason), string(o.Spec.Type), "%s", note)
	r.Events.Eventf(l.VM, o, kind, string(reason), string(o.Spec.Type), "%s", note)
}
