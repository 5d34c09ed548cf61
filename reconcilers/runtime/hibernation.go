package runtime

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// Hibernator is a Runtime that moves a machine by putting it into a snapshot on one node and making it from that on another. Which of
// its calls is due follows from what Observe sees in Observation.Hibernation, and is decided elsewhere; each is about the machine's
// Migration, which is persisted before. What [Runtime] says of every call is true of these, too. None waits for what it begins.
type Hibernator interface {
	// Hibernate asks for the machine to be put into the snapshot of its Migration, a task of kind Relocate until that was done or could not
	// be.
	Hibernate(ctx context.Context, machine Machine) error

	// Wake asks for a machine that is asleep to be as it was, on the node that it is on, a task of kind Other, which is not
	// withdrawn.
	Wake(ctx context.Context, machine Machine) error

	// Release removes the instance that the Migration leaves, if that is still asleep and its snapshot is still the one of the Migration's
	// Digest: anything else is an InvalidState error. With fenced its agent is not waited for.
	Release(ctx context.Context, machine Machine, fenced bool) error

	// Restore makes an instance from the snapshot, where the Migration's To wants it. It is success if there is one already, and an
	// InvalidState error as long as the one that the machine leaves is there.
	Restore(ctx context.Context, machine Machine) error

	// Retract removes a restored instance of which nothing has run: that no node has taken, or that could not be made there. With fenced it
	// also removes one that is being made, without waiting for its agent.
	Retract(ctx context.Context, machine Machine, fenced bool) error

	// Discard removes all snapshots of the machine. It is success if there are none.
	Discard(ctx context.Context, machine Machine) error
}

// InstanceState is what an instance of a machine that is moved by hibernation is like.
type InstanceState string

const (
	// InstanceGone means that there is none.
	InstanceGone InstanceState = "Gone"
	// InstanceUnplaced means that no node has taken it yet.
	InstanceUnplaced InstanceState = "Unplaced"
	// InstanceMaking means that it is being made on its node, from nothing or from a snapshot.
	InstanceMaking InstanceState = "Making"
	// InstanceFailed means that it could not be made, and that nothing of it ever ran.
	InstanceFailed InstanceState = "Failed"
	// InstanceLive means that it is made: on, paused or off.
	InstanceLive InstanceState = "Live"
	// InstanceAsleep means that it is hibernated: all that it was is in a snapshot, and nothing of it runs.
	InstanceAsleep InstanceState = "Asleep"
	// InstanceLeaving means that it is being removed.
	InstanceLeaving InstanceState = "Leaving"
)

// SnapshotState is what is known of the snapshot of a Migration.
type SnapshotState string

const (
	// SnapshotUnknown means that the registry was not asked, or did not say.
	SnapshotUnknown SnapshotState = "Unknown"
	// SnapshotAbsent means that the registry does not have it.
	SnapshotAbsent SnapshotState = "Absent"
	// SnapshotPresent means that the registry has it.
	SnapshotPresent SnapshotState = "Present"
)

// Hibernation is what is seen of a machine that a [Hibernator] runs, for a move of it.
type Hibernation struct {
	// Instance is the state of the machine's instance. There is at most one.
	Instance InstanceState
	// ID tells an instance from every other, also of the same machine.
	ID types.UID
	// Node is the one that has taken it.
	Node string
	// Unreachable means that this node is gone or not ready.
	Unreachable bool
	// Restored says that it is made from the snapshot of the Migration and its Digest, and Fits that it goes where its To wants it.
	Restored, Fits bool
	// Tried says that its agent has answered the request to hibernate for the Migration.
	Tried bool
	// Power and Incarnation are as in the Observation.
	Power       v1alpha1.PowerState
	Incarnation string
	// Saved is the digest of the Migration's snapshot, as the agent has it that pushed it.
	Saved string
	// Snapshot and Digest are what the registry says of it. It is asked only where something rests on it.
	Snapshot SnapshotState
	Digest   string
	// Refused says why the machine cannot be put into a snapshot at all, and is empty if it can.
	Refused string
	// Trouble is the message of the scheduler, the agent or the registry about what blocks the move.
	Trouble string
}

// RestsOnSnapshot reports whether something rests on what the registry has: a Hibernator asks it only then.
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

// Travelling gives what is seen of a machine that may be on no node, which does exist: as its snapshot, if not otherwise. Nothing of it
// is on.
func Travelling(m Machine, seen Observation, instanceID string) Observation {
	h := seen.Hibernation
	if !m.Migration.Travels() || seen.Exists || (h.Instance == InstanceGone && h.Snapshot == SnapshotAbsent) {
		return seen
	}
	seen.Exists, seen.InstanceID, seen.Power = true, instanceID, v1alpha1.PowerStopped
	return seen
}
