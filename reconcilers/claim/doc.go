// Package claim is what makes "one operation at a time on a machine" true.
//
// The claim is part of VirtualMachine.status: who holds the machine (activeOperation), which former holders may still have
// something in flight (undoing), and which power state is kept (powerIntent). It changes only by status updates that carry a
// resourceVersion and follow a live read, so that of two who would change it at once one fails and looks again. Webhooks
// make refusals pleasant; this makes them safe.
//
// Whoever changes power, node or existence of a machine takes the claim first, reconcilers of the run policy, of placement
// and of deletion included. The transitions:
//
//	Take      nobody, or those who yield  ->  the new holder; whoever yields goes to undoing, in the same write
//	Finish    the holder                  ->  nobody; the power intent stays
//	Withdraw  the holder                  ->  undoing; the power intent from before its claim is put back
//	Settle    an entry of undoing         ->  gone, once a fresh look at the runtime shows nothing of it in flight
//
// What holds at any time, and is checked by a model in the tests:
//
//   - At most one holder. What is in undoing is not the holder, and has lost for good, whatever its own status says.
//   - An entry of undoing is never changed, but for the task that it waits for, and never dropped but by Settle.
//   - While undoing is not empty nothing but undo is sent to the runtime.
//   - The power intent is that of the last claim that was not withdrawn.
//
// Every step may crash: the order of the writes around it (finalizer, claim, signal; end of the operation, then of the
// claim) is such that the next pass finds what is left to do in the claim itself.
package claim
