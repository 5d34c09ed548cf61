// Package hibernation decides the steps of a move by hibernation: the machine is put into a snapshot on one node, and restored from it
// on another.
//
// Each step is persisted in status.migration before it starts. [Next] returns the next step from that and from the observation of the
// machine. It is a table ([Rows]), a pure function without state. What it guarantees:
//
//   - The machine's last instance is removed only after the registry has been seen to have the snapshot that this instance's agent has
//     confirmed for this very move.
//   - An instance is made only when the one before is gone, and under a name that follows from the move, so that two who would make it
//     make one.
//   - A snapshot is removed only while an instance is seen live that is not the one that was left, or that was woken.
//   - What is not known is waited for, and what is waited for is said.
package hibernation
