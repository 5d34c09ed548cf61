package virtualmachine

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// unadoptedResync is the interval at which a machine that is not adopted is observed. Its status has no instance ID by which a change that
// the runtime reports would find its VirtualMachine.
const unadoptedResync = time.Minute

// onlyObserves reports whether nothing may be written to the runtime, but for the release of an adopted machine.
func (l *view) onlyObserves() bool { return l.VM.Spec.RunPolicy == v1alpha1.RunPolicyObserve }

// giveBack releases an adopted machine whose run policy is Observe, and forgets that it was adopted. What is in progress ends first.
func (r *Reconciler) giveBack(ctx context.Context, l *view) (bool, error) {
	switch {
	case l.VM.Busy() || !l.seen.Exists && !l.VM.MayExist():
		return false, nil
	case !l.seen.Exists:
		l.forgetAdoption()
		return false, nil
	case l.Sent() || !l.seen.Yields():
		l.Later()
		return false, nil
	}
	if same, err := l.Unchanged(ctx); err != nil || !same {
		return !same, err
	}
	if l.err = l.Call(ctx, l.Runtime().Delete); l.err != nil {
		l.Troubled("releasing the machine of VirtualMachine "+l.VM.Name, l.err)
		return false, nil
	}
	r.recordEvent(l, corev1.EventTypeNormal, v1alpha1.ReasonReleased, "Release", "instance %s was released and is %s", l.VM.Status.InstanceID, l.seen.Power)
	return true, nil
}

// forgetAdoption removes from the status what only holds for an adopted machine. The machine may be adopted again in another state.
func (l *view) forgetAdoption() {
	status := &l.VM.Status
	status.InstanceID, status.ProvisioningSince, status.Adopted = "", nil, nil
	status.Incarnation, status.PowerIntent, status.Placement = "", nil, nil
}

// observedReadiness is the readiness of a machine that is only observed.
func (l *view) observedReadiness() (metav1.ConditionStatus, v1alpha1.ConditionReason, string) {
	if !l.seen.Unadopted {
		return metav1.ConditionFalse, v1alpha1.ReasonInstanceNotFound, "the runtime has no machine that spec.runtime names"
	}
	return metav1.ConditionTrue, v1alpha1.ReasonObserved, "run policy Observe: Sallyport shows the machine and changes nothing"
}
