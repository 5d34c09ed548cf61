package v1alpha1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// VirtualMachineOperationFinalizer keeps an operation that may hold its machine
// until it does not any more; it never waits for a runtime. The operation
// reconciler adds and removes it.
const VirtualMachineOperationFinalizer = "sallyport.dev/virtual-machine-operation"

// OperationType is what an operation does to a machine.
type OperationType string

const (
	// OperationStart powers the machine on.
	OperationStart OperationType = "Start"
	// OperationStop shuts the guest down.
	OperationStop OperationType = "Stop"
	// OperationRestart shuts the guest down, sees the machine off and powers it
	// on again.
	OperationRestart OperationType = "Restart"
	// OperationMigrate moves the machine to another node, which may be named.
	OperationMigrate OperationType = "Migrate"
	// OperationEvict moves the machine off its node, to wherever there is room.
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

// DefaultDeadline is how long what is done to a machine may take, if nobody says.
func (t OperationType) DefaultDeadline() time.Duration {
	if t == OperationMigrate || t == OperationEvict {
		return DefaultMoveDeadline
	}
	return DefaultActiveDeadline
}

// OperationForm is a form in which an operation can be asked for.
type OperationForm struct {
	// Type of the operation, and whether it is forced.
	Type  OperationType `json:"type"`
	Force bool          `json:"force"`
}

// OperationForms are all forms in which operations can be asked for, each gentle
// one before the forced one of its type. There is no forced Start.
func OperationForms() []OperationForm {
	forms := []OperationForm{{Type: OperationStart}}
	for _, t := range []OperationType{OperationStop, OperationRestart, OperationMigrate, OperationEvict} {
		forms = append(forms, OperationForm{Type: t}, OperationForm{Type: t, Force: true})
	}
	return forms
}

// OperationPhase is how far an operation has come.
//
// +kubebuilder:validation:Enum=Pending;InProgress;Completed;Failed
type OperationPhase string

const (
	// OperationPending means that the operation waits for the claim on its
	// machine.
	OperationPending OperationPhase = "Pending"
	// OperationInProgress means that the operation holds the claim on its
	// machine.
	OperationInProgress OperationPhase = "InProgress"
	// OperationCompleted means that it has ended as it should, or that a
	// stronger operation took its place. Final.
	OperationCompleted OperationPhase = "Completed"
	// OperationFailed means that it has ended without reaching its goal. Final.
	OperationFailed OperationPhase = "Failed"
)

// OperationStep is something that is done to a machine, one after the other.
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

// VirtualMachineOperationSpec is what an operation does. It cannot be changed
// after its creation: create another operation instead.
//
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec is immutable: create another operation instead"
// +kubebuilder:validation:XValidation:rule="self.type != 'Start' || !has(self.force) || !self.force",fieldPath=".force",message="spec.force is not allowed with type Start: there is no forced way to power on"
// +kubebuilder:validation:XValidation:rule="!has(self.migrate) || self.type == 'Migrate'",message="spec.migrate is only allowed with type Migrate"
type VirtualMachineOperationSpec struct {
	// What is done:
	// Start (power on),
	// Stop (shut the guest down),
	// Restart (shut down, see the machine off, power on),
	// Migrate (move to another node, see migrate),
	// Evict (move off its node, to wherever there is room).
	// +required
	// +kubebuilder:validation:Enum=Start;Stop;Restart;Migrate;Evict
	Type OperationType `json:"type"`

	// The VirtualMachine that it is done to, by name, in the same namespace.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	VirtualMachineName string `json:"virtualMachineName"`

	// Whether it is done without waiting for the guest: a forced Stop powers the
	// machine off, and takes the place of a graceful one that the guest ignores.
	// A forced Migrate or Evict has the runtime do all that it can to get the
	// machine across; in a vCenter that is a high priority for the move.
	// Default false. Not allowed with type Start.
	// +optional
	// +kubebuilder:default=false
	Force bool `json:"force,omitempty"`

	// Where a Migrate goes. Absent, the default, leaves the choice to the
	// runtime. Not allowed with any other type.
	// +optional
	Migrate *MigrateTarget `json:"migrate,omitempty"`

	// How many seconds the operation may take, waiting included, counted from
	// its creation. After that it fails and what is in flight is withdrawn.
	// Default 600, for Migrate and Evict 3600.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=604800
	ActiveDeadlineSeconds *int32 `json:"activeDeadlineSeconds,omitempty"`

	// How many seconds the operation is kept after it has ended, counted from
	// its completion; then it is deleted. Default 86400, one day; 0 deletes it
	// at once.
	// +optional
	// +kubebuilder:default=86400
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=31536000
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`

	// The UID of the VirtualMachine at the time of the request, so that the
	// operation cannot meet a later machine of the same name. Set by the
	// mutating webhook; what a client writes here is replaced.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Type=string
	VirtualMachineUID types.UID `json:"virtualMachineUID,omitempty"`

	// Who asked for the operation. Set by the mutating webhook; what a client
	// writes here is replaced.
	// +optional
	RequestedBy *Requester `json:"requestedBy,omitempty"`

	// When the operation was asked for, in UTC with nine digits of a second,
	// such as 2026-01-02T03:04:05.000000006Z. It orders operations that were
	// created within the same second. Set by the mutating webhook; what a client
	// writes here is replaced.
	// +optional
	// +kubebuilder:validation:MaxLength=30
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{9}Z$`
	RequestedAt string `json:"requestedAt,omitempty"`

	// The override that the request carried in its annotation
	// sallyport.dev/override, so that the reconcilers judge the operation as the
	// webhooks did. Set by the mutating webhook; what a client writes here is
	// replaced.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Override string `json:"override,omitempty"`
}

// MigrateTarget says where a Migrate goes.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.nodeName) && has(self.nodeSelector))",message="spec.migrate takes at most one of nodeName and nodeSelector"
type MigrateTarget struct {
	// The node or ESXi host to move to, by name.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	NodeName string `json:"nodeName,omitempty"`

	// Labels that the node to move to must have, all of them, beside those of the
	// VirtualMachine's spec.nodeSelector. Of ESXi hosts these are the tags in
	// vSphere: the key is the category, the value the tag.
	// +optional
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=16
	NodeSelector map[string]LabelValue `json:"nodeSelector,omitempty"`
}

// Requester is a user as the API server has authenticated them.
type Requester struct {
	// The name of the user.
	// +required
	// +kubebuilder:validation:MaxLength=1024
	Username string `json:"username"`

	// What tells the user from a later one of the same name, if the
	// authenticator knows.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	UID string `json:"uid,omitempty"`

	// The groups of the user.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2048
	// +kubebuilder:validation:items:MaxLength=1024
	Groups []string `json:"groups,omitempty"`

	// Whatever else the authenticator said about the user, which authorizers may
	// look at.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Extra map[string]ExtraValue `json:"extra,omitempty"`
}

// VirtualMachineOperationStatus is how far an operation has come.
type VirtualMachineOperationStatus struct {
	// The metadata.generation that the rest of the status was made from. Set by
	// the operation reconciler, like everything here.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// How far the operation has come: Pending (waits for the machine),
	// InProgress (holds the claim on it), Completed or Failed. An operation whose
	// place a stronger one took ends Completed with reason Superseded.
	// +optional
	Phase OperationPhase `json:"phase,omitempty"`

	// When the operation took the claim on its machine.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`

	// When the operation ended, in whatever way.
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`

	// How much is done, in percent, where the runtime says so.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Progress *int32 `json:"progress,omitempty"`

	// The operation that took the place of this one.
	// +optional
	SupersededBy *OperationReference `json:"supersededBy,omitempty"`

	// The operations whose place this one took.
	// +optional
	// +listType=map
	// +listMapKey=uid
	// +kubebuilder:validation:MaxItems=256
	Supersedes []OperationReference `json:"supersedes,omitempty"`

	// The machine as it was when the operation got its turn. What the operation
	// has achieved is judged against this.
	// +optional
	Baseline *OperationBaseline `json:"baseline,omitempty"`

	// The half of a Restart that was last begun: PowerOff, then PowerOn. Empty
	// for every other type.
	// +optional
	Step OperationStep `json:"step,omitempty"`

	// The state of the operation in detail. SignalSent is true once the runtime
	// was told; Completed is true at a good end, with the reason in a word;
	// Superseded is true once a stronger operation took its place.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// OperationBaseline is a machine as it was before an operation.
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
// create it to have the machine started, stopped, restarted or moved, and wait
// for its condition Completed. It is refused when the machine is busy with
// something that does not yield to it.
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

	// What the operation does. It cannot be changed: create another operation
	// instead.
	// +required
	Spec VirtualMachineOperationSpec `json:"spec"`

	// How far the operation has come.
	// +optional
	Status VirtualMachineOperationStatus `json:"status,omitzero"`
}

// Finished reports whether the operation has ended, in whatever way.
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
