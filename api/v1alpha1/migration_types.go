package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// AnnotationSourceFenced on a VirtualMachine confirms that the node of one of its instances is dead: nothing of the instance runs there,
// and nothing will. Its value is the UID of the instance's Pod, which status.migration and condition PlacementSettled name. The instance
// is then removed without its agent. Writing it needs the verb override on policy machines-abandon.
const AnnotationSourceFenced = "sallyport.dev/source-fenced"

// MigrationStep is a step of a move by hibernation. It is persisted before anything
// of it happens.
//
// +kubebuilder:validation:Enum=Hibernate;Wake;Release;Restore;Discard
type MigrationStep string

const (
	// MigrationHibernate puts the machine into a snapshot on its present node. It
	// can be rolled back.
	MigrationHibernate MigrationStep = "Hibernate"
	// MigrationWake rolls the move back: the machine is woken on its present node.
	MigrationWake MigrationStep = "Wake"
	// MigrationRelease removes the machine from the node that it leaves. From here
	// on, only a deletion supersedes the move.
	MigrationRelease MigrationStep = "Release"
	// MigrationRestore restores the machine from the snapshot on another node.
	MigrationRestore MigrationStep = "Restore"
	// MigrationDiscard removes the snapshot. The machine is on the wanted node and
	// runs meanwhile.
	MigrationDiscard MigrationStep = "Discard"
)

// Migration is a move of a machine by hibernation.
type Migration struct {
	// The identity of this move. It is the tag of its snapshot.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Type=string
	ID types.UID `json:"id"`

	// What is being done: Hibernate, Wake, Release, Restore or Discard.
	// +required
	Step MigrationStep `json:"step"`

	// When the step was started.
	// +required
	Since metav1.MicroTime `json:"since"`

	// The target node, or the labels that the target node must have. Empty leaves the
	// choice to the scheduler.
	// +optional
	To MigrateTarget `json:"to,omitzero"`

	// Whether the move is rolled back although its snapshot was complete. A machine that
	// has left its node is then restored on any node, preferably on the one that it
	// left.
	// +optional
	Back bool `json:"back,omitempty"`

	// The UID of the Pod that the machine leaves.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Type=string
	Instance types.UID `json:"instance"`

	// The state of the machine on the node that it leaves. A restored machine has
	// another incarnation.
	// +required
	Was OperationBaseline `json:"was"`

	// The VirtualDisks that the machine had when the move began. Their data is not in
	// the snapshot, and the restored machine has the same ones.
	// +optional
	// +listType=map
	// +listMapKey=uid
	// +kubebuilder:validation:MaxItems=64
	Disks []AttachedDisk `json:"disks,omitempty"`

	// The digest of the snapshot, once the registry is known to have it.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Digest string `json:"digest,omitempty"`

	// Why the step is waiting, as a reason of condition PlacementSettled. Absent
	// while the step makes progress.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Reason string `json:"reason,omitempty"`

	// A human-readable form of the reason.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// Travels reports whether a machine may be on no node, with its snapshot as the only copy.
func (m *Migration) Travels() bool {
	return m != nil && (m.Step == MigrationRelease || m.Step == MigrationRestore)
}
