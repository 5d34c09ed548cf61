package v1alpha1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// VirtualMachineOperationFinalizer keeps an operation until its claim on the
// machine is released; it never waits for a runtime. The operation reconciler adds
// and removes it.
const VirtualMachineOperationFinalizer = "sallyport.dev/virtual-machine-operation"

// OperationType is what an operation does to a machine.
type OperationType string

const (
	// OperationStart powers the machine on.
	OperationStart OperationType = "Start"
	// OperationStop shuts the guest down.
	OperationStop OperationType = "Stop"
	// OperationRestart shuts the guest down, waits until the machine is off and
	// powers it on again.
	OperationRestart OperationType = "Restart"
	// OperationMigrate moves the machine to another node, which may be named.
	OperationMigrate OperationType = "Migrate"
	// OperationEvict moves the machine off its node, to any node with room.
	OperationEvict OperationType = "Evict"
	// OperationDelete removes the machine from its runtime. It is never the type
	// of a VirtualMachineOperation, only of a claim whose origin is Deletion.
	OperationDelete OperationType = "Delete"
)

const (
	// DefaultActiveDeadline is how long an operation may take, from its creation,
	// if spec.activeDeadlineSeconds does not say.
	DefaultActiveDeadline = 600 * time.Second
	// DefaultMoveDeadline is the same for Migrate and Evict, which copy memory
	// or disks.
	DefaultMoveDeadline = 3600 * time.Second
	// DefaultTTLAfterFinished is how long an operation is kept, from its
	// completion, if spec.ttlSecondsAfterFinished does not say.
	DefaultTTLAfterFinished = 86400 * time.Second
)

// DefaultDeadline is how long an operation of this type may take by default.
func (t OperationType) DefaultDeadline() time.Duration {
	if t == OperationMigrate || t == OperationEvict {
		return DefaultMoveDeadline
	}
	return DefaultActiveDeadline
}

// OperationForm is a form in which an operation can be requested.
type OperationForm struct {
	// Type of the operation, and whether it is forced.
	Type  OperationType `json:"type"`
	Force bool          `json:"force"`
}

// OperationForms are all forms in which operations can be requested, each graceful
// one before the forced one of its type. There is no forced Start.
func OperationForms() []OperationForm {
	forms := []OperationForm{{Type: OperationStart}}
	for _, t := range []OperationType{OperationStop, OperationRestart, OperationMigrate, OperationEvict} {
		forms = append(forms, OperationForm{Type: t}, OperationForm{Type: t, Force: true})
	}
	return forms
}

// OperationPhase is the progress of an operation.
//
// +kubebuilder:validation:Enum=Pending;InProgress;Completed;Failed
type OperationPhase string

const (
	// OperationPending means that the operation waits for the claim on its
	// machine.
	OperationPending OperationPhase = "Pending"
	// OperationInProgress means that the operation has claimed its machine.
	OperationInProgress OperationPhase = "InProgress"
	// OperationCompleted means that it succeeded, or that another operation
	// superseded it. Final.
	OperationCompleted OperationPhase = "Completed"
	// OperationFailed means that it failed. Final.
	OperationFailed OperationPhase = "Failed"
)

// OperationStep is one step of an operation.
//
// +kubebuilder:validation:Enum=PowerOff;PowerOn;Relocate;Delete
type OperationStep string

const (
	// StepPowerOff means that the machine is being shut down.
	StepPowerOff OperationStep = "PowerOff"
	// StepPowerOn means that the machine was seen off and is being powered on.
	StepPowerOn OperationStep = "PowerOn"
	// StepRelocate means that the machine is being moved.
	StepRelocate OperationStep = "Relocate"
	// StepDelete means that the machine is being removed, or released.
	StepDelete OperationStep = "Delete"
)

// LabelValue is the value of a label.
//
// +kubebuilder:validation:MaxLength=63
type LabelValue string

// ExtraValue is the list of values of one extra attribute of a user.
//
// +kubebuilder:validation:MaxItems=64
// +kubebuilder:validation:items:MaxLength=4096
type ExtraValue []string

