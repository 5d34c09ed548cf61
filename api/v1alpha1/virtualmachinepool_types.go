package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Labels of the members of a pool. A VirtualMachine is a member if it has the label with the pool's UID and the pool is its
// controller: either alone can be written by every user who may edit VirtualMachines.
const (
	// LabelPoolUID has the UID of the pool. status.selector of the pool selects by it.
	LabelPoolUID = "sallyport.dev/pool-uid"
	// LabelPool has the name of the pool, for users.
	LabelPool = "sallyport.dev/pool"
	// LabelTemplateHash tells which template the member was last brought up to.
	LabelTemplateHash = "sallyport.dev/template-hash"
)

// ScaleDownPolicy says which members a pool removes when it has more than spec.replicas.
//
// +kubebuilder:validation:Enum=NewestFirst;OldestFirst;Explicit
type ScaleDownPolicy string

const (
	// ScaleDownNewestFirst removes the newest members first.
	ScaleDownNewestFirst ScaleDownPolicy = "NewestFirst"
	// ScaleDownOldestFirst removes the oldest members first.
	ScaleDownOldestFirst ScaleDownPolicy = "OldestFirst"
	// ScaleDownExplicit removes only the members that scaleDownTargets names.
	ScaleDownExplicit ScaleDownPolicy = "Explicit"
)

// MostReplicas is how many members a pool may have. Its name and the number of a member make the member's name, which is at
// most 63 characters long.
const MostReplicas = 5000

// VirtualMachinePoolSpec is the desired state of a pool. Users and autoscalers own it; no controller of Sallyport
// writes it.
//
// +kubebuilder:validation:XValidation:rule="!has(self.virtualDiskTemplates) || self.virtualDiskTemplates.all(t, has(self.virtualMachineTemplate.spec.blockDeviceRefs) && self.virtualMachineTemplate.spec.blockDeviceRefs.exists(r, r.name == t.name))",message="spec.virtualDiskTemplates: an entry of spec.virtualMachineTemplate.spec.blockDeviceRefs must name each entry"
// +kubebuilder:validation:XValidation:rule="!has(self.virtualMachineTemplate.spec.blockDeviceRefs) || self.virtualMachineTemplate.spec.blockDeviceRefs.all(r, has(self.virtualDiskTemplates) && self.virtualDiskTemplates.exists(t, t.name == r.name))",message="spec.virtualMachineTemplate.spec.blockDeviceRefs: each entry must name an entry of spec.virtualDiskTemplates, because a disk belongs to one member"
// +kubebuilder:validation:XValidation:rule="!has(self.virtualDiskTemplates) || self.virtualDiskTemplates.all(t, has(t.spec.runtime.vsphere) == has(self.virtualMachineTemplate.spec.runtime.vsphere) && has(t.spec.runtime.pod) == has(self.virtualMachineTemplate.spec.runtime.pod))",message="spec.virtualDiskTemplates: each entry must have the spec.runtime of spec.virtualMachineTemplate"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.replicas) || has(self.replicas)",message="spec.replicas cannot be removed once it is set: to scale down to 0, set it to 0"
// +kubebuilder:validation:XValidation:rule="!has(self.rollout) || !has(self.rollout.followTemplate) || !self.rollout.followTemplate || has(self.virtualMachineTemplate.spec.runtime.vsphere) && has(self.virtualMachineTemplate.spec.runtime.vsphere.clone) && has(self.virtualMachineTemplate.spec.runtime.vsphere.clone.template.templateRef)",message="spec.rollout.followTemplate needs spec.virtualMachineTemplate.spec.runtime.vsphere.clone.template.templateRef: name a VSphereTemplate there, or remove followTemplate"
type VirtualMachinePoolSpec struct {
	// The number of machines of the pool. Default 0. Once set, it cannot be removed.
	// A user sets it, or an autoscaler through the subresource scale.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=5000
	Replicas *int32 `json:"replicas,omitempty"`

	// Which members are removed when there are more than replicas:
	// NewestFirst (the newest members),
	// OldestFirst (the oldest members),
	// Explicit (only those in scaleDownTargets; lowering replicas without as many new
	// entries there is denied).
	// With the first two, members that are not ready are removed first. Busy members
	// are left alone.
	// +required
	ScaleDownPolicy ScaleDownPolicy `json:"scaleDownPolicy"`

	// Members to remove, busy or not. Add each entry in the same write that lowers
	// replicas by one, as kubectl sallyport scale-down does. Entries of members that
	// no longer exist have no effect and can be removed. A write that replaces the
	// whole list drops the entries of others.
	// +optional
	// +listType=map
	// +listMapKey=uid
	// +kubebuilder:validation:MaxItems=1000
	ScaleDownTargets []ScaleDownTarget `json:"scaleDownTargets,omitempty"`

	// The template of the members.
	// +required
	VirtualMachineTemplate VirtualMachineTemplate `json:"virtualMachineTemplate"`

	// Templates of the members' disks: one disk for each member and entry.
	// spec.virtualMachineTemplate.spec.blockDeviceRefs refers to a disk by the name of
	// its entry. A disk is named after the pool, the entry and the number of the
	// member, such as web-data-0. At most 4. Default none.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=4
	VirtualDiskTemplates []VirtualDiskTemplate `json:"virtualDiskTemplates,omitempty"`

	// How a change of the template is rolled out to existing members.
	// +optional
	// +kubebuilder:default={}
	Rollout PoolRollout `json:"rollout,omitzero"`
}

