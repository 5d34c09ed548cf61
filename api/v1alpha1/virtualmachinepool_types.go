package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Labels of the members of a pool. A VirtualMachine is a member if it has the label with the pool's UID and the pool is its
// controller: either alone can be written by anybody who may edit VirtualMachines.
const (
	// LabelPoolUID has the UID of the pool. status.selector of the pool selects by it.
	LabelPoolUID = "sallyport.dev/pool-uid"
	// LabelPool has the name of the pool, for people.
	LabelPool = "sallyport.dev/pool"
	// LabelTemplateHash tells which template the member was last brought up to.
	LabelTemplateHash = "sallyport.dev/template-hash"
)

// ScaleDownPolicy says which members a pool gives up when it has more than it should.
//
// +kubebuilder:validation:Enum=NewestFirst;OldestFirst;Explicit
type ScaleDownPolicy string

const (
	// ScaleDownNewestFirst gives up those first that were created last.
	ScaleDownNewestFirst ScaleDownPolicy = "NewestFirst"
	// ScaleDownOldestFirst gives up those first that were created first.
	ScaleDownOldestFirst ScaleDownPolicy = "OldestFirst"
	// ScaleDownExplicit gives up those alone that scaleDownTargets names.
	ScaleDownExplicit ScaleDownPolicy = "Explicit"
)

// MostReplicas is how many members a pool may have. Its name and the number of a member make the member's name, which is at
// most 63 characters long.
const MostReplicas = 5000

// VirtualMachinePoolSpec is what is wanted of a pool. Users and autoscalers own it; no controller of ours writes it.
//
// +kubebuilder:validation:XValidation:rule="!has(self.virtualDiskTemplates) || self.virtualDiskTemplates.all(t, has(self.virtualMachineTemplate.spec.blockDeviceRefs) && self.virtualMachineTemplate.spec.blockDeviceRefs.exists(r, r.name == t.name))",message="spec.virtualDiskTemplates: an entry of spec.virtualMachineTemplate.spec.blockDeviceRefs must name each of them"
// +kubebuilder:validation:XValidation:rule="!has(self.virtualMachineTemplate.spec.blockDeviceRefs) || self.virtualMachineTemplate.spec.blockDeviceRefs.all(r, has(self.virtualDiskTemplates) && self.virtualDiskTemplates.exists(t, t.name == r.name))",message="spec.virtualMachineTemplate.spec.blockDeviceRefs: each must name an entry of spec.virtualDiskTemplates, since a disk is for one member"
// +kubebuilder:validation:XValidation:rule="!has(self.virtualDiskTemplates) || self.virtualDiskTemplates.all(t, has(t.spec.runtime.vsphere) == has(self.virtualMachineTemplate.spec.runtime.vsphere) && has(t.spec.runtime.pod) == has(self.virtualMachineTemplate.spec.runtime.pod))",message="spec.virtualDiskTemplates: spec.runtime of each must be the one of spec.virtualMachineTemplate"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.replicas) || has(self.replicas)",message="spec.replicas cannot be taken out once it is set: that would be a scale-down to 0, which has to be written as such"
// +kubebuilder:validation:XValidation:rule="!has(self.rollout) || !has(self.rollout.followTemplate) || !self.rollout.followTemplate || has(self.virtualMachineTemplate.spec.runtime.vsphere) && has(self.virtualMachineTemplate.spec.runtime.vsphere.clone) && has(self.virtualMachineTemplate.spec.runtime.vsphere.clone.template.templateRef)",message="spec.rollout.followTemplate needs spec.virtualMachineTemplate.spec.runtime.vsphere.clone.template.templateRef: refer to a VSphereTemplate there, or leave followTemplate out"
type VirtualMachinePoolSpec struct {
	// How many machines the pool has. Default 0. Once set it cannot be taken out.
	// Whoever scales the pool owns it: a person, or an autoscaler by the
	// subresource scale.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=5000
	Replicas *int32 `json:"replicas,omitempty"`

	// Which members go when there are more than replicas:
	// NewestFirst (those that were created last),
	// OldestFirst (those that were created first),
	// Explicit (none but those in scaleDownTargets; fewer replicas without as many
	// new entries there are refused).
	// Before either of the first two, members go that are not ready. Members that
	// are busy are left alone.
	// +required
	ScaleDownPolicy ScaleDownPolicy `json:"scaleDownPolicy"`

	// Members that go, busy or not. An entry is added in the same write that lowers
	// replicas by one; kubectl sallyport scale-down does so. Entries of members
	// that are gone do nothing and may be taken out. A write that replaces the
	// whole list drops what others added.
	// +optional
	// +listType=map
	// +listMapKey=uid
	// +kubebuilder:validation:MaxItems=1000
	ScaleDownTargets []ScaleDownTarget `json:"scaleDownTargets,omitempty"`

	// What the members are made from.
	// +required
	VirtualMachineTemplate VirtualMachineTemplate `json:"virtualMachineTemplate"`

	// What disks of the members are made from, one per member and entry. An entry
	// of spec.virtualMachineTemplate.spec.blockDeviceRefs names it in the place of
	// the disk. The disks are called after pool, entry and the member's number, such
	// as web-data-0. At most 4. Default none.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=4
	VirtualDiskTemplates []VirtualDiskTemplate `json:"virtualDiskTemplates,omitempty"`

	// How a change of the template comes to the members that are there.
	// +optional
	// +kubebuilder:default={}
	Rollout PoolRollout `json:"rollout,omitzero"`
}

