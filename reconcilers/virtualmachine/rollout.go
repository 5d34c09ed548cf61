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

// rollout is the source that restarts machines whose spec asks for what they cannot be given while they are on.
type rollout struct{}

// Origin is that of its claims.
func (rollout) Origin() v1alpha1.ClaimOrigin { return v1alpha1.OriginRollout }

// Wants is a restart, if that was approved once and for all. It is brought to its end once it was begun: on its way the machine is off,
// and differs from nothing any more before it is on again. A machine that somebody pauses meanwhile would lose its memory by that.
func (r rollout) Wants(vm *v1alpha1.VirtualMachine, seen *runtime.Observation) *drive.Intent {
	held := vm.Status.ActiveOperation
	begun := held != nil && held.Origin == r.Origin()
	due := vm.Spec.RestartApprovalMode == v1alpha1.RestartAutomatic && len(restarts(seen)) > 0
	if !begun && !due || wanted(vm) == v1alpha1.PowerStopped || seen.Power == v1alpha1.PowerPaused {
		return nil
	}
	grace := vm.Spec.TerminationGracePeriod()
	return &drive.Intent{Type: v1alpha1.OperationRestart, Grace: &grace}
}

// restarts gives the differences that take a restart.
func restarts(seen *runtime.Observation) (all []runtime.Difference) {
	if !seen.Exists || seen.Power != v1alpha1.PowerRunning {
		return nil // they end with the next power-on
	}
	for _, d := range seen.Differences {
		if !d.Live {
			all = append(all, d)
		}
	}
	return all
}

// adjust gives a machine that is on, and that nobody holds, what it can be given at once. It needs no claim: it changes neither power nor
// host, and whoever takes the machine next finds nothing in flight.
func (r *Reconciler) adjust(ctx context.Context, l *look) (bool, error) {
	if l.VM.Busy() || !l.seen.Exists || l.seen.Power != v1alpha1.PowerRunning || !l.seen.Quiet() || l.Sent() ||
		len(l.seen.Differences) == len(restarts(&l.seen)) || !runtime.Can[runtime.Adjuster](l.Runtime()) {
		return false, nil
	}
	did, refused, message, err := l.Allocate(ctx)
	if refused != "" {
		l.oversize = message
		return false, nil
	}
	if did || err != nil {
		return did, err
	}
	if same, err := l.Unchanged(ctx); err != nil || !same {
		return !same, err
	}
	l.err = l.Tell(ctx, func(ctx context.Context, m runtime.Machine) error {
		return runtime.Use(ctx, l.Runtime(), runtime.VerbAdjust, m, func(ctx context.Context, able runtime.Adjuster) error {
			return able.Adjust(ctx, m)
		})
	})
	if l.err != nil {
		l.Troubled("changing the size of the machine of VirtualMachine "+l.VM.Name, l.err)
	}
	return l.err == nil, nil
}

// restartRequired shows whether the machine has to be restarted to be as its spec says, once that is known of one that was made.
func (l *look) restartRequired() {
	if !l.observed || !l.seen.Exists || l.seen.Adopted {
		return
	}
	var texts []string
	for _, d := range restarts(&l.seen) {
		texts = append(texts, d.String())
	}
	t := v1alpha1.ConditionRestartRequired
	c := t.Condition(metav1.ConditionFalse, v1alpha1.ReasonAsWanted, l.VM.Generation, "")
	if len(texts) > 0 {
		c = t.Condition(metav1.ConditionTrue, v1alpha1.ReasonSpecDiffers, l.VM.Generation,
			strings.Join(texts, "; ")+": restart required ("+commands.Line("kubectl", "sallyport", "restart", l.VM.Name, "-n", l.VM.Namespace)+")")
	}
	if l.oversize != "" {
		c = t.Condition(metav1.ConditionFalse, v1alpha1.ReasonQuotaExceeded, l.VM.Generation, l.oversize)
	}
	l.set(c)
}
