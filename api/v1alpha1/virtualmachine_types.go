package v1alpha1

import (
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// RunPolicy says when a machine is kept running.
//
// +kubebuilder:validation:Enum=AlwaysOn;AlwaysOnUnlessStoppedManually;Manual;AlwaysOff
type RunPolicy string

const (
	// RunPolicyAlwaysOn keeps the machine running whatever happens to it. Start
	// and Stop operations are refused.
	RunPolicyAlwaysOn RunPolicy = "AlwaysOn"
	// RunPolicyAlwaysOnUnlessStoppedManually keeps the machine running until a
	// Stop operation stops it, and off from then until a Start operation. It is
	// the default.
	RunPolicyAlwaysOnUnlessStoppedManually RunPolicy = "AlwaysOnUnlessStoppedManually"
	// RunPolicyManual changes power only by operations.
	RunPolicyManual RunPolicy = "Manual"
	// RunPolicyAlwaysOff keeps the machine off. Every operation is refused.
	RunPolicyAlwaysOff RunPolicy = "AlwaysOff"
)

// RestartApprovalMode says who restarts a machine whose size has changed.
//
// +kubebuilder:validation:Enum=Manual;Automatic
type RestartApprovalMode string

const (
	// RestartManual leaves it to people.
	RestartManual RestartApprovalMode = "Manual"
	// RestartAutomatic has the machine restarted.
	RestartAutomatic RestartApprovalMode = "Automatic"
)

// VirtualMachinePhase sums up what is observed of a machine and what is being
// done to it. It is derived from the rest of the status and never the other way
// round.
//
// +kubebuilder:validation:Enum=Pending;Provisioning;Stopped;Starting;Running;Degraded;Stopping;Migrating;Paused;Failed;Terminating
type VirtualMachinePhase string

const (
	// VirtualMachinePending means that nothing has been done yet.
	VirtualMachinePending VirtualMachinePhase = "Pending"
	// VirtualMachineProvisioning means that the machine is being created or
	// adopted on its runtime.
	VirtualMachineProvisioning VirtualMachinePhase = "Provisioning"
	// VirtualMachineStopped means that the machine exists and is off.
	VirtualMachineStopped VirtualMachinePhase = "Stopped"
	// VirtualMachineStarting means that the machine is being powered on.
	VirtualMachineStarting VirtualMachinePhase = "Starting"
	// VirtualMachineRunning means that the machine is on.
	VirtualMachineRunning VirtualMachinePhase = "Running"
	// VirtualMachineDegraded means that the machine is on, and that something is
	// wrong with it that condition Ready names: the tools in its guest ran since
	// the last power-on and do not run any more, its runtime waits for an answer
	// from people, or its runtime lost the connection to it.
	VirtualMachineDegraded VirtualMachinePhase = "Degraded"
	// VirtualMachineStopping means that the machine is being shut down.
	VirtualMachineStopping VirtualMachinePhase = "Stopping"
	// VirtualMachineMigrating means that the machine is moving to another node.
	VirtualMachineMigrating VirtualMachinePhase = "Migrating"
	// VirtualMachinePaused means that the machine is suspended with its memory
	// kept.
	VirtualMachinePaused VirtualMachinePhase = "Paused"
	// VirtualMachineFailed means that the runtime does not know the machine any
	// more, which is not made again unasked.
	VirtualMachineFailed VirtualMachinePhase = "Failed"
	// VirtualMachineTerminating means that the object is being deleted.
	VirtualMachineTerminating VirtualMachinePhase = "Terminating"
)

// PowerState is the power state of a machine.
//
// +kubebuilder:validation:Enum=Running;Stopped;Paused
type PowerState string

const (
	// PowerRunning means on.
	PowerRunning PowerState = "Running"
	// PowerStopped means off.
	PowerStopped PowerState = "Stopped"
	// PowerPaused means suspended with its memory kept. It is only ever
	// observed; nothing in Sallyport asks for it.
	PowerPaused PowerState = "Paused"
)

// ClaimOrigin says what asked for the change that holds the claim on a machine.
//
// +kubebuilder:validation:Enum=Operation;RunPolicy;Placement;Rollout;Deletion
type ClaimOrigin string

const (
	// OriginOperation is a VirtualMachineOperation.
	OriginOperation ClaimOrigin = "Operation"
	// OriginRunPolicy is spec.runPolicy; the type is Start or Stop.
	OriginRunPolicy ClaimOrigin = "RunPolicy"
	// OriginPlacement is spec.nodeName; the type is Migrate.
	OriginPlacement ClaimOrigin = "Placement"
	// OriginRollout is a changed spec that needs a restart; the type is Restart.
	OriginRollout ClaimOrigin = "Rollout"
	// OriginDeletion is the deletion of the VirtualMachine; the type is Delete.
	OriginDeletion ClaimOrigin = "Deletion"
)

// UndoEnd says how an operation that is being undone ends.
//
// +kubebuilder:validation:Enum=Superseded;DeadlineExceeded;Deleted;Failed
type UndoEnd string

const (
	// EndSuperseded means that a stronger operation took its place.
	EndSuperseded UndoEnd = "Superseded"
	// EndDeadlineExceeded means that its activeDeadlineSeconds have passed.
	EndDeadlineExceeded UndoEnd = "DeadlineExceeded"
	// EndDeleted means that the operation was deleted before it had finished.
	EndDeleted UndoEnd = "Deleted"
	// EndFailed means that it failed while something was still in flight.
	EndFailed UndoEnd = "Failed"
)

// VirtualMachineFinalizer keeps a VirtualMachine until nothing of it is left on
// its runtime. The policy `defaults` adds it, the VirtualMachine reconciler
// removes it.
const VirtualMachineFinalizer = "sallyport.dev/virtual-machine"

// AnnotationAbandonInstance on a VirtualMachine that is being deleted lets it go without asking its runtime, for a backend
// that will not come back. Its value is the UID of the VirtualMachine. What is on the runtime stays there. To write it takes the
// verb override on policy machines-abandon.
const AnnotationAbandonInstance = "sallyport.dev/abandon-instance"

// VirtualMachineSpec is what is wanted of a machine. Users own it; no controller
// writes it, but for pools, which write those of their members.
//
// +kubebuilder:validation:XValidation:rule="!has(self.blockDeviceRefs) || size(self.blockDeviceRefs) == 0 || !has(self.runtime.vsphere) || has(self.runtime.vsphere.clone)",message="spec.blockDeviceRefs is for machines that are made: the disks of one that is adopted are its own"
// +kubebuilder:validation:XValidation:rule="!has(self.cpu) && !has(self.memory) || !has(self.runtime.vsphere) || has(self.runtime.vsphere.clone)",message="spec.cpu and spec.memory are for machines that are made: the size of one that is adopted is its own"
type VirtualMachineSpec struct {
	// When the machine is kept running:
	// AlwaysOn (whatever happens to it; Start and Stop operations are refused),
	// AlwaysOnUnlessStoppedManually (the default: until a Stop operation stops it, and off until the next Start operation),
	// Manual (power changes only by operations),
	// AlwaysOff (off; every operation is refused).
	// +optional
	// +kubebuilder:default=AlwaysOnUnlessStoppedManually
	RunPolicy RunPolicy `json:"runPolicy,omitempty"`

	// The node, or ESXi host, that the machine should be on, by name. Empty, the
	// default, leaves the choice to the runtime's scheduler. A machine that is
	// elsewhere is moved there, whether it is on or off: condition PlacementSettled
	// says whether it is there, and why it could not be moved. An operation that
	// moves the machine counts more than this field until the field changes.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	NodeName string `json:"nodeName,omitempty"`

	// Labels that the node must have, all of them, where the machine is made,
	// powered on, or moved to. Of ESXi hosts these are the tags in vSphere: the key
	// is the category, the value the tag. A machine that is on when this changes
	// stays where it is. Default none.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	NodeSelector map[string]LabelValue `json:"nodeSelector,omitempty"`

	// How many virtual processors the machine has. Default: as many as what it is
	// made from has. The size of a machine that is adopted is its own.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=768
	CPU *int32 `json:"cpu,omitempty"`

	// How much memory the machine has, such as 8Gi, rounded up to a multiple of
	// 4Mi. Default: as much as what it is made from has. The size of a machine that
	// is adopted is its own.
	// +optional
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).isGreaterThan(quantity('0'))",message="spec.memory must be more than nothing, such as 8Gi"
	Memory *resource.Quantity `json:"memory,omitempty"`

	// What is done about a change of cpu or memory that a machine cannot be given
	// while it is on:
	// Manual (the default: condition RestartRequired says so, and it is made with
	// the next power-on),
	// Automatic (the machine is restarted: its guest is asked to shut down, and
	// has terminationGracePeriodSeconds for that).
	// +optional
	// +kubebuilder:default=Manual
	RestartApprovalMode RestartApprovalMode `json:"restartApprovalMode,omitempty"`

	// How many seconds the guest is given to shut down before the machine is
	// powered off, when the VirtualMachine is deleted, when its run policy is
	// AlwaysOff, and when it is restarted under restartApprovalMode Automatic. Default 180; 0 powers it off at once. It does not apply to
	// operations: a graceful Stop or Restart never turns into a forced one by
	// itself.
	// +optional
	// +kubebuilder:default=180
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	TerminationGracePeriodSeconds *int32 `json:"terminationGracePeriodSeconds,omitempty"`

	// Disks that are objects of their own, beside those that belong to the machine.
	// They are attached before the machine is powered on; one that is added or
	// taken out while the machine is on is attached or detached at once where the
	// runtime can do that, and otherwise once the machine is off. They outlive the
	// machine. Only for machines that are made.
	// +optional
	// +listType=map
	// +listMapKey=kind
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.filter(ref, has(ref.bootOrder)).all(ref, self.exists_one(other, has(other.bootOrder) && other.bootOrder == ref.bootOrder))",message="spec.blockDeviceRefs: two entries have the same bootOrder"
	BlockDeviceRefs []BlockDeviceRef `json:"blockDeviceRefs,omitempty"`

	// Where the machine runs. Exactly one of vsphere, pod and kubevirt is set,
	// and which one cannot be changed later.
	// +required
	Runtime VirtualMachineRuntime `json:"runtime"`
}