// ReclaimPolicy says what becomes of a disk whose member is gone.
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

// VirtualDiskTemplate is what a disk of each member of a pool is made from.
type VirtualDiskTemplate struct {
	// What the entry is called.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`

	// What becomes of a disk whose member is gone.
	// +required
	Reclaim DiskReclaim `json:"reclaim"`

	// The disk. A larger size comes to the disks that are there; nothing else can
	// change.
	// +required
	Spec VirtualDiskSpec `json:"spec"`
}

// DiskReclaim says what becomes of a disk of a pool whose member is gone. All disks of a pool are destroyed with it.
//
// +kubebuilder:validation:XValidation:rule="self.onScaleDown == 'Retain' || !has(self.ttl) && !has(self.keep)",message="reclaim.keep and reclaim.ttl are for onScaleDown Retain: a disk that is deleted is not kept"
// +kubebuilder:validation:XValidation:rule="!has(self.keep) || has(self.ttl)",message="reclaim.keep needs reclaim.ttl: without it all disks are kept"
type DiskReclaim struct {
	// Delete (the disk is destroyed) or Retain (the next member of that number gets
	// it, with its data).
	// +required
	OnScaleDown ReclaimPolicy `json:"onScaleDown"`

	// How many disks without a member are kept whatever ttl says: those that were
	// freed last. Default 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=5000
	Keep *int32 `json:"keep,omitempty"`

	// How long a disk without a member is kept, such as 72h. Default: for as long as
	// there is the pool.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="reclaim.ttl must be more than nothing, such as 72h"
	TTL *metav1.Duration `json:"ttl,omitempty"`
}

// ScaleDownTarget names one member of a pool, beyond doubt.
type ScaleDownTarget struct {
	// The name of the VirtualMachine.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// Its UID. Another machine of that name is not meant.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Type=string
	UID types.UID `json:"uid"`
}

// VirtualMachineTemplate is what a VirtualMachine is made from.
//
// +kubebuilder:validation:XValidation:rule="!has(self.spec.runtime.vsphere) || has(self.spec.runtime.vsphere.clone)",message="spec.virtualMachineTemplate.spec.runtime.vsphere needs clone: the machines of a pool are made, and none is adopted"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.runtime.vsphere) || !has(self.spec.runtime.vsphere.clone) || !has(self.spec.runtime.vsphere.clone.hostname)",message="spec.virtualMachineTemplate.spec.runtime.vsphere.clone.hostname would be that of every member: leave it out, and each is called after its VirtualMachine"
type VirtualMachineTemplate struct {
	// Labels and annotations of the members. A change comes to the members that are
	// there.
	// +optional
	Metadata TemplateMetadata `json:"metadata,omitzero"`

	// The spec of the members. A change comes to the members that are there, as a
	// change of their own spec would: what cannot be changed of a VirtualMachine
	// cannot be changed here.
	// +required
	Spec VirtualMachineSpec `json:"spec"`
}

