package v1alpha1

import "k8s.io/apimachinery/pkg/api/resource"

// VSphereRuntime names a machine in a vCenter: one that exists and is adopted, by
// its place or its instance UUID, or one that is cloned from a template.
//
// +kubebuilder:validation:XValidation:rule="[has(self.inventoryPath), has(self.instanceUUID), has(self.clone)].filter(set, set).size() == 1",message="spec.runtime.vsphere needs exactly one of inventoryPath, instanceUUID and clone"
// +kubebuilder:validation:XValidation:rule="has(self.clone) == has(oldSelf.clone)",message="spec.runtime.vsphere cannot change between a machine that is adopted and one that is cloned: create another VirtualMachine instead"
// +kubebuilder:validation:XValidation:rule="!has(self.clone) || !has(oldSelf.clone) || self.serverRef.name == oldSelf.serverRef.name",message="spec.runtime.vsphere.serverRef of a machine that is cloned cannot change: create another VirtualMachine instead"
type VSphereRuntime struct {
	// The vCenter, as an administrator has declared it.
	// +required
	ServerRef VSphereServerReference `json:"serverRef"`

	// The machine to adopt, by its path in the inventory of vCenter, such as
	// /datacenter/vm/folder/name. Set this, instanceUUID or clone.
	// +optional
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^/.+$`
	InventoryPath string `json:"inventoryPath,omitempty"`

	// The machine to adopt, by its instance UUID, which is unique within a vCenter
	// (not its BIOS UUID). Set this, inventoryPath or clone.
	// +optional
	// +kubebuilder:validation:MaxLength=36
	// +kubebuilder:validation:Pattern=`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`
	InstanceUUID string `json:"instanceUUID,omitempty"`

	// How to create the machine: the template that it is cloned from, and where it
	// is placed. The machine is destroyed with its VirtualMachine. Set this,
	// inventoryPath or instanceUUID.
	// +optional
	Clone *VSphereClone `json:"clone,omitempty"`
}

// VSphereServerReference names a VSphereServer.
type VSphereServerReference struct {
	// The name of the VSphereServer, which is cluster-scoped.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// VSphereClone says how a machine is created in a vCenter. It is immutable.
// Processors and memory are in spec.cpu and spec.memory, the host is in
// spec.nodeName.
//
// +kubebuilder:validation:XValidation:rule="has(self.datastore) || has(self.storagePolicy)",message="spec.runtime.vsphere.clone needs datastore, storagePolicy or both"
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec.runtime.vsphere.clone cannot change once the VirtualMachine exists: create another VirtualMachine instead"
type VSphereClone struct {
	// The template that the machine is cloned from.
	// +required
	Template VSphereCloneSource `json:"template"`

	// The folder to put the machine in, by inventory path, such as
	// /datacenter/vm/team-a. The name of the machine there consists of the namespace,
	// the name and a part of the UID of its VirtualMachine.
	// +required
	Folder InventoryPath `json:"folder"`

	// The resource pool to run the machine in, by inventory path, such as
	// /datacenter/host/cluster/Resources/team-a. The path of a cluster or of a
	// standalone host means its root resource pool.
	// +required
	ResourcePool InventoryPath `json:"resourcePool"`

	// The datastore for all files of the machine, by inventory path, such as
	// /datacenter/datastore/fast. Default: the one with the most free space when the
	// machine is created, among those that satisfy storagePolicy, that the namespace
	// may use and that a suitable host has. Set this, storagePolicy or both.
	// +optional
	Datastore InventoryPath `json:"datastore,omitempty"`

	// The VM storage policy for all files of the machine, by name. The datastore
	// must satisfy it. Default: the default policy of the datastore.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=80
	StoragePolicy string `json:"storagePolicy,omitempty"`

	// The networks of the machine, by inventory path, such as
	// /datacenter/network/team-a: the first network adapter is connected to the
	// first one, and so on. Missing adapters are added to those of the template, and
	// surplus ones are removed.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=10
	Networks []InventoryPath `json:"networks"`

	// The sizes of the machine's disks, in the order of the template. Default, also
	// for disks that are not listed: as in the template.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=60
	Disks []VSphereCloneDisk `json:"disks,omitempty"`

	// The host name of the guest. Default: the name of the VirtualMachine. It needs
	// cloud-init, or similar software, in the guest.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Hostname string `json:"hostname,omitempty"`

	// The data for cloud-init in the guest. Default: only the host name.
	// +optional
	CloudInit *CloudInit `json:"cloudInit,omitempty"`
}

// VSphereCloneSource is the template that a machine is cloned from.
//
// +kubebuilder:validation:XValidation:rule="has(self.inventoryPath) != has(self.templateRef)",message="spec.runtime.vsphere.clone.template needs exactly one of inventoryPath and templateRef"
type VSphereCloneSource struct {
	// A template, by its path in the inventory of vCenter, such as
	// /datacenter/vm/templates/ubuntu-24.04. Set this or templateRef.
	// +optional
	InventoryPath InventoryPath `json:"inventoryPath,omitempty"`

	// A VSphereTemplate in the namespace of the VirtualMachine. The machine is created
	// from the release that the template has at that time. Set this or inventoryPath.
	// +optional
	TemplateRef *VSphereTemplateReference `json:"templateRef,omitempty"`
}

// VSphereTemplateReference names the template of a VSphereTemplate in one of its
// failure domains.
type VSphereTemplateReference struct {
	// The name of the VSphereTemplate.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// The failure domain of the template. Required if the VSphereTemplate has
	// several. Default: the only one.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	FailureDomain string `json:"failureDomain,omitempty"`
}

// Fields of a VirtualMachine and of a VirtualMachinePool that have the name of the VSphereTemplate that machines are created from, for
// selectors.
const (
	FieldMachineTemplate = "spec.runtime.vsphere.clone.template.templateRef.name"
	FieldPoolTemplate    = "spec.virtualMachineTemplate." + FieldMachineTemplate
)

// VSphereTemplateRelease is the release of a VSphereTemplate that a machine was
// created from.
type VSphereTemplateRelease struct {
	// The name of the VSphereTemplate.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// The release.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Release string `json:"release"`

	// The managed object ID of the template in vCenter, such as vm-1024.
	// +required
	// +kubebuilder:validation:MaxLength=128
	MoRef string `json:"moRef"`
}

// VSphereCloneDisk is a disk of a machine that is cloned.
type VSphereCloneDisk struct {
	// The size of the disk, such as 40Gi, rounded up to whole mebibytes. It cannot
	// be smaller than in the template.
	// +required
	Size resource.Quantity `json:"size"`
}

// Keys of the Secret that a CloudInit's secretRef names, as cloud-init calls them.
const (
	// CloudInitUserDataKey holds the user data, such as a #cloud-config.
	CloudInitUserDataKey = "user-data"
	// CloudInitMetaDataKey holds more metadata, as a YAML or JSON object. Without instance-id and local-hostname, those of the
	// VirtualMachine are used.
	CloudInitMetaDataKey = "meta-data"
)

// CloudInit is the data for cloud-init in a guest. It is passed once, when the machine
// is created.
type CloudInit struct {
	// The Secret with the data, in the namespace of the VirtualMachine, under the
	// keys user-data and, for more than the host name, meta-data. A user who creates
	// the VirtualMachine needs the right to read it. In vCenter, the data is visible
	// to every account that may read the configuration of the machine.
	// +required
	SecretRef CloudInitSecretReference `json:"secretRef"`
}

// CloudInitSecretReference names a Secret in the namespace of the VirtualMachine.
type CloudInitSecretReference struct {
	// The name of the Secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// VSphereAllocation is the size of a machine on a vCenter as its quota counts it. It is written before the machine is given more, under one
// lock for all machines, and lowered once the machine has less.
type VSphereAllocation struct {
	// The number of virtual processors. Absent if spec.cpu was.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=768
	CPU *int32 `json:"cpu,omitempty"`

	// The amount of memory. Absent if spec.memory was.
	// +optional
	Memory *resource.Quantity `json:"memory,omitempty"`
}

// Sized returns the size that the spec asks for.
func (s *VirtualMachineSpec) Sized() *VSphereAllocation {
	return (&VSphereAllocation{CPU: s.CPU, Memory: s.Memory}).DeepCopy()
}

// Exceeds reports whether a is more than was allocated in one of the two, or says one that was not. Nothing was allocated if was is nil.
func (a *VSphereAllocation) Exceeds(was *VSphereAllocation) bool {
	if was == nil {
		was = &VSphereAllocation{}
	}
	return a.CPU != nil && (was.CPU == nil || *a.CPU > *was.CPU) ||
		a.Memory != nil && (was.Memory == nil || a.Memory.Cmp(*was.Memory) > 0)
}
