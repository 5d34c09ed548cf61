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

// refusedSize is how long to wait before the policies are asked again about a size that they have refused.
const refusedSize = 30 * time.Second

// Allocate has the policies judge the size of a machine that is about to be given more than was allocated to it, and writes what it is
// given into its status. No other size is judged in between, so that of two machines that are resized at once the second is counted with
// the first. It reports whether the status was written, after which everything is looked at anew, or why the machine may not be given its
// size.
func (t *Turn) Allocate(ctx context.Context) (did bool, refused v1alpha1.ConditionReason, message string, err error) {
	wanted := t.VM.Spec.Sized()
	if t.AdmitsSize == nil || !cloned(t.VM) || t.VM.Status.InstanceID == "" || !wanted.Exceeds(t.VM.Status.Allocated) {
		return false, "", "", nil
	}
	release, err := t.Locks.LockMoves(ctx)
	if err != nil {
		return false, "", "", err
	}
	defer release()
	refused, message, err = t.AdmitsSize(ctx, t.VM)
	if err != nil {
		return false, "", "", fmt.Errorf("evaluating the policies for the size of VirtualMachine %s: %w", t.key, err)
	}
	if refused != "" {
		t.Wait(refusedSize)
		return false, refused, message, nil
	}
	t.VM.Status.Allocated = wanted
	return true, "", "", t.Write(ctx)
}

// Allocated lowers what is allocated to a machine that has the size of its spec, and notes it of a machine of which nothing was noted.
func (t *Turn) Allocated(seen *runtime.Observation) {
	differs := slices.ContainsFunc(seen.Differences, func(d runtime.Difference) bool { return d.Field == "spec.cpu" || d.Field == "spec.memory" })
	if cloned(t.VM) && seen.Exists && !seen.Adopted && seen.Quiet() && !differs {
		t.VM.Status.Allocated = t.VM.Spec.Sized()
	}
}

func cloned(vm *v1alpha1.VirtualMachine) bool {
	return vm.Spec.Runtime.VSphere != nil && vm.Spec.Runtime.VSphere.Clone != nil
}

// sized is Allocate for a holder that powers the machine on, which gives it the size of its spec. It reports whether the holder may go on.
func (x *execution) sized(ctx context.Context) (may, did bool, err error) {
	if !slices.Contains(claim.Steps(x.Type), runtime.TaskPowerOn) {
		return true, false, nil
	}
	did, refused, message, err := x.Allocate(ctx)
	if refused != "" {
		did, err = x.waits(ctx, refused, message, nil)
		return false, did, err
	}
	return !did && err == nil, did, err
}