// TemplateMetadata is what of an object's metadata a template may say.
type TemplateMetadata struct {
	// Labels of the members. Keys under sallyport.dev/ that a pool writes itself
	// are refused: pool, pool-uid and template-hash.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="!self.exists(key, key in ['sallyport.dev/pool', 'sallyport.dev/pool-uid', 'sallyport.dev/template-hash'])",message="the labels sallyport.dev/pool, sallyport.dev/pool-uid and sallyport.dev/template-hash are written by the pool"
	Labels map[string]LabelValue `json:"labels,omitempty"`

	// Annotations of the members.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="!self.exists(key, key in ['sallyport.dev/abandon-instance', 'sallyport.dev/source-fenced', 'sallyport.dev/override'])",message="the annotations sallyport.dev/abandon-instance, sallyport.dev/source-fenced and sallyport.dev/override are for one object and cannot be in a template"
	Annotations map[string]AnnotationValue `json:"annotations,omitempty"`
}

// AnnotationValue is the value of an annotation in a template.
//
// +kubebuilder:validation:MaxLength=4096
type AnnotationValue string

// PoolRollout says how a change of the template comes to the members that are there.
type PoolRollout struct {
	// How many members may be unavailable at a time because of a change of the
	// template: a number, or a percentage of replicas, rounded up. While as many
	// members do not run that should, no other is changed, so that a bad template
	// stops there. Members that were stopped on purpose do not count. Default 1.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1 && self <= 5000 : self.matches('^([1-9][0-9]?|100)%$')",message="spec.rollout.maxUnavailable must be a number from 1 to 5000, or a percentage from 1% to 100%"
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`

	// Whether members are replaced when their VSphereTemplate has another release
	// ready: they are deleted and made again, with what is on their own disks lost.
	// It needs a templateRef in the template. Busy members are replaced once they
	// are idle. With the restartApprovalMode Manual in the template no member is
	// replaced, and condition Synced says how many are of another release. Default
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

// VirtualMachinePoolStatus is what is observed of a pool. The pool reconciler alone writes it.
type VirtualMachinePoolStatus struct {
	// The metadata.generation that the rest of the status was made from.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// How many members there are, with those that are being deleted.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Replicas int32 `json:"replicas"`

	// How many members run: phase Running or Migrating. Those that are being
	// deleted do not count.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ReadyReplicas int32 `json:"readyReplicas"`

	// How many members have the present template and, if spec.rollout.followTemplate
	// is true, are of no other release than the one that is ready. Those that are
	// being deleted do not count.
	// +optional
	// +kubebuilder:validation:Minimum=0
	UpdatedReplicas int32 `json:"updatedReplicas"`

	// How many members have the present template and wait for a restart to be as it
	// says.
	// +optional
	// +kubebuilder:validation:Minimum=0
	RestartPendingReplicas int32 `json:"restartPendingReplicas"`

	// The hash of the present template, which up-to-date members have as label
	// sallyport.dev/template-hash.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	DesiredTemplateHash string `json:"desiredTemplateHash,omitempty"`

	// The members as a label selector, for autoscalers.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Selector string `json:"selector,omitempty"`

	// Members that are being given up. It is written before the first of them is
	// deleted, and finished before others are chosen.
	// +optional
	// +listType=map
	// +listMapKey=uid
	// +kubebuilder:validation:MaxItems=1000
	Removing []ScaleDownTarget `json:"removing,omitempty"`

	// The state of the pool in detail. Ready is true when there are as many members
	// as wanted, all of them run and have the present template; Available when as
	// many run as wanted; Progressing while members are made or given up; Synced
	// when all have the present template; ScaleDownBlocked when members should go
	// and none may.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// VirtualMachinePool keeps a number of VirtualMachines of one template. Its members are called after it and the lowest number
// that is free: web-0, web-1.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:resource:shortName=svmpool,categories=sallyport
// +kubebuilder:selectablefield:JSONPath=`.spec.scaleDownPolicy`
// +kubebuilder:selectablefield:JSONPath=`.spec.virtualMachineTemplate.spec.runtime.vsphere.serverRef.name`
// +kubebuilder:selectablefield:JSONPath=`.spec.virtualMachineTemplate.spec.runtime.vsphere.clone.template.templateRef.name`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z0-9]([-a-z0-9]{0,56}[a-z0-9])?$')",message="metadata.name must have at most 58 characters and no dots: a member is called after its pool, such as web-0, and its name is that of a host"
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

	// What is wanted of the pool. Users and autoscalers own it; no controller of
	// ours writes it.
	// +required
	Spec VirtualMachinePoolSpec `json:"spec"`

	// What is observed of the pool.
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
