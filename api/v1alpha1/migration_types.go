package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// AnnotationSourceFenced on a VirtualMachine says that the node of one of its instances is dead for certain: nothing of the instance
// runs there, and nothing will. Its value is the UID of the instance's Pod, which status.migration and condition PlacementSettled name.
// The instance is then removed without its agent. To write it takes the verb override on policy machines-abandon.
const AnnotationSourceFenced = "sallyport.dev/source-fenced"

// MigrationStep is a step of a move by hibernation. It is written before anything
// of it is done.
//
// +kubebuilder:validation:Enum=Hibernate;Wake;Release;Restore;Discard
type MigrationStep string

const (
	// MigrationHibernate has the machine put into a snapshot on the node that it
	// is to leave. It can be taken back.
	MigrationHibernate MigrationStep = "Hibernate"
	// MigrationWake has it go on there after all.
	MigrationWake MigrationStep = "Wake"
	// MigrationRelease removes what is left of it there. From here on only a
	// deletion supersedes the move.
	MigrationRelease MigrationStep = "Release"
	// MigrationRestore makes it from the snapshot on another node.
	MigrationRestore MigrationStep = "Restore"
	// MigrationDiscard removes the snapshot. The machine is where it is wanted
	// and goes on while this is done.
	MigrationDiscard MigrationStep = "Discard"
)

// Migration is a move of a machine by hibernation.
type Migration struct {
	// What tells this move from every other. It is the tag of its snapshot.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Type=string
	ID types.UID `json:"id"`

	// What is being done: Hibernate, Wake, Release, Restore or Discard.
	// +required
	Step MigrationStep `json:"step"`

	// When that was begun.
	// +required
	Since metav1.MicroTime `json:"since"`

	// The node that the machine goes to, and the labels of the nodes that it may go
	// to. Empty leaves the choice to the scheduler.
	// +optional
	To MigrateTarget `json:"to,omitzero"`

	// Whether the move is taken back after the machine has left its node. It then
	// goes to any node, at best to the one that it left.
	// +optional
	Back bool `json:"back,omitempty"`

	// The UID of the Pod that the machine leaves.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Type=string
	Instance types.UID `json:"instance"`

	// The machine as it was on the node that it leaves: the restored one is proven
	// by another incarnation.
	// +required
	Was OperationBaseline `json:"was"`

	// The VirtualDisks that the machine had when the move began. Their data is not in
	// the snapshot, and the restored machine has the same ones.
	// +optional
	// +listType=map
	// +listMapKey=uid
	// +kubebuilder:validation:MaxItems=64
	Disks []AttachedDisk `json:"disks,omitempty"`

	// The digest of the snapshot, once it is proven that the registry has it.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Digest string `json:"digest,omitempty"`

	// Why the step takes time, as a reason of condition PlacementSettled. Absent
	// while nothing special is waited for.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Reason string `json:"reason,omitempty"`

	// The same for people.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// Travels reports whether a machine may be on no node, with its snapshot as the only copy.
func (m *Migration) Travels() bool {
	return m != nil && (m.Step == MigrationRelease || m.Step == MigrationRestore)
}
