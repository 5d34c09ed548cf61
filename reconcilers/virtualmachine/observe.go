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
func (v *view) onlyObserves() bool { return v.VM.Spec.RunPolicy == v1alpha1.RunPolicyObserve }

// giveBack releases an adopted machine whose run policy is Observe, and forgets that it was adopted. What is in progress ends first.
func (r *Reconciler) giveBack(ctx context.Context, v *view) (bool, error) {
	switch {
	case v.VM.Busy() || !v.seen.Exists && !v.VM.MayExist():
		return false, nil
	case !v.seen.Exists:
		v.forgetAdoption()
		return false, nil
	case v.Sent() || !v.seen.Yields():
		v.Later()
		return false, nil
	}
	if same, err := v.Unchanged(ctx); err != nil || !same {
		return !same, err
	}
	if v.err = v.Call(ctx, v.Runtime().Delete); v.err != nil {
		v.Troubled("releasing the machine of VirtualMachine "+v.VM.Name, v.err)
		return false, nil
	}
	r.recordEvent(v, corev1.EventTypeNormal, v1alpha1.ReasonReleased, "Release", "instance %s was released and is %s", v.VM.Status.InstanceID, v.seen.Power)
	return true, nil
}

// forgetAdoption removes from the status what only holds for an adopted machine. The machine may be adopted again in another state.
func (v *view) forgetAdoption() {
	status := &v.VM.Status
	status.InstanceID, status.ProvisioningSince, status.Adopted = "", nil, nil
	status.Incarnation, status.PowerIntent, status.Placement = "", nil, nil
}

// observedReadiness is the readiness of a machine that is only observed.
func (v *view) observedReadiness() (metav1.ConditionStatus, v1alpha1.ConditionReason, string) {
	if !v.seen.Unadopted {
		return metav1.ConditionFalse, v1alpha1.ReasonInstanceNotFound, "the runtime has no machine that spec.runtime names"
	}
	return metav1.ConditionTrue, v1alpha1.ReasonObserved, "run policy Observe: Sallyport shows the machine and changes nothing"
}
