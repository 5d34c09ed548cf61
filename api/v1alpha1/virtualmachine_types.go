package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// RunPolicy says when a machine is kept running, and whether Sallyport acts on it at all.
//
// +kubebuilder:validation:Enum=AlwaysOn;AlwaysOnUnlessStoppedManually;Manual;AlwaysOff;Observe
type RunPolicy string

const (
	// RunPolicyAlwaysOn always keeps the machine running. Start and Stop operations
	// are denied.
	RunPolicyAlwaysOn RunPolicy = "AlwaysOn"
	// RunPolicyAlwaysOnUnlessStoppedManually keeps the machine running until a
	// Stop operation stops it, and off from then until a Start operation. Policy
	// `defaults` sets it for machines that Sallyport creates.
	RunPolicyAlwaysOnUnlessStoppedManually RunPolicy = "AlwaysOnUnlessStoppedManually"
	// RunPolicyManual changes power only by operations. Policy `defaults` sets it for
	// machines that are adopted.
	RunPolicyManual RunPolicy = "Manual"
	// RunPolicyAlwaysOff keeps the machine off. Every operation is denied.
	RunPolicyAlwaysOff RunPolicy = "AlwaysOff"
	// RunPolicyObserve shows a machine that already exists in the status and writes nothing to
	// its runtime. Every operation is denied. One that is adopted is released first.
	RunPolicyObserve RunPolicy = "Observe"
)

// RestartApprovalMode says who restarts a machine whose size has changed.
//
// +kubebuilder:validation:Enum=Manual;Automatic
type RestartApprovalMode string

const (
	// RestartManual leaves the restart to users.
	RestartManual RestartApprovalMode = "Manual"
	// RestartAutomatic restarts the machine.
	RestartAutomatic RestartApprovalMode = "Automatic"
)

// VirtualMachinePhase sums up what is observed of a machine and what is being
// done to it. It is derived from the rest of the status and never the other way
// round.
//
// +kubebuilder:validation:Enum=Pending;WaitingForImage;Provisioning;Stopped;Starting;Running;Degraded;Stopping;Migrating;Paused;Failed;Terminating
type VirtualMachinePhase string

const (
	// VirtualMachinePending means that nothing has been done yet.
	VirtualMachinePending VirtualMachinePhase = "Pending"
	// VirtualMachineWaitingForImage means that the disk that the machine boots from is
	// not copied from its image yet. Condition ImageReady says why.
	VirtualMachineWaitingForImage VirtualMachinePhase = "WaitingForImage"
	// VirtualMachineProvisioning means that the machine is being created or
	// adopted on its runtime.
	VirtualMachineProvisioning VirtualMachinePhase = "Provisioning"
	// VirtualMachineStopped means that the machine exists and is off.
	VirtualMachineStopped VirtualMachinePhase = "Stopped"
	// VirtualMachineStarting means that the machine is being powered on.
	VirtualMachineStarting VirtualMachinePhase = "Starting"
	// VirtualMachineRunning means that the machine is on.
	VirtualMachineRunning VirtualMachinePhase = "Running"
	// VirtualMachineDegraded means that the machine is on with a problem that
	// condition Ready names: the tools in its guest have stopped since the last
	// power-on, its runtime waits for an answer from a user, or its runtime lost the
	// connection to it.
	VirtualMachineDegraded VirtualMachinePhase = "Degraded"
	// VirtualMachineStopping means that the machine is being shut down.
	VirtualMachineStopping VirtualMachinePhase = "Stopping"
	// VirtualMachineMigrating means that the machine is moving to another node.
	VirtualMachineMigrating VirtualMachinePhase = "Migrating"
	// VirtualMachinePaused means that the machine is suspended with its memory
	// kept.
	VirtualMachinePaused VirtualMachinePhase = "Paused"
	// VirtualMachineFailed means that the runtime no longer has the machine.
	// Sallyport does not create it again.
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
	// PowerPaused means suspended with its memory kept. It is only observed;
	// Sallyport never requests it.
	PowerPaused PowerState = "Paused"
)

// ClaimOrigin says what requested the change that has claimed a machine.
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
	// EndSuperseded means that another operation or a deletion superseded it.
	EndSuperseded UndoEnd = "Superseded"
	// EndDeadlineExceeded means that its activeDeadlineSeconds have passed.
	EndDeadlineExceeded UndoEnd = "DeadlineExceeded"
	// EndDeleted means that the operation was deleted before it had finished.
	EndDeleted UndoEnd = "Deleted"
	// EndFailed means that it failed while something was still in flight.
	EndFailed UndoEnd = "Failed"
)

// VirtualMachineFinalizer keeps a VirtualMachine until its machine is removed from
// the runtime. The policy `defaults` adds it, the VirtualMachine reconciler
// removes it.
const VirtualMachineFinalizer = "sallyport.dev/virtual-machine"

