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

	// The machine to adopt by its place in vCenter's inventory, such as
	// /datacenter/vm/folder/name. Set this, instanceUUID or clone.
	// +optional
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^/.+$`
	InventoryPath string `json:"inventoryPath,omitempty"`

	// The machine to adopt by its instance UUID, the one that is unique within a
	// vCenter (not its BIOS UUID). Set this, inventoryPath or clone.
	// +optional
	// +kubebuilder:validation:MaxLength=36
	// +kubebuilder:validation:Pattern=`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`
	InstanceUUID string `json:"instanceUUID,omitempty"`

	// How to make the machine: the template that it is cloned from, and where it
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

// VSphereClone is how a machine is made in a vCenter. What it says is fixed once
// the VirtualMachine exists. The processors and the memory are in spec.cpu and
// spec.memory, the host is spec.nodeName.
//
// +kubebuilder:validation:XValidation:rule="has(self.datastore) || has(self.storagePolicy)",message="spec.runtime.vsphere.clone needs datastore, storagePolicy or both"
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec.runtime.vsphere.clone cannot change once the VirtualMachine exists: create another VirtualMachine instead"
type VSphereClone struct {
	// What the machine is a copy of.
	// +required
	Template VSphereCloneSource `json:"template"`

	// The folder to put the machine in, by inventory path, such as
	// /datacenter/vm/team-a. The machine is called after its VirtualMachine there:
	// namespace, name and a part of its UID.
	// +required
	Folder InventoryPath `json:"folder"`

	// The resource pool to run the machine in, by inventory path, such as
	// /datacenter/host/cluster/Resources/team-a. The path of a cluster or of a
	// host that stands alone means the pool at its root.
	// +required
	ResourcePool InventoryPath `json:"resourcePool"`

	// The datastore for all files of the machine, by inventory path, such as
	// /datacenter/datastore/fast. Default: when the machine is made, the one with
	// most free space of those that satisfy storagePolicy, that the namespace may
	// use and that a host for the machine has. Set this, storagePolicy or both.
	// +optional
	Datastore InventoryPath `json:"datastore,omitempty"`

	// The VM storage policy for all files of the machine, by name. The datastore
	// has to satisfy it. Default: the one that is the datastore's default.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=80
	StoragePolicy string `json:"storagePolicy,omitempty"`

	// The networks of the machine, by inventory path, such as
	// /datacenter/network/team-a: the first network adapter is connected to the
	// first one, and so on. Adapters that the template lacks are added, further
	// ones that it has are left out.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=10
	Networks []InventoryPath `json:"networks"`

	// The sizes of the machine's disks, in the order in which the template has
	// them. Default: as large as in the template, which also holds for those that
	// are not listed.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=60
	Disks []VSphereCloneDisk `json:"disks,omitempty"`

	// What the guest calls itself. Default: the name of the VirtualMachine. It
	// takes cloud-init, or something like it, in the guest.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Hostname string `json:"hostname,omitempty"`

	// What cloud-init in the guest is given. Default nothing but the host name.
	// +optional
	CloudInit *CloudInit `json:"cloudInit,omitempty"`
}

// VSphereCloneSource is what a machine is a copy of.
//
// +kubebuilder:validation:XValidation:rule="has(self.inventoryPath) != has(self.templateRef)",message="spec.runtime.vsphere.clone.template needs exactly one of inventoryPath and templateRef"
type VSphereCloneSource struct {
	// A template by its place in vCenter's inventory, such as
	// /datacenter/vm/templates/ubuntu-24.04. Set this or templateRef.
	// +optional
	InventoryPath InventoryPath `json:"inventoryPath,omitempty"`

	// A VSphereTemplate in the namespace of the VirtualMachine. The machine is made
	// from the release that the template has when the machine is made. Set this or
	// inventoryPath.
	// +optional
	TemplateRef *VSphereTemplateReference `json:"templateRef,omitempty"`
}

// VSphereTemplateReference names the template that a VSphereTemplate keeps in one of
// its failure domains.
type VSphereTemplateReference struct {
	// The name of the VSphereTemplate.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// The failure domain whose template is meant. Default: the only one that the
	// VSphereTemplate has. Of several, one must be named.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	FailureDomain string `json:"failureDomain,omitempty"`
}

// Fields of a VirtualMachine and of a VirtualMachinePool that have the name of the VSphereTemplate that machines are made from, for selectors.
const (
	FieldMachineTemplate = "spec.runtime.vsphere.clone.template.templateRef.name"
	FieldPoolTemplate    = "spec.virtualMachineTemplate." + FieldMachineTemplate
)

// VSphereTemplateRelease is what of a VSphereTemplate a machine was made from.
type VSphereTemplateRelease struct {
	// The name of the VSphereTemplate.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// The release.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Release string `json:"release"`

	// What vCenter called the template, such as vm-1024.
	// +required
	// +kubebuilder:validation:MaxLength=128
	MoRef string `json:"moRef"`
}

// VSphereCloneDisk is a disk of a machine that is cloned.
type VSphereCloneDisk struct {
	// How large the disk is, such as 40Gi, rounded up to whole mebibytes. It
	// cannot be smaller than the template's.
	// +required
	Size resource.Quantity `json:"size"`
}

// Keys of the Secret that a CloudInit's secretRef names, as cloud-init calls them.
const (
	// CloudInitUserDataKey holds the user data, such as a #cloud-config.
	CloudInitUserDataKey = "user-data"
	// CloudInitMetaDataKey holds more metadata, as a YAML or JSON object. Where it has no instance-id and no local-hostname
	// these are the VirtualMachine's.
	CloudInitMetaDataKey = "meta-data"
)

// CloudInit is what cloud-init in a guest is given, once, when the machine is made.
type CloudInit struct {
	// The Secret with the data, in the namespace of the VirtualMachine, under the
	// keys user-data and, if there is more than the host name, meta-data. Whoever
	// creates the VirtualMachine must be allowed to read it. The data is readable
	// in vCenter for whoever may see the machine's configuration there.
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
