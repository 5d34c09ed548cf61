package operation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/claim"
	"sallyport.dev/sallyport/reconcilers/persist"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// arbitrate evaluates the waiting operations, oldest first, each against the holder and the older ones. An admitted
// operation claims the machine.
func (r *Reconciler) arbitrate(ctx context.Context, v *view) (bool, error) {
	if v.VM == nil || !v.VM.DeletionTimestamp.IsZero() {
		return false, nil
	}
	var before []*v1alpha1.VirtualMachineOperation // the holder and the older operations
	holder := v.holder()
	if holder != nil && !holder.Finished() {
		before = append(before, holder)
	}
	for _, o := range v.unfinished() {
		if v.holds(o) || v.entry(o) != nil {
			continue
		}
		if holder != nil && byAge(o, holder) < 0 {
			did, err := r.reportWaiting(ctx, v, o, v1alpha1.ReasonWaiting, "waiting for operation %s, which has claimed the machine", holder.Name)
			if did || err != nil {
				return did, err
			}
			continue
		}
		if did, err := r.evaluate(ctx, v, o, before); did || err != nil {
			return did, err
		}
		before = append(before, o)
	}
	return false, nil
}

// evaluate asks the policies about one operation, and denies it, lets it wait or claims the machine for it.
func (r *Reconciler) evaluate(
	ctx context.Context, v *view, o *v1alpha1.VirtualMachineOperation, before []*v1alpha1.VirtualMachineOperation,
) (bool, error) {
	if v.undecided[o.UID] {
		v.Trouble(fmt.Errorf("the policies could not be evaluated for operation %s", o.Name))
		return false, nil
	}
	unfinished := make([]v1alpha1.VirtualMachineOperation, 0, len(before))
	for _, b := range before {
		unfinished = append(unfinished, *b.DeepCopy())
	}
	if claim.Moves(o.Spec.Type) {
		release, err := r.Locks.LockMoves(ctx)
		if err != nil {
			return false, err
		}
		defer release()
	}
	admission, err := r.Arbiter.Arbitrate(ctx, o.DeepCopy(), v.VM.DeepCopy(), unfinished)
	if err != nil {
		v.undecided[o.UID] = true
		v.Trouble(fmt.Errorf("evaluating the policies for operation %s: %w", o.Name, err))
		return r.reportWaiting(ctx, v, o, v1alpha1.ReasonNotDecided, "%s", err.Error())
	}
	who, transient := v.transient()
	switch {
	case admission.Denied && transient:
		return r.reportWaiting(ctx, v, o, v1alpha1.ReasonWaiting, "waiting for %s", who)
	case admission.Denied:
		reason := v1alpha1.ConditionReason(admission.Reason)
		if reason == "" {
			reason = "Denied"
		}
		return true, r.fail(ctx, v, o, reason, admission.Message)
	}
	if blocker := v.blocker(before, admission); blocker != "" {
		return r.reportWaiting(ctx, v, o, v1alpha1.ReasonWaiting, "waiting for %s", blocker)
	}
	return r.claimMachine(ctx, v, o, before)
}

// transient reports whether the current denial will resolve by itself, so that it is not final: something is being
// undone, or the holder is not an operation. It also returns what the operation waits for.
func (v *view) transient() (who string, is bool) {
	present, held := claim.Current(&v.VM.Status)
	switch {
	case len(v.VM.Status.Undoing) > 0:
		return claim.Former(&v.VM.Status.Undoing[0]).String() + " to be undone", true
	case held && present.Origin != v1alpha1.OriginOperation:
		return present.String() + " to finish", true
	}
	return "", false
}

// blocker returns the operation or claim that the policies did not allow this operation to supersede, or "". With the
// policies not enforced, such an operation waits instead of superseding.
func (v *view) blocker(before []*v1alpha1.VirtualMachineOperation, admission Admission) string {
	for _, b := range before {
		if !slices.Contains(admission.Supersedes, b.Name) {
			return claim.OfOperation(b).String()
		}
	}
	present, held := claim.Current(&v.VM.Status)
	switch {
	case !held:
		return ""
	case present.Origin == v1alpha1.OriginOperation: // if it is not in before, it has ended: the next pass releases the machine
		if !slices.ContainsFunc(before, func(b *v1alpha1.VirtualMachineOperation) bool { return string(b.UID) == present.ID }) {
			return present.String()
		}
	case !slices.Contains(admission.SupersedesOrigins, string(present.Origin)):
		return present.String()
	}
	return ""
}

// claimMachine makes the operation the holder. The finalizer comes first, so that the operation cannot vanish while
// it is the holder; then the claim, in one write with the resourceVersion that the decision is based on.
func (r *Reconciler) claimMachine(
	ctx context.Context, v *view, o *v1alpha1.VirtualMachineOperation, yield []*v1alpha1.VirtualMachineOperation,
) (bool, error) {
	if halt := r.Halt.Err(); halt != nil {
		return r.reportWaiting(ctx, v, o, v1alpha1.ReasonReadOnly, "%s", runtime.Message(halt))
	}
	if _, err := persist.Finalizer(ctx, r.Client, o, controllerutil.AddFinalizer, v1alpha1.VirtualMachineOperationFinalizer); err != nil {
		return false, err
	}
	var holders []claim.Holder
	for _, y := range yield {
		holders = append(holders, claim.OfOperation(y))
	}
	if present, held := claim.Current(&v.VM.Status); held && present.Origin != v1alpha1.OriginOperation {
		holders = append(holders, present)
	}
	err := claim.Take(&v.VM.Status, claim.OfOperation(o), holders, metav1.NewMicroTime(v.Time))
	if errors.Is(err, claim.ErrFull) {
		return r.reportWaiting(ctx, v, o, v1alpha1.ReasonWaiting, "waiting: %s", claim.ErrFull.Error())
	}
	if err != nil {
		return false, fmt.Errorf("claiming the machine for operation %s: %w", o.Name, err)
	}
	v.VM.Status.Phase = claim.Phase(v.VM, nil, false)
	if err := v.Write(ctx); err != nil {
		return false, err
	}
	r.Metrics.observeClaim(o, v.Time)
	message := "in progress (has claimed the machine)"
	if len(holders) > 0 {
		message += ", superseding " + names(holders)
	}
	r.recordEvent(v, o, corev1.EventTypeNormal, v1alpha1.ReasonInProgress, message)
	return true, nil
}

func names(holders []claim.Holder) string {
	var all []string
	for _, h := range holders {
		all = append(all, h.String())
	}
	return strings.Join(all, ", ")
}
