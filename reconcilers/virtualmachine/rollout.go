package virtualmachine

import (
	"context"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/commands"
	"sallyport.dev/sallyport/reconcilers/drive"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// rollout is the source that restarts machines to apply changes of the spec that need a power cycle.
type rollout struct{}

func (rollout) Origin() v1alpha1.ClaimOrigin { return v1alpha1.OriginRollout }

// Wants returns a restart if restarts are approved automatically. Once begun, it is finished: halfway the machine is
// off, where nothing differs any more. A machine that is paused meanwhile is left alone, because it would lose its
// memory.
func (r rollout) Wants(vm *v1alpha1.VirtualMachine, seen *runtime.Observation) *drive.Intent {
	held := vm.Status.ActiveOperation
	begun := held != nil && held.Origin == r.Origin()
	due := vm.Spec.RestartApprovalMode == v1alpha1.RestartAutomatic && len(restarts(seen)) > 0
	if !begun && !due || requiredPower(vm) == v1alpha1.PowerStopped || seen.Power == v1alpha1.PowerPaused {
		return nil
	}
	grace := vm.Spec.TerminationGracePeriod()
	return &drive.Intent{Type: v1alpha1.OperationRestart, Grace: &grace}
}

func restarts(seen *runtime.Observation) (all []runtime.Difference) {
	if !seen.Exists || seen.Power != v1alpha1.PowerRunning {
		return nil // the next power-on applies them
	}
	for _, d := range seen.Differences {
		if !d.Live {
			all = append(all, d)
		}
	}
	return all
}

// adjust applies changes of the spec that a running, unclaimed machine can take at once. It needs no claim: it
// changes neither power nor node, and the next holder finds nothing in flight.
func (r *Reconciler) adjust(ctx context.Context, v *view) (bool, error) {
	if v.VM.Busy() || !v.seen.Exists || v.seen.Power != v1alpha1.PowerRunning || !v.seen.Quiet() || v.Sent() ||
		len(v.seen.Differences) == len(restarts(&v.seen)) || !runtime.Can[runtime.Adjuster](v.Runtime()) {
		return false, nil
	}
	did, denied, message, err := v.Allocate(ctx)
	if denied != "" {
		v.sizeDenial = message
		return false, nil
	}
	if did || err != nil {
		return did, err
	}
	if same, err := v.Unchanged(ctx); err != nil || !same {
		return !same, err
	}
	v.err = v.Call(ctx, func(ctx context.Context, m runtime.Machine) error {
		return runtime.Use(ctx, v.Runtime(), runtime.VerbAdjust, m, func(ctx context.Context, able runtime.Adjuster) error {
			return able.Adjust(ctx, m)
		})
	})
	if v.err != nil {
		v.Troubled("changing the size of the machine of VirtualMachine "+v.VM.Name, v.err)
	}
	return v.err == nil, nil
}

// setRestartRequired sets condition RestartRequired of a machine that was created by Sallyport and observed.
func (v *view) setRestartRequired() {
	if !v.observed || !v.seen.Exists || v.seen.Adopted {
		return
	}
	var texts []string
	for _, d := range restarts(&v.seen) {
		texts = append(texts, d.String())
	}
	t := v1alpha1.ConditionRestartRequired
	c := t.Condition(metav1.ConditionFalse, v1alpha1.ReasonAsWanted, v.VM.Generation, "")
	if len(texts) > 0 {
		c = t.Condition(metav1.ConditionTrue, v1alpha1.ReasonSpecDiffers, v.VM.Generation,
			strings.Join(texts, "; ")+": restart required ("+commands.Line("kubectl", "sallyport", "restart", v.VM.Name, "-n", v.VM.Namespace)+")")
	}
	if v.sizeDenial != "" {
		c = t.Condition(metav1.ConditionFalse, v1alpha1.ReasonQuotaExceeded, v.VM.Generation, v.sizeDenial)
	}
	v.setCondition(c)
}
