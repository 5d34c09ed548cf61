package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ActiveOperation is the holder of the claim on a machine.
type ActiveOperation struct {
	// The identity of this claim: the UID of the operation, or an ID made for the
	// claim if there is no operation.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	ID string `json:"id"`

	// What requested the change: Operation (a VirtualMachineOperation), RunPolicy,
	// Placement, Rollout (a changed spec that needs a restart) or Deletion.
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

	// The state of the machine before the change, for a holder that is not a
	// VirtualMachineOperation. Operations have their own baseline.
	// +optional
	Baseline *OperationBaseline `json:"baseline,omitempty"`

	// The step that was started last, for such a holder: PowerOff, PowerOn, Relocate
	// or Delete.
	// +optional
	Step OperationStep `json:"step,omitempty"`

	// Whether the request was sent to the runtime, for such a holder: Sending (it is
	// about to be sent, or was sent without a reply) or Sent. Empty before that.
	// +optional
	Signal ClaimSignal `json:"signal,omitempty"`

	// When the guest was asked to shut down, by a holder that is no
	// VirtualMachineOperation. The grace period counts from here.
	// +optional
	GuestAskedAt *metav1.MicroTime `json:"guestAskedAt,omitempty"`

	// The power intent before the claim, restored if the holder ends without
	// success.
	// +optional
	PreviousIntent *PowerIntent `json:"previousIntent,omitempty"`
}

// ClaimSignal says whether the request was sent to the runtime.
//
// +kubebuilder:validation:Enum=Sending;Sent
type ClaimSignal string

const (
	// SignalSending means that the request is about to be sent, or was sent without
	// a reply.
	SignalSending ClaimSignal = "Sending"
	// SignalSent means that the request was sent.
	SignalSent ClaimSignal = "Sent"
)

// UndoingOperation is an earlier holder of the claim on a machine that may still
// have something in flight.
type UndoingOperation struct {
	// The ID of its claim.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	ID string `json:"id"`

	// What requested the change: Operation, RunPolicy, Placement, Rollout or
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

	// The task that it started on the runtime and that Sallyport cancels. Empty if
	// none is known: Sallyport only waits for tasks that others started.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Task string `json:"task,omitempty"`

	// How it ends once nothing of it is in flight: Superseded, DeadlineExceeded,
	// Deleted or Failed.
	// +required
	End UndoEnd `json:"end"`

	// The operation that superseded it. Set only with end Superseded.
	// +optional
	By *OperationReference `json:"by,omitempty"`
}

// PowerIntent is the power state that was last requested.
type PowerIntent struct {
	// The state that is kept: Running or Stopped.
	// +required
	// +kubebuilder:validation:XValidation:rule="self != 'Paused'",message="must be Running or Stopped"
	State PowerState `json:"state"`

	// What requested it: the name of a VirtualMachineOperation, an origin such as
	// RunPolicy (operations have lowercase names), or Adoption for a machine that
	// was found in that state.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	By string `json:"by,omitempty"`

	// When it was requested.
	// +required
	At metav1.MicroTime `json:"at"`
}

// AdoptedVM is what a VM of KubeVirt was when it was adopted.
type AdoptedVM struct {
	// The UID of the VM of KubeVirt. It is not used for another VM of its name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Type=string
	UID types.UID `json:"uid"`

	// The run strategy that the VM had, and gets back when it is released.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	RunStrategy string `json:"runStrategy"`
}

// OperationReference identifies one VirtualMachineOperation in the same
// namespace.
type OperationReference struct {
	// The name of the operation. Empty for the deletion of the machine, which is not
	// a VirtualMachineOperation.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`

	// The UID of the operation, or the id of the claim.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Type=string
	UID types.UID `json:"uid"`
}

// Placement is a node that an operation has moved the machine to. It overrides
// spec.nodeName until that changes.
type Placement struct {
	// The node or ESXi host, by name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	NodeName string `json:"nodeName"`

	// The name of the VirtualMachineOperation that chose it.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	By string `json:"by,omitempty"`

	// The value of spec.nodeName at that time. The placement ends when spec.nodeName
	// changes.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	InPlaceOf string `json:"inPlaceOf,omitempty"`
}
