package runtime

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// Hibernator is a Runtime that moves a machine by hibernating it into a snapshot on one node and restoring it on
// another. The caller decides which call is due, from Observation.Hibernation. Each call is for the machine's
// Migration, which is persisted before. The rules of [Runtime] apply. No call waits for what it begins.
type Hibernator interface {
	// Hibernate requests the snapshot of the Migration. It is a task of kind Relocate until the snapshot is complete
	// or has failed.
	Hibernate(ctx context.Context, machine Machine) error

	// Wake requests that a hibernated machine continues on its node. It is a task of kind Other, which cannot be
	// canceled.
	Wake(ctx context.Context, machine Machine) error

	// Release removes the source instance of the Migration if it is still hibernated and its snapshot still has the
	// Migration's Digest; otherwise it returns an InvalidState error. With fenced it does not wait for the agent.
	Release(ctx context.Context, machine Machine, fenced bool) error

	// Restore creates an instance from the snapshot at the Migration's To. It succeeds if one exists, and returns an
	// InvalidState error while the source instance exists.
	Restore(ctx context.Context, machine Machine) error

	// Retract removes a restored instance that has never run: that is not scheduled, or could not be created. With
	// fenced it also removes one being created, without waiting for its agent.
	Retract(ctx context.Context, machine Machine, fenced bool) error

	// Discard removes all snapshots of the machine. It succeeds if there are none.
	Discard(ctx context.Context, machine Machine) error
}

// InstanceState is the state of an instance during a move by hibernation.
type InstanceState string

const (
	// InstanceGone means that there is no instance.
	InstanceGone InstanceState = "Gone"
	// InstanceUnplaced means that it is not scheduled yet.
	InstanceUnplaced InstanceState = "Unplaced"
	// InstanceMaking means that it is being created on its node, from nothing or from a snapshot.
	InstanceMaking InstanceState = "Making"
	// InstanceFailed means that its creation failed and it never ran.
	InstanceFailed InstanceState = "Failed"
	// InstanceLive means that it exists: on, paused or off.
	InstanceLive InstanceState = "Live"
	// InstanceAsleep means that it is hibernated: its state is in a snapshot, and nothing of it runs.
	InstanceAsleep InstanceState = "Asleep"
	// InstanceLeaving means that it is being removed.
	InstanceLeaving InstanceState = "Leaving"
)

// SnapshotState is the state of a Migration's snapshot in the registry.
type SnapshotState string

const (
	// SnapshotUnknown means that the registry was not asked, or did not answer.
	SnapshotUnknown SnapshotState = "Unknown"
	// SnapshotAbsent means that the registry does not have it.
	SnapshotAbsent SnapshotState = "Absent"
	// SnapshotPresent means that the registry has it.
	SnapshotPresent SnapshotState = "Present"
)

// Hibernation is the part of an observation that moves by hibernation depend on.
type Hibernation struct {
	// Instance is the state of the machine's instance. There is at most one.
	Instance InstanceState
	// ID identifies the instance, also among instances of the same machine.
	ID types.UID
	// Node is the node on which it is scheduled.
	Node string
	// Unreachable means that this node is gone or not ready.
	Unreachable bool
	// Restored means that it is created from the snapshot of the Migration with its Digest, Fits that its target is
	// the Migration's To.
	Restored, Fits bool
	// Tried means that its agent has answered the Migration's request to hibernate.
	Tried bool
	// Power and Incarnation are as in the Observation.
	Power       v1alpha1.PowerState
	Incarnation string
	// Saved is the digest of the Migration's snapshot as reported by the agent that pushed it.
	Saved string
	// Snapshot and Digest are the registry's answer. The registry is asked only if a decision depends on it.
	Snapshot SnapshotState
	Digest   string
	// Refused is why the machine cannot be hibernated at all, empty if it can.
	Refused string
	// Trouble is the message of the scheduler, the agent or the registry about what blocks the move.
	Trouble string
}

// RestsOnSnapshot reports whether a decision depends on the registry: a Hibernator asks it only then.
func RestsOnSnapshot(step v1alpha1.MigrationStep, instance InstanceState) bool {
	switch step {
	case v1alpha1.MigrationHibernate:
		return instance == InstanceAsleep
	case v1alpha1.MigrationRelease:
		return instance == InstanceAsleep || instance == InstanceGone
	case v1alpha1.MigrationRestore:
		return instance == InstanceGone
	}
	return false
}

// Travelling returns the observation of a machine that may be on no node: it exists at least as its snapshot. It is
// not powered on.
func Travelling(m Machine, seen Observation, instanceID string) Observation {
	h := seen.Hibernation
	if !m.Migration.Travels() || seen.Exists || (h.Instance == InstanceGone && h.Snapshot == SnapshotAbsent) {
		return seen
	}
	seen.Exists, seen.InstanceID, seen.Power = true, instanceID, v1alpha1.PowerStopped
	return seen
}