// DefaultTerminationGracePeriod is how long a guest is given where the spec does not say.
const DefaultTerminationGracePeriod = 180 * time.Second

// TerminationGracePeriod is how long the guest is given to shut down, as TerminationGracePeriodSeconds says.
func (s *VirtualMachineSpec) TerminationGracePeriod() time.Duration {
	if s.TerminationGracePeriodSeconds == nil {
		return DefaultTerminationGracePeriod
	}
	return time.Duration(*s.TerminationGracePeriodSeconds) * time.Second
}

// VirtualMachineRuntime chooses the runtime of a machine.
//
// +kubebuilder:validation:XValidation:rule="[has(self.vsphere), has(self.pod), has(self.kubevirt)].filter(set, set).size() == 1",message="spec.runtime needs exactly one of vsphere, pod and kubevirt"
// +kubebuilder:validation:XValidation:rule="has(self.vsphere) == has(oldSelf.vsphere) && has(self.pod) == has(oldSelf.pod) && has(self.kubevirt) == has(oldSelf.kubevirt)",message="spec.runtime cannot change to another runtime: create another VirtualMachine instead"
type VirtualMachineRuntime struct {
	// A machine in a vCenter.
	// +optional
	VSphere *VSphereRuntime `json:"vsphere,omitempty"`

	// A machine that a node agent runs as a pod.
	// +optional
	Pod *PodRuntime `json:"pod,omitempty"`

	// A machine that KubeVirt runs in this cluster.
	// +optional
	KubeVirt *KubeVirtRuntime `json:"kubevirt,omitempty"`
}

