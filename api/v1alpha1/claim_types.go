package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ActiveOperation is the holder of the claim on a machine.
type ActiveOperation struct {
	// What tells this claim from every other: the UID of the operation, or an id
	// made at the claim where there is no operation.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	ID string `json:"id"`

	// What asked for the change: Operation (a VirtualMachineOperation),
	// RunPolicy, Placement, Rollout (a changed spec that needs a restart) or
	// Deletion.
	// +required
	Origin ClaimOrigin `json:"origin"`

	// The name of the VirtualMachineOperation. Empty for every other origin.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`

	// What is being done: a type of operation, or Delete for origin Deletion.
	// +required
	// +kubebuilder:validation:Enum=Start;Stop;Restart;Migrate;Evict;Delete
	Type OperationType `json:"type"`

	// Whether it is done without waiting for the guest. Default false.
	// +optional
	// +kubebuilder:default=false
	Force bool `json:"force"`

	// The node that an operation of type Migrate names, so that limits for each
	// node count the move from the start. Empty for every other type and origin.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	NodeName string `json:"nodeName,omitempty"`

	// When the claim was taken.
	// +required
	ClaimedAt metav1.MicroTime `json:"claimedAt"`

	// The machine as it was before anything was done, for a holder that is no
	// VirtualMachineOperation, which has its own.
	// +optional
	Baseline *OperationBaseline `json:"baseline,omitempty"`

	// The step that was last begun, for such a holder: PowerOff, PowerOn,
	// Relocate or Delete.
	// +optional
	Step OperationStep `json:"step,omitempty"`

	// Whether the runtime has been told, for such a holder: Sending (it is about
	// to be told, or has been) or Sent. Empty before that.
	// +optional
	Signal ClaimSignal `json:"signal,omitempty"`

	// When the guest was asked to shut down, by a holder that is no
	// VirtualMachineOperation. The grace period counts from here.
	// +optional
	GuestAskedAt *metav1.MicroTime `json:"guestAskedAt,omitempty"`

	// The power intent from before the claim, put back if the holder ends
	// without success.
	// +optional
	PreviousIntent *PowerIntent `json:"previousIntent,omitempty"`
}

// ClaimSignal is how far the runtime has been told what to do.
//
// +kubebuilder:validation:Enum=Sending;Sent
type ClaimSignal string

const (
	// SignalSending means that the runtime is about to be told, or was told
	// before a crash.
	SignalSending ClaimSignal = "Sending"
	// SignalSent means that the runtime was told.
	SignalSent ClaimSignal = "Sent"
)

// UndoingOperation is a former holder of the claim on a machine of which
// something may still be in flight.
type UndoingOperation struct {
	// The id that it had as the holder.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	ID string `json:"id"`

	// What had asked for the change: Operation, RunPolicy, Placement, Rollout or
	// Deletion.
	// +required
	Origin ClaimOrigin `json:"origin"`

	// The name of the VirtualMachineOperation. Empty for every other origin.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`

	// What was being done: a type of operation, or Delete for origin Deletion.
	// +required
	// +kubebuilder:validation:Enum=Start;Stop;Restart;Migrate;Evict;Delete
	Type OperationType `json:"type"`

	// Whether it was done without waiting for the guest. Default false.
	// +optional
	// +kubebuilder:default=false
	Force bool `json:"force"`

	// The task of the runtime that it began and that is withdrawn. Empty when
	// none is known: what somebody else does to the machine is only waited for.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Task string `json:"task,omitempty"`

	// How it ends once nothing of it is in flight: Superseded, DeadlineExceeded,
	// Deleted or Failed.
	// +required
	End UndoEnd `json:"end"`

	// The operation that took its place. Set only with end Superseded.
	// +optional
	By *OperationReference `json:"by,omitempty"`
}