// ReclaimPolicy says what happens to a disk after its member is removed.
//
// +kubebuilder:validation:Enum=Delete;Retain
type ReclaimPolicy string

const (
	// ReclaimDelete destroys the disk. The next member of that number gets a new one.
	ReclaimDelete ReclaimPolicy = "Delete"
	// ReclaimRetain keeps the disk for the next member of that number.
	ReclaimRetain ReclaimPolicy = "Retain"
)

// Labels of the disks of a pool, beside those of its members. A VirtualDisk is one if it has the label with the pool's UID and the pool is
// its controller.
const (
	// LabelDiskTemplate has the name of the entry of spec.virtualDiskTemplates.
	LabelDiskTemplate = "sallyport.dev/disk-template"
	// LabelReclaim has what becomes of the disk, for when that entry is gone.
	LabelReclaim = "sallyport.dev/reclaim"
)

// VirtualDiskTemplate is the template of one disk of each member of a pool.
type VirtualDiskTemplate struct {
	// The name of the entry.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`

	// What happens to a disk after its member is removed.
	// +required
	Reclaim DiskReclaim `json:"reclaim"`

	// The spec of the disk. Existing disks grow with the size; nothing else can
	// change.
	// +required
	Spec VirtualDiskSpec `json:"spec"`
}

// DiskReclaim says what happens to a disk of a pool after its member is removed. All disks of a pool are destroyed with
// the pool.
//
// +kubebuilder:validation:XValidation:rule="self.onScaleDown == 'Retain' || !has(self.ttl) && !has(self.keep)",message="reclaim.keep and reclaim.ttl are only allowed with onScaleDown Retain"
// +kubebuilder:validation:XValidation:rule="!has(self.keep) || has(self.ttl)",message="reclaim.keep needs reclaim.ttl: without reclaim.ttl, all disks are kept"
type DiskReclaim struct {
	// Delete (the disk is destroyed) or Retain (the next member of that number gets
	// it, with its data).
	// +required
	OnScaleDown ReclaimPolicy `json:"onScaleDown"`

	// How many disks without a member are kept regardless of ttl: those that were
	// freed last. Default 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=5000
	Keep *int32 `json:"keep,omitempty"`

	// How long a disk without a member is kept, such as 72h. Default: as long as the
	// pool exists.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="reclaim.ttl must be greater than 0, such as 72h"
	TTL *metav1.Duration `json:"ttl,omitempty"`
}

// ScaleDownTarget identifies one member of a pool.
type ScaleDownTarget struct {
	// The name of the VirtualMachine.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// Its UID, which excludes another machine of the same name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Type=string
	UID types.UID `json:"uid"`
}

// VirtualMachineTemplate is the template of a VirtualMachine.
//
// +kubebuilder:validation:XValidation:rule="!has(self.spec.runtime.vsphere) || has(self.spec.runtime.vsphere.clone)",message="spec.virtualMachineTemplate.spec.runtime.vsphere needs clone: a pool creates its machines and adopts none"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.runtime.kubevirt) || has(self.spec.runtime.kubevirt.create)",message="spec.virtualMachineTemplate.spec.runtime.kubevirt needs create: a pool creates its machines and adopts none"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.runtime.vsphere) || !has(self.spec.runtime.vsphere.clone) || !has(self.spec.runtime.vsphere.clone.hostname)",message="spec.virtualMachineTemplate.spec.runtime.vsphere.clone.hostname is not allowed because all members would have it: without it, each is named after its VirtualMachine"
type VirtualMachineTemplate struct {
	// Labels and annotations of the members. A change is applied to existing members.
	// +optional
	Metadata TemplateMetadata `json:"metadata,omitzero"`

	// The spec of the members. A change is applied to the spec of existing members:
	// fields that are immutable in a VirtualMachine are immutable here.
	// +required
	Spec VirtualMachineSpec `json:"spec"`
}

