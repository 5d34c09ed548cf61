// Package hibernation decides the steps of a move by hibernation: the machine is put into a snapshot on one node, and restored from it
// on another.
//
// Each step is persisted in status.migration before it starts. [Next] returns the next step from the persisted one
// and the observation of the machine. It is a table ([Rows]), a pure function without state. It guarantees:
//
//   - The last instance of the machine is removed only after the registry has the snapshot that the agent of this
//     instance has confirmed for this move.
//   - An instance is created only when the previous one is gone, under a name derived from the move, so that
//     concurrent writers create only one.
//   - A snapshot is removed only while a live instance is observed that is not the source instance, or that was
//     woken.
//   - Unknown state is waited for, and the step reports what it waits for.
package hibernation