// AnnotationAbandonInstance on a VirtualMachine that is being deleted completes the deletion without calling its runtime, for a
// runtime that will not come back. Its value is the UID of the VirtualMachine. The machine stays on the runtime. Writing it needs
// the verb override on policy machines-abandon.
const AnnotationAbandonInstance = "sallyport.dev/abandon-instance"

// AnnotationTakeOver on a VirtualMachine or VirtualDisk that is held back by ReasonOwnedByAnother has it take over what the runtime has
// for an object of the same namespace and name with another UID. AnnotationMakeAnew has the runtime make another one beside it, and
// leave it alone. The value of both is the UID of the object, so that a restored copy of the annotation has no effect. Writing one needs
// the verb override on policy machines-abandon.
const (
	AnnotationTakeOver = "sallyport.dev/take-over"
	AnnotationMakeAnew = "sallyport.dev/make-anew"
)

// VirtualMachineSpec is the desired state of a machine. Users own it; no controller
// writes it, except pools, which write the spec of their members.
//
// +kubebuilder:validation:XValidation:rule="!has(self.blockDeviceRefs) || size(self.blockDeviceRefs) == 0 || !has(self.runtime.vsphere) || has(self.runtime.vsphere.clone)",message="spec.blockDeviceRefs is not allowed for an adopted machine: it keeps its own disks"
// +kubebuilder:validation:XValidation:rule="!has(self.cpu) && !has(self.memory) || (!has(self.runtime.vsphere) || has(self.runtime.vsphere.clone)) && (!has(self.runtime.kubevirt) || has(self.runtime.kubevirt.create))",message="spec.cpu and spec.memory are not allowed for an adopted machine: it keeps its own size"
// +kubebuilder:validation:XValidation:rule="!has(self.nodeSelector) || !has(self.runtime.kubevirt) || has(self.runtime.kubevirt.create)",message="spec.nodeSelector is not allowed for an adopted machine of KubeVirt: set spec.template.spec.nodeSelector of the KubeVirt VirtualMachine"
// +kubebuilder:validation:XValidation:rule="!has(self.runtime) || !has(self.runtime.kubevirt) || !has(self.runtime.kubevirt.create) || (has(self.runtime.kubevirt.create.instancetype) ? !has(self.cpu) && !has(self.memory) : has(self.memory))",message="spec.runtime.kubevirt.create needs either spec.memory or instancetype: an instance type sets both spec.cpu and spec.memory"
// +kubebuilder:validation:XValidation:rule="!has(self.diskImage) || !has(self.runtime.vsphere)",message="spec.diskImage is not allowed for a machine on a vCenter: it is cloned from a template, see VSphereTemplate and spec.runtime.vsphere.clone.template.templateRef"
// +kubebuilder:validation:XValidation:rule="!has(self.diskImage) || !has(self.runtime.kubevirt) || has(self.runtime.kubevirt.create)",message="spec.diskImage is not allowed for an adopted machine of KubeVirt: it keeps what it boots from"
// +kubebuilder:validation:XValidation:rule="!has(self.runPolicy) || self.runPolicy != 'Observe' || has(self.runtime) && (has(self.runtime.vsphere) && !has(self.runtime.vsphere.clone) || has(self.runtime.kubevirt) && !has(self.runtime.kubevirt.create))",message="spec.runPolicy: Observe is only allowed for a machine that already exists: name it in spec.runtime.vsphere.inventoryPath, instanceUUID or spec.runtime.kubevirt.name"
// +kubebuilder:validation:XValidation:rule="has(self.diskImage) == has(oldSelf.diskImage)",message="spec.diskImage cannot be added or removed once the VirtualMachine exists: create another VirtualMachine instead"
type VirtualMachineSpec struct {
	// When the machine is kept running:
	// AlwaysOn (always; Start and Stop operations are denied),
	// AlwaysOnUnlessStoppedManually (until a Stop operation stops it, and off until the next Start operation),
	// Manual (power changes only by operations),
	// AlwaysOff (off; every operation is denied),
	// Observe (only for a machine that already exists: its state is shown, nothing is written to its runtime, every operation is denied; one that is
	// adopted is released).
	// Default: Manual for a machine to adopt, AlwaysOnUnlessStoppedManually for a machine to create. Policy `defaults` sets it.
	// +optional
	RunPolicy RunPolicy `json:"runPolicy,omitempty"`

	// The node, or ESXi host, that the machine should be on, by name. Empty, the
	// default, leaves the choice to the runtime's scheduler. A machine on another node
	// is moved, whether it is on or off: condition PlacementSettled says whether the
	// machine is on the node, and why a move failed. An operation that moves the
	// machine takes precedence over this field until the field changes.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	NodeName string `json:"nodeName,omitempty"`

	// Labels that the node must have, all of them, when the machine is created,
	// powered on or moved. For ESXi hosts these are vSphere tags: the key is the
	// category, the value the tag. A machine that is on when this changes stays where
	// it is. Default none.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	NodeSelector map[string]LabelValue `json:"nodeSelector,omitempty"`

	// The number of virtual processors of the machine. Default: as in the template
	// or image. Not allowed for an adopted machine.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=768
	CPU *int32 `json:"cpu,omitempty"`

	// The memory of the machine, such as 8Gi, rounded up to a multiple of 4Mi.
	// Default: as in the template or image. Not allowed for an adopted machine.
	// +optional
	// +kubebuilder:validation:XValidation:rule="string(self).matches('^[0-9.]*[1-9]')",message="spec.memory must be greater than 0, such as 8Gi"
	Memory *resource.Quantity `json:"memory,omitempty"`

	// How a change of cpu or memory that cannot be applied while the machine is on
	// takes effect:
	// Manual (the default: condition RestartRequired is true, and the next power-on
	// applies it),
	// Automatic (the machine is restarted: its guest has
	// terminationGracePeriodSeconds to shut down).
	// +optional
	// +kubebuilder:default=Manual
	RestartApprovalMode RestartApprovalMode `json:"restartApprovalMode,omitempty"`

	// How many seconds the guest has to shut down before the machine is powered off, when the VirtualMachine is deleted, when its run
	// policy is AlwaysOff, and when it is restarted under restartApprovalMode Automatic. Default 180; 0 powers it off immediately. It does
	// not apply to operations: a graceful Stop or Restart never turns into a forced one by itself.
	// +optional
	// +kubebuilder:default=180
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	TerminationGracePeriodSeconds *int32 `json:"terminationGracePeriodSeconds,omitempty"`

	// The VMDiskImage that the machine boots from a copy of: its first disk is a
	// VirtualDisk that is copied from the image, has the name of the machine with the
	// suffix -boot, and is deleted with the machine. Immutable. Not allowed for a machine
	// on a vCenter.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec.diskImage cannot change once the VirtualMachine exists: create another VirtualMachine instead"
	DiskImage *MachineDiskImage `json:"diskImage,omitempty"`

	// Disks that are objects of their own, in addition to those that belong to the
	// machine. They are attached before the machine is powered on. A disk that is
	// added or removed while the machine is on is attached or detached immediately if
	// the runtime supports it, and otherwise when the machine is off. They outlive the
	// machine. Not allowed for an adopted machine.
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

// VirtualMachineStatus is the observed state of a machine, and the claim on it.
type VirtualMachineStatus struct {
	// The metadata.generation that the rest of the status is based on. Set by the
	// VirtualMachine reconciler.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// The UID of the VirtualMachine that the status is of. A status with another UID
	// was restored from a backup, and is replaced.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Type=string
	UID types.UID `json:"uid,omitempty"`

	// What the machine is doing, in one word: Pending, WaitingForImage, Provisioning, Stopped, Starting, Running, Degraded, Stopping,
	// Migrating, Paused, Failed or Terminating. A Degraded machine is on, but its tools stopped running, its runtime waits for an answer from a user, or its
	// runtime lost the connection to it: condition Ready says which. Derived from the observation and the claim.
	// +optional
	Phase VirtualMachinePhase `json:"phase,omitempty"`

	// The node or ESXi host that the machine was last seen on. Set by the
	// VirtualMachine reconciler.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	NodeName string `json:"nodeName,omitempty"`

	// The identity of the machine on its runtime: an instance UUID, an agent's
	// instance ID, or a UID. Set by the VirtualMachine reconciler once the machine
	// exists.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	InstanceID string `json:"instanceID,omitempty"`

	// Since when the machine is being created or adopted. Set before the runtime is
	// first asked to, and removed when instanceID is set: in between something of the
	// machine may exist there. Set by the VirtualMachine reconciler.
	// +optional
	ProvisioningSince *metav1.MicroTime `json:"provisioningSince,omitempty"`

	// What a VM of KubeVirt was when it was adopted. It stays when another client
	// removes what Sallyport wrote on the VM. Absent on other runtimes, and for a
	// machine that Sallyport created. Set by the VirtualMachine reconciler.
	// +optional
	Adopted *AdoptedVM `json:"adopted,omitempty"`

	// The size that the policies allowed the machine last. Quotas count it.
	// +optional
	Allocated *VSphereAllocation `json:"allocated,omitempty"`

	// The release of the VSphereTemplate that the machine was created from. It stays
	// when the template is replaced. Absent if spec.runtime.vsphere.clone names no
	// VSphereTemplate, or the machine is not created yet. Set by the VirtualMachine
	// reconciler.
	// +optional
	Template *VSphereTemplateRelease `json:"template,omitempty"`

	// A value of the runtime that is new with every power-on. Two equal values mean
	// that the machine has not been off in between. Set by the VirtualMachine
	// reconciler.
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

	// What the guest reports about itself. Absent while the machine is not on, or
	// the runtime reports nothing about the guest. Set by the VirtualMachine
	// reconciler.
	// +optional
	Guest *GuestStatus `json:"guest,omitempty"`

	// A question of the runtime that blocks the machine until a user answers it, such
	// as whether a machine was moved or copied in vCenter. It is answered in the
	// runtime. Absent if there is no question. Set by the VirtualMachine reconciler.
	// +optional
	Question *PendingQuestion `json:"question,omitempty"`

	// The claim on the machine: the one holder that may change its power, node or
	// existence. Absent while the machine is idle. Nothing is sent to a runtime
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

	// The power state that the run policy keeps if it allows both. It outlives the
	// operation that set it.
	// +optional
	PowerIntent *PowerIntent `json:"powerIntent,omitempty"`

	// The VirtualDisks that were last seen attached, including those that
	// spec.blockDeviceRefs no longer names. Set by the VirtualMachine reconciler.
	// +optional
	// +listType=map
	// +listMapKey=uid
	// +kubebuilder:validation:MaxItems=64
	Disks []AttachedDisk `json:"disks,omitempty"`

	// The node that a finished Migrate operation chose. It holds until
	// spec.nodeName changes next.
	// +optional
	Placement *Placement `json:"placement,omitempty"`

	// The move of the machine by hibernation that has started and whose snapshot is
	// not removed yet. While its step is Release or Restore, that snapshot may be
	// the only copy of the machine. Absent while there is no move.
	// +optional
	Migration *Migration `json:"migration,omitempty"`

	// The state of the machine in detail. Ready is true when the machine matches the
	// spec; PlacementSettled is true when it is on the wanted node.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
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
// +kubebuilder:selectablefield:JSONPath=`.status.instanceID`
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || !has(self.spec.runtime.kubevirt) || !has(self.spec.runtime.kubevirt.create) || self.metadata.name.size() <= 63",optionalOldSelf=true,fieldPath=".spec.runtime.kubevirt",message="metadata.name must have at most 63 characters with spec.runtime.kubevirt.create: KubeVirt writes it into labels"
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || !has(self.spec.diskImage) || self.metadata.name.size() <= 211",optionalOldSelf=true,fieldPath=".spec.diskImage",message="metadata.name must have at most 211 characters with spec.diskImage: the name of its PersistentVolumeClaim, NAME-boot-UID, begins with it"
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`,description="What the machine is doing."
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.status.nodeName`,description="The node or ESXi host that it was last seen on."
// +kubebuilder:printcolumn:name="Operation",type=string,JSONPath=`.status.activeOperation.type`,description="What holds the claim on it, if anything."
// +kubebuilder:printcolumn:name="Address",type=string,priority=1,JSONPath=`.status.addresses[0]`,description="The first address of its guest."
// +kubebuilder:printcolumn:name="Run-Policy",type=string,priority=1,JSONPath=`.spec.runPolicy`,description="When it is kept running."
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether it is as its spec wants it."
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Why it is ready or not, in one word."
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since its creation."
type VirtualMachine struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// The desired state of the machine. Users own it; no controller writes it,
	// except for members of pools.
	// +required
	Spec VirtualMachineSpec `json:"spec"`

	// The observed state of the machine, and the claim on it.
	// +optional
	Status VirtualMachineStatus `json:"status,omitzero"`
}

// Busy reports whether the machine is claimed, or an earlier claim is still being
// undone.
func (m *VirtualMachine) Busy() bool {
	return m.Status.ActiveOperation != nil || len(m.Status.Undoing) > 0
}

// Adopts reports whether the spec names a machine that already exists on its
// runtime, and not one to create.
func (s *VirtualMachineSpec) Adopts() bool {
	v, k := s.Runtime.VSphere, s.Runtime.KubeVirt
	return v != nil && v.Clone == nil || k != nil && k.Create == nil
}

// TemplateRef is the VSphereTemplate that the machine is made from, and nil if the spec names none.
func (s *VirtualMachineSpec) TemplateRef() *VSphereTemplateReference {
	if v := s.Runtime.VSphere; v != nil && v.Clone != nil {
		return v.Clone.Template.TemplateRef
	}
	return nil
}

// MayExist reports whether the status says that the runtime has, or may have, something of the machine.
func (vm *VirtualMachine) MayExist() bool {
	return vm.Status.InstanceID != "" || vm.Status.ProvisioningSince != nil
}

// StatusOfAnother reports whether the status is that of another VirtualMachine, as after a restore from a backup.
func (vm *VirtualMachine) StatusOfAnother() bool {
	return vm.Status.UID != "" && vm.Status.UID != vm.UID
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