// TemplateMetadata is the metadata that a template may set.
type TemplateMetadata struct {
	// Labels of the members. Keys under sallyport.dev/ that a pool sets itself are
	// rejected: pool, pool-uid and template-hash.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="!self.exists(key, key in ['sallyport.dev/pool', 'sallyport.dev/pool-uid', 'sallyport.dev/template-hash'])",message="the labels sallyport.dev/pool, sallyport.dev/pool-uid and sallyport.dev/template-hash are set by the pool"
	// +kubebuilder:validation:XValidation:rule="self.all(key, key.size() <= 317 && key.indexOf('/') <= 253 && key.matches('^(([a-z0-9]([-a-z0-9]*[a-z0-9])?[.])*[a-z0-9]([-a-z0-9]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$'))",message="each key of virtualMachineTemplate.metadata.labels must be a name such as team or example.com/team: letters, digits, '-', '_' and '.', at most 63 characters after the prefix"
	// +kubebuilder:validation:XValidation:rule="self.all(key, self[key].matches('^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$'))",message="each value of virtualMachineTemplate.metadata.labels must have only letters, digits, '-', '_' and '.', and begin and end with a letter or a digit"
	Labels map[string]LabelValue `json:"labels,omitempty"`

	// Annotations of the members.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="!self.exists(key, key in ['sallyport.dev/abandon-instance', 'sallyport.dev/source-fenced', 'sallyport.dev/take-over', 'sallyport.dev/make-anew', 'sallyport.dev/override'])",message="the annotations sallyport.dev/abandon-instance, sallyport.dev/source-fenced, sallyport.dev/take-over, sallyport.dev/make-anew and sallyport.dev/override are for one object and cannot be in a template"
	// +kubebuilder:validation:XValidation:rule="self.all(key, key.size() <= 317 && key.indexOf('/') <= 253 && key.matches('^(([a-z0-9]([-a-z0-9]*[a-z0-9])?[.])*[a-z0-9]([-a-z0-9]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$'))",message="each key of virtualMachineTemplate.metadata.annotations must be a name such as team or example.com/team: letters, digits, '-', '_' and '.', at most 63 characters after the prefix"
	Annotations map[string]AnnotationValue `json:"annotations,omitempty"`
}

// AnnotationValue is the value of an annotation in a template.
//
// +kubebuilder:validation:MaxLength=4096
type AnnotationValue string