// VirtualMachineOperationSpec is what an operation does. It is immutable: create
// another operation instead.
//
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec is immutable: create another operation instead"
// +kubebuilder:validation:XValidation:rule="self.type != 'Start' || !has(self.force) || !self.force",fieldPath=".force",message="spec.force is not allowed with type Start: there is no forced way to power on"
// +kubebuilder:validation:XValidation:rule="!has(self.migrate) || self.type == 'Migrate'",message="spec.migrate is only allowed with type Migrate"
type VirtualMachineOperationSpec struct {
	// What is done:
	// Start (power on),
	// Stop (shut the guest down),
	// Restart (shut down, wait until the machine is off, power on),
	// Migrate (move to another node, see migrate),
	// Evict (move off its node, to any node with room).
	// +required
	// +kubebuilder:validation:Enum=Start;Stop;Restart;Migrate;Evict
	Type OperationType `json:"type"`

	// The name of the VirtualMachine, in the same namespace.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	VirtualMachineName string `json:"virtualMachineName"`

	// Whether the operation does not wait for the guest: a forced Stop powers the
	// machine off, and supersedes a graceful one that the guest ignores. A forced
	// Migrate or Evict uses the strongest means of the runtime; in a vCenter that is
	// a high priority for the move. Default false. Not allowed with type Start.
	// +optional
	// +kubebuilder:default=false
	Force bool `json:"force,omitempty"`

	// The target of a Migrate. Absent, the default, leaves the choice to the
	// runtime. Not allowed with any other type.
	// +optional
	Migrate *MigrateTarget `json:"migrate,omitempty"`

	// How many seconds the operation may take, waiting included, counted from its
	// creation. After that it fails, and tasks in flight are canceled. Default 600,
	// for Migrate and Evict 3600.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=604800
	ActiveDeadlineSeconds *int32 `json:"activeDeadlineSeconds,omitempty"`

	// How many seconds the operation is kept after its completion; then it is
	// deleted. Default 86400, one day; 0 deletes it immediately.
	// +optional
	// +kubebuilder:default=86400
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=31536000
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`

	// The UID of the VirtualMachine at the time of the request, so that the
	// operation cannot apply to a later machine of the same name. Set by the
	// mutating webhook, which replaces any other value.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Type=string
	VirtualMachineUID types.UID `json:"virtualMachineUID,omitempty"`

	// The user who requested the operation. Set by the mutating webhook, which
	// replaces any other value.
	// +optional
	RequestedBy *Requester `json:"requestedBy,omitempty"`

	// When the operation was requested, in UTC with nanoseconds, such as
	// 2026-01-02T03:04:05.000000006Z. It orders operations that were created within
	// the same second. Set by the mutating webhook, which replaces any other value.
	// +optional
	// +kubebuilder:validation:MaxLength=30
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{9}Z$`
	RequestedAt string `json:"requestedAt,omitempty"`

	// The override that the request carried in its annotation
	// sallyport.dev/override, so that the reconcilers evaluate the operation as the
	// webhooks did. Set by the mutating webhook, which replaces any other value.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Override string `json:"override,omitempty"`
}

// MigrateTarget is the target of a Migrate.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.nodeName) && has(self.nodeSelector))",message="spec.migrate takes at most one of nodeName and nodeSelector"
type MigrateTarget struct {
	// The node or ESXi host to move to, by name.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	NodeName string `json:"nodeName,omitempty"`

	// Labels that the target node must have, all of them, in addition to those of
	// the VirtualMachine's spec.nodeSelector. For ESXi hosts these are vSphere tags:
	// the key is the category, the value the tag.
	// +optional
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=16
	NodeSelector map[string]LabelValue `json:"nodeSelector,omitempty"`
}

// Requester is a user as authenticated by the API server.
type Requester struct {
	// The name of the user.
	// +required
	// +kubebuilder:validation:MaxLength=1024
	Username string `json:"username"`

	// The UID of the user, if the authenticator provides one.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	UID string `json:"uid,omitempty"`

	// The groups of the user.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2048
	// +kubebuilder:validation:items:MaxLength=1024
	Groups []string `json:"groups,omitempty"`

	// Further attributes of the user from the authenticator, for authorizers.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Extra map[string]ExtraValue `json:"extra,omitempty"`
}

