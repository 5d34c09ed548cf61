// Package hibernation decides how a machine is moved that cannot be moved while it is on: it is put into a snapshot on one node, and
// made from that on another.
//
// What has been begun is persisted in status.migration, always before it is done. [Next] gives, from that and from what is seen of the
// machine, what comes next. It is a table ([Rows]), is the same whoever asks it and however often, and remembers nothing. What it
// guards:
//
//   - The machine's last instance is removed only after the registry has been seen to have the snapshot that this instance's agent has
//     confirmed for this very move.
//   - An instance is made only when the one before is gone, and under a name that follows from the move, so that two who would make it
//     make one.
//   - A snapshot is removed only while an instance is seen live that is not the one that was left, or that was woken.
//   - What is not known is waited for, and what is waited for is said.
package hibernation