// PoolRollout says how a change of the template is rolled out to existing members.
type PoolRollout struct {
	// How many members may be unavailable at a time because of a change of the
	// template: a number, or a percentage of replicas, rounded up. While that many
	// members that should run do not, no other member is changed, so that a bad
	// template stops there. Members that were stopped on purpose do not count.
	// Default 1.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1 && self <= 5000 : self.matches('^([1-9][0-9]?|100)%$')",message="spec.rollout.maxUnavailable must be a number from 1 to 5000, or a percentage from 1% to 100%"
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`

	// Whether members are replaced when their VSphereTemplate has another release
	// ready: they are deleted and created again, and the data on their own disks is
	// lost. It needs a templateRef in the template. Busy members are replaced once
	// they are idle. If the template has restartApprovalMode Manual, no member is
	// replaced, and condition Synced says how many have another release. Default
	// false.
	// +optional
	// +kubebuilder:default=false
	FollowTemplate bool `json:"followTemplate,omitempty"`
}

// Follows is the VSphereTemplate whose releases the members are brought to, and nil if they keep the one that they were made from.
func (s *VirtualMachinePoolSpec) Follows() *VSphereTemplateReference {
	if !s.Rollout.FollowTemplate {
		return nil
	}
	return s.VirtualMachineTemplate.Spec.TemplateRef()
}

// VirtualMachinePoolStatus is the observed state of a pool. Only the pool reconciler writes it.
type VirtualMachinePoolStatus struct {
	// The metadata.generation that the rest of the status is based on.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// The number of members, including those that are being deleted.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Replicas int32 `json:"replicas"`

	// The number of members that run: phase Running or Migrating. Members that are
	// being deleted do not count.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ReadyReplicas int32 `json:"readyReplicas"`

	// The number of members that are off as their run policy or the last request wants
	// it: phase Stopped, condition Ready true. Members that are being deleted do not
	// count.
	// +optional
	// +kubebuilder:validation:Minimum=0
	StoppedReplicas int32 `json:"stoppedReplicas"`

	// The number of members that have the current template and, if
	// spec.rollout.followTemplate is true, no other release than the ready one. Members
	// that are being deleted do not count.
	// +optional
	// +kubebuilder:validation:Minimum=0
	UpdatedReplicas int32 `json:"updatedReplicas"`

	// The number of members that have the current template and need a restart to apply
	// it.
	// +optional
	// +kubebuilder:validation:Minimum=0
	RestartPendingReplicas int32 `json:"restartPendingReplicas"`

	// The hash of the current template, which up-to-date members have in the label
	// sallyport.dev/template-hash.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	DesiredTemplateHash string `json:"desiredTemplateHash,omitempty"`

	// The members as a label selector, for autoscalers.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Selector string `json:"selector,omitempty"`

	// Members that are being removed. It is written before the first of them is
	// deleted, and completed before others are chosen.
	// +optional
	// +listType=map
	// +listMapKey=uid
	// +kubebuilder:validation:MaxItems=1000
	Removing []ScaleDownTarget `json:"removing,omitempty"`

	// The state of the pool in detail. Ready is true when the number of members is
	// spec.replicas, and all of them run, or are off as they should be, and have the
	// current template; Available when enough members run; Progressing while members are created or removed; Synced
	// when all have the current template; ScaleDownBlocked when members should be
	// removed but cannot be.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// PoolAsWanted reports whether a condition of a pool, other than Ready, says that nothing is left to do.
func PoolAsWanted(c metav1.Condition) bool {
	switch ConditionType(c.Type) {
	case ConditionScaleDownBlocked:
		return c.Status != metav1.ConditionTrue
	case ConditionProgressing:
		return c.Reason == string(ReasonSteady)
	case ConditionAvailable:
		return c.Status == metav1.ConditionTrue || c.Reason == string(ReasonMembersStopped)
	}
	return c.Status == metav1.ConditionTrue
}

// VirtualMachinePool maintains a number of VirtualMachines of one template. A member is named after the pool and the lowest free
// number: web-0, web-1.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:resource:shortName=svmpool,categories=sallyport
// +kubebuilder:selectablefield:JSONPath=`.spec.scaleDownPolicy`
// +kubebuilder:selectablefield:JSONPath=`.spec.virtualMachineTemplate.spec.runtime.vsphere.serverRef.name`
// +kubebuilder:selectablefield:JSONPath=`.spec.virtualMachineTemplate.spec.runtime.vsphere.clone.template.templateRef.name`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z0-9]([-a-z0-9]{0,56}[a-z0-9])?$')",message="metadata.name must have at most 58 characters and no dots: the names of members, such as web-0, begin with it and are host names"
// +kubebuilder:printcolumn:name="Desired",type=integer,JSONPath=`.spec.replicas`,description="How many members are wanted."
// +kubebuilder:printcolumn:name="Replicas",type=integer,JSONPath=`.status.replicas`,description="How many members there are."
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=`.status.readyReplicas`,description="How many of them run."
// +kubebuilder:printcolumn:name="Updated",type=integer,JSONPath=`.status.updatedReplicas`,description="How many of them have the present template."
// +kubebuilder:printcolumn:name="Scale-Down",type=string,JSONPath=`.spec.scaleDownPolicy`,description="Which members go when there are too many."
// +kubebuilder:printcolumn:name="Blocked",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="ScaleDownBlocked")].reason`,description="Why members that should go do not."
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since its creation."
type VirtualMachinePool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// The desired state of the pool. Users and autoscalers own it; no controller of
	// Sallyport writes it.
	// +required
	Spec VirtualMachinePoolSpec `json:"spec"`

	// The observed state of the pool.
	// +optional
	Status VirtualMachinePoolStatus `json:"status,omitzero"`
}

// VirtualMachinePoolList is a list of VirtualMachinePools.
//
// +kubebuilder:object:root=true
type VirtualMachinePoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`

	// The pools.
	Items []VirtualMachinePool `json:"items"`
}
