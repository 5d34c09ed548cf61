package drive

import (
	"context"
	"fmt"
	"slices"
	"time"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/claim"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// sizeRetry is the interval at which a denied size is evaluated again.
const sizeRetry = 30 * time.Second

// Allocate evaluates the policies for a machine that is about to get more than is allocated to it, and writes the new
// allocation into its status. A lock serializes evaluations, so that of two machines resized at once the second is
// counted with the first. It reports whether the status was written, after which everything is read again, or why the
// size is denied.
func (t *Turn) Allocate(ctx context.Context) (did bool, denied v1alpha1.ConditionReason, message string, err error) {
	wanted := t.VM.Spec.Sized()
	if t.AdmitsSize == nil || !cloned(t.VM) || t.VM.Status.InstanceID == "" || !wanted.Exceeds(t.VM.Status.Allocated) {
		return false, "", "", nil
	}
	release, err := t.Locks.LockMoves(ctx)
	if err != nil {
		return false, "", "", err
	}
	defer release()
	denied, message, err = t.AdmitsSize(ctx, t.VM)
	if err != nil {
		return false, "", "", fmt.Errorf("evaluating the policies for the size of VirtualMachine %s: %w", t.key, err)
	}
	if denied != "" {
		t.Wait(sizeRetry)
		return false, denied, message, nil
	}
	t.VM.Status.Allocated = wanted
	return true, "", "", t.Write(ctx)
}

// Allocated lowers the allocation to the size in the spec once the machine has that size, and sets it if there was
// none.
func (t *Turn) Allocated(seen *runtime.Observation) {
	differs := slices.ContainsFunc(seen.Differences, func(d runtime.Difference) bool { return d.Field == "spec.cpu" || d.Field == "spec.memory" })
	if cloned(t.VM) && seen.Exists && !seen.Adopted && seen.Quiet() && !differs {
		t.VM.Status.Allocated = t.VM.Spec.Sized()
	}
}

func cloned(vm *v1alpha1.VirtualMachine) bool {
	return vm.Spec.Runtime.VSphere != nil && vm.Spec.Runtime.VSphere.Clone != nil
}

// allocateForStart calls Allocate for a holder that powers the machine on, because that applies the size in the spec.
// may is set if the holder may go on.
func (x *execution) allocateForStart(ctx context.Context) (may, did bool, err error) {
	if !slices.Contains(claim.Steps(x.Type), runtime.TaskPowerOn) {
		return true, false, nil
	}
	did, denied, message, err := x.Allocate(ctx)
	if denied != "" {
		did, err = x.writeWaiting(ctx, denied, message, nil)
		return false, did, err
	}
	return !did && err == nil, did, err
}
