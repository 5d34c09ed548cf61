// Package claim ensures that at most one operation runs on a machine at a time.
//
// The claim is part of VirtualMachine.status: the holder of the machine (activeOperation), earlier holders that may still have
// something in flight (undoing), and the power state that is kept (powerIntent). It changes only by status updates that carry a
// resourceVersion and follow a live read: if two writers change it concurrently, one fails and reads again. Webhooks give fast
// answers; the claim makes them safe.
//
// Every change of the power, node or existence of a machine needs the claim, including those of the run policy, of placement
// and of deletion. The transitions:
//
//	Take      none, or those superseded   ->  the new holder; superseded holders go to undoing, in the same write
//	Finish    the holder                  ->  none; the power intent stays
//	Withdraw  the holder                  ->  undoing; the power intent from before its claim is restored
//	Settle    an entry of undoing         ->  removed, once the runtime shows nothing of it in flight
//
// Invariants, which a model in the tests checks:
//
//   - At most one holder. An entry of undoing is not the holder and never becomes one again, whatever its own status says.
//   - An entry of undoing never changes, except the task that it waits for, and only Settle removes it.
//   - While undoing is not empty, only cancellations are sent to the runtime.
//   - The power intent is that of the last claim that was not withdrawn.
//
// Every step may crash: the order of the writes around it (finalizer, claim, signal; end of the operation, then of the
// claim) is such that the next pass finds what is left to do in the claim itself.
package claim