// VirtualMachineStatus is what is observed of a machine, and who may change it.
type VirtualMachineStatus struct {
	// The metadata.generation that the rest of the status was made from. Set by
	// the VirtualMachine reconciler.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// What the machine is doing, in one word: Pending, Provisioning, Stopped,
	// Starting, Running, Degraded, Stopping, Migrating, Paused, Failed or
	// Terminating. Degraded is a machine that is on, and whose tools stopped
	// running, whose runtime waits for an answer from people, or to which the
	// runtime lost the connection: condition Ready says which of them. Derived from the observation and the claim, by whoever writes either.
	// +optional
	Phase VirtualMachinePhase `json:"phase,omitempty"`

	// The node or ESXi host that the machine was last seen on. Set by the
	// VirtualMachine reconciler.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	NodeName string `json:"nodeName,omitempty"`

	// What the runtime calls the machine: an instance UUID, an agent's instance
	// id, a UID. Set by the VirtualMachine reconciler once the machine exists.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	InstanceID string `json:"instanceID,omitempty"`

	// The release of the VSphereTemplate that the machine was made from. It stays
	// when the template is replaced. Absent if spec.runtime.vsphere.clone names no
	// VSphereTemplate, or the machine is not made yet. Set by the VirtualMachine
	// reconciler.
	// +optional
	Template *VSphereTemplateRelease `json:"template,omitempty"`

	// A mark of the runtime's own that is new with every power-on. Two equal
	// values mean that the machine has not been off in between. Set by the
	// VirtualMachine reconciler.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Incarnation string `json:"incarnation,omitempty"`

	// The IP addresses of the guest, as the tools in it report them: first the one
	// that the runtime calls the guest's, then those of the machine's own network
	// adapters, then those of interfaces that only the guest knows; of each IPv4
	// before IPv6. At most 32, without loopback and link-local ones. Absent while
	// the machine is not on, or nothing in the guest reports. Set by the
	// VirtualMachine reconciler.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=45
	Addresses []string `json:"addresses,omitempty"`

	// What the guest says of itself. Absent while the machine is not on, or the
	// runtime says nothing of the guest. Set by the VirtualMachine reconciler.
	// +optional
	Guest *GuestStatus `json:"guest,omitempty"`

	// What the runtime wants to know from people before the machine goes on, such
	// as a vCenter whether a machine was moved or copied. It is answered in the
	// runtime. Absent if there is no question. Set by the VirtualMachine reconciler.
	// +optional
	Question *PendingQuestion `json:"question,omitempty"`

	// The claim on the machine: what may change its power, node or existence at
	// the moment. Absent while the machine is idle. Nothing is sent to a runtime
	// without it.
	// +optional
	ActiveOperation *ActiveOperation `json:"activeOperation,omitempty"`

	// Earlier holders of the claim that may still have something in flight on
	// the runtime. While this is not empty nothing else is sent to the machine.
	// +optional
	// +listType=map
	// +listMapKey=id
	// +kubebuilder:validation:MaxItems=256
	Undoing []UndoingOperation `json:"undoing,omitempty"`

	// The power state that the run policy keeps where it leaves a choice. It
	// outlives the operation that set it.
	// +optional
	PowerIntent *PowerIntent `json:"powerIntent,omitempty"`

	// The VirtualDisks that were last seen attached, those that spec.blockDeviceRefs
	// does not name any more too. Set by the VirtualMachine reconciler.
	// +optional
	// +listType=map
	// +listMapKey=uid
	// +kubebuilder:validation:MaxItems=64
	Disks []AttachedDisk `json:"disks,omitempty"`

	// The node that a finished Migrate operation chose. It holds until
	// spec.nodeName changes next.
	// +optional
	Placement *Placement `json:"placement,omitempty"`

	// The move of the machine by hibernation that has begun and whose snapshot is
	// not removed yet. While its step is Release or Restore, that snapshot may be
	// the only copy of the machine. Absent while there is none.
	// +optional
	Migration *Migration `json:"migration,omitempty"`

	// The state of the machine in detail. Ready is true when the machine is as
	// the spec wants it; PlacementSettled is true when it is on the node that is
	// wanted.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// OperationReference names one VirtualMachineOperation, in the same namespace,
// beyond doubt.
type OperationReference struct {
	// The name of the operation. Empty if it was no VirtualMachineOperation but
	// the deletion of the machine.
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

// PowerIntent is the power state that was last asked for.
type PowerIntent struct {
	// The state that is kept: Running or Stopped.
	// +required
	// +kubebuilder:validation:Enum=Running;Stopped
	State PowerState `json:"state"`

	// What asked for it: the name of a VirtualMachineOperation, or an origin
	// such as RunPolicy (operations have lower-case names), or Adoption for a
	// machine that was found in that state.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	By string `json:"by,omitempty"`

	// When it was asked for.
	// +required
	At metav1.MicroTime `json:"at"`
}

// Placement is a node that an operation has moved the machine to. It counts in the
// place of spec.nodeName until that is changed.
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

	// What spec.nodeName was then. Once it is something else the placement is
	// over.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	InPlaceOf string `json:"inPlaceOf,omitempty"`
}

// VirtualMachine is a thin wrapper around a machine on one runtime: a vCenter,
// a pod of a node agent, or KubeVirt. Its spec says whether and where the machine
// runs; one-off changes are VirtualMachineOperations.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=svm,categories=sallyport
// +kubebuilder:selectablefield:JSONPath=`.spec.nodeName`
// +kubebuilder:selectablefield:JSONPath=`.spec.runtime.vsphere.serverRef.name`
// +kubebuilder:selectablefield:JSONPath=`.spec.runtime.vsphere.clone.template.templateRef.name`
// +kubebuilder:selectablefield:JSONPath=`.status.nodeName`
// +kubebuilder:selectablefield:JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`,description="What the machine is doing."
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.status.nodeName`,description="The node or ESXi host that it was last seen on."
// +kubebuilder:printcolumn:name="Operation",type=string,JSONPath=`.status.activeOperation.type`,description="What holds the claim on it, if anything."
// +kubebuilder:printcolumn:name="Address",type=string,priority=1,JSONPath=`.status.addresses[0]`,description="The first address of its guest."
// +kubebuilder:printcolumn:name="Run-Policy",type=string,priority=1,JSONPath=`.spec.runPolicy`,description="When it is kept running."
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether it is as its spec wants it."
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since its creation."
type VirtualMachine struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// What is wanted of the machine. Users own it; no controller writes it.
	// +required
	Spec VirtualMachineSpec `json:"spec"`

	// What is observed of the machine, and who may change it at the moment.
	// +optional
	Status VirtualMachineStatus `json:"status,omitzero"`
}

// Busy reports whether an operation holds the machine or is still being undone.
func (m *VirtualMachine) Busy() bool {
	return m.Status.ActiveOperation != nil || len(m.Status.Undoing) > 0
}

// Adopts reports whether the spec names a machine that exists on its runtime, to
// be taken over as it is, and not one to be made.
func (s *VirtualMachineSpec) Adopts() bool {
	v := s.Runtime.VSphere
	return v != nil && v.Clone == nil
}

// TemplateRef is the VSphereTemplate that the machine is made from, and nil if the spec names none.
func (s *VirtualMachineSpec) TemplateRef() *VSphereTemplateReference {
	if v := s.Runtime.VSphere; v != nil && v.Clone != nil {
		return v.Clone.Template.TemplateRef
	}
	return nil
}

// VirtualMachineList is a list of VirtualMachines.
//
// +kubebuilder:object:root=true
type VirtualMachineList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`

	// The machines.
	Items []VirtualMachine `json:"items"`
}