// VirtualMachineOperationStatus is the observed state of an operation.
type VirtualMachineOperationStatus struct {
	// The metadata.generation that the rest of the status is based on. Set by the
	// operation reconciler, like everything here.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// The phase of the operation: Pending (waiting for the machine), InProgress (has
	// claimed it), Completed or Failed. A superseded operation ends Completed with
	// reason Superseded.
	// +optional
	Phase OperationPhase `json:"phase,omitempty"`

	// When the operation claimed its machine.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`

	// When the operation finished, successfully or not.
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`

	// The progress in percent, if the runtime reports it.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Progress *int32 `json:"progress,omitempty"`

	// The operation that superseded this one.
	// +optional
	SupersededBy *OperationReference `json:"supersededBy,omitempty"`

	// The operations that this one superseded.
	// +optional
	// +listType=map
	// +listMapKey=uid
	// +kubebuilder:validation:MaxItems=256
	Supersedes []OperationReference `json:"supersedes,omitempty"`

	// The state of the machine when the operation claimed it. Success is measured
	// against it.
	// +optional
	Baseline *OperationBaseline `json:"baseline,omitempty"`

	// The part of a Restart that was started last: PowerOff, then PowerOn. Empty for
	// every other type.
	// +optional
	Step OperationStep `json:"step,omitempty"`

	// The state of the operation in detail. SignalSent is true once the request was
	// sent to the runtime; Completed is true after success or supersession, as its
	// reason says; Superseded is true once another operation has superseded it.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// OperationBaseline is the state of a machine before an operation.
type OperationBaseline struct {
	// Its power state: Running, Stopped or Paused. Empty if it did not exist.
	// +optional
	PowerState PowerState `json:"powerState,omitempty"`

	// Its incarnation; a different one later means that it has been off since.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Incarnation string `json:"incarnation,omitempty"`

	// The node or ESXi host that it was on.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	NodeName string `json:"nodeName,omitempty"`
}

// VirtualMachineOperation is one declarative operation on a VirtualMachine:
// create it to start, stop, restart or move the machine, and wait for its
// condition Completed. It is denied if the machine is busy with something that it
// cannot supersede.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=svmop,categories=sallyport
// +kubebuilder:selectablefield:JSONPath=`.spec.virtualMachineName`
// +kubebuilder:selectablefield:JSONPath=`.spec.type`
// +kubebuilder:selectablefield:JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.type`,description="What is done."
// +kubebuilder:printcolumn:name="Force",type=boolean,JSONPath=`.spec.force`,description="Whether it is done without waiting for the guest."
// +kubebuilder:printcolumn:name="VM",type=string,JSONPath=`.spec.virtualMachineName`,description="The machine that it is done to."
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`,description="How far it has come."
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Completed")].reason`,description="How it ended, or what it waits for."
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since its creation."
type VirtualMachineOperation struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// What the operation does. It is immutable: create another operation instead.
	// +required
	Spec VirtualMachineOperationSpec `json:"spec"`

	// The observed state of the operation.
	// +optional
	Status VirtualMachineOperationStatus `json:"status,omitzero"`
}

// Finished reports whether the operation has ended, successfully or not.
func (o *VirtualMachineOperation) Finished() bool {
	return o.Status.Phase == OperationCompleted || o.Status.Phase == OperationFailed
}

// ActiveDeadline is how long the operation may take, counted from its creation.
func (o *VirtualMachineOperation) ActiveDeadline() time.Duration {
	if seconds := o.Spec.ActiveDeadlineSeconds; seconds != nil {
		return time.Duration(*seconds) * time.Second
	}
	return o.Spec.Type.DefaultDeadline()
}

// VirtualMachineOperationList is a list of VirtualMachineOperations.
//
// +kubebuilder:object:root=true
type VirtualMachineOperationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`

	// The operations.
	Items []VirtualMachineOperation `json:"items"`
}
